"""What is assumed before any measurement: hyperparameters, their prior, what they make of data.

Log hyperparameters θ (m, p) of m settings hold, in this order:

    ℓ, v   length-scales and signal variance
    τ²     noise variance, if some of it is to be inferred
    ρ      variance of grain, if rows have any: what a point deviates from a smooth function, the
           same for all measurements of it, while their noise is new each time
    a      odds of main effects, if there are any: what they have of v against the rest

and the covariance of n rows of data is K = v κ(X, X) + b² + ρ I + diag(noise), (m, n, n). A
constant mean with prior N(0, b²) is integrated out exactly by adding b² to the kernel; b = 0 is the
zero mean of the paper.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rmes.kernels import MATERN52, Kernel, MainEffects, squared_distances
from rmes.measurements import Data

Array = NDArray[np.float64]

# The least noise variance in units of the signal variance. Below it the factor of K is rounding
# error: the smallest eigenvalues of a smooth kernel on n = 1000 points are about n ε ≈ 2e-13.
NOISE_FLOOR = 1e-9


class LogNormal(NamedTuple):
    """A log-normal prior: median and standard deviation of the logarithm (inf: flat)."""

    median: float
    spread: float


@dataclass(frozen=True, slots=True)
class Model:
    """What is assumed before any measurement.

    The defaults suit standardised y on the unit cube. `paper` gives the paper's protocol.

    Attributes
    ----------
    kernel : Kernel
    mean_variance : float
        Prior variance b² of the constant mean; 0 is a zero mean.
    length_scale, signal_variance, noise_variance : LogNormal
        Priors. The median of the length-scales grows with √d, as distances do, up to d = 4. They
        are not independent: see `prior`.
    main_effects : LogNormal or None
        Prior of the odds a / (1 - a) of main effects, the part of the function that is a sum of
        functions of one parameter each. The fit decides whether there is any; None: there is not.
    grain : LogNormal or None
        Prior of the variance of grain, ripples that are too short for the data to resolve. The fit
        decides likewise, where repeats tell them from noise.
    groups : tuple of int
        The length-scale that each column of x uses, numbered from 0; () gives each its own. The
        columns of a category share one.
    """

    kernel: Kernel = MATERN52
    mean_variance: float = 1.0
    length_scale: LogNormal = LogNormal(0.4, 1.0)
    signal_variance: LogNormal = LogNormal(1.0, 1.0)
    noise_variance: LogNormal = LogNormal(0.03, 2.0)
    main_effects: LogNormal | None = LogNormal(1.0, 1.5)
    grain: LogNormal | None = LogNormal(0.03, 2.0)
    groups: tuple[int, ...] = ()

    def scales(self, columns: int) -> NDArray[np.intp]:
        """Which length-scale each of the columns of x uses."""
        return np.array(self.groups) if self.groups else np.arange(columns)

    @staticmethod
    def paper(kernel: Kernel) -> "Model":
        """Zero mean and flat priors: fitting is maximum likelihood within the bounds."""
        flat = LogNormal(1.0, np.inf)
        return Model(kernel, 0.0, flat, flat, flat, main_effects=None, grain=None)


@cache
def _alone(model: Model, columns: int) -> tuple[tuple[int, ...], ...]:
    """The columns of x that have a main effect together: those of one length-scale."""
    scales = model.scales(columns)
    return tuple(tuple(np.flatnonzero(scales == g).tolist()) for g in range(scales.max() + 1))


# The box of log hyperparameters: length-scales, signal variance, variances of noise and grain, odds
# of main effects. Beyond it the model is white noise or a constant, or has only main effects or
# none, and a factor more changes nothing that can be measured.
_BOUNDS = np.log([[5e-3, 2e2], [1e-4, 1e4], [1e-8, 1e2], [3e-3, 3e2]])


def bounds(model: Model, data: Data, main: bool = False) -> tuple[Array, Array]:
    """Bounds (p,), (p,) of the log hyperparameters.

    In this order: length-scales, signal variance, noise variance if it is inferred, variance of
    grain and odds of main effects if there are any.
    """
    kinds = [0] * length_scales(model, data) + [1] + [2] * _variances(data) + [3] * main
    return _BOUNDS[kinds, 0], _BOUNDS[kinds, 1]


def length_scales(model: Model, data: Data) -> int:
    """Number of length-scales."""
    return max(model.groups) + 1 if model.groups else data.x.shape[1]


def _variances(data: Data) -> int:
    """How many of those of noise and grain are hyperparameters."""
    return int(data.infers_noise) + int(data.grainy)


def _has_main(model: Model, data: Data, theta: Array) -> bool:
    """Whether the last of the log hyperparameters (m, p) is the odds of main effects."""
    return bool(theta.shape[1] > length_scales(model, data) + 1 + _variances(data))


class Levels(NamedTuple):
    """All but the length-scales of m settings: variances (m,), and main effects."""

    signal: Array
    noise: Array
    grain: Array
    main: MainEffects | None


def levels_of(model: Model, data: Data, theta: Array) -> Levels:
    """What log hyperparameters (m, p) stand for."""
    d = length_scales(model, data)
    noise = np.exp(theta[:, d + 1]) if data.infers_noise else np.zeros(len(theta))
    grain = np.exp(theta[:, d + _variances(data)]) if data.grainy else np.zeros(len(theta))
    main = None
    if _has_main(model, data, theta):
        columns = data.x.shape[1]
        precision = np.exp(-2.0 * theta[:, None, model.scales(columns)])
        main = MainEffects(expit(theta[:, -1])[:, None, None], precision, _alone(model, columns))
    return Levels(np.exp(theta[:, d]), noise, grain, main)


# Length-scales of one function are alike: so much of the prior variance of their logarithms is
# common to all of them. What is left is each one's own, and few data cannot tell more than _FREE of
# them apart. After 40 measurements independent ones left 1.14 times the regret (1,062 pairs of runs
# on 65 functions, ± 0.05): 1.3 times in 10 coordinates (± 0.09), 0.85 times where most coordinates
# do nothing (± 0.14).
_ALIKE = 0.64
_FREE = 4


@cache
def prior(
    model: Model, scales: int, infers_noise: bool, grainy: bool = False, main: bool = False
) -> tuple[Array, Array]:
    """Mean (p,) and precision (p, p) of the normal prior of the log hyperparameters.

    `scales` is the number of length-scales. With a the share that is common to them and b = (1 - a)
    min(1, 4 / d) each one's own, their covariance is proportional to b I + a 11', whose inverse is
    (I - a 11' / (b + a d)) / b.
    """
    priors = [model.length_scale] * scales + [model.signal_variance]
    priors += [model.noise_variance] * infers_noise
    if grainy and model.grain is not None:
        priors.append(model.grain)
    if main and model.main_effects is not None:
        priors.append(model.main_effects)
    mean = np.log([each.median for each in priors])
    mean[:scales] += 0.5 * np.log(min(scales, _FREE))
    precision = np.diag(np.array([each.spread for each in priors]) ** -2.0)
    own = (1.0 - _ALIKE) * min(1.0, _FREE / scales)
    alike = np.eye(scales) - _ALIKE / (own + _ALIKE * scales)
    precision[:scales, :scales] = model.length_scale.spread**-2.0 * alike / own
    mean.flags.writeable = precision.flags.writeable = False  # they are cached
    return mean, precision


def log_prior(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    """Log prior density of log hyperparameters (m, p), up to a constant, and its gradient."""
    scales, main = length_scales(model, data), _has_main(model, data, theta)
    mean, precision = prior(model, scales, data.infers_noise, data.grainy, main)
    offset = theta - mean
    pull = offset @ precision
    return -0.5 * np.vecdot(offset, pull), -pull


def distances(model: Model, data: Data, theta: Array) -> Array:
    """Scaled squared distances (m, n, n) of the data."""
    z = data.x / np.exp(theta[:, model.scales(data.x.shape[1])])[:, None, :]
    s = squared_distances(z, z)
    np.einsum("mii->mi", s)[:] = 0.0
    return s


def noisy(data: Data, levels: Levels, mean_variance: float, correlation: Array) -> Array:
    """K (m, n, n) for correlations (m, n, n)."""
    covariance = levels.signal[:, None, None] * correlation
    if mean_variance:
        covariance += mean_variance
    np.einsum("mii->mi", covariance)[:] += row_noise_of(data, levels)
    return covariance


def grouped(count: int, size: int) -> Iterator[slice]:
    """Slices of `count` settings, for work on that many numbers each.

    Several small matrices at once cost little more than one; large ones stay in the cache if they
    are made one by one.
    """
    together = max(1, _TOGETHER // size)
    for first in range(0, count, together):
        yield slice(first, min(first + together, count))


_TOGETHER = 40_000  # numbers: 320 kB


def covariances(model: Model, data: Data, theta: Array) -> Iterator[tuple[int, Array]]:
    """The numbers of the settings, and their K (n, n)."""
    for some in grouped(len(theta), data.size**2):
        levels = levels_of(model, data, theta[some])
        correlation = model.kernel.value(distances(model, data, theta[some]))
        if levels.main is not None:
            levels.main.blend(model.kernel, correlation, data.x, data.x)
        yield from enumerate(noisy(data, levels, model.mean_variance, correlation), some.start)


def row_noise_of(data: Data, levels: Levels) -> Array:
    """Variance (m, n) of noise and grain of each row, at least NOISE_FLOOR of the signal's."""
    given = data.known + levels.noise[:, None] * data.share + levels.grain[:, None]
    return np.asarray(np.maximum(given, NOISE_FLOOR * levels.signal[:, None]))
