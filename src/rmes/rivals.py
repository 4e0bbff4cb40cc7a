"""Rival views of the data, of which the likelier is kept: main effects, grain, pressed values."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmes.evidence import log_evidence, log_evidence_and_gradient
from rmes.measurements import Data
from rmes.model import Model, bounds, length_scales, levels_of, log_prior
from rmes.multistart import Climb, climb

Array = NDArray[np.float64]

LEGS = 6, 12, 24  # rounds of a race: half of the climbs show soon that they do not win
_ROUGH = 0.05  # nats, to tell which view is likelier; the next fits climb on
_NEAR = 1e-3  # nats by which the end of another climb is another top
_LEAST = 100  # rows of a subset, or a third of the data: the subsets together cost little then


@dataclass(frozen=True)
class Target:
    """Log evidence plus log prior of the log hyperparameters within their box."""

    model: Model
    data: Data
    main: bool = False  # whether there are main effects

    @cached_property
    def low(self) -> Array:
        """Least values (p,)."""
        return bounds(self.model, self.data, self.main)[0]

    @cached_property
    def high(self) -> Array:
        """Greatest values (p,)."""
        return bounds(self.model, self.data, self.main)[1]

    @property
    def width(self) -> Array:
        """Sides of the box: climbs see it as the unit cube."""
        return self.high - self.low

    @property
    def flat(self) -> bool:
        """Whether there is no prior on the length-scales."""
        return bool(np.isinf(self.model.length_scale.spread))

    @property
    def flags(self) -> tuple[bool, bool, bool]:
        """Whether there are main effects, values are pressed, and rows have grain."""
        return self.main, self.data.pressed, self.data.grainy

    @property
    def few(self) -> int:
        """Rows up to which a search needs no subset to begin with."""
        return 250 if self.flat else 150

    @property
    def scales(self) -> int:
        """Number of length-scales; they come first."""
        return length_scales(self.model, self.data)

    def __call__(self, unit: Array, _rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """Values (m,) and gradients (m, p) at points of the unit cube."""
        theta = self.low + unit * self.width
        value, gradient = log_prior(self.model, self.data, theta)
        evidence, slope = log_evidence_and_gradient(self.model, self.data, theta)
        return value + evidence, (gradient + slope) * self.width

    def unit(self, theta: Array) -> Array:
        """The settings as points of the unit cube."""
        return np.asarray((theta - self.low) / self.width)

    def features(self, theta: Array) -> Array:
        """What tells modes apart: length-scales, of which all long ones are alike."""
        return np.asarray(2.0 * np.logaddexp(0.0, -theta[:, : self.scales]))

    def density(self, theta: Array) -> Array:
        """Values (m,) at settings (m, p); -inf outside the box."""
        within = np.minimum(np.maximum(theta, self.low), self.high)
        evidence = log_evidence(self.model, self.data, within)
        prior = log_prior(self.model, self.data, theta)[0]
        return np.where((within == theta).all(axis=1), prior + evidence, -np.inf)


class Top(NamedTuple):
    """The highest end of a climb: its value, log hyperparameters and inverse curvature."""

    target: Target
    value: float
    best: Array
    covariance: Array

    @staticmethod
    def of(target: Target, found: Climb) -> "Top":
        """The highest end of the climb of a target."""
        top, width = int(np.argmax(found.value)), target.width
        best = np.clip(target.low + found.x[top] * width, target.low, target.high)
        return Top(target, found.value[top], best, found.curvature[top] * np.outer(width, width))

    @property
    def quiet(self) -> bool:
        """Whether there is little noise, for values that are not pressed."""
        data = self.target.data
        levels = levels_of(self.target.model, data, self.best[None])
        noise = levels.noise[0] if data.infers_noise else data.level
        return bool(noise + levels.grain[0] < _QUIET)


# Nats of the log posterior that main effects must bring, or values that are pressed: about what the
# density of the share of main effects would lose by being averaged over the prior. With main
# effects by this rule, functions that are sums over their coordinates are left with half the
# regret after 60 measurements (32 pairs of runs, a factor of 1.3 either way) and 0.4 times after
# 120; others with what it was.
_WORTH = 0.5
# Of grain more is asked: two measurements of one point agree by chance to an eighth of their noise
# one time in ten. With 1 instead of 2 nats the regret was the same, and one run of thirty on
# Branin's function had grain that is not there.
_GRAIN_WORTH = 2.0
_ENOUGH = 15  # rows; fewer hardly ever tell
# The noise variance up to which values may be pressed: pressed, a noise of one size is not of one
# size any more. With the rule, the regret after 40 measurements of 66 functions was 0.66 times what
# it was where there is no noise (132 pairs of runs, a factor of 1.1 either way), 0.89 times at a
# noise of 5 % of the spread, 0.94 times at 20 % and 1.00 at 50 % (264 each, 1.06). Pressed whatever
# the noise, it was 1.08 times at 20 % and 1.09 times at 50 % (330 pairs each, 1.07), on the seeds
# that the number was chosen on.
_QUIET = 0.03
# Odds of main effects from which climbs start, and factors of the length-scales found without:
# what is a ripple of one coordinate alone can pass for noise among all of them.
_STARTS = np.log([[0.4, 1.0], [7.0, 1.0], [20.0, 0.4]])
_SHORTER = np.log([[0.5], [0.25]])  # factors of the length-scales, where ripples passed for noise
_LONGER, _GRAIN = np.log(3.0), np.log(0.2)  # and a variance, where they passed for short waves


def reconsidered(top: Top, otherwise: Callable[[], Data] | None, rng: np.random.Generator) -> Top:
    """The likelier one: with grain or without, main effects or none, values pressed or not.

    The same object if nothing else is likelier.
    """
    if top.target.data.size < _ENOUGH:
        return top
    return _pressed(_with_main_effects(_with_grain(top, rng), rng), otherwise, rng)


def _with_grain(top: Top, rng: np.random.Generator) -> Top:
    """What repeats tell from noise: shorter waves, or ripples that each point has for itself."""
    target, data = top.target, top.target.data
    if target.model.grain is None or not data.infers_noise or not data.repeats:
        return top
    noise = target.scales + 1  # its place; that of grain is the next
    if data.grainy:
        merged = np.delete(top.best, noise + 1)
        waves = _with_shorter_waves(merged, target)
        merged[noise] = np.logaddexp(*top.best[noise : noise + 2])
        starts = np.concatenate([merged[None], waves])
    else:
        scatter = np.log(max(data.scatter / data.repeats, 1e-6))
        agreed = top.best.copy()
        agreed[noise] = min(scatter, agreed[noise])
        shorter = _rival(target, _with_shorter_waves(agreed, target), rng)
        top = _likelier(top, shorter, False, _NEAR)
        starts = np.tile(np.insert(top.best, noise, min(scatter, top.best[noise])), (2, 1))
        starts[1, : target.scales] += _LONGER
        starts[1, noise + 1] = max(_GRAIN, top.best[noise])
    rival = _rival(replace(target, data=replace(data, grainy=not data.grainy)), starts, rng)
    return _likelier(top, rival, data.grainy, _GRAIN_WORTH)


def _with_shorter_waves(best: Array, target: Target) -> Array:
    """The setting best (p,) with shorter length-scales (2, p)."""
    starts = np.tile(best, (len(_SHORTER), 1))
    starts[:, : target.scales] += _SHORTER
    return starts


def _with_main_effects(top: Top, rng: np.random.Generator) -> Top:
    target = top.target
    if not target.model.main_effects or target.scales == 1:
        return top
    starts = top.best[None, :-1]
    if not target.main:
        starts = np.column_stack([np.tile(top.best, (len(_STARTS), 1)), _STARTS[:, 0]])
        starts[:, : target.scales] += _STARTS[:, 1:]
    rival = _rival(replace(target, main=not target.main), starts, rng)
    return _likelier(top, rival, target.main, _WORTH)


def _pressed(top: Top, otherwise: Callable[[], Data] | None, rng: np.random.Generator) -> Top:
    """Seen otherwise, pressed values are plain and plain ones pressed."""
    data = top.target.data
    if otherwise is None or not (data.pressed or top.quiet):
        return top
    view = replace(otherwise(), grainy=data.grainy)
    rival = _rival(replace(top.target, data=view), top.best[None], rng)
    if data.pressed and not rival.quiet:
        return rival
    return _likelier(top, rival, data.pressed, _WORTH)


def _likelier(top: Top, rival: Top, has: bool, worth: float) -> Top:
    """The rival, if it is worth it; `has` says that what is asked about is in the top."""
    return rival if rival.value > top.value + (-worth if has else worth) else top


def _rival(target: Target, starts: Array, rng: np.random.Generator) -> Top:
    """The top that is reached from the starts (m, p). Of many data a subset shows from which."""
    x, scale, curvature = np.clip(target.unit(starts), 0.0, 1.0), 1.0 / target.width, None
    if target.data.size > target.few:
        part = replace(target, data=subset(target.data, rng))
        found = climb(part, x, scale, _ROUGH, None, LEGS[1], race=True)
        best = [int(np.argmax(found.value))]
        x, curvature = found.x[best], found.curvature[best]
    found = climb(target, x, scale, _ROUGH, curvature, LEGS[1], race=True)
    return Top.of(target, found)


def subset(data: Data, rng: np.random.Generator) -> Data:
    """A third of the rows, at random; one of them has inferred noise if any has."""
    rows = rng.choice(data.size, max(_LEAST, data.size // 3), replace=False)
    rows = np.unique(np.append(rows, np.argmax(data.share)))
    return replace(
        data, x=data.x[rows], y=data.y[rows], known=data.known[rows], share=data.share[rows]
    )
