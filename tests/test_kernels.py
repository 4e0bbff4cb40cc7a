import numpy as np
from scipy.special import gamma, kv

from rmes import kernels
from rmes.kernels import MATERN52, SQUARED_EXPONENTIAL, squared_distances


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
