import numpy as np
import pytest
from scipy.special import gamma, kv

from gradients import assert_gradient
from rmes import kernels
from rmes.kernels import (
    MATERN52,
    SQUARED_EXPONENTIAL,
    MainEffects,
    correlate,
    squared_distances,
)


def test_correlations_match_their_definitions(rng):
    s = rng.exponential(2.0, 200)
    np.testing.assert_allclose(SQUARED_EXPONENTIAL.value(s), np.exp(-s / 2), rtol=1e-14)
    # Matérn by its Bessel form (Rasmussen & Williams 2006, eq. 4.14), nu = 5/2
    a = np.sqrt(5 * s)
    bessel = 2**-1.5 / gamma(2.5) * a**2.5 * kv(2.5, a)
    np.testing.assert_allclose(MATERN52.value(s), bessel, rtol=1e-12)


def test_slopes_are_derivatives(kernel, rng):
    s = rng.exponential(2.0, 200) + 0.01
    step = 1e-5
    value, slope = kernel.value_and_slope(s)
    np.testing.assert_array_equal(value, kernel.value_and_slope(s.copy())[0])
    np.testing.assert_allclose(value, kernel.value(s), rtol=1e-14)
    numeric = (kernel.value(s + step) - kernel.value(s - step)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=1e-8, atol=1e-10)


def test_at_distance_zero_all_is_finite(kernel):
    value, slope = kernel.value_and_slope(np.zeros(3))
    np.testing.assert_array_equal(value, 1.0)
    assert np.all(np.isfinite(slope))
    assert np.all(slope < 0)


def test_arguments_are_left_alone(kernel, rng):
    s = rng.random(5)
    before = s.copy()
    kernel.value(s)
    kernel.value_and_slope(s)
    np.testing.assert_array_equal(s, before)


def test_distances_match_the_plain_sum(rng):
    a, b = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 5, 3))
    plain = np.sum((a[:, :, None] - b[:, None]) ** 2, axis=-1)
    np.testing.assert_allclose(squared_distances(a, b), plain, atol=1e-14)


@pytest.mark.parametrize("share", [None, 0.0, 0.4, 1.0])
def test_a_weighted_correlation_has_the_gradient_that_is_pulled(kernel, rng, share):
    points, weights, scale = rng.random((9, 3)), rng.normal(size=(5, 9)), np.array([0.4, 0.7, 0.7])
    main = None
    if share is not None:
        main = MainEffects(np.array([[share]]), scale[None] ** -2, ((0,), (1, 2)))

    def weighted(x):
        alike = correlate(kernel, squared_distances(x / scale, points / scale), x, points, main)
        value = np.sum(weights * alike.value, axis=1)
        return value, 2.0 * alike.pull(weights.copy(), x, points) / scale**2

    assert_gradient(weighted, rng.random((5, 3)))


def blended(main, kernel, together, x, points):
    together = together.copy()
    main.blend(kernel, together, x, points)
    return together


def test_without_a_share_there_are_no_main_effects_and_one_coordinate_has_nothing_else(kernel, rng):
    x, points = rng.random((4, 1)), rng.random((6, 1))
    plain = kernel.value(squared_distances(x / 0.3, points / 0.3))
    for share in (0.0, 0.5, 1.0):
        main = MainEffects(np.array([[share]]), np.array([[0.3**-2]]), ((0,),))
        np.testing.assert_allclose(blended(main, kernel, plain, x, points), plain, rtol=1e-9)
    x, points = rng.random((4, 2)), rng.random((6, 2))
    plain = kernel.value(squared_distances(x / 0.3, points / 0.3))
    none = MainEffects(np.array([[0.0]]), np.full((1, 2), 0.3**-2), ((0,), (1,)))
    np.testing.assert_array_equal(blended(none, kernel, plain, x, points), plain)


def test_frequencies_have_the_kernel_as_characteristic_function(kernel, rng):
    # Bochner: E cos(w.x) = κ(|x|²). 100,000 draws have a standard error of 0.0032 at most.
    w = kernel.frequencies(rng.random((100_000, 5)))
    for x in np.array([[0.3, 0.0], [1.0, -0.5], [2.0, 2.0]]):
        assert abs(np.mean(np.cos(w @ x)) - kernel.value(np.array(x @ x))) < 4 * 0.0032


def test_kernels_are_named():
    assert {k.name for k in (kernels.MATERN52, kernels.SQUARED_EXPONENTIAL)} == {
        "matern52",
        "squared-exponential",
    }
