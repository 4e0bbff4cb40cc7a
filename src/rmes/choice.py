"""The best feasible point under an acquisition: what is looked at, and how it is climbed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmes import adam, maxima
from rmes.criteria import (
    LOGARITHMS,
    NEED_NO_MAXIMA,
    NoiseAt,
    acquire,
    answers,
    avoiding,
    log_novelty,
    log_success,
    roughly,
    screened,
)
from rmes.domain import Domain
from rmes.gp import Posterior, Screened
from rmes.maxima import Maxima
from rmes.measurements import Data
from rmes.multistart import Climb, ValueAndGradient, search, space_filling, spread
from rmes.settings import Settings, Situation

Array = NDArray[np.float64]


class Pick(NamedTuple):
    """A point and why it was chosen: the first fields of `rmes.suggest.Suggestion`."""

    x: Array
    value: float
    acquisition: str
    repeats: int | None


@dataclass(frozen=True, slots=True)
class View:
    """All there is to see before a point is chosen. Made by `look`.

    Attributes
    ----------
    data : Data
    posterior : Posterior
    pending : (q, d) array
    situation : Situation
    settings : Settings
    noise : callable
        (m, d) points -> variances (S, m) of what a new measurement there differs from the process
        by: its noise, and grain that nobody has seen yet.
    scale : (d,) array
        The distance over which values change.
    success : ValueAndGradient or None
        Log probability that a measurement succeeds; None where none has failed.
    candidates : (m, d) array
        Points to climb from.
    drawn : Maxima or None
        Their places are the last candidates.
    screened : Screened or None
        What is roughly known of the candidates, where maxima were drawn.
    """

    data: Data
    posterior: Posterior
    pending: Array
    situation: Situation
    settings: Settings
    noise: NoiseAt
    scale: Array
    success: ValueAndGradient | None
    candidates: Array
    drawn: Maxima | None = None
    screened: Screened | None = None

    @property
    def maxima(self) -> Maxima:
        """The drawn ones, for what cannot do without."""
        if self.drawn is None:
            raise ValueError(f"{self.settings.acquisition} draws no maxima")
        return self.drawn

    @property
    def seen(self) -> Screened:
        """What is roughly known of the candidates, for what cannot do without."""
        if self.screened is None:
            raise ValueError(f"{self.settings.acquisition} screens no candidates")
        return self.screened

    def acquisition(self, name: str) -> ValueAndGradient:
        """The named one, discounted where measurements may fail."""
        function = acquire(name, self.posterior, self.noise, self.drawn, self.data.size)
        return avoiding(function, name, self.success)

    def discounted(self, values: Array, x: Array) -> Array:
        """Log values (m,) at the points (m, d), less where measurements may fail."""
        return values if self.success is None else values + self.success(x)[0]

    def starts(self, values: Array, count: int) -> Array:
        """Candidates (count, d) to climb from, for values (m,) of them all."""
        return self.candidates[spread(values, self.candidates / self.scale, count)]

    def best_candidate(self, values: Array) -> int:
        """The candidate with the highest of the values (m,) that may be measured."""
        order = np.argsort(-values)
        return int(order[self.first_allowed(self.candidates[order])])

    def first_allowed(self, points: Array) -> int:
        """The first of the points (m, d) that may be measured; 0 if none may."""
        forbidden = self.pending
        if self.situation.exact:
            forbidden = np.concatenate([forbidden, self.data.x])
        return int(np.argmax(~_coincide(points, forbidden)))


def look(
    data: Data,
    posterior: Posterior,
    pending: Array,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
) -> View:
    """Look at many points roughly, and draw maxima where the acquisition needs them."""
    domain = situation.domain
    points = candidates(posterior, settings, domain, rng)
    noise = unexplained(data, posterior, situation.noise_at)
    scale = _common_scale(posterior)
    success = chance(data, posterior, situation)
    given = data, posterior, pending, situation, settings, noise, scale, success
    if settings.acquisition in NEED_NO_MAXIMA:
        return View(*given, points)
    seen = posterior.screen(points)
    if success is None:
        hopeful = _hopeful(seen.mean, seen.variance)
        points, seen = points[hopeful], seen.at(hopeful)
    # In 2 coordinates one climb for each path leaves its top 0.002 to 0.007 of the signal's
    # deviation too low, two leave 0.001 to 0.004; in 5 coordinates 0.05 to 0.1, and half of that.
    climbs = 1 if domain.moving <= 2 else 2
    drawn = maxima.from_paths(
        posterior, settings.maxima, points, domain, rng, seen.correlation, success, climbs
    )
    places = drawn.place.reshape(-1, domain.dimensions)
    points, seen = np.concatenate([points, places]), seen.then(posterior.screen(places))
    return View(*given, points, drawn, seen)


def pick(view: View, rng: np.random.Generator) -> Pick:
    """The best feasible point under the acquisition; see `Settings.settle` for the exception."""
    name = view.settings.acquisition
    if name == "rmes":
        return _by_information(view)
    if name == "rmes-adam":
        return _by_samples(view, rng)
    if name == "knowledge-gradient":
        return _by_knowledge(view)
    function = view.acquisition(name)
    values = function(view.candidates)[0]
    tolerance = _TOLERANCE
    if name not in LOGARITHMS:  # its units are those of y, or it may be tiny everywhere
        tolerance *= 0.01 * float(np.ptp(values))
    starts = view.starts(values, view.settings.climbs)
    domain = view.situation.domain
    found = search(lambda x, _rows: function(x), starts, view.scale, tolerance, domain)
    highest = _highest(view, function, values, found.x, found.value)
    return _new_or_repeat(view, name, function, *highest)


def _by_information(view: View) -> Pick:
    """RMES, or where it would only repeat a point what settles the answer: `Settings.settle`."""
    settles = view.settings.settle
    if settles and (checked := _check(view)):
        return checked
    values = _glance(view)
    if settles and view.situation.domain.moving <= _DENSE:
        # the best candidate tells, mostly, what the climb would
        best = [view.best_candidate(values)]
        known = view.seen.mean[:, best], view.seen.variance[:, best]
        again = _repeats(view, view.candidates[best[0]], *known) is not None
        if again and (found := _settled(view)):
            return found
    function = view.acquisition("rmes") if values.max() < _TINY else _rough(view)
    starts = view.starts(values, view.settings.climbs)
    tops = climbed(function, starts, view.scale, view.situation.domain)
    x, value = _highest(view, function, values, tops.x, tops.value)
    row = _repeats(view, x, *view.posterior.predict(x[None]))
    chosen = _picked(view, "rmes", x, value, row)
    if row is None or not settles:
        return chosen
    return _settled(view) or chosen


def _check(view: View) -> Pick | None:
    """The best value, to be measured once more where much of all values may be noise.

    Ripples too short to be resolved look like noise, until a point has been measured twice. Where
    two measurements agree by far better than noise would let them, others tell whether by chance.
    """
    data, posterior = view.data, view.posterior
    if not data.infers_noise or not view.settings.repeats or data.size < _CHECK_AT:
        return None
    noise = float(np.add.reduce(posterior.noise_variance) / posterior.settings)
    agree = data.scatter <= _AGREEING * data.repeats * noise
    if noise < _CHECKED_NOISE or data.repeats > _CHECKS or not agree or posterior.grainy:
        return None
    row = int(np.argmax(np.where(data.share == 1.0, data.y, -np.inf)))
    x = data.x[[row]]
    if data.share[row] < 1.0 or _coincide(x, view.pending)[0]:
        return None
    value = _look(view, x, *view.posterior.predict(x))
    return Pick(x[0], float(value[0]), CHECK, row)


def _repeats(view: View, x: Array, mean: Array, variance: Array) -> int | None:
    """The row of a measured point that is worth as much as x by a glance at both, if any is.

    x has those moments (S, 1). Where a repeat leaves the choice to another acquisition, 3 % less
    are as much.
    """
    posterior = view.posterior

    def worth(rows: NDArray[np.intp]) -> tuple[float, Array]:
        means = np.concatenate([mean, posterior.mean_at_data()[:, rows]], axis=1)
        variances = np.concatenate([variance, posterior.variance_at_data(rows)], axis=1)
        points = np.concatenate([x[None], view.data.x[rows]])
        found = _look(view, points, means, variances)
        return float(found[0]), found[1:]

    return _worth_repeating(view, "rmes", worth, x, _SETTLED if view.settings.settle else _SAME)


def _settled(view: View) -> Pick | None:
    """The point chosen for the answer's sake, where it is likely to give a value.

    A better answer may lie where measurements fail; a point that may well fail is none.
    """
    chosen = _by_knowledge(view)
    if view.success is None or view.success(chosen.x[None])[0][0] > _SAFE:
        return chosen
    return None


def _by_samples(view: View, rng: np.random.Generator) -> Pick:
    """RMES, estimated from samples and climbed by Adam, as in the paper."""
    values = _glance(view)
    drawn = view.maxima

    def estimate(samples: int) -> ValueAndGradient:
        function = adam.sampled(view.posterior, view.noise, drawn, samples, rng)
        return avoiding(function, "rmes-adam", view.success)

    noisy, function = estimate(adam.SAMPLES), estimate(adam.FINAL_SAMPLES)
    starts = view.starts(values, view.settings.climbs)
    tops, heights = adam.search(noisy, function, starts, view.situation.domain)
    x, value = _highest(view, function, values, tops, heights)
    row = _repeats(view, x, *view.posterior.predict(x[None]))
    return _picked(view, "rmes-adam", x, value, row)


def _by_knowledge(view: View) -> Pick:
    """The point that is expected to improve the answer most."""
    name, posterior = "knowledge-gradient", view.posterior
    gain = answers(posterior, view.noise, view.maxima)
    function = avoiding(gain, name, view.success)
    values = view.discounted(gain.screen(view.candidates, view.seen), view.candidates)
    if posterior.grainy:
        news = log_novelty(_SAME_GRAIN * view.scale, posterior.x)
        function, values = avoiding(function, name, news), values + news(view.candidates)[0]
    starts = view.starts(values, _SETTLING_CLIMBS)
    found = climbed(function, starts, view.scale, view.situation.domain)
    x, value = _highest(view, function, values, found.x, found.value)
    if not posterior.grainy:
        return _new_or_repeat(view, name, function, x, value)
    noise = new_noise(view.data, posterior, view.situation.noise_at)(posterior.x)
    again = view.discounted(gain.repeated(noise), posterior.x)
    again[_coincide(posterior.x, view.pending)] = -np.inf  # the last rows are those of pending ones
    row = int(np.argmax(again))
    if view.settings.repeats and not view.situation.exact and again[row] > value:
        return Pick(view.data.x[row], float(again[row]), name, row)
    return Pick(x, value, name, None)


def _glance(view: View) -> Array:
    """What a cheap stand-in for log RMES says of the candidates (m,)."""
    return _look(view, view.candidates, view.seen.mean, view.seen.variance)


def _look(view: View, x: Array, mean: Array, variance: Array) -> Array:
    """The same (m,) of any points (m, d) with moments (S, m)."""
    return view.discounted(screened(mean, variance, view.noise(x), view.maxima), x)


def _rough(view: View) -> ValueAndGradient:
    """Log RMES to three digits, discounted where measurements may fail."""
    return avoiding(roughly(view.posterior, view.noise, view.maxima), "rmes", view.success)


def climbed(function: ValueAndGradient, starts: Array, scale: Array, domain: Domain) -> Climb:
    """The tops of a logarithm from the starts (m, d), of which only the highest matters."""
    return search(
        lambda x, _rows: function(x),
        starts,
        scale,
        _FINAL,
        domain,
        3 + 2 * domain.moving,
        differences=domain.moving <= _FEW,
        race=True,
    )


def _highest(
    view: View, function: ValueAndGradient, values: Array, tops: Array, heights: Array
) -> tuple[Array, float]:
    """The highest of the tops (m, d) that may be measured, else the best candidate; its value."""
    order = np.argsort(-heights)
    points = np.concatenate([tops[order], view.candidates[np.argsort(-values)]])
    first = view.first_allowed(points)
    x = points[first]
    return x, float(heights[order][first] if first < len(order) else function(x[None])[0][0])


def _new_or_repeat(
    view: View, name: str, function: ValueAndGradient, x: Array, value: float
) -> Pick:
    """The point x, or the measured one that is worth as much: measure that again."""

    def worth(rows: NDArray[np.intp]) -> tuple[float, Array]:
        return value, function(view.data.x[rows])[0]

    row = _worth_repeating(view, name, worth, x, _SAME)
    return _picked(view, name, x, value, row)


def _picked(view: View, name: str, x: Array, value: float, row: int | None) -> Pick:
    """The point x, or the measured one of that row in its place."""
    return Pick(x if row is None else view.data.x[row], value, name, row)


def _worth_repeating(
    view: View,
    name: str,
    worth: Callable[[NDArray[np.intp]], tuple[float, Array]],
    x: Array,
    less: float,
) -> int | None:
    """The row of a measured point that is worth as much as x, if there is one.

    `worth` knows the acquisition at x and of rows, asked only where x has measured neighbours;
    theirs may be less by that share. Repeats keep the data small and are easier to read than points
    that differ in the fourth digit.
    """
    if not view.settings.repeats or view.situation.exact:
        return None
    offset = (view.data.x - x) / view.scale
    distance = np.vecdot(offset, offset)
    near = np.flatnonzero(distance < 0.05)
    near = near[np.argsort(distance[near])[:3]]
    near = near[~_coincide(view.data.x[near], view.pending)]
    if not len(near):
        return None
    if distance[near[0]] == 0.0:  # whatever rounding says of both
        return int(near[0])
    here, there = worth(near)
    best = int(np.argmax(there))
    # the bound is in units of y, whose standard deviation is 1; others are relative
    absolute = name in LOGARITHMS or name == "ucb"
    margin = less if absolute else less * abs(here)
    return int(near[best]) if there[best] >= here - margin else None


# Of the log acquisition: what a further step promises, relative to the information.
_TOLERANCE = 1e-4
_FINAL = 5e-4  # where only the highest end matters: half of it is still to rise
_TINY = float(np.log(1e-8))  # below it three digits of RMES are lost
_SETTLING_CLIMBS = 4  # half as many as are worth it elsewhere: 0.1 % of the gain are lost
_SAFE = float(np.log(0.9))
# Shares of the acquisition that a repeat may lose. With 3 % instead of 1 % before the knowledge
# gradient is asked, the regret after 40 measurements of 27 functions of 2 and 3 coordinates was
# 0.94 times what it was (810 pairs of runs, a factor of 1.05 either way).
_SAME, _SETTLED = 0.01, 0.03
# Coordinates up to which candidates lie so dense that where RMES would repeat a point can be seen
# without a climb: both agree in 92 % of suggestions in 2 coordinates, 85 % in 3 and 88 % in 5
# (1,350 of them on ten functions); where they do not, it is the climb that finds a new point.
_DENSE = 3
CHECK = "check"
# Rows, and inferred noise as a share of the variance of the values, from which the best value is
# measured once more if no point has been measured twice; then the share of that noise by which
# repeats agree too well, and how many of them are asked. What grain and checks bring is in
# docs/design.md.
_CHECK_AT, _CHECKED_NOISE = 20, 0.25
_AGREEING, _CHECKS = 0.1, 2
_SAME_GRAIN = 0.1  # length-scales within which points are taken to have the same grain
_FEW = 4  # coordinates up to which differences of gradients are worth their price


def candidates(
    posterior: Posterior, settings: Settings, domain: Domain, rng: np.random.Generator
) -> Array:
    """Space-filling points, and a cloud around the data with the best means."""
    d = domain.dimensions
    count = min(settings.candidates, 64 + 64 * d)
    if domain.size <= count:
        return domain.enumerate()
    filling = space_filling(count, d, rng)
    mean = np.add.reduce(posterior.mean_at_data())  # over the settings
    best = posterior.x[np.argsort(-mean)[:4]]
    scale = _common_scale(posterior)
    cloud = np.repeat(best, count // 16, axis=0)
    cloud += 0.25 * scale * rng.standard_normal(cloud.shape)
    np.minimum(np.maximum(cloud, 0.0, out=cloud), 1.0, out=cloud)
    return domain.snap(np.concatenate([filling, cloud, best]))


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
    return lambda x: np.repeat(level[:, None], len(x), axis=1)


def unexplained(
    data: Data, posterior: Posterior, noise_at: Callable[[Array], Array] | None
) -> NoiseAt:
    """What a measurement at a new point differs from the process by: its noise and its grain."""
    noise = new_noise(data, posterior, noise_at)
    if not posterior.grainy:
        return noise
    return lambda x: noise(x) + posterior.grain[:, None]


def chance(data: Data, posterior: Posterior, situation: Situation) -> ValueAndGradient | None:
    """Log probability that a measurement succeeds; None where none has failed."""
    if not len(situation.failed):
        return None
    scale = _common_scale(posterior)
    return log_success(posterior.model.kernel, scale, data.x, situation.failed)


def _common_scale(posterior: Posterior) -> Array:
    """Length-scales (d,) for the search: the settings' geometric mean, at most the cube's side."""
    mean = np.exp(np.add.reduce(np.log(posterior.length_scales)) / posterior.settings)
    return np.asarray(np.minimum(mean, 1.0))


def _hopeful(mean: Array, variance: Array) -> NDArray[np.intp]:
    """Points where the maximum may lie, for moments (S, m): the others it reaches in one of 10⁴.

    Nor is there anything to learn about the maximum at the others.
    """
    reach = 4.0 * np.sqrt(variance)
    least = np.max(mean - reach, axis=1, keepdims=True)
    return np.flatnonzero((mean + reach >= least).any(axis=0))


def _coincide(points: Array, others: Array) -> NDArray[np.bool_]:
    """Which points (m, d) are, to rounding, among the others."""
    if not len(others):
        return np.zeros(len(points), dtype=bool)
    gap = np.max(np.abs(points[:, None, :] - others), axis=2)
    return np.asarray(np.min(gap, axis=1) < 1e-9)
