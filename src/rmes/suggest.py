"""Where to measure next: a pure function from data to a point of the unit cube."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from rmes import adam, gp, maxima
from rmes.criteria import (
    ACQUISITIONS,
    LOGARITHMS,
    NEED_NO_MAXIMA,
    acquire,
    answers,
    avoiding,
    log_success,
    matched,
    screened,
)
from rmes.domain import Domain
from rmes.fit import Fit, fit
from rmes.gp import Model, Posterior
from rmes.maxima import Maxima
from rmes.measurements import Data
from rmes.multistart import ValueAndGradient, search, space_filling, spread

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a point is chosen. The defaults are meant for everybody.

    Attributes
    ----------
    acquisition : str
        One of `ACQUISITIONS`.
    samples : int
        Settings of the hyperparameters to average over; 0 takes the best one alone.
    maxima : int
        Draws of the maximum for each of them.
    candidates : int
        Space-filling points that are looked at before the climbs, at most: 64, and as many for
        each coordinate, if that is less.
    climbs : int
        How many of them are climbed from.
    repeats : bool
        Whether to measure a point again that is worth as much as a new one, within 1 %.
    settle : bool
        Whether "rmes" leaves such a choice to the knowledge gradient: where more information about
        the maximum is to be had only by measuring a point again, the point is measured that is
        expected to improve the answer most. Information alone would measure one place again and
        again, and learn the value there rather than the way to a better one.
    model : Model
    """

    acquisition: str = "rmes"
    samples: int = 4
    maxima: int = 5
    candidates: int = 256
    climbs: int = 8
    repeats: bool = True
    settle: bool = True
    model: Model = Model()

    def __post_init__(self) -> None:
        if self.acquisition not in ACQUISITIONS:
            raise ValueError(
                f"acquisition is {self.acquisition!r}; expected one of {', '.join(ACQUISITIONS)}"
            )
        for name, least in (("samples", 0), ("maxima", 1), ("candidates", 1), ("climbs", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything beside the measurements that a suggestion depends on.

    Attributes
    ----------
    domain : Domain
        The feasible points.
    failed : (f, d) array
        Points whose measurement failed; their neighbourhood is avoided.
    exact : bool
        Whether measurements have no noise, so that no point is worth repeating.
    noise_at : callable or None
        (m, d) points -> noise variances (m,) of a new measurement there. None: the inferred
        noise variance, or the mean of the known ones where all are known.
    """

    domain: Domain
    failed: Array
    exact: bool = False
    noise_at: Callable[[Array], Array] | None = None

    @staticmethod
    def plain(dimensions: int) -> "Situation":
        """The whole unit cube, nothing failed."""
        return Situation(Domain(dimensions), np.empty((0, dimensions)))


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A point, and what was thought while choosing it.

    Attributes
    ----------
    x : (d,) array
    value : float
        The acquisition there (the logarithm for those in `LOGARITHMS`).
    acquisition : str
        The one that chose it.
    repeats : int or None
        The row of the data that x repeats, if it does.
    fit : Fit
        The hyperparameters; pass it to the next call for a warm start.
    posterior : Posterior
        The model, given the data and the pending points.
    maxima : Maxima or None
        The draws that the acquisition used.
    """

    x: Array
    value: float
    acquisition: str
    repeats: int | None
    fit: Fit
    posterior: Posterior
    maxima: Maxima | None


def suggest(
    data: Data,
    pending: Array,
    settings: Settings,
    rng: np.random.Generator,
    situation: Situation | None = None,
    warm: Fit | None = None,
) -> Suggestion:
    """Choose where to measure next.

    Parameters
    ----------
    data : Data
        Standardised measurements to maximise, from `rmes.measurements.merge`.
    pending : (q, d) array
        Points that are being measured now. The model is conditioned on them at its own mean, and
        they are not suggested again.
    settings : Settings
    rng : numpy Generator
    situation : Situation, optional
        By default the whole unit cube, nothing failed.
    warm : Fit, optional
        From the last suggestion.
    """
    situation = situation or Situation.plain(data.x.shape[1])
    with small_work(data.size):
        learned = fit(settings.model, data, rng, settings.samples, warm)
        posterior = posterior_given(data, pending, settings.model, learned, situation.noise_at)
        return choose(data, posterior, pending, situation, settings, rng, learned)


def posterior_given(
    data: Data,
    pending: Array,
    model: Model,
    learned: Fit,
    noise_at: Callable[[Array], Array] | None = None,
) -> Posterior:
    """The posterior for the samples of a fit (or its best), conditioned on pending points."""
    theta = learned.samples if len(learned.samples) else learned.best[None]
    posterior = gp.posterior(model, data, theta)
    if len(pending):
        mean, _ = posterior.predict(pending)
        noise = new_noise(data, posterior, noise_at)(pending)
        posterior = posterior.condition(pending, mean, noise)
    return posterior


def new_noise(
    data: Data, posterior: Posterior, noise_at: Callable[[Array], Array] | None
) -> Callable[[Array], Array]:
    """The noise variance of a new measurement: (m, d) points -> (S, m)."""
    if noise_at is not None:
        return lambda x: np.broadcast_to(noise_at(x), (posterior.settings, len(x)))
    if data.infers_noise:
        level = posterior.noise_variance
    else:
        level = np.full(posterior.settings, data.level)
    return lambda x: np.broadcast_to(level[:, None], (len(level), len(x)))


def chance(data: Data, posterior: Posterior, situation: Situation) -> ValueAndGradient | None:
    """Log probability that a measurement succeeds; None where none has failed."""
    if not len(situation.failed):
        return None
    scale = _common_scale(posterior)
    return log_success(posterior.model.kernel, scale, data.x, situation.failed)


def choose(
    data: Data,
    posterior: Posterior,
    pending: Array,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
    learned: Fit,
) -> Suggestion:
    """The best feasible point under the acquisition; see `Settings.settle` for the exception."""
    view = _look(data, posterior, situation, settings, rng)
    name = settings.acquisition
    x, value, row = _best(name, view, data, posterior, pending, situation, settings, rng)
    if row is not None and settings.settle and name == "rmes":
        other = "knowledge-gradient"
        found = _best(other, view, data, posterior, pending, situation, settings, rng)
        # A better answer may lie where measurements fail; a point that may well fail is none.
        if view.success is None or view.success(found[0][None])[0][0] > _SAFE:
            name, (x, value, row) = other, found
    return Suggestion(x, value, name, row, learned, posterior, view.drawn)


@dataclass(frozen=True, slots=True)
class _View:
    """What is looked at before a point is chosen.

    Attributes
    ----------
    candidates : (m, d) array
        Those looked at, and the places of the drawn maxima.
    screened : tuple of arrays
        `Posterior.screen` of the first candidates, all but those places; empty if none were drawn.
    drawn : Maxima or None
    success : ValueAndGradient or None
        Log probability that a measurement succeeds; None where none has failed.
    """

    candidates: Array
    screened: tuple[NDArray[np.float32], Array, Array] | None
    drawn: Maxima | None
    success: ValueAndGradient | None


def _look(
    data: Data,
    posterior: Posterior,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
) -> _View:
    domain = situation.domain
    candidates = _candidates(posterior, settings, domain, rng)
    success = chance(data, posterior, situation)
    if settings.acquisition in NEED_NO_MAXIMA:
        return _View(candidates, None, None, success)
    near, mean, variance = posterior.screen(candidates)
    if success is None:
        hopeful = _hopeful(mean, variance)
        candidates, near = candidates[hopeful], near[:, hopeful]
        mean, variance = mean[:, hopeful], variance[:, hopeful]
    drawn = maxima.from_paths(posterior, settings.maxima, candidates, domain, rng, near, success)
    places = drawn.place.reshape(-1, domain.dimensions)
    candidates = np.concatenate([candidates, places])
    return _View(candidates, (near, mean, variance), drawn, success)


def _best(
    name: str,
    view: _View,
    data: Data,
    posterior: Posterior,
    pending: Array,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
) -> tuple[Array, float, int | None]:
    """The best point (d,) under the named acquisition, its value, and the row it repeats."""
    domain, candidates, drawn = situation.domain, view.candidates, view.drawn
    noise = new_noise(data, posterior, situation.noise_at)
    scale = _common_scale(posterior)

    def discounted(function: ValueAndGradient, name: str = name) -> ValueAndGradient:
        return avoiding(function, name, view.success)

    glance: Callable[..., Array] | None = None  # cheaper than the acquisition, for many points
    if name in ("rmes", "rmes-adam") and drawn is not None:
        # Far from the top a cheap stand-in shows the way; the function itself has the last word.
        guide = discounted(matched(posterior, noise, drawn), "rmes")
        glance = partial(screened, noise=noise, drawn=drawn)
    elif name == "knowledge-gradient" and drawn is not None:
        gain = answers(posterior, noise, drawn)
        guide, glance = discounted(gain), gain.screen
    else:
        guide = discounted(acquire(name, posterior, noise, drawn, data.size))
    if glance is not None and view.screened is not None and view.success is None:
        count = view.screened[0].shape[1]
        looked = glance(candidates[:count], *view.screened)
        values = np.append(looked, guide(candidates[count:])[0])
    else:
        values = guide(candidates)[0]
    starts = candidates[spread(values, candidates / scale, settings.climbs)]
    function = guide
    if name == "rmes-adam" and drawn is not None:
        noisy = discounted(adam.sampled(posterior, noise, drawn, adam.SAMPLES, rng))
        function = discounted(adam.sampled(posterior, noise, drawn, adam.FINAL_SAMPLES, rng))
        tops, heights = adam.search(noisy, function, starts, domain)
    elif name == "rmes":
        function = discounted(acquire(name, posterior, noise, drawn, data.size))
        tops, heights = guided(function, guide, starts, scale, domain)
    elif name == "knowledge-gradient":
        d = domain.dimensions
        found = search(
            lambda x, _rows: function(x),
            starts,
            scale,
            _FINAL,
            domain,
            3 + 2 * d,
            differences=d <= _FEW,
            race=True,
        )
        tops, heights = found.x, found.value
    else:
        tolerance = _TOLERANCE
        if name not in LOGARITHMS:  # its units are those of y, or it may be tiny everywhere
            tolerance *= 0.01 * float(np.ptp(values))
        found = search(lambda x, _rows: function(x), starts, scale, tolerance, domain)
        tops, heights = found.x, found.value
    order = np.argsort(-heights)
    points = np.concatenate([tops[order], candidates[np.argsort(-values)]])
    forbidden = pending
    if situation.exact:
        forbidden = np.concatenate([forbidden, data.x])
    allowed = ~_coincide(points, forbidden)
    first = int(np.argmax(allowed)) if allowed.any() else 0
    x = points[first]
    value = float(heights[order][first] if first < len(order) else function(x[None])[0][0])
    if not settings.repeats or situation.exact:
        return x, value, None
    # the bound is in units of y, whose standard deviation is 1; others are relative
    absolute = name in LOGARITHMS or name == "ucb"
    row = _repeat(guide, absolute, x, data, pending, scale)
    return (x if row is None else data.x[row]), value, row


def worth(
    data: Data,
    posterior: Posterior,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
) -> ValueAndGradient:
    """Log RMES of a new measurement, as a function of x: what a map of the information shows."""
    candidates = _candidates(posterior, settings, situation.domain, rng)
    drawn = maxima.from_paths(posterior, settings.maxima, candidates, situation.domain, rng)
    noise = new_noise(data, posterior, situation.noise_at)
    return acquire("rmes", posterior, noise, drawn, data.size)


def guided(
    function: ValueAndGradient,
    guide: ValueAndGradient,
    starts: Array,
    scale: Array,
    domain: Domain,
) -> tuple[Array, Array]:
    """Tops (m, d) of the function and their values, climbed to by way of a cheap stand-in."""
    d = domain.dimensions
    # More rounds hardly raise the ends: they would follow one narrow ridge.
    few, more = (max(2, d - 1) if d <= _FEW else 1 + d), 3 + 2 * d
    ends = search(
        lambda x, _rows: guide(x), starts, scale, _GUIDED, domain, few, differences=d <= _FEW
    )
    final = spread(ends.value, ends.x / scale, _FINAL_CLIMBS)
    found = search(
        lambda x, _rows: function(x),
        ends.x[final],
        scale,
        _FINAL,
        domain,
        more,
        ends.curvature[final],
        race=True,
    )
    return found.x, found.value


def _common_scale(posterior: Posterior) -> Array:
    """Length-scales (d,) for the search: the settings' geometric mean, at most the cube's side."""
    mean = np.exp(np.mean(np.log(posterior.length_scales), axis=0))
    return np.asarray(np.minimum(mean, 1.0))


def _hopeful(mean: Array, variance: Array) -> NDArray[np.intp]:
    """Points where the maximum may lie, for moments (S, m): the others it reaches in one of 10⁴.

    Nor is there anything to learn about the maximum at the others.
    """
    reach = 4.0 * np.sqrt(variance)
    least = np.max(mean - reach, axis=1, keepdims=True)
    return np.flatnonzero(np.any(mean + reach >= least, axis=0))


def _coincide(points: Array, others: Array) -> NDArray[np.bool_]:
    """Which points (m, d) are, to rounding, among the others."""
    if not len(others):
        return np.zeros(len(points), dtype=bool)
    gap = np.max(np.abs(points[:, None, :] - others), axis=2)
    return np.asarray(np.min(gap, axis=1) < 1e-9)


def _repeat(
    function: ValueAndGradient,
    absolute: bool,
    x: Array,
    data: Data,
    pending: Array,
    scale: Array,
) -> int | None:
    """The measured point that is worth as much as x, if there is one: measure that again.

    Worth as much is within 1 % of the acquisition. Repeats keep the data small and are easier to
    read than points that differ in the fourth digit.
    """
    distance = np.sum(((data.x - x) / scale) ** 2, axis=1)
    near = np.flatnonzero(distance < 0.05)
    near = near[np.argsort(distance[near])[:3]]
    near = near[~_coincide(data.x[near], pending)]
    if not len(near):
        return None
    here, *worth = function(np.concatenate([x[None], data.x[near]]))[0]
    best = int(np.argmax(worth))
    margin = 0.01 if absolute else 0.01 * abs(here)
    return int(near[best]) if worth[best] >= here - margin else None


# Of the log acquisition: what a further step promises, relative to the information.
_TOLERANCE = 1e-4
_GUIDED = 1e-1  # the same for the stand-in, which is no closer to the truth than that
_FINAL = 3e-4  # and from where it led to: its curvature is nearly that of the function
_FINAL_CLIMBS = 2
_SAFE = float(np.log(0.9))
_FEW = 4  # coordinates up to which differences of gradients are worth their price


def _candidates(
    posterior: Posterior, settings: Settings, domain: Domain, rng: np.random.Generator
) -> Array:
    """Space-filling points, and a cloud around the data with the best means."""
    d = domain.dimensions
    count = min(settings.candidates, 64 + 64 * d)
    if domain.size <= count:
        return domain.enumerate()
    filling = space_filling(count, d, rng)
    mean = np.mean(posterior.mean_at_data(), axis=0)
    best = posterior.x[np.argsort(-mean)[:4]]
    scale = _common_scale(posterior)
    cloud = np.repeat(best, count // 16, axis=0)
    cloud = np.clip(cloud + 0.25 * scale * rng.standard_normal(cloud.shape), 0.0, 1.0)
    return domain.snap(np.concatenate([filling, cloud, best]))


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def small_work(rows: int) -> AbstractContextManager[object]:
    """One BLAS thread while matrices are small: more of them cost more than they bring.

    Measured on two cores, a suggestion with two threads took 228 ms instead of 100 at 500 rows and
    543 instead of 444 at 1000.
    """
    return _threads().limit(limits=1) if rows < 1500 else nullcontext()
