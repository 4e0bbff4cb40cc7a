"""Predictive entropy search: its parts, its limits, and its value against brute force."""

from dataclasses import fields, replace
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import differential_entropy, norm, spearmanr

from rmes import pes
from rmes.gp import Posterior, posterior
from rmes.kernels import MATERN52, SQUARED_EXPONENTIAL, squared_distances
from rmes.measurements import merge
from rmes.model import Model

KERNELS = [SQUARED_EXPONENTIAL, MATERN52]
STEP = float(np.cbrt(np.finfo(float).eps))


def random_posterior(
    rng, n, d, noise, length_scales, kernel=MATERN52, mean_variance=1.0, settings=1
):
    """Return a posterior on data drawn from its own prior; further settings are perturbed."""
    x = rng.random((n, d))
    z = x / length_scales
    covariance = kernel.value(squared_distances(z, z)) + mean_variance
    values, vectors = np.linalg.eigh(covariance)
    f = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(n))
    data = merge(x, f + np.sqrt(noise) * rng.standard_normal(n), noise)
    theta = np.tile(np.log([*np.broadcast_to(length_scales, d), 1.0]), (settings, 1))
    theta[1:] += 0.3 * rng.standard_normal((settings - 1, d + 1))
    return posterior(Model(kernel, mean_variance), data, theta)


def random_maximizers(rng, given: Posterior, count):
    """Anywhere in the cube, some on faces, edges and data points."""
    maximizers = rng.random((given.settings, count, given.x.shape[1]))
    maximizers[rng.random(maximizers.shape) < 0.15] = 0.0
    maximizers[rng.random(maximizers.shape) < 0.15] = 1.0
    maximizers[:, rng.random(count) < 0.2] = given.x[rng.integers(len(given.x))]
    return maximizers


def one_setting(given: Posterior, s):
    """The posterior of setting s alone."""
    shared = ("model", "x", "main")
    own = {f.name: getattr(given, f.name)[[s]] for f in fields(given) if f.name not in shared}
    return replace(given, **own)


def central_differences(function, x, step=STEP):
    shifts = step * np.eye(x.shape[-1])
    slopes = [(function(x + shift) - function(x - shift)) / (2.0 * step) for shift in shifts]
    return np.stack(slopes, axis=-1)


# --- covariances of derivatives ------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_each_slope_of_a_kernel_is_the_derivative_of_the_one_before(kernel):
    s = np.array([0.01, 0.1, 0.7, 3.0, 20.0])
    step = STEP * s
    slopes = kernel.slopes(s)
    np.testing.assert_allclose(slopes[0], kernel.value(s), rtol=1e-15)
    for order in range(3):
        ahead, behind = kernel.slopes(s + step)[order], kernel.slopes(s - step)[order]
        np.testing.assert_allclose(slopes[order + 1], (ahead - behind) / (2 * step), rtol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_slopes_are_finite_where_points_coincide(kernel):
    assert all(np.isfinite(slope) for slope in kernel.slopes(np.zeros(())))


def covariances(kernel, z):
    """Covariances (m, F) of f(x) with the functionals at x*, z = (x - x*) / ℓ (m, d)."""
    return pes._covariances(kernel, np.ones(1), z[None, None])[0][0, 0]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_covariances_with_gradient_and_hessian_are_derivatives_of_the_kernel(kernel):
    d = 3
    z = np.random.default_rng(0).normal(size=(20, d))
    result = covariances(kernel, z)
    # x* enters as z = x - x*, hence the sign of odd orders
    first = -central_differences(lambda z: kernel.value(np.sum(z * z, axis=-1)), z)
    np.testing.assert_allclose(result[:, 0], kernel.value(np.sum(z * z, axis=-1)), rtol=1e-14)
    np.testing.assert_allclose(result[:, 1 : d + 1], first, atol=1e-9)
    second = -central_differences(lambda z: covariances(kernel, z)[:, 1 : d + 1], z)
    i, j = np.triu_indices(d)
    np.testing.assert_allclose(result[:, d + 1 :], second[:, i, j], atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_covariances_at_one_point_are_the_limits_of_those_at_two(kernel):
    # f, gradient and Hessian by differences of the covariances with f(x) around x = x*. The
    # fourth derivative of Matérn-5/2 has a kink there: differences converge like the step.
    d, step = 3, 1e-4
    eye, zero = step * np.eye(d), np.zeros((1, d))
    rows = [covariances(kernel, zero)[0]]
    for a in eye:
        rows.append((covariances(kernel, a[None]) - covariances(kernel, -a[None]))[0] / (2 * step))
    for i, j in zip(*np.triu_indices(d), strict=True):
        a, b = eye[i] / 2, eye[j] / 2
        corners = covariances(kernel, np.array([a + b, a - b, b - a, -a - b]))
        rows.append(np.array([1.0, -1.0, -1.0, 1.0]) @ corners / step**2)
    block = pes._covariances_at_a_point(kernel, d)
    np.testing.assert_allclose(block, np.array(rows), atol=200 * step)
    assert np.linalg.eigvalsh(block).min() > 0.0


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_gradient_of_the_covariances(kernel, d):
    rng = np.random.default_rng(d)
    z = np.concatenate([rng.normal(size=(20, d)), np.zeros((1, d)), 1e-4 * rng.normal(size=(3, d))])
    weights = rng.normal(size=(len(z), 1 + d + d * (d + 1) // 2))
    _, slopes = pes._covariances(kernel, np.ones(1), z[None, None])
    gradient = pes._covariance_gradient(slopes, z[None, None], weights[None, None])[0, 0]
    numeric = central_differences(lambda z: np.sum(weights * covariances(kernel, z), axis=1), z)
    # The third derivative of Matérn-5/2 has a kink at 0, felt within a step of it.
    np.testing.assert_allclose(gradient, numeric, atol=1e-8 if kernel.name != "matern52" else 2e-4)
    np.testing.assert_allclose(gradient[:20], numeric[:20], atol=1e-8)


# --- truncation and expectation propagation ------------------------------------------------------


def test_truncation_keeps_its_digits_in_the_lower_tail():
    t = np.array([1e2, 1e3, 1e5, 1e8])
    hazard, share, rest, slope = pes._truncation(-t)
    np.testing.assert_allclose(hazard, t + 1 / t, rtol=1e-7)
    np.testing.assert_allclose(rest, 1 / t**2 - 6 / t**4 + 50 / t**6, rtol=1e-9)
    # the slope is -2 / t³ up to the rounding of 1 / t
    assert np.all(np.abs(slope + 2.0 / t**3 - 24.0 / t**5) < 400.0 / t**7 + 1e-15 / t)
    assert np.all(share <= 1.0)


def test_truncation_is_continuous_and_its_slope_is_its_derivative():
    at_switch = -10.0 + np.array([-1e-13, 1e-13])
    for part in pes._truncation(at_switch):
        np.testing.assert_allclose(part[0], part[1], rtol=1e-9)
    alpha = np.linspace(-30.0, 12.0, 400)
    _, share, rest, slope = pes._truncation(alpha)
    numeric = (pes._truncation(alpha + STEP)[1] - pes._truncation(alpha - STEP)[1]) / (2 * STEP)
    np.testing.assert_allclose(slope, numeric, atol=1e-8)
    np.testing.assert_allclose(share + rest, 1.0, rtol=1e-15)
    body = alpha[alpha > -10.0]
    np.testing.assert_allclose(
        pes._truncation(body)[0], np.exp(norm.logpdf(body) - norm.logcdf(body)), rtol=1e-10
    )


def gaussian(covariance, mean, precision, shift):
    """Moments of a normal times Gaussian sites."""
    natural = np.linalg.inv(covariance) + np.diag(precision)
    result = np.linalg.inv(natural)
    return result @ (np.linalg.solve(covariance, mean) + shift), result


def test_expectation_propagation_is_exact_for_independent_conditions():
    mean = np.array([-3.0, 0.0, 2.0])
    sites = pes._expectation_propagation(np.eye(3), mean, np.full(3, 1e-12))
    m, v = gaussian(np.eye(3), mean, *sites)
    hazard = np.exp(norm.logpdf(mean) - norm.logcdf(mean))
    np.testing.assert_allclose(m, mean + hazard, rtol=1e-6)
    np.testing.assert_allclose(np.diag(v), 1.0 - hazard * (hazard + mean), rtol=1e-6)


def test_expectation_propagation_matches_rejection():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    covariance = root @ root.T
    covariance /= np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    mean = np.array([-0.5, 0.3, 0.1])
    m, v = gaussian(
        covariance, mean, *pes._expectation_propagation(covariance, mean, np.full(3, 1e-9))
    )
    draws = rng.multivariate_normal(mean, covariance, size=400_000)
    draws = draws[np.all(draws > 0.0, axis=1)]
    np.testing.assert_allclose(m, draws.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(np.diag(v), draws.var(axis=0), rtol=0.06)


def test_contradictory_and_certain_conditions_give_finite_sites():
    # u and -u both positive, 1e6 deviations against it or for it
    covariance = np.array([[1.0, -1.0], [-1.0, 1.0]])
    for size in (0.0, 1.0, 1e6):
        mean = np.array([-size, size])
        for m in (mean, -np.abs(mean), np.abs(mean)):
            precision, shift = pes._expectation_propagation(covariance, m[None], np.full(2, 1e-9))
            assert np.all(precision >= 0.0)
            assert np.all(precision <= 1e9 * (1.0 + 1e-12))
            assert np.all(np.isfinite(shift))


def test_damping_leaves_the_fixed_point_where_it_is(monkeypatch):
    covariance = np.array([[[1.0, 0.8, -0.3], [0.8, 1.0, -0.6], [-0.3, -0.6, 1.0]]])
    mean, softening = np.array([[-2.0, 0.5, -1.0]]), np.full((1, 3), 1e-9)
    undamped = pes._expectation_propagation(covariance, mean, softening)
    monkeypatch.setattr(pes, "_UNDAMPED", 0)
    damped = pes._expectation_propagation(covariance, mean, softening)
    np.testing.assert_allclose(damped, undamped, rtol=1e-6)


def test_factors_take_the_least_jitter_they_need():
    good, singular = np.diag([1.0, 4.0]), np.array([[1.0, 1.0], [1.0, 1.0 - 1e-9]])
    inverse = pes._inverse_factor(np.stack([good, singular]))
    np.testing.assert_allclose(inverse[0], np.diag([1.0, 0.5]), rtol=1e-15)
    assert np.all(np.isfinite(inverse[1]))
    with pytest.raises(np.linalg.LinAlgError, match="jitter"):
        pes._inverse_factor(np.array([[1.0, 3.0], [3.0, 1.0]]))


# --- the conditions ------------------------------------------------------------------------------


def mean_given_conditions(given, conditions):
    """x (m, d) -> mean (P, m) of f(x) given C1 and C2, for the first setting."""

    def mean(x):
        z = (x - conditions.maximizers[:, :, None, :]) / given.length_scales[:, None, None, :]
        c = pes._covariances(given.model.kernel, given.signal_variance, z)[0]
        c[..., 0] += given.model.mean_variance
        k = given.covariance_with_data(x)
        count, columns = c.shape[1], conditions.weights.shape[-1]
        t = c @ conditions.weights
        t += (k @ conditions.data_weights).reshape(1, len(x), count, columns).swapaxes(1, 2)
        return t[0, ..., -2]

    return mean


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_given_the_conditions_the_process_has_a_maximum_at_each_maximiser(kernel):
    rng = np.random.default_rng(1)
    given = random_posterior(rng, 12, 3, 1e-2, 0.5, kernel)
    maximizers = rng.random((1, 4, 3))
    maximizers[0, 1, 0], maximizers[0, 2, 1], maximizers[0, 3] = 1.0, 0.0, (0.0, 0.4, 1.0)
    conditions = pes._prepare(given, maximizers)
    mean = mean_given_conditions(given, conditions)
    best = given.x[np.argmax(given.predict(given.x)[0])][None]
    for p, place in enumerate(maximizers[0]):

        def slope(x, p=p):
            return central_differences(lambda x: mean(x)[p], x, 1e-4)

        def hessian(x, slope=slope):
            return central_differences(slope, x, 1e-3)[0]

        gradient, curvature = slope(place[None])[0], hessian(place[None])
        interior = (place > 0.0) & (place < 1.0)
        np.testing.assert_allclose(gradient[interior], 0.0, atol=1e-5)
        assert np.all(gradient[place == 1.0] > 0.0)
        assert np.all(gradient[place == 0.0] < 0.0)
        inner = curvature[np.ix_(interior, interior)]
        assert np.all(np.diag(inner) < 0.0)
        np.testing.assert_allclose(inner - np.diag(np.diag(inner)), 0.0, atol=0.05)
        np.testing.assert_allclose(mean(place[None])[p, 0], conditions.mean[0, p], rtol=1e-9)
        assert conditions.mean[0, p] > mean(best)[p, 0]


def test_a_face_frees_the_coordinate_across_it():
    maximizers = np.array([[[0.5, 1.0, 0.3]]])
    equalities, inequalities = pes._conditions(maximizers, np.ones((1, 11)))
    # gradient 0, 1, 2 and Hessian 01, 02, 12: those with coordinate 1 are no conditions
    assert np.any(equalities[0, 0], axis=1).tolist() == [True, False, True, False, True, False]
    assert inequalities[0, 0, 2].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert inequalities[0, 0, 1].tolist() == [0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0]


# --- value and gradient --------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize(("n", "d", "settings"), [(1, 1, 1), (10, 2, 3), (40, 3, 2), (100, 2, 1)])
def test_gradient_agrees_with_central_differences(kernel, n, d, settings):
    rng = np.random.default_rng(n)
    given = random_posterior(rng, n, d, 1e-2, 0.4, kernel, settings=settings)
    maximizers = random_maximizers(rng, given, 5)
    search = pes.predictive_entropy_search(given, maximizers, np.full(settings, 1e-2))
    x = np.concatenate([rng.random((30, d)), given.x[:1]])
    numeric = central_differences(lambda x: search(x)[0], x)
    scale = np.max(np.abs(numeric))
    np.testing.assert_allclose(search(x)[1], numeric, rtol=1e-5, atol=1e-6 * scale)


def test_near_a_maximiser_the_gradient_still_agrees():
    # Steps of eps^(1/3) ≈ 6e-6 see rounding of var(f(x) - f*), at most 1e-15 / softening of C3.
    rng = np.random.default_rng(5)
    given = random_posterior(rng, 20, 2, 1e-2, 0.3)
    maximizers = rng.random((1, 1, 2))
    search = pes.predictive_entropy_search(given, maximizers, np.array([1e-2]))
    offsets = np.array([0.0, 1e-5, 1e-3, 1e-2, 3e-2])[:, None] * np.array([0.8, -0.6])
    x = maximizers[0] + offsets
    numeric = central_differences(lambda x: search(x)[0], x)
    np.testing.assert_allclose(search(x)[1], numeric, atol=1e-4 * np.max(np.abs(numeric)))


@pytest.mark.parametrize("block", range(10))
def test_a_thousand_random_posteriors_give_finite_values_and_gradients(block):
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng(seed)
        n, d, noise = int(rng.integers(1, 61)), int(rng.integers(1, 5)), 10.0 ** rng.uniform(-4, 0)
        if seed % 10 == 0:  # where a well-known PES has NaN gradients
            n, d, noise = 100, 2, 10.0 ** rng.uniform(-9, -3)
        scales = np.exp(rng.uniform(np.log(0.05), np.log(3.0), d))
        given = random_posterior(rng, n, d, noise, scales, KERNELS[seed % 2], float(seed % 3 == 0))
        maximizers = random_maximizers(rng, given, int(rng.integers(1, 6)))
        with np.errstate(all="raise", under="ignore"):
            search = pes.predictive_entropy_search(given, maximizers, np.array([noise]))
            at = maximizers[0]
            near, close = (at + size * rng.standard_normal(at.shape) for size in (1e-7, 1e-3))
            x = np.concatenate([rng.random((10, d)), at, near, close, given.x[:5]])
            value, gradient = search(x)
        assert np.all(np.isfinite(value)), seed
        assert np.all(value >= 0.0), seed
        assert np.all(np.isfinite(gradient)), seed


def test_absurd_scales_give_finite_values_and_gradients():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 100)), int(rng.integers(1, 8))
        noise = 10.0 ** rng.uniform(-12, 6)
        x, y = rng.random((n, d)), rng.standard_normal(n) * 10.0 ** rng.uniform(-8, 8)
        scales = np.exp(rng.uniform(np.log(5e-3), np.log(2e2), d))
        theta = np.log([*scales, 10.0 ** rng.uniform(-4, 4)])[None]
        try:
            given = posterior(Model(KERNELS[seed % 2]), merge(x, y, noise), theta)
        except np.linalg.LinAlgError:
            continue
        maximizers = random_maximizers(rng, given, 4)
        with np.errstate(all="raise", under="ignore"):
            search = pes.predictive_entropy_search(given, maximizers, np.array([noise]))
            value, gradient = search(np.concatenate([rng.random((10, d)), maximizers[0], x[:5]]))
        assert np.all(np.isfinite(value)), seed
        assert np.all(value >= 0.0), seed
        assert np.all(np.isfinite(gradient)), seed


@pytest.fixture
def example():
    rng = np.random.default_rng(3)
    given = random_posterior(rng, 15, 2, 1e-2, 0.4, settings=2)
    return SimpleNamespace(
        given=given, maximizers=random_maximizers(rng, given, 4), x=rng.random((25, 2))
    )


def test_conditioning_never_raises_the_variance(example):
    # A theorem: cutting a normal to a convex set lowers all variances, {f(x*) >= f} is convex, and
    # each stand-in for it lowers them too (see the module). So the value is not negative for any
    # maximiser, however unlikely, and exceeds ½ log(1 + v / τ²) for none.
    for noise in (1e-6, 1e-2, 1.0):
        _, variance = example.given.predict(example.x)
        bound = np.mean(0.5 * np.log1p(variance / noise), axis=0)
        for p in range(4):
            single = example.maximizers[:, p : p + 1]
            value, _ = pes.predictive_entropy_search(example.given, single, noise)(example.x)
            assert np.all(value >= 0.0)
            assert np.all(value <= bound * (1.0 + 1e-9))


def test_large_noise_leaves_no_information(example):
    values = [
        pes.predictive_entropy_search(example.given, example.maximizers, noise)(example.x)[0]
        for noise in (1e2, 1e4, 1e6)
    ]
    assert np.all(values[0] < 1e-2)
    np.testing.assert_allclose(values[1], 1e2 * values[2], rtol=1e-3)  # falls like 1 / τ²


def test_a_point_that_is_known_exactly_carries_no_information():
    rng = np.random.default_rng(0)
    given = random_posterior(rng, 10, 2, 1e-8, 0.4)
    search = pes.predictive_entropy_search(given, rng.random((1, 5, 2)), np.array([1e-2]))
    assert np.all(search(given.x)[0] < 1e-5)
    assert np.max(search(rng.random((50, 2)))[0]) > 0.05


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_far_from_everything_only_c3_is_left(kernel):
    # f(x) ~ N(0, 1) and f* ~ N(m, v) are independent there, and f(x) <= f*.
    given = posterior(
        Model(kernel, 0.0), merge([[0.1], [0.15]], [0.4, 0.6], 1e-2), np.log([[0.02, 1.0]])
    )
    maximizers, noise = np.array([[[0.13]]]), 0.1
    star = pes._prepare(given, maximizers)
    gap = 1.0 + star.variance[0, 0] + star.softening[0, 0]
    alpha = star.mean[0, 0] / np.sqrt(gap)
    hazard = np.exp(norm.logpdf(alpha) - norm.logcdf(alpha))
    expected = -0.5 * np.log1p(-hazard * (hazard + alpha) / gap / (1.0 + noise))
    value, gradient = pes.predictive_entropy_search(given, maximizers, noise)(np.array([[0.95]]))
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)


def test_settings_and_maximisers_are_averaged(example):
    noise = np.array([1e-2, 3e-2])
    value, gradient = pes.predictive_entropy_search(example.given, example.maximizers, noise)(
        example.x
    )
    singles = [
        pes.predictive_entropy_search(
            one_setting(example.given, s), example.maximizers[s : s + 1, p : p + 1], noise[s]
        )(example.x)
        for s in range(2)
        for p in range(4)
    ]
    np.testing.assert_allclose(value, np.mean([one[0] for one in singles], axis=0), rtol=1e-6)
    np.testing.assert_allclose(
        gradient, np.mean([one[1] for one in singles], axis=0), rtol=1e-5, atol=1e-6
    )


def test_rows_of_a_batch_do_not_interact(example):
    search = pes.predictive_entropy_search(example.given, example.maximizers, 1e-2)
    value, gradient = search(example.x)
    for row in (0, 7):
        alone, slope = search(example.x[row : row + 1])
        np.testing.assert_allclose(alone[0], value[row], rtol=1e-9)
        np.testing.assert_allclose(slope[0], gradient[row], rtol=1e-8)


def test_a_mirrored_cube_and_other_units_change_nothing(example):
    rng = np.random.default_rng(8)
    x, y = rng.random((9, 2)), rng.standard_normal(9)
    theta = np.log([[0.3, 0.5, 1.0]])

    def value(x, y, maximizers, at, unit=1.0):
        given = posterior(
            Model(MATERN52, unit**2),
            merge(x, unit * y, 1e-2 * unit**2),
            theta + np.array([0.0, 0.0, 2.0 * np.log(unit)]),
        )
        return pes.predictive_entropy_search(given, maximizers, 1e-2 * unit**2)(at)[0]

    expected = value(x, y, example.maximizers[:1], example.x)
    mirrored = [
        np.stack([1.0 - a[..., 0], a[..., 1]], axis=-1)
        for a in (x, example.maximizers[:1], example.x)
    ]
    np.testing.assert_allclose(value(mirrored[0], y, *mirrored[1:]), expected, rtol=1e-6)
    np.testing.assert_allclose(
        value(x, y, example.maximizers[:1], example.x, 1e3), expected, rtol=1e-6
    )


def test_bad_input_says_what_was_given(example):
    given, maximizers = example.given, example.maximizers
    with pytest.raises(ValueError, match=r"not \(4, 2\)"):
        pes.predictive_entropy_search(given, maximizers[0], 1e-2)
    with pytest.raises(ValueError, match="unit cube"):
        pes.predictive_entropy_search(given, maximizers + 1.0, 1e-2)
    with pytest.raises(ValueError, match="unit cube"):
        pes.predictive_entropy_search(given, maximizers * np.nan, 1e-2)
    with pytest.raises(ValueError, match=r"P > 0"):
        pes.predictive_entropy_search(given, maximizers[:, :0], 1e-2)
    with pytest.raises(ValueError, match="noise_variance"):
        pes.predictive_entropy_search(given, maximizers, -1.0)
    with pytest.raises(ValueError, match="noise_variance"):
        pes.predictive_entropy_search(given, maximizers, np.ones(3))


# --- against brute force -------------------------------------------------------------------------


SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)


@lru_cache
def entropy_of_standard_normal(size):
    """What the estimator of entropies makes of `size` draws: the truth plus its bias."""
    draws = np.random.default_rng(0).standard_normal((size, 40))
    return np.mean(differential_entropy(draws, axis=0))


def brute_force(given, noise, grid, points, draws, rng):
    """H[y | D] - H[y | D, x*] at grid[points] for each cell x* where enough draws have their top.

    Joint draws of f on the grid, sorted by where their largest value falls; the entropy of y is
    estimated among those of one cell. Returns cells, draws in each, and the information.
    """
    mean, covariance = given.joint(grid)
    values, vectors = np.linalg.eigh(covariance[0])
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T.astype(np.float32)
    found: dict[int, list] = {}
    for _ in range(draws // 10_000):
        f = rng.standard_normal((10_000, len(grid)), dtype=np.float32) @ root
        f += mean[0].astype(np.float32)
        top = np.argmax(f, axis=1)
        order = np.argsort(top, kind="stable")
        cells, first = np.unique(top[order], return_index=True)
        for cell, rows in zip(cells, np.split(order, first[1:]), strict=True):
            found.setdefault(int(cell), []).append(f[rows][:, points])
    _, variance = given.predict(grid[points])
    cells, counts, information = [], [], []
    for cell, parts in found.items():
        count = sum(map(len, parts))
        if count < SIZES[0]:
            continue
        size = max(size for size in SIZES if size <= count)
        y = np.concatenate(parts)[:size].astype(float)
        y += np.sqrt(noise) * rng.standard_normal(y.shape)
        before = entropy_of_standard_normal(size) + 0.5 * np.log(variance[0] + noise)
        cells.append(cell)
        counts.append(count)
        information.append(before - differential_entropy(y, axis=0))
    return np.array(cells), np.array(counts), np.array(information)


# The first five and four posteriors of a family. Others of it were tried: with 300,000 draws two of
# the next fifteen in 1-D miss 0.9 (0.84 and 0.89) for want of draws (1.4 million: 0.94 and 0.98),
# one has a maximiser known for certain and nothing to rank; the next six in 2-D reach 0.966.
@pytest.mark.parametrize(
    ("d", "seed"), [(1, seed) for seed in range(5)] + [(2, seed) for seed in range(4)]
)
def test_ranks_points_as_brute_force_does(d, seed):
    rng = np.random.default_rng(1000 * d + seed)
    n = int(rng.integers(2, 9) if d == 1 else rng.integers(4, 14))
    noise = 10.0 ** rng.uniform(-2.5, -0.5)
    scale = rng.uniform(0.15, 0.35) if d == 1 else rng.uniform(0.25, 0.5)
    given = random_posterior(rng, n, d, noise, scale, KERNELS[seed % 2])
    axis = np.linspace(0.0, 1.0, 100 if d == 1 else 16)
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    points = np.arange(0, 100, 2) if d == 1 else rng.choice(len(grid), 80, replace=False)
    draws = 300_000 if d == 1 else 150_000
    cells, counts, information = brute_force(given, noise, grid, points, draws, rng)

    picks = rng.choice(len(cells), 30, p=counts / counts.sum())
    truth = np.mean(information[picks], axis=0)
    search = pes.predictive_entropy_search(given, grid[cells[picks]][None], np.array([noise]))
    value, _ = search(grid[points])
    # An entropy from N draws has a standard error of √(1 / (2 N)), so points with less
    # information than three of the average are ties to brute force.
    picked, times = np.unique(picks, return_counts=True)
    error = np.sqrt(np.sum((times / 30) ** 2 / (2.0 * np.minimum(counts[picked], SIZES[-1]))))
    correlation = spearmanr(np.maximum(value, 3.0 * error), np.maximum(truth, 3.0 * error))
    assert correlation.statistic >= 0.9
