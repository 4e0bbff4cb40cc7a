from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gradients import assert_gradient
from rmes import gp
from rmes.evidence import log_evidence
from rmes.kernels import squared_distances
from rmes.measurements import merge
from rmes.model import Model
from scikit_learn import THETA, process


@pytest.mark.parametrize("mean_variance", [0.0, 1.0])
def test_posterior_matches_scikit_learn(problem, rng, kernel, mean_variance):
    x, y = problem
    other = process(kernel, THETA, mean_variance).fit(x, y)
    points = rng.random((10, 3))
    mean, deviation = other.predict(points, return_std=True)
    model = Model(kernel, mean_variance)
    ours = gp.posterior(model, merge(x, y), THETA[None]).predict(points)
    np.testing.assert_allclose(ours[0][0], mean, rtol=1e-8)
    np.testing.assert_allclose(ours[1][0], deviation**2 - np.exp(THETA[4]), rtol=1e-8)


@pytest.mark.parametrize("groups", [(), (0, 1, 1)])
def test_main_effects_are_a_process_of_each_coordinate_alone(problem, rng, kernel, groups):
    """Against the covariance written out, and solved without any factor."""
    x, y = problem
    points, noise = rng.random((7, 3)), 0.05
    scales, signal, share = np.exp([-0.5, 0.3, 0.1]), np.exp(0.2), 1 / (1 + np.exp(-0.8))
    columns = [[0], [1], [2]]
    if groups:
        scales[2], columns = scales[1], [[0], [1, 2]]

    def covariance(a, b):
        square = ((a[:, None] - b) / scales) ** 2
        single = np.mean([kernel.value(square[..., c].sum(axis=2)) for c in columns], axis=0)
        together = kernel.value(square.sum(axis=2))
        return signal * ((1 - share) * together + share * single) + 1.0

    theta = np.array([*np.log(scales[: len(columns)]), 0.2, 0.8])[None]
    data = merge(x, y, np.full(30, noise))
    posterior = gp.posterior(Model(kernel, groups=groups), data, theta)
    full = covariance(x, x) + noise * np.eye(30)
    cross = covariance(points, x)
    mean, variance = posterior.predict(points)
    np.testing.assert_allclose(mean[0], cross @ np.linalg.solve(full, y), rtol=1e-9)
    expected = covariance(points, points) - cross @ np.linalg.solve(full, cross.T)
    np.testing.assert_allclose(variance[0], np.diag(expected), rtol=1e-9)
    np.testing.assert_allclose(posterior.joint(points)[1][0], expected, rtol=1e-8, atol=1e-12)
    screened = posterior.screen(points)
    np.testing.assert_allclose(screened.mean, mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(screened.variance, variance, rtol=1e-2, atol=1e-3)
    likelihood = stats.multivariate_normal(np.zeros(30), full).logpdf(y)
    assert log_evidence(posterior.model, data, theta)[0] == pytest.approx(likelihood, rel=1e-9)


def test_moments_have_the_gradients_of_the_prediction(posterior, rng):
    points = rng.random((6, 3))
    moments = posterior.moments(points)
    mean, variance = posterior.predict(points)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-10)
    for s in range(posterior.settings):
        assert_gradient(
            lambda x, s=s: (posterior.predict(x)[0][s], moments.mean_gradient[s]), points
        )
        assert_gradient(
            lambda x, s=s: (posterior.predict(x)[1][s], moments.variance_gradient[s]), points
        )


def test_joint_covariance_has_the_variances_on_its_diagonal(posterior, rng):
    points = rng.random((6, 3))
    mean, covariance = posterior.joint(points)
    np.testing.assert_allclose(mean, posterior.predict(points)[0], rtol=1e-12)
    diagonal = np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(diagonal, posterior.predict(points)[1], rtol=1e-9)
    assert np.all(np.linalg.eigvalsh(covariance) > -1e-10)


@pytest.mark.parametrize("main", [False, True])
def test_conditioning_equals_rebuilding(problem, rng, kernel, main):
    x, y = problem
    theta = np.stack([THETA, THETA + 0.2])
    if main:
        theta = np.column_stack([theta, [0.5, 2.0]])
    model = Model(kernel)
    extra, values = rng.random((4, 3)), rng.normal(size=4)
    noise = np.exp(theta[:, 4])[:, None] * np.ones(4)
    conditioned = gp.posterior(model, merge(x, y), theta).condition(extra, values, noise)
    rebuilt = gp.posterior(model, merge(np.vstack([x, extra]), np.append(y, values)), theta)
    points = rng.random((8, 3))
    for a, b in zip(conditioned.moments(points), rebuilt.moments(points), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(conditioned.inverse_factor, rebuilt.inverse_factor, atol=1e-9)


def test_conditioning_leaves_the_original_alone(posterior, rng):
    before = posterior.alpha.copy()
    posterior.condition(rng.random((2, 3)), np.zeros(2), np.full(2, 0.1))
    np.testing.assert_array_equal(posterior.alpha, before)
    with pytest.raises(AttributeError):
        posterior.alpha = before


def test_an_exact_process_passes_through_its_data(rng, kernel):
    x, y = rng.random((12, 2)), rng.normal(size=12)
    posterior = gp.posterior(Model(kernel), merge(x, y, 0.0), np.log([[0.2, 0.2, 1.0]]))
    mean, variance = posterior.predict(x)
    np.testing.assert_allclose(mean[0], y, atol=1e-4)
    assert np.all(variance < 1e-6)


def test_order_of_the_data_does_not_matter(problem, rng):
    x, y = problem
    shuffled = rng.permutation(30)
    points = rng.random((5, 3))
    one = gp.posterior(Model(), merge(x, y), THETA[None]).predict(points)
    two = gp.posterior(Model(), merge(x[shuffled], y[shuffled]), THETA[None]).predict(points)
    np.testing.assert_allclose(one, two, rtol=1e-10)


def test_a_wide_prior_on_the_mean_is_an_unknown_mean(problem, rng):
    """b² → ∞ joins generalised least squares (Rasmussen & Williams 2006, eq. 2.42)."""
    x, y = problem
    points = rng.random((5, 3))
    wide = gp.posterior(Model(mean_variance=1e5), merge(x, y), THETA[None]).predict(points)
    zero = gp.posterior(Model(mean_variance=0.0), merge(x, y), THETA[None])
    ones = gp.posterior(Model(mean_variance=0.0), merge(x, np.ones(30)), THETA[None])
    data = merge(x, y)
    information = np.sum(ones.alpha)
    level = np.sum(ones.alpha * data.y) / information
    rest = 1 - ones.predict(points)[0][0]
    np.testing.assert_allclose(wide[0][0], zero.predict(points)[0][0] + rest * level, atol=1e-4)
    expected = zero.predict(points)[1][0] + rest**2 / information
    np.testing.assert_allclose(wide[1][0], expected, atol=1e-4)


def test_moments_at_the_data_need_no_prediction(posterior):
    mean, variance = posterior.predict(posterior.x)
    np.testing.assert_allclose(posterior.mean_at_data(), mean, rtol=1e-9, atol=1e-12)
    rows = np.array([3, 0, 11])
    np.testing.assert_allclose(posterior.variance_at_data(rows), variance[:, rows], rtol=1e-7)


def test_values_behind_the_noise_are_process_and_grain(problem, grainy, kernel):
    """Against all 28 points' values and their measurements as one normal distribution."""
    x, y = problem
    mean, variance = grainy.values_at_data()
    same = np.all(x[:, None] == grainy.x, axis=2).astype(float)  # measurements, points
    for s, length in enumerate(grainy.length_scales):
        z = grainy.x / length
        points = grainy.signal_variance[s] * kernel.value(squared_distances(z, z)) + 1.0
        points += grainy.grain[s] * np.eye(len(z))
        cross = same @ points
        measured = cross @ same.T + grainy.noise_variance[s] * np.eye(len(x))
        gain = np.linalg.solve(measured, cross).T
        np.testing.assert_allclose(mean[s], gain @ y, rtol=1e-8)
        expected = np.diag(points - gain @ cross)
        np.testing.assert_allclose(variance[s], expected, rtol=1e-7)


def test_without_grain_values_are_those_of_the_process(posterior):
    mean, variance = posterior.values_at_data()
    np.testing.assert_array_equal(mean, posterior.mean_at_data())
    np.testing.assert_array_equal(variance, posterior.variance_at_data(np.arange(28)))


def test_conditioning_keeps_the_grain(problem, rng):
    x, y = problem
    theta = np.append(THETA, -2.0)[None]
    extra, values = rng.random((4, 3)), rng.normal(size=4)
    before = gp.posterior(Model(), replace(merge(x, y), grainy=True), theta)
    noise = before.noise_variance + before.grain
    after = before.condition(extra, values, np.full(4, noise))
    together = merge(np.vstack([x, extra]), np.append(y, values))
    rebuilt = gp.posterior(Model(), replace(together, grainy=True), theta)
    for a, b in zip(after.values_at_data(), rebuilt.values_at_data(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)
