from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gradients import STEP, central
from rmes.evidence import log_evidence, log_evidence_and_gradient
from rmes.kernels import MATERN52, squared_distances
from rmes.measurements import merge
from rmes.model import Model
from scikit_learn import THETA, process


def test_evidence_and_its_gradient_match_scikit_learn(problem, kernel):
    x, y = problem
    other = process(kernel, THETA).fit(x, y)
    # scikit-learn orders: constant, length-scales, white noise
    order = [3, 0, 1, 2, 4]
    expected, slope = other.log_marginal_likelihood(THETA[order], eval_gradient=True)
    model, data = Model(kernel, 0.0), merge(x, y)
    value, gradient = log_evidence_and_gradient(model, data, THETA[None])
    assert value[0] == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(gradient[0, order], slope, rtol=1e-8)


@pytest.mark.parametrize("noise", ["inferred", "known", "mixed", "floored"])
@pytest.mark.parametrize("groups", [(), (0, 1, 1)])
@pytest.mark.parametrize("main", [False, True])
@pytest.mark.parametrize("grain", [False, True])
def test_evidence_gradient(problem, rng, kernel, noise, groups, main, grain):
    x, y = problem
    given = {
        "inferred": None,
        "known": np.full(30, 0.02),
        "mixed": np.where(rng.random(30) < 0.5, np.nan, 0.05),
        "floored": np.where(rng.random(30) < 0.5, 0.0, 0.05),
    }[noise]
    data, model = merge(x, y, given), Model(kernel, groups=groups)
    d = 2 if groups else 3
    theta = np.concatenate([THETA[:d], THETA[3:]])[: d + 1 + data.infers_noise]
    if grain:
        data, theta = replace(data, grainy=True), np.append(theta, -2.5)
    theta = np.append(theta, 0.6) if main else theta
    both = np.stack([theta, theta + 0.1])
    value, gradient = log_evidence_and_gradient(model, data, both)
    # K has a condition number of up to 1e10 where the noise is at its floor: rounding of the value
    # asks for a longer step than eps^(1/3) there.
    np.testing.assert_allclose(value, log_evidence(model, data, both), rtol=1e-8)
    step = 1e-4 if noise == "floored" else STEP
    for slope, setting in zip(gradient, both, strict=True):
        numeric = central(lambda t: log_evidence(model, data, t[None])[0], setting, step)
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


def test_grain_is_what_all_measurements_of_a_point_share(problem):
    """Against the density of the 30 values one by one, none of them merged."""
    x, y = problem
    theta = np.append(THETA, -1.5)
    scale, (signal, noise, grain) = np.exp(theta[:3]), np.exp(theta[3:])
    same = np.all(x[:, None] == x, axis=2)
    smooth = signal * MATERN52.value(squared_distances(x / scale, x / scale))
    covariance = smooth + 1.0 + grain * same + noise * np.eye(30)
    expected = multivariate_normal(np.zeros(30), covariance).logpdf(y)
    data = replace(merge(x, y), grainy=True)
    assert log_evidence(Model(), data, theta[None])[0] == pytest.approx(expected, rel=1e-9)
