"""Learn the hyperparameters: their best setting, and a few draws from their posterior."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.gp import Model, bounds, log_evidence, log_evidence_and_gradient, log_prior
from rmes.measurements import Data
from rmes.multistart import RowsValueAndGradient, climb

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
        evidence = np.array([log_evidence(model, data, setting) for setting in theta])
        inside = np.all((theta >= low) & (theta <= high), axis=1)
        return np.where(inside, log_prior(model, data, theta)[0] + evidence, -np.inf)

    if warm is not None and warm.best.shape == low.shape:
        particles = warm.samples
        particle_density = density(particles)
        start = warm.best
        if len(particles) and np.max(particle_density) > density(start[None])[0]:
            start = particles[np.argmax(particle_density)]
        guess = (warm.covariance / np.outer(width, width))[None]
        found = climb(objective, ((start - low) / width)[None], 1.0 / width, _FIT_TOLERANCE, guess)
    else:
        warm, particles, particle_density = None, np.empty((0, len(low))), np.empty(0)
        starts = (_cold_starts(model, data) - low) / width
        found = climb(objective, starts, 1.0 / width, _FIT_TOLERANCE)
    top = int(np.argmax(found.value))
    best = low + found.x[top] * width
    if samples == 0:
        covariance = found.curvature[top] * np.outer(width, width)
        return Fit(best, covariance, np.empty((0, len(best))), data.size)

    if warm is None or data.size >= 1.15 * warm.size or data.size < warm.size:
        covariance, size = _laplace(objective, best, low, width), data.size
    else:
        covariance, size = warm.covariance, warm.size
    if len(particles) == 0:
        steps = _COLD_STEPS
        particles = np.repeat(best[None], samples, axis=0)
        particle_density = np.full(samples, found.value[top])
    else:
        steps = _WARM_STEPS
        particles = np.resize(particles, (samples, len(best)))
        particle_density = np.resize(particle_density, samples)
    moved = _metropolis(density, particles, particle_density, best, covariance, steps, rng)
    return Fit(best, covariance, moved, size)


_FIT_TOLERANCE = 1e-3  # nats of log posterior: far below what changes a suggestion
_COLD_STEPS, _WARM_STEPS = 6, 2


def _cold_starts(model: Model, data: Data) -> Array:
    """Settings from which the modes of the likelihood are found, (starts, p)."""
    low, high = bounds(model, data)
    d = len(low) - 1 - data.infers_noise
    root = np.sqrt(d)
    variance = float(np.var(data.y)) or 1.0
    scales = [0.4 * root, 0.15 * root, 2.0 * root, 0.4 * root]
    noises = [0.03 * variance, 1e-3 * variance, 0.5 * variance, 1e-4 * variance]
    signals = [variance, variance, 0.5 * variance, 2.0 * variance]
    starts = [
        [np.log(scale)] * d + [np.log(signal)] + [np.log(noise)] * data.infers_noise
        for scale, noise, signal in zip(scales, noises, signals, strict=True)
    ]
    return np.clip(np.array(starts), low + 1e-3, high - 1e-3)


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
    current: Array,
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
        accept = np.log(rng.random(count)) < proposed - current + correction
        particles = np.where(accept[:, None], proposal, particles)
        current = np.where(accept, proposed, current)
    return particles
