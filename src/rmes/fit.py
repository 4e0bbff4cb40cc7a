"""Learn the hyperparameters: their best setting, and a few draws from their posterior."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from rmes.measurements import Data
from rmes.model import Model
from rmes.multistart import Climb, climb, space_filling, spread
from rmes.rivals import LEGS, Target, Top, reconsidered, subset

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """What the data say about the hyperparameters; a warm start for the next data.

    Attributes
    ----------
    best : (p,) array
        Log hyperparameters of the highest posterior density (or likelihood), in the order of
        `rmes.model.bounds`.
    covariance : (p, p) array
        Inverse curvature there.
    samples : (S, p) array
        Draws from the posterior of the log hyperparameters; S may be 0.
    size : int
        Number of measurements at which all but the samples was last thought over.
    main : bool
        Whether the last hyperparameter is the odds of main effects.
    pressed : bool
        Whether it was learnt from values that were pressed together.
    grainy : bool
        Whether the variance of grain is among the hyperparameters.
    """

    best: Array
    covariance: Array
    samples: Array
    size: int
    main: bool = False
    pressed: bool = False
    grainy: bool = False

    @property
    def settings(self) -> Array:
        """The samples, or the best setting where there are none: (S, p)."""
        return self.samples if len(self.samples) else self.best[None]

    def turn(self, number: int) -> Array:
        """The one of them whose turn it is, (1, p)."""
        return self.settings[[number % len(self.settings)]]

    def seen(self, data: Data) -> Data:
        """The data as the hyperparameters see them, with grain or without."""
        return data if data.grainy == self.grainy else replace(data, grainy=self.grainy)

    def to_json(self) -> dict[str, Any]:
        """All there is, in plain types."""
        return {
            "best": self.best.tolist(),
            "covariance": self.covariance.tolist(),
            "samples": self.samples.tolist(),
            "size": self.size,
            "main": self.main,
            "pressed": self.pressed,
            "grainy": self.grainy,
        }

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> "Fit":
        """Read what `to_json` wrote, checked: people edit such files."""
        best = np.array(saved["best"], dtype=float)
        covariance = np.array(saved["covariance"], dtype=float)
        samples = np.array(saved["samples"], dtype=float).reshape(-1, len(best))
        if covariance.shape != (len(best), len(best)):
            raise ValueError(f"the covariance has shape {covariance.shape}")
        if not all(np.isfinite(array).all() for array in (best, covariance, samples)):
            raise ValueError("it holds a value that is not finite")
        if len(samples):
            np.linalg.cholesky(covariance)  # raises where nothing can be drawn with it
        flags = (bool(saved.get(name, False)) for name in ("main", "pressed", "grainy"))
        return Fit(best, covariance, samples, int(saved["size"]), *flags)


def fit(
    model: Model,
    data: Data,
    rng: np.random.Generator,
    samples: int = 0,
    warm: Fit | None = None,
    otherwise: Callable[[], Data] | None = None,
) -> Fit:
    """Maximise evidence times prior, and draw `samples` settings from that posterior.

    A cold fit races climbs from many starts, on a subset of the data where they are many, and
    hops between the modes of the likelihood, of which a flat prior leaves several. A warm one
    moves the samples by a few Metropolis steps, and climbs from the last optimum when measurements
    have grown by 15 %, or if there are no samples. Then the fit is also made with grain and
    without, and the likelier kept; so it is with main effects, and with the same measurements seen
    otherwise, pressed together or not, if there is such a view of them.
    """
    data = replace(data, grainy=warm is not None and warm.grainy)
    target = Target(model, data, warm is not None and warm.main)
    samples = _affordable(samples, data.size)
    if warm is not None and (
        warm.best.shape != target.low.shape
        or (warm.main and not model.main_effects)
        or (warm.grainy and not model.grain)
        or warm.pressed != data.pressed
    ):
        warm, target = None, Target(model, replace(data, grainy=False))
    # The best setting and the curvature are good for a while where they only say around which to
    # propose samples: climbed to at every fourth measurement, the regret after 40 of them was what
    # it is (732 pairs of runs, a factor of 1.06 either way).
    aged = warm is None or not warm.size <= data.count < 1.15 * warm.size
    if warm is not None and samples and not aged:
        best, covariance = warm.best, warm.covariance
    else:
        if warm is None:
            found = _polish(target, _cold(target, rng))
        else:
            width = target.width
            guess = (warm.covariance / np.outer(width, width))[None]
            tolerance = _LOOSE_TOLERANCE if samples else _WARM_TOLERANCE
            found = climb(target, target.unit(warm.best)[None], 1.0 / width, tolerance, guess)
        climbed = top = Top.of(target, found)
        if aged:
            top = reconsidered(climbed, otherwise, rng)
            if top is not climbed:
                target, warm = top.target, None  # the samples were of another model, or mode
        best, covariance = top.best, top.covariance
    size = data.count if warm is None or aged else warm.size
    if samples == 0:
        none = np.empty((0, len(best)))
        return Fit(best, covariance, none, size, *target.flags)

    density = target.density
    covariance = _laplace(target, best) if warm is None or aged else warm.covariance
    if warm is None or not len(warm.samples):
        particles = np.repeat(best[None], samples, axis=0)
        particles = _metropolis(density, particles, best, covariance, 3, rng)
    else:
        particles = np.resize(warm.samples, (samples, len(best)))
        # With many rows one at a time, that whose turn it is: the others have hardly aged. With few
        # they have, and answers begin with them all. With many parameters more rounds, since fewer
        # proposals are accepted: after 40 measurements in 5 to 10 coordinates one round left 1.13
        # times the regret of three (280 pairs of runs, ± 0.08).
        turn = slice(None) if data.size <= _SMALL else [data.count % samples]
        rounds = 3 if len(best) > 6 and data.size <= _SMALL else 1
        particles[turn] = _metropolis(density, particles[turn], best, covariance, rounds, rng)
    return Fit(best, covariance, particles, size, *target.flags)


def widened(model: Model, data: Data, learned: Fit, count: int, rng: np.random.Generator) -> Fit:
    """The fit with up to `count` samples of the posterior instead of a handful.

    For answers, which are given once: the spread of a handful of settings is a matter of luck.
    Where data abound there are fewer of them, but never fewer than there were.
    """
    count = max(len(learned.samples), min(count, count * 100 // data.size))
    target = Target(model, data, learned.main)
    particles = np.resize(learned.samples, (count, len(learned.best)))
    density, best, covariance = target.density, learned.best, learned.covariance
    return replace(learned, samples=_metropolis(density, particles, best, covariance, 3, rng))


def _affordable(samples: int, size: int) -> int:
    """Fewer settings where data abound: their posterior is narrow then, and each one costs n³."""
    return min(samples, max(2, -(-samples * 150 // size)))


_SMALL = 40  # rows up to which every sample is moved for every suggestion
# In nats of the log posterior. The next data move the optimum by more than the warm tolerance;
# where samples are drawn around it, the loose one is near enough.
_COLD_TOLERANCE, _WARM_TOLERANCE, _LOOSE_TOLERANCE = 1e-6, 1e-3, 5e-3
_COLD_ROUNDS = 250  # a flat likelihood is climbed slowly
_LEVELS = np.log([0.006, 0.05, 0.2, 0.8, 5.0, 200.0])  # to which a hop moves length-scales


class _Effort(NamedTuple):
    """How widely a cold fit searches.

    `starts` are random ones to climb from, half of them the best of 16; `hops` are tried from
    the best `modes`.
    """

    starts: int
    hops: int
    modes: int


def _effort(target: Target) -> _Effort:
    """A prior leaves few modes; a flat one has one for each set of coordinates that matter."""
    if target.flat:
        return _Effort(12 + 8 * target.scales, 4, 4)
    return _Effort(4, 1, 2)


def _cold(target: Target, rng: np.random.Generator) -> Climb:
    """Modes that a search without any knowledge finds, or those of a subset; to be polished."""
    effort = _effort(target)
    if target.data.size > target.few:
        part = replace(target, data=subset(target.data, rng))
        # The more data, the clearer is the best mode, and the dearer are others.
        keep = effort.modes if target.data.size <= 3 * target.few else 1
        return _best(part, _polish(part, _cold(part, rng)), keep)
    modes, others = _cold_starts(target, 8 * effort.starts, rng)
    order = np.argsort(-target.density(others))
    # Half of them the best, half of them random: the best tend to share a basin.
    half = effort.starts // 2
    chosen = others[np.append(order[:half], order[half::16])]
    found = _race(target, target.unit(np.concatenate([modes, chosen])), effort.modes)
    for _ in range(effort.hops):
        moved = _moves(target, target.low + found.x * target.width, rng)
        moved = moved[spread(target.density(moved), target.features(moved), half)]
        again = _race(target, target.unit(moved), effort.modes)
        done = np.max(again.value) <= np.max(found.value) + _WARM_TOLERANCE
        both = Climb(
            np.concatenate([found.x, again.x]),
            np.concatenate([found.value, again.value]),
            np.concatenate([found.curvature, again.curvature]),
        )
        found = _best(target, both, effort.modes)
        if done:
            break
    return found


def _polish(target: Target, found: Climb) -> Climb:
    """Climb from the modes to their tops; where the prior is flat, on from the best one."""
    scale = 1.0 / target.width
    tolerance = _COLD_TOLERANCE if target.flat else 0.1 * _WARM_TOLERANCE
    done = climb(target, found.x, scale, tolerance, found.curvature, _COLD_ROUNDS)
    if target.flat:  # a noise that tends to 0 leaves a curvature that is wrong by orders
        top = int(np.argmax(done.value))
        on = climb(target, done.x[[top]], scale, 0.01 * tolerance, rounds=_COLD_ROUNDS)
        done.x[top], done.value[top] = on.x[0], on.value[0]
    return done


def _race(target: Target, starts: Array, keep: int) -> Climb:
    """Climb from all starts for a few rounds, from the best half for more, and so on."""
    found = climb(target, starts, 1.0 / target.width, _WARM_TOLERANCE, rounds=LEGS[0])
    for rounds in LEGS[1:]:
        half = _best(target, found, max(keep, len(found.x) // 2))
        found = climb(target, half.x, 1.0 / target.width, _WARM_TOLERANCE, half.curvature, rounds)
    return _best(target, found, keep)


def _best(target: Target, found: Climb, count: int) -> Climb:
    """The best of the ends of a climb that differ from one another."""
    features = target.features(target.low + found.x * target.width)
    chosen = spread(found.value, features, count)
    return Climb(found.x[chosen], found.value[chosen], found.curvature[chosen])


def _cold_starts(target: Target, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Settings in both modes of the likelihood (4, p), and random ones (count, p)."""
    low, high, d = target.low, target.high, target.scales
    variance = float(np.var(target.data.y)) or 1.0
    # length-scale in units of √d, signal variance and noise variance in units of var y
    table = np.log([[0.4, 1.0, 0.03], [0.15, 1.0, 1e-3], [2.0, 0.5, 0.5], [0.4, 2.0, 1e-4]])
    shift = np.array([0.5 * np.log(d)] * d + [np.log(variance)] * (len(low) - d))
    columns = ([0] * d + [1, 2])[: len(low)]
    modes = table[:, columns] + shift
    shift[:d] = 0.0
    least = np.log([0.006, 1.0, 1e-4])[columns] + shift
    most = np.log([2.0, 1.0, 1.0])[columns] + shift
    others = least + (most - least) * space_filling(count, len(low), rng)
    # Any share of the coordinates hardly matters: a length-scale of 5 still feels a slope.
    rest = rng.random((count, d)) < rng.random((count, 1))
    others[:, :d][rest] = np.log(5.0)
    inside = 1e-3 * (high - low)
    low, high = low + inside, high - inside
    return np.clip(modes, low, high), np.clip(others, low, high)


def _moves(target: Target, settings: Array, rng: np.random.Generator) -> Array:
    """The settings with one length-scale moved to each level, or two of them to any level."""
    d, k = target.scales, len(_LEVELS)
    one = np.repeat(settings[:, None], k * d, axis=1)
    one[:, np.arange(k * d), np.repeat(np.arange(d), k)] = np.tile(_LEVELS, d)
    moved = one.reshape(-1, len(target.low))
    two = moved.copy()
    two[np.arange(len(two)), rng.integers(d, size=len(two))] = rng.choice(_LEVELS, len(two))
    return np.asarray(np.clip(np.concatenate([moved, two]), target.low, target.high))


def _laplace(target: Target, best: Array) -> Array:
    """Inverse of minus the Hessian at `best`, by differences of the gradient into the box."""
    unit, width = target.unit(best), target.width
    step = np.where(unit > 0.5, -1e-3, 1e-3)
    points = np.concatenate([unit[None], unit + np.diag(step / width)])
    gradient = target(points, np.arange(len(points)))[1] / width
    hessian = (gradient[0] - gradient[1:]) / step[:, None]
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
    rounds: int,
    rng: np.random.Generator,
) -> Array:
    """Move every particle by Metropolis–Hastings steps that leave exp(density) invariant.

    A round is a small random step, which works where the posterior is far from a normal one, and
    an independent draw (Student t with 4 degrees of freedom around the optimum), which forgets
    where the particle was. The draws, and the first small steps, depend on nothing that comes
    before them: their densities come from one call.
    """
    count, p = particles.shape
    # By LAPACK itself, which takes a tenth of the time of NumPy's for so small a matrix. A fit that
    # is read from a file has been checked to have a factor.
    root, freedom = dpotrf(covariance, lower=1, clean=1)[0], 4.0
    whiten = dtrtri(root, lower=1)[0].T

    def looked(theta: Array) -> Array:
        """Settings (m, p), their density, and how far it exceeds that of the draws: (m, p + 2)."""
        z = (theta - best) @ whiten
        drawn = -0.5 * (freedom + p) * np.log1p(np.vecdot(z, z) / freedom)
        value = density(theta)
        return np.column_stack([theta, value, value - drawn])

    def stepped(theta: Array) -> Array:
        return np.asarray(theta + (1.5 / np.sqrt(p)) * (rng.standard_normal((count, p)) @ root.T))

    def moved(state: Array, proposal: Array, column: int) -> Array:
        accept = np.log(rng.random(count)) + state[:, column] < proposal[:, column]
        return np.where(accept[:, None], proposal, state)

    chi_square = 2.0 * rng.standard_gamma(0.5 * freedom, (rounds * count, 1))
    normal = rng.standard_normal((rounds * count, p)) @ root.T
    afresh = best + normal * np.sqrt(freedom / chi_square)
    known = looked(np.concatenate([particles, stepped(particles), afresh]))
    state, near, *draws = known.reshape(rounds + 2, count, p + 2)
    for number, draw in enumerate(draws):
        if number:
            near = looked(stepped(state[:, :p]))
        state = moved(moved(state, near, -2), draw, -1)
    return np.ascontiguousarray(state[:, :p])
