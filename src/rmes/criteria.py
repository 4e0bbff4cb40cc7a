"""Acquisitions by name, as functions of x that a search can climb."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rmes import acquisition, information
from rmes.acquisition import Formula
from rmes.gp import Posterior
from rmes.kernels import Kernel
from rmes.knowledge import Knowledge, knowledge
from rmes.maxima import Maxima
from rmes.multistart import ValueAndGradient
from rmes.pes import predictive_entropy_search

Array = NDArray[np.float64]

NoiseAt = Callable[[Array], Array]
"""(m, d) points -> noise variances (S, m) of a new measurement there."""

ACQUISITIONS = (
    "rmes",
    "rmes-adam",  # the same quantity, sampled: `rmes.adam` has it
    "mes",
    "noisy-mes",
    "noiseless-rmes",
    "pes",
    "knowledge-gradient",
    "log-ei",
    "ei",
    "ucb",
)
NEED_NO_MAXIMA = ("log-ei", "ei", "ucb")
LOGARITHMS = (  # what their search climbs is a logarithm
    "rmes",
    "rmes-adam",
    "knowledge-gradient",
    "log-ei",
)


def acquire(
    name: str, posterior: Posterior, noise: NoiseAt, drawn: Maxima | None, measurements: int
) -> ValueAndGradient:
    """The named acquisition; the logarithm of it for those in `LOGARITHMS`."""
    if name in ("log-ei", "ei"):
        best = np.max(posterior.mean_at_data(), axis=1)  # of each setting

        def improvement(m: Array, v: Array) -> information.Gain:
            own = np.repeat(best, len(m) // len(best))
            if name == "ei":
                return acquisition.expected_improvement(m, v, own)
            return acquisition.log_expected_improvement(m, v, own)

        compose = acquisition.average if name == "ei" else acquisition.log_average
        return compose(improvement, posterior)
    if name == "ucb":
        beta = acquisition.confidence_schedule(measurements, posterior.x.shape[1])
        bound = partial(acquisition.upper_confidence_bound, beta=beta)
        return acquisition.average(bound, posterior)
    if name == "rmes-adam":
        raise ValueError("rmes-adam has only random estimates, rmes.adam.sampled; not a function")
    if drawn is None:
        raise ValueError(f"{name} needs draws of the maximum")
    if name == "knowledge-gradient":
        return answers(posterior, noise, drawn)
    if name == "pes":
        level = noise(posterior.x[:1])[:, 0]
        return predictive_entropy_search(posterior, drawn.place, level)

    def function(x: Array) -> tuple[Array, Array]:
        formula = _information(name, noise(x).ravel(), np.repeat(drawn.value.T, len(x), axis=1))
        compose = acquisition.log_average if name == "rmes" else acquisition.average
        return compose(formula, posterior)(x)

    return function


def answers(posterior: Posterior, noise: NoiseAt, drawn: Maxima) -> Knowledge:
    """The knowledge gradient where the answer lies at a drawn maximum or a good measured point."""
    means = np.mean(posterior.mean_at_data(), axis=0)
    good = posterior.x[np.argsort(-means)[:5]]
    places = drawn.place.reshape(-1, posterior.x.shape[1])
    return knowledge(posterior, noise, np.concatenate([places, good]))


def roughly(posterior: Posterior, noise: NoiseAt, drawn: Maxima) -> ValueAndGradient:
    """The logarithm of `information.rmes_rough`: "rmes" as a search climbs it."""

    def function(x: Array) -> tuple[Array, Array]:
        level, maxima = noise(x).ravel(), np.repeat(drawn.value.T, len(x), axis=1)

        def formula(m: Array, v: Array) -> information.Gain:
            return information.rmes_rough(m, v, level, maxima)

        value, gradient = acquisition.average(formula, posterior)(x)
        value = np.maximum(value, 1e-300)
        return np.log(value), gradient / value[:, None]

    return function


def screened(mean: Array, variance: Array, noise: Array, drawn: Maxima) -> Array:
    """The logarithm (m,) of `information.rmes_matched` for moments and noise (S, m)."""
    maxima = np.repeat(drawn.value.T, mean.shape[1], axis=1)
    gain = information.rmes_matched(mean.ravel(), variance.ravel(), noise.ravel(), maxima)
    value = np.add.reduce(gain.reshape(mean.shape)) / len(mean)
    return np.asarray(np.log(np.maximum(value, 1e-300)))


def _information(name: str, noise: Array, maxima: Array) -> Formula:
    """A cell of {f, y} × {Gaussian, mixture}, for noise (S m,) and maxima (P, S m)."""
    if name == "mes":
        return lambda m, v: information.mes(m, v, maxima)
    if name == "noiseless-rmes":
        return lambda m, v: information.noiseless_rmes(m, v, maxima)
    if name == "noisy-mes":
        return lambda m, v: information.noisy_mes(m, v, noise, maxima)
    return lambda m, v: information.log_rmes(m, v, noise, maxima)


def log_success(kernel: Kernel, scale: Array, good: Array, failed: Array) -> ValueAndGradient:
    """The logarithm of the probability p that a measurement at x succeeds.

    A vote of the neighbours, weighted by the correlation with them:
    p = (a + Σ_good κ) / (a + Σ_good κ + Σ_failed κ), a = 0.02. Values of measurements play no
    part, so a failure does not bend the model of the values.
    """
    # A value may vary slowly across the whole space; success and failure have an edge between.
    scale = np.minimum(scale, 0.15 * np.sqrt(len(scale)))
    places = np.concatenate([good, failed])

    def function(x: Array) -> tuple[Array, Array]:
        offset = (x[:, None, :] - places) / scale
        weight, slope = kernel.value_and_slope(np.vecdot(offset, offset))
        pull = 2.0 * slope[:, :, None] * offset / scale
        yes = 0.02 + weight[:, : len(good)].sum(axis=1)
        total = yes + weight[:, len(good) :].sum(axis=1)
        gradient = pull[:, : len(good)].sum(axis=1) / yes[:, None]
        gradient -= pull.sum(axis=1) / total[:, None]
        return np.log(yes / total), gradient

    return function


def log_novelty(reach: Array, measured: Array) -> ValueAndGradient:
    """How new a point is: log (1 - exp(-s)), s the squared distance to the nearest measured one.

    Distances are in units of `reach` (d,). A point next to a measured one has the same grain, and
    is no new chance of a good one.
    """

    def function(x: Array) -> tuple[Array, Array]:
        offset = (x[:, None, :] - measured) / reach
        distance = np.vecdot(offset, offset)
        point, nearest = np.arange(len(x)), np.argmin(distance, axis=1)
        s = np.maximum(distance[point, nearest], 1e-12)
        new = -np.expm1(-s)
        slope = 2.0 * (1.0 - new) / new
        return np.log(new), slope[:, None] * offset[point, nearest] / reach

    return function


def avoiding(
    function: ValueAndGradient, name: str, success: ValueAndGradient | None
) -> ValueAndGradient:
    """The named acquisition, discounted by the probability that a measurement succeeds."""
    if success is None:
        return function

    def discounted(x: Array) -> tuple[Array, Array]:
        value, gradient = function(x)
        log_chance, slope = success(x)
        if name in LOGARITHMS or name == "ucb":  # logarithms, or values of either sign
            return value + log_chance, gradient + slope
        chance = np.exp(log_chance)
        return value * chance, (gradient + value[:, None] * slope) * chance[:, None]

    return discounted
