import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rmes import gp
from rmes.evidence import log_evidence
from rmes.measurements import merge
from rmes.model import Model


def direct(model, theta, x, y, noise):
    """Log likelihood of unmerged measurements, straight from the definition."""
    z = x / np.exp(theta[: x.shape[1]])
    s = np.sum((z[:, None] - z) ** 2, axis=2)
    k = np.exp(theta[x.shape[1]]) * model.kernel.value(s) + model.mean_variance
    return multivariate_normal.logpdf(y, np.zeros(len(y)), k + np.diag(noise))


@pytest.mark.parametrize("noise", ["inferred", "known", "mixed"])
def test_merging_repeats_leaves_the_likelihood_unchanged(problem, rng, kernel, noise):
    x, y = problem
    x[10:14] = x[9]
    given = {
        "inferred": np.full(30, np.nan),
        "known": rng.uniform(0.01, 0.1, 30),
        "mixed": np.where(rng.random(30) < 0.5, np.nan, rng.uniform(0.01, 0.1, 30)),
    }[noise]
    data = merge(x, y, given)
    assert data.size < 30
    model = Model(kernel)
    theta = np.array([-0.5, 0.3, 0.1, 0.2, -3.0])[: 4 + data.infers_noise]
    full = np.where(np.isnan(given), np.exp(-3.0), given)
    expected = direct(model, theta, x, y, full)
    assert log_evidence(model, data, theta[None])[0] == pytest.approx(expected, rel=1e-11)


def test_merging_repeats_leaves_the_posterior_unchanged(problem, rng):
    x, y = problem
    model, theta = Model(), np.array([[-0.5, 0.3, 0.1, 0.2, -3.0]])
    merged = gp.posterior(model, merge(x, y), theta)
    apart = gp.posterior(model, merge(x + 1e-12 * np.arange(30)[:, None], y), theta)
    points = rng.random((6, 3))
    for a, b in zip(merged.predict(points), apart.predict(points), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)


def test_rows_keep_the_order_of_arrival():
    data = merge([[0.9], [0.1], [0.9], [0.5]], [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(data.x[:, 0], [0.9, 0.1, 0.5])
    np.testing.assert_array_equal(data.y, [2.0, 2.0, 4.0])
    np.testing.assert_array_equal(data.share, [0.5, 1.0, 1.0])
    assert (data.repeats, data.scatter) == (1, 2.0)


def test_an_exact_value_outweighs_noisy_ones_of_its_point():
    data = merge([[0.5], [0.5]], [1.0, 3.0], [0.0, 0.1])
    np.testing.assert_array_equal(data.y, [1.0])
    np.testing.assert_array_equal(data.known, [0.0])
    assert np.isfinite(data.constant)


@pytest.mark.parametrize(
    ("x", "y", "noise", "said"),
    [
        ([0.1, 0.2], [1.0, 2.0], None, r"\(n, d\).*\(2,\)"),
        ([[0.1], [0.2]], [1.0], None, r"\(2, 1\) and \(1,\)"),
        (np.empty((0, 2)), [], None, "empty"),
        ([[np.nan]], [1.0], None, "finite"),
        ([[0.1]], [np.inf], None, "finite"),
        ([[1.5]], [1.0], None, "unit cube"),
        ([[0.5]], [1.0], -0.1, "not negative"),
        ([[0.5]], [1.0], np.inf, "finite"),
    ],
)
def test_bad_measurements_are_refused_with_what_was_given(x, y, noise, said):
    with pytest.raises(ValueError, match=said):
        merge(x, y, noise)


def test_the_noise_of_a_single_measurement_is_kept_when_repeats_are_merged():
    data = merge([[0.5]] * 4 + [[0.1]], np.ones(5), 0.04)
    np.testing.assert_allclose(data.known, [0.01, 0.04])
    assert data.level == pytest.approx(0.04)
