import numpy as np
import pytest
from scipy.stats import ks_2samp

from gradients import assert_gradient
from rmes import gp, maxima, paths
from rmes.domain import Domain
from rmes.kernels import MATERN52, SQUARED_EXPONENTIAL
from rmes.measurements import merge
from rmes.model import Model
from rmes.multistart import space_filling


def test_a_path_has_the_gradient_of_its_values(posterior, rng):
    drawn = paths.draw(posterior, 3, 64, rng)
    rows = np.sort(rng.integers(0, 6, 10))
    x = rng.random((10, 3))
    value, _ = drawn.along(x, rows)
    every = drawn.values(x).reshape(6, 10)
    np.testing.assert_allclose(value, every[rows, np.arange(10)], rtol=1e-10, atol=1e-10)
    assert_gradient(lambda points: drawn.along(points, rows), x)


def test_screening_agrees_to_single_precision(posterior, rng):
    drawn = paths.draw(posterior, 3, 64, rng)
    x = rng.random((20, 3))
    screened = drawn.screen(x, posterior.correlation_with_data(x))
    np.testing.assert_allclose(screened, drawn.values(x), atol=1e-4)


def test_paths_have_the_moments_of_the_posterior(posterior, rng):
    """Many draws, each batch with its own frequencies, against the exact mean and covariance."""
    x = rng.random((5, 3))
    mean, covariance = posterior.joint(x)
    values = np.concatenate(
        [paths.draw(posterior, 50, 256, rng).values(x) for _ in range(80)], axis=1
    )  # (S, draws, m)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    # 3 (features^-½ + draws^-½), with the draws in 80 batches that share frequencies
    tolerance = 3 * (256**-0.5 / 80**0.5 + 4000**-0.5)
    for s in range(posterior.settings):
        error = np.abs(values[s].mean(axis=0) - mean[s]) / scale[s]
        assert error.max() < tolerance
        sample = np.cov(values[s].T)
        gap = np.abs(sample - covariance[s]) / np.outer(scale[s], scale[s])
        assert gap.max() < 2 * tolerance


def test_exact_data_are_hit_by_every_path(rng, kernel):
    x, y = rng.random((6, 2)), rng.normal(size=6)
    posterior = gp.posterior(Model(kernel), merge(x, y, 0.0), np.log([[0.3, 0.3, 1.0]]))
    values = paths.draw(posterior, 4, 64, rng).values(x)[0]
    np.testing.assert_allclose(values, np.tile(y, (4, 1)), atol=1e-3)


def one_dimensional(kernel, noise, rng):
    x = rng.random((8, 1))
    y = np.sin(6 * x[:, 0]) + noise * rng.standard_normal(8)
    theta = np.log([[0.15, 1.0]])
    return gp.posterior(Model(kernel, 0.0), merge(x, y, noise**2), theta)


@pytest.mark.parametrize("noise", [0.05, 0.5])
@pytest.mark.parametrize("kernel", [MATERN52, SQUARED_EXPONENTIAL], ids=lambda k: k.name)
def test_maxima_match_joint_draws_on_a_dense_grid(kernel, noise, rng):
    """In one dimension, against brute force, by a Kolmogorov–Smirnov test at 1,000 draws each."""
    posterior = one_dimensional(kernel, noise, rng)
    grid = np.linspace(0, 1, 801)[:, None]
    mean, covariance = posterior.joint(grid)
    root = np.linalg.cholesky(covariance[0] + 1e-10 * np.eye(801))
    brute = (mean[0] + rng.standard_normal((1000, 801)) @ root.T).max(axis=1)
    candidates = space_filling(256, 1, rng)
    ours = np.concatenate(
        [
            maxima.from_paths(posterior, 50, candidates, Domain(1), rng).value.ravel()
            for _ in range(20)
        ]
    )
    assert ks_2samp(ours, brute).pvalue > 0.01


def test_maxima_have_little_bias_in_two_dimensions(rng):
    """Mean of the drawn maxima against joint draws on a grid of 50 × 50, within 0.05 sd."""
    x = rng.random((12, 2))
    y = np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1]) + 0.1 * rng.standard_normal(12)
    theta = np.log([[0.3, 0.3, 1.0]])
    posterior = gp.posterior(Model(mean_variance=0.0), merge(x, y, 0.01), theta)
    axis = np.linspace(0, 1, 50)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mean, covariance = posterior.joint(grid)
    root = np.linalg.cholesky(covariance[0] + 1e-9 * np.eye(2500))
    brute = (mean[0] + rng.standard_normal((8000, 2500)) @ root.T).max(axis=1)
    candidates = np.vstack([space_filling(256, 2, rng), x])
    ours = np.concatenate(
        [
            maxima.from_paths(posterior, 50, candidates, Domain(2), rng).value.ravel()
            for _ in range(160)
        ]
    )
    # 8,000 draws on either side leave a standard error of 0.016 sd.
    assert abs(ours.mean() - brute.mean()) < 0.05 * brute.std()


def test_maxima_are_where_they_say(posterior, rng):
    candidates = space_filling(128, 3, rng)
    drawn = maxima.from_paths(posterior, 4, candidates, Domain(3), rng)
    rows = np.arange(8)
    there, _ = drawn.paths.along(drawn.place.reshape(8, 3), rows)
    np.testing.assert_allclose(there, drawn.value.ravel(), rtol=1e-10)
    best = drawn.paths.values(candidates).max(axis=2)
    assert np.all(drawn.value >= best - 1e-3)


def test_gumbel_maxima_are_near_those_of_independent_points(posterior, rng):
    points = rng.random((60, 3))
    mean, variance = posterior.predict(points)
    draws = mean[:, None] + np.sqrt(variance)[:, None] * rng.standard_normal((2, 4000, 60))
    truth = draws.max(axis=2)
    ours = maxima.from_gumbel(posterior, 4000, points, rng)
    assert ours.shape == (2, 4000)
    np.testing.assert_allclose(np.median(ours, axis=1), np.median(truth, axis=1), atol=0.05)
    spread = np.diff(np.quantile(truth, [0.25, 0.75], axis=1), axis=0)[0]
    ours_spread = np.diff(np.quantile(ours, [0.25, 0.75], axis=1), axis=0)[0]
    np.testing.assert_allclose(ours_spread, spread, rtol=0.1)
