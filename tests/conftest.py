import signal
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from rmes import gp, kernels
from rmes.measurements import merge
from rmes.model import Model


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Matrices in tests are small: more BLAS threads than one make them slower, peers included."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Ctrl-C interrupts also where the suite runs in the background, whose shell ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)


@pytest.fixture(params=[kernels.MATERN52, kernels.SQUARED_EXPONENTIAL], ids=lambda k: k.name)
def kernel(request):
    return request.param


@pytest.fixture
def problem(rng):
    """A function of three coordinates, measured 30 times with noise, three times at one point."""
    x = rng.random((30, 3))
    x[5] = x[6] = x[4]
    y = np.sin(5 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(30)
    return x, y


SETTINGS = np.array([[-0.5, 0.3, 0.1, 0.2, -3.0], [-1.0, -0.2, 0.5, -0.3, -2.0]])


@pytest.fixture(params=[False, True], ids=["plain", "main-effects"])
def posterior(problem, kernel, request):
    """Two settings of the hyperparameters, given the problem's data."""
    theta = np.column_stack([SETTINGS, [-0.7, 1.5]]) if request.param else SETTINGS
    return gp.posterior(Model(kernel), merge(*problem), theta)


@pytest.fixture
def grainy(problem, kernel):
    """The same, where each point differs from a smooth function for itself."""
    theta = np.column_stack([SETTINGS, [-2.5, -1.0]])
    return gp.posterior(Model(kernel), replace(merge(*problem), grainy=True), theta)
