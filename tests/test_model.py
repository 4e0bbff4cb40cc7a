from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gradients import assert_gradient
from rmes.kernels import MATERN52
from rmes.measurements import merge
from rmes.model import Model, log_prior, prior


@pytest.mark.parametrize("count", [5, 6])
def test_prior_gradient(problem, rng, count):
    data, model = merge(*problem), Model()
    assert_gradient(lambda t: log_prior(model, data, t), rng.normal(size=(4, count)))


def test_length_scales_are_alike_and_many_share_the_freedom_of_four():
    for d, median, own in ((1, 0.4, 0.36), (4, 0.8, 0.36), (9, 0.8, 0.16), (16, 0.8, 0.09)):
        mean, precision = prior(Model(), d, True)
        np.testing.assert_allclose(np.exp(mean), [median] * d + [1.0, 0.03])
        expected = np.diag([own] * d + [1.0, 4.0])
        expected[:d, :d] += 0.64
        np.testing.assert_allclose(np.linalg.inv(precision), expected, atol=1e-12)
        assert prior(Model(), d, False)[1].shape == (d + 1, d + 1)


def test_the_log_prior_is_that_normal_density(problem, rng):
    data, theta = merge(*problem), rng.normal(size=(6, 5))
    mean, precision = prior(Model(), 3, True)
    density = stats.multivariate_normal(mean, np.linalg.inv(precision))
    expected = density.logpdf(theta) - density.logpdf(mean)
    np.testing.assert_allclose(log_prior(Model(), data, theta)[0], expected)
    grainy = replace(data, grainy=True)
    both = np.column_stack([theta, theta[:, -1:] + 0.7])  # grain has the prior of noise
    extra = 0.5 * ((both[:, -1] - np.log(0.03)) / 2.0) ** 2
    np.testing.assert_allclose(log_prior(Model(), grainy, both)[0], expected - extra)
    value, gradient = log_prior(Model.paper(MATERN52), data, theta)
    assert not value.any()
    assert not gradient.any()
