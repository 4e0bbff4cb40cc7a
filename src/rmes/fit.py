"""Learn the hyperparameters: their best setting, and a few draws from their posterior."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.gp import Model, bounds, log_evidence, log_evidence_and_gradient, log_prior
from rmes.measurements import Data
from rmes.multistart import Climb, RowsValueAndGradient, climb, space_filling

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """What the data say about the hyperparameters; a warm start for the next data.

    Attributes
    ----------
    best : (p,) array
        Log hyperparameters of the highest posterior density (or likelihood).
    covariance : (p, p) array
        Inverse curvature there.
    samples : (S, p) array
        Draws from the posterior of the log hyperparameters; S may be 0.
    size : int
        Number of rows at which `covariance` was last computed.
    """

    best: Array
    covariance: Array
    samples: Array
    size: int


def fit(
    model: Model,
    data: Data,
    rng: np.random.Generator,
    samples: int = 0,
    warm: Fit | None = None,
) -> Fit:
    """Maximise evidence times prior, and draw `samples` settings from that posterior.

    A cold fit climbs from starts that cover both modes of the likelihood (all noise and long
    scales, little noise and short scales). A warm one climbs from the better of the last optimum
    and the last samples, and moves the samples by a few Metropolis steps.
    """
    low, high = bounds(model, data)
    width = high - low

    def objective(unit: Array, _rows: NDArray[np.intp]) -> tuple[Array, Array]:
        theta = low + unit * width
        value, gradient = log_prior(model, data, theta)
        for row, setting in enumerate(theta):
            evidence, slope = log_evidence_and_gradient(model, data, setting)
            value[row] += evidence
            gradient[row] += slope
        return value, gradient * width

    def density(theta: Array) -> Array:
        inside = np.all((theta >= low) & (theta <= high), axis=1)
        evidence = log_evidence(model, data, np.clip(theta, low, high))
        return np.where(inside, log_prior(model, data, theta)[0] + evidence, -np.inf)

    samples = _affordable(samples, data.size)
    if warm is not None and warm.best.shape == low.shape:
        particles = np.resize(warm.samples, (samples, len(low))) if len(warm.samples) else None
        guess = (warm.covariance / np.outer(width, width))[None]
        start = ((warm.best - low) / width)[None]
        found = climb(objective, start, 1.0 / width, _WARM_TOLERANCE, guess)
    else:
        warm, particles = None, None
        climbs = _FLAT_CLIMBS if np.isinf(model.length_scale.spread) else _PRIOR_CLIMBS
        modes, others = _cold_starts(data, low, high, 16 * climbs, rng)
        order = np.argsort(-density(others))
        # Half of them the best, half of them random: the best tend to share a basin.
        screened = others[np.append(order[: climbs // 2], order[climbs // 2 :: 32])]
        starts = (np.concatenate([modes, screened]) - low) / width
        found = climb(objective, starts, 1.0 / width, _COLD_TOLERANCE, rounds=_COLD_ROUNDS)
        for _ in range(_SINGLE_MOVES):
            order = np.argsort(-found.value)[:3]
            moved = _single_moves(data, low + found.x[order] * width, low, high)
            moved = moved[np.argsort(-density(moved))[:climbs]]
            again = climb(
                objective, (moved - low) / width, 1.0 / width, _COLD_TOLERANCE, rounds=_COLD_ROUNDS
            )
            done = np.max(again.value) <= np.max(found.value) + _WARM_TOLERANCE
            found = Climb(
                np.concatenate([found.x[order], again.x]),
                np.concatenate([found.value[order], again.value]),
                np.concatenate([found.curvature[order], again.curvature]),
            )
            if done:
                break
    top = int(np.argmax(found.value))
    best = np.clip(low + found.x[top] * width, low, high)
    if samples == 0:
        covariance = found.curvature[top] * np.outer(width, width)
        return Fit(best, covariance, np.empty((0, len(best))), data.size)

    if warm is None or data.size >= 1.15 * warm.size or data.size < warm.size:
        covariance, size = _laplace(objective, best, low, width), data.size
    else:
        covariance, size = warm.covariance, warm.size
    if particles is None:
        particles = np.repeat(best[None], samples, axis=0)
        return Fit(
            best, covariance, _metropolis(density, particles, best, covariance, 6, rng), size
        )
    if data.size <= _SMALL:
        return Fit(
            best, covariance, _metropolis(density, particles, best, covariance, 2, rng), size
        )
    turn = [data.size % samples]  # one sample at a time: the others have hardly aged
    particles[turn] = _metropolis(density, particles[turn], best, covariance, 2, rng)
    return Fit(best, covariance, particles, size)


def _affordable(samples: int, size: int) -> int:
    """Fewer settings where data abound: their posterior is narrow then, and each one costs n³."""
    return min(samples, max(2, -(-samples * 150 // size)))


_SMALL = 30  # rows up to which every sample is moved for every suggestion
# In nats of the log posterior. The next data move the optimum by more than the warm tolerance.
_COLD_TOLERANCE, _WARM_TOLERANCE = 1e-6, 1e-3
# A likelihood has a mode for each set of coordinates that matter, too many to start in them all:
# this often, one length-scale of the best modes found is moved elsewhere and climbed from again.
_SINGLE_MOVES = 4
_COLD_ROUNDS = 250  # a flat likelihood is climbed slowly
# How many random settings to climb from beside the modes, each the best of 16. A prior on the
# length-scales leaves few modes; a flat one leaves one for each set of coordinates that matter.
_FLAT_CLIMBS, _PRIOR_CLIMBS = 24, 2


def _cold_starts(
    data: Data, low: Array, high: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Settings in both modes of the likelihood (4, p), and random ones (count, p)."""
    d = len(low) - 1 - data.infers_noise
    variance = float(np.var(data.y)) or 1.0
    # length-scale in units of √d, signal variance and noise variance in units of var y
    table = np.log([[0.4, 1.0, 0.03], [0.15, 1.0, 1e-3], [2.0, 0.5, 0.5], [0.4, 2.0, 1e-4]])
    shift = np.array([0.5 * np.log(d)] * d + [np.log(variance)] * (len(low) - d))
    columns = ([0] * d + [1, 2])[: len(low)]
    modes = table[:, columns] + shift
    least = np.log([0.02, 0.1, 1e-6])[columns] + shift
    most = np.log([50.0, 10.0, 1.0])[columns] + shift
    unit = space_filling(count, len(low), rng)
    # A coordinate that does not matter has an infinite length-scale: one in three of them.
    unit[:, :d] = np.where(unit[:, :d] > 2 / 3, 1.0, 0.8 * unit[:, :d])
    others = least + (most - least) * unit
    inside = 1e-3 * (high - low)
    return (
        np.clip(modes, low + inside, high - inside),
        np.clip(others, low + inside, high - inside),
    )


def _single_moves(data: Data, settings: Array, low: Array, high: Array) -> Array:
    """The settings (m, p) with one length-scale changed to each of six others, (6 d m, p)."""
    d = len(low) - 1 - data.infers_noise
    levels = np.log([0.006, 0.05, 0.2, 0.8, 4.0, 40.0])
    moved = np.repeat(settings[:, None], 6 * d, axis=1)
    moved[:, np.arange(6 * d), np.repeat(np.arange(d), 6)] = np.tile(levels, d)
    return np.clip(moved.reshape(-1, len(low)), low, high)


def _laplace(objective: RowsValueAndGradient, best: Array, low: Array, width: Array) -> Array:
    """Inverse of minus the Hessian at `best`, by central differences of the gradient."""
    step = 1e-3 / width
    unit = (best - low) / width
    shifts = np.diag(step)
    points = np.clip(np.concatenate([unit + shifts, unit - shifts]), 0.0, 1.0)
    gradient = objective(points, np.arange(len(points)))[1] / width
    p = len(best)
    distance = np.diagonal(points[:p] - points[p:]) * width
    hessian = (gradient[p:] - gradient[:p]) / distance[:, None]
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    # A direction in which the data say nothing, or which is not concave, gets a spread of one
    # e-fold at most per unit of prior knowledge.
    values = np.maximum(values, 0.25)
    return np.asarray((vectors / values) @ vectors.T, dtype=float)


def _metropolis(
    density: Callable[[Array], Array],
    particles: Array,
    best: Array,
    covariance: Array,
    steps: int,
    rng: np.random.Generator,
) -> Array:
    """Move every particle by Metropolis–Hastings steps that leave exp(density) invariant.

    Proposals alternate between independent draws (Student t with 4 degrees of freedom around
    the optimum: they forget where the particle was) and small random steps (they work where the
    posterior is far from a normal one).
    """
    count, p = particles.shape
    current = density(particles)
    root = np.linalg.cholesky(covariance)
    freedom = 4.0

    def log_t(theta: Array) -> Array:
        z = np.linalg.solve(root, (theta - best).T)
        return np.asarray(-0.5 * (freedom + p) * np.log1p(np.einsum("ij,ij->j", z, z) / freedom))

    for step in range(steps):
        normal = rng.standard_normal((count, p)) @ root.T
        if step % 2 == 0:
            chi_square = 2.0 * rng.standard_gamma(0.5 * freedom, count)
            proposal = best + normal * np.sqrt(freedom / chi_square)[:, None]
            correction = log_t(particles) - log_t(proposal)
        else:
            proposal = particles + normal * (1.5 / np.sqrt(p))
            correction = np.zeros(count)
        proposed = density(proposal)
        accept = np.log(rng.random(count)) + current < proposed + correction
        particles = np.where(accept[:, None], proposal, particles)
        current = np.where(accept, proposed, current)
    return particles
