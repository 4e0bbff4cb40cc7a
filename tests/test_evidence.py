import numpy as np
import pytest

from gradients import STEP, central
from rmes.evidence import log_evidence, log_evidence_and_gradient
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
def test_evidence_gradient(problem, rng, kernel, noise, groups, main):
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
