"""What a measurement would add to the answer: the knowledge gradient (Frazier et al. 2009).

A measurement at x will move the mean at a place a from μ(a) to μ(a) + s(a, x) Z, where Z is
standard normal and

    s(a, x) = cov(f(a), f(x)) / √(var f(x) + τ²).

The answer will then be the place with the largest mean, and is expected to gain

    E[max_a (μ(a) + s(a, x) Z)] − max_a μ(a).

The means are lines in Z, and only the highest of them count. Places are finitely many: those
given, and x itself.

Where points have grain, f(x) above is what is behind the noise at x, f(x) plus its grain, and the
best of the values that have been measured is a line as well: a flat one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from rmes.acquisition import below_best
from rmes.gp import Posterior, Screened
from rmes.kernels import correlate, squared_distances
from rmes.normal import cdf

Array = NDArray[np.float64]

_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))
_Z, _W = hermegauss(10)
_W /= _ROOT_TWO_PI


@cache
def _flatter(count: int) -> NDArray[np.bool_]:
    """(l, j): whether line j comes before line l."""
    return np.tri(count, k=-1, dtype=bool)


class Rise(NamedTuple):
    """The expected rise (m,) of the highest of L lines, and its derivatives (m, L)."""

    value: Array
    by_level: Array
    by_slope: Array


def expected_rise(level: Array, slope: Array) -> Rise:
    """E[max_l (level_l + slope_l Z)] − max_l level_l, for lines (m, L).

    Where two lines of the upper envelope meet at z, the rise grows by h(−|z|) times the change of
    slope, h(z) = φ(z) + z Φ(z) (Frazier et al. 2009, eq. 14): a sum of positive terms.
    """
    m, count = level.shape
    order, point = np.argsort(slope, axis=1), np.arange(m)[:, None]
    level, slope = level[point, order], slope[point, order]  # the flattest line first
    # Line l exceeds a flatter line j from here on (m, l, j). Of parallel lines the higher one is
    # above everywhere, and of identical ones the first is taken to be.
    higher, steeper = level[:, None, :] - level[:, :, None], slope[:, :, None] - slope[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = higher / steeper
    meet[np.isnan(meet)] = np.inf
    lower = np.where(_flatter(count), meet, -np.inf).max(axis=2)
    upper = np.where(_flatter(count), meet, np.inf).min(axis=1)
    on = lower < upper
    # The envelope turns where a line takes over from the last one before it.
    last = np.maximum.accumulate(np.where(on, np.arange(count), 0), axis=1)
    turn = slope[:, 1:] - slope[point, last[:, :-1]]
    corner = on[:, 1:] & (lower[:, 1:] > -np.inf)
    gain = np.zeros_like(turn)
    gain[corner] = turn[corner] * below_best(-np.abs(lower[:, 1:][corner]))
    lower, upper = np.where(on, lower, 0.0), np.where(on, upper, 0.0)
    # The probability to be the highest line, from the tail that does not cancel; less 1 for the
    # line that is the highest now.
    flip = lower > 0.0
    by_level = cdf(np.where(flip, -lower, upper)) - cdf(np.where(flip, -upper, lower))
    now = point[:, 0], np.argmax(np.where(on, level, -np.inf), axis=1)
    by_level[now] = -cdf(lower[now]) - cdf(-upper[now])
    by_slope = (np.exp(-0.5 * lower * lower) - np.exp(-0.5 * upper * upper)) / _ROOT_TWO_PI
    own = np.empty((2, m, count))
    own[:, point, order] = by_level, by_slope
    return Rise(np.add.reduce(gain, axis=1), *own)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The knowledge gradient as a function of x. Made by `knowledge`.

    Levels and slopes of the lines are averaged over the settings, as the answer's mean is.

    Attributes
    ----------
    posterior : Posterior
    noise : callable
        (m, d) points -> noise variances (S, m) of a new measurement there.
    points : (n + L, d) array
        The data, and the places where the answer may lie.
    scaled : (S, n + L, d) array
        In units of the length-scales.
    level : (L,) array
        The means at the places.
    measured : (1,) or (0,) array
        The best mean of what has been measured, where there is grain.
    table : (S, n + L + 1, n) array
        Rows of L⁻¹ (of the Cholesky factor), of K⁻¹ k(X, a), and α: one product of k(x, X) with
        all of them is what a call needs, and one with its result is what the gradient needs.
    """

    posterior: Posterior
    noise: Callable[[Array], Array]
    points: Array
    scaled: Array
    level: Array
    measured: Array
    table: Array

    def screen(self, x: Array, seen: Screened) -> Array:
        """Its logarithm (m,) at points x (m, d) of which `seen` is known, roughly.

        The highest line is looked up at a few values of Z instead of everywhere.
        """
        gp, n, single = self.posterior, len(self.posterior.x), np.float32
        signal, weight = gp.signal_variance[:, None, None], self.table[:, n:-1]
        lines = gp.screen_correlation(x, self.points[n:])  # (S, m, L)
        lines -= np.matmul(seen.correlation, weight.swapaxes(1, 2).astype(single))
        shift = gp.model.mean_variance * (1.0 - np.add.reduce(weight, axis=2))[:, None, :] / signal
        lines += shift.astype(single)
        deviation = np.sqrt(seen.variance + self.noise(x))
        lines *= (signal / (gp.settings * deviation[:, :, None])).astype(single)
        level, slope = np.empty((2, len(x), len(self.level) + 1), dtype=single)
        np.add.reduce(lines, out=slope[:, :-1])
        own = (seen.variance + gp.grain[:, None]) / deviation
        slope[:, -1] = np.add.reduce(own) / gp.settings
        here = np.add.reduce(seen.mean) / gp.settings
        best = max([self.level.max(), *self.measured])
        highest = np.maximum(here, best)
        level[:, :-1] = self.level - highest[:, None]
        level[:, -1] = here - highest
        risen = np.maximum.reduce(level + _Z.astype(single)[:, None, None] * slope, axis=2)
        if len(self.measured):
            risen = np.maximum(risen, best - highest)
        return np.asarray(np.log(np.maximum(_W @ risen, 1e-300)))

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Its logarithm (m,) at x (m, d), and the gradient (m, d)."""
        gp, n = self.posterior, len(self.posterior.x)
        signal = gp.signal_variance[:, None, None]
        scale = gp.length_scales[:, None, :]
        distance = squared_distances(x / scale, self.scaled)
        alike = correlate(gp.model.kernel, distance, x, self.points, gp.main)
        k = signal * alike.value
        k += gp.model.mean_variance
        products = np.matmul(k[:, :, :n], np.swapaxes(self.table, 1, 2))
        half, mean = products[:, :, :n], products[:, :, -1]
        prior = gp.prior_variance[:, None]
        variance = np.maximum(prior - np.vecdot(half, half), 1e-14 * prior)
        deviation = np.sqrt(variance + self.noise(x))
        own = len(self.level)  # the line of x itself; a flat one may follow
        slopes = np.zeros((*mean.shape, own + 1 + len(self.measured)))
        np.subtract(k[:, :, n:], products[:, :, n:-1], out=slopes[:, :, :own])
        slopes[:, :, own] = variance + gp.grain[:, None]
        slopes /= deviation[:, :, None]
        levels = np.empty(slopes.shape[1:])
        levels[:, :own] = self.level
        levels[:, own] = np.add.reduce(mean) / gp.settings
        levels[:, own + 1 :] = self.measured
        rise = expected_rise(levels, np.add.reduce(slopes) / gp.settings)
        # What k(X, x) and k(a, x) weigh in the derivative: by way of the covariances, of the mean
        # at x and of the variance at x.
        push = rise.by_slope / deviation[:, :, None]  # (S, m, lines)
        by_variance = push[:, :, own] - 0.5 * np.vecdot(push, slopes) / deviation
        half *= -2.0 * by_variance[:, :, None]
        np.negative(push[:, :, :own], out=products[:, :, n:-1])
        products[:, :, -1] = rise.by_level[:, own]
        pull = np.empty_like(k)
        np.matmul(products, self.table, out=pull[:, :, :n])
        pull[:, :, n:] = push[:, :, :own]
        pull *= (2.0 / gp.settings) * signal
        gradient = alike.pull(pull, x, self.points)
        gradient /= np.square(scale)
        gradient = np.add.reduce(gradient)
        value = np.maximum(rise.value, 1e-300)
        return np.log(value), gradient / value[:, None]

    def repeated(self, noise: Array) -> Array:
        """Its logarithm (n,) for another measurement of each row, of noise variance (S, n).

        What is behind the noise of a row has a mean and a variance of its own, so that two lines
        are left: that of the row and a flat one, the best of all others.
        """
        means, variances = self.posterior.values_at_data()
        mean = means.mean(axis=0)
        slope = (variances / np.sqrt(variances + noise)).mean(axis=0)
        others = np.tile(mean, (len(mean), 1))
        np.fill_diagonal(others, self.level.max())
        gap = np.abs(mean - np.maximum(others.max(axis=1), self.level.max()))
        gain, unsure = np.zeros_like(gap), slope > 1e-12 * gap  # others are known, or far too low
        gain[unsure] = slope[unsure] * below_best(-gap[unsure] / slope[unsure])
        return np.asarray(np.log(np.maximum(gain, 1e-300)))


def knowledge(posterior: Posterior, noise: Callable[[Array], Array], places: Array) -> Knowledge:
    """The knowledge gradient for answers at the places (L, d), or at x itself."""
    gp = posterior
    covariance = gp.covariance_with_data(places)  # (S, L, n)
    level = np.matmul(covariance, gp.alpha[:, :, None])[..., 0].mean(axis=0)
    half = np.matmul(covariance, np.swapaxes(gp.inverse_factor, 1, 2))
    weight = np.matmul(half, gp.inverse_factor)
    points = np.concatenate([gp.x, places])
    measured = gp.values_at_data()[0].mean(axis=0).max(keepdims=True) if gp.grainy else level[:0]
    return Knowledge(
        gp,
        noise,
        points,
        points / gp.length_scales[:, None, :],
        level,
        measured,
        np.concatenate([gp.inverse_factor, weight, gp.alpha[:, None, :]], axis=1),
    )
