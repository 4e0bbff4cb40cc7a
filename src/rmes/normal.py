"""Functions of the standard normal distribution that keep their digits in both tails."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr

Array = NDArray[np.float64]

LOG_ROOT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_ROOT_2 = float(np.sqrt(2.0))
_ROOT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))
_ROOT_HALF_PI = float(np.sqrt(0.5 * np.pi))

# Coefficients of slack(z) in 1/|z|, 1/|z|^3, ... At |z| = 50 the series is exact to 1e-13 and the
# difference of two nearly equal numbers, which it replaces, to 5e-13.
_SLACK_SERIES = (1.0, -2.0, 10.0, -74.0, 706.0)
_SLACK_SERIES_BELOW = -50.0


def cdf(z: ArrayLike) -> Array:
    """Φ(z), with relative precision down to z = −37."""
    return np.asarray(ndtr(z))


def log_cdf(z: ArrayLike) -> Array:
    """Return log Φ(z), finite wherever z is."""
    return np.asarray(log_ndtr(z))


def log_pdf(z: ArrayLike) -> Array:
    """Return log φ(z)."""
    z = np.asarray(z, dtype=np.float64)
    return np.asarray(-0.5 * z * z - LOG_ROOT_2PI)


def log_scaled_cdf(z: ArrayLike) -> Array:
    """Return log Φ(z) + z²/2 for z ≤ 0: what is left of log Φ once its parabola is taken away."""
    return np.asarray(np.log(0.5 * erfcx(-np.asarray(z) / _ROOT_2)))


def hazard(z: ArrayLike) -> Array:
    """λ(z) = φ(z)/Φ(z): the slope of log Φ, about −z far below zero."""
    z = np.asarray(z, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(_ROOT_2_OVER_PI / erfcx(z / -_ROOT_2))


def mills(z: ArrayLike) -> Array:
    """Φ(−z)/φ(z), Mills' ratio: about 1/z far above zero, beyond double precision for z < −37."""
    return np.asarray(_ROOT_HALF_PI * erfcx(np.asarray(z, dtype=np.float64) / _ROOT_2))


def slack(z: ArrayLike) -> Array:
    """Return z + λ(z): how far below its bound a normal variable truncated at z lies on average."""
    z = np.asarray(z, dtype=np.float64)
    near = z + hazard(z)
    if z.min(initial=0.0) > _SLACK_SERIES_BELOW:
        return near
    inverse = 1.0 / np.minimum(z, _SLACK_SERIES_BELOW)
    far = -inverse * np.polynomial.polynomial.polyval(inverse * inverse, _SLACK_SERIES)
    return np.where(z < _SLACK_SERIES_BELOW, far, near)


def log_mass(low: ArrayLike, high: ArrayLike) -> Array:
    """Return the log of Φ(high) − Φ(low) for low ≤ high, without cancellation in either tail."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    mirrored = low > 0.0
    larger = log_ndtr(np.where(mirrored, -low, high))
    smaller = log_ndtr(np.where(mirrored, -high, low))
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(larger + np.log(-np.expm1(smaller - larger)))
