"""What a measurement at x is worth: a formula on moments, composed with a posterior.

A formula sees means and variances, never x: it returns a `Gain` with two partial derivatives. The
compositions here make of it a function of x with a gradient, averaged over the settings of the
posterior, which is what a search climbs.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from rmes.gp import Posterior
from rmes.information import Gain
from rmes.multistart import ValueAndGradient

Array = NDArray[np.float64]

Formula = Callable[[Array, Array], Gain]
"""Mean and variance (S m,), settings slowest -> the gain at each."""

_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))
_ROOT_HALF_PI = float(np.sqrt(0.5 * np.pi))
_ROOT_HALF = float(np.sqrt(0.5))


def average(formula: Formula, posterior: Posterior) -> ValueAndGradient:
    """The formula's mean over the settings, as a function of x."""

    def function(x: Array) -> tuple[Array, Array]:
        value, gradient = _apply(formula, posterior, x)
        settings = len(value)
        return np.add.reduce(value) / settings, np.add.reduce(gradient) / settings

    return function


def log_average(log_formula: Formula, posterior: Posterior) -> ValueAndGradient:
    """The logarithm of the mean over the settings of exp(log_formula), as a function of x."""

    def function(x: Array) -> tuple[Array, Array]:
        value, gradient = _apply(log_formula, posterior, x)
        top = value.max(axis=0)
        top = np.where(np.isfinite(top), top, 0.0)
        weight = np.exp(value - top)
        total = weight.sum(axis=0)
        with np.errstate(divide="ignore"):
            mean = top + np.log(total / len(value))
        weight /= np.where(total > 0.0, total, 1.0)
        return mean, np.einsum("sm,smd->md", weight, gradient)

    return function


def _apply(formula: Formula, posterior: Posterior, x: Array) -> tuple[Array, Array]:
    """Value (S, m) and gradient (S, m, d) for each setting."""
    moments = posterior.moments(x)
    shape = moments.mean.shape
    gain = formula(moments.mean.ravel(), moments.variance.ravel())
    gradient = gain.by_mean.reshape(shape)[..., None] * moments.mean_gradient
    gradient += gain.by_variance.reshape(shape)[..., None] * moments.variance_gradient
    return gain.value.reshape(shape), gradient


def expected_improvement(mean: Array, variance: Array, best: Array | float) -> Gain:
    """E[max(f - best, 0)] = σ h(z), z = (μ - best) / σ, h(z) = φ(z) + z Φ(z) (Jones 1998)."""
    deviation = np.sqrt(variance)
    z = (mean - best) / deviation
    density = np.exp(-0.5 * z * z) / _ROOT_TWO_PI
    # Below z = -5 the two terms of h cancel.
    h = np.where(z > -5.0, density + z * ndtr(z), below_best(z))
    return Gain(deviation * h, ndtr(z), 0.5 * density / deviation)


def below_best(z: Array) -> Array:
    """h(z) = φ(z) + z Φ(z) for z ≤ 0, as φ(z) (1 - |z| m(z)) with the Mills ratio m: all digits."""
    return np.asarray(np.exp(-0.5 * z * z) * (_mills_remainder(z) / _ROOT_TWO_PI))


def log_expected_improvement(mean: Array, variance: Array, best: Array | float) -> Gain:
    """Log of `expected_improvement`, exact where that underflows (Ament et al. 2023)."""
    deviation = np.sqrt(variance)
    z = (mean - best) / deviation
    low = z < -1.0
    safe = np.where(low, 0.0, z)
    density = np.exp(-0.5 * safe * safe) / _ROOT_TWO_PI
    h = density + safe * ndtr(safe)
    remainder = _mills_remainder(np.where(low, z, -1.0))
    log_h = np.where(low, -0.5 * z * z - np.log(_ROOT_TWO_PI) + np.log(remainder), np.log(h))
    # Φ/h and φ/h: in the tail both are divided by φ first
    tail_cdf = _ROOT_HALF_PI * erfcx(-np.where(low, z, -1.0) * _ROOT_HALF)
    cdf_ratio = np.where(low, tail_cdf / remainder, ndtr(safe) / h)
    density_ratio = np.where(low, 1.0 / remainder, density / h)
    return Gain(np.log(deviation) + log_h, cdf_ratio / deviation, 0.5 * density_ratio / variance)


def _mills_remainder(z: Array) -> Array:
    """1 + z Φ(z)/φ(z) for z < 0, which tends to 1/z².

    Below z = -40 the difference has lost six digits; there the asymptotic series has all of them.
    """
    near = np.minimum(np.where(z > -40.0, z, -40.0), 0.0)
    direct = 1.0 + near * _ROOT_HALF_PI * erfcx(-near * _ROOT_HALF)
    u = 1.0 / np.square(np.minimum(z, -40.0))
    series = u * (1.0 - u * (3.0 - u * (15.0 - 105.0 * u)))
    return np.where(z > -40.0, direct, series)


def upper_confidence_bound(mean: Array, variance: Array, beta: float) -> Gain:
    """μ + √β σ (Srinivas et al. 2010)."""
    root = np.sqrt(beta * variance)
    return Gain(mean + root, np.ones_like(mean), 0.5 * root / variance)


def confidence_schedule(measurements: int, dimensions: int) -> float:
    """The β of `upper_confidence_bound` after that many measurements.

    2 log(t² π² d / (6 δ)) with δ = 0.1, divided by 5, as Srinivas et al. (2010, section 6) do.
    """
    t = measurements + 1
    return float(0.4 * np.log(t * t * np.pi**2 * dimensions / 0.6))
