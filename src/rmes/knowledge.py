"""What a measurement would add to the answer: the knowledge gradient (Frazier et al. 2009).

A measurement at x will move the mean at a place a from μ(a) to μ(a) + s(a, x) Z, where Z is
standard normal and

    s(a, x) = cov(f(a), f(x)) / √(var f(x) + τ²).

The answer will then be the place with the largest mean, and is expected to gain

    E[max_a (μ(a) + s(a, x) Z)] − max_a μ(a).

The means are lines in Z, and only the highest of them count. Places are finitely many: those
given, and x itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from rmes.acquisition import expected_improvement
from rmes.gp import Posterior
from rmes.kernels import squared_distances
from rmes.normal import cdf

Array = NDArray[np.float64]

_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))
_Z, _W = hermegauss(10)
_W /= _ROOT_TWO_PI


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
    steeper = slope[:, :, None] - slope[:, None, :]  # of line l than of line j: (m, l, j)
    higher = level[:, None, :] - level[:, :, None]  # line j than line l
    # Of parallel lines the highest counts, of identical ones the first.
    same = np.abs(steeper) <= 1e-14 * np.max(np.abs(slope), axis=1)[:, None, None]
    rank = np.arange(count)
    hidden = same & ((higher > 0.0) | ((higher == 0.0) & (rank < rank[:, None])))
    meet = higher / np.where(same, 1.0, steeper)
    after = np.where(~same & (steeper > 0.0), meet, -np.inf)  # line l is the higher beyond
    lower, upper = after.max(axis=2), np.where(~same & (steeper < 0.0), meet, np.inf).min(axis=2)
    on = (lower < upper) & ~hidden.any(axis=2)
    before = np.take_along_axis(steeper, after.argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    counts = on & (lower > -np.inf)
    place = np.where(counts, lower, 0.0)
    unit = expected_improvement(-np.abs(place), np.ones_like(place), 0.0).value
    value = np.sum(np.where(counts, before * unit, 0.0), axis=1)
    lower, upper = np.where(on, lower, 0.0), np.where(on, upper, 0.0)
    # The probability to be the highest line, from the tail that does not cancel; less 1 for the
    # line that is the highest now.
    flip = lower > 0.0
    by_level = cdf(np.where(flip, -lower, upper)) - cdf(np.where(flip, -upper, lower))
    now = np.arange(m), np.argmax(level, axis=1)
    by_level[now] = -cdf(lower[now]) - cdf(-upper[now])
    by_slope = (np.exp(-0.5 * lower * lower) - np.exp(-0.5 * upper * upper)) / _ROOT_TWO_PI
    return Rise(value, by_level, by_slope)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The knowledge gradient as a function of x. Made by `knowledge`.

    Levels and slopes of the lines are averaged over the settings, as the answer's mean is.

    Attributes
    ----------
    posterior : Posterior
    noise : callable
        (m, d) points -> noise variances (S, m) of a new measurement there.
    places : (L, d) array
        Where the answer may lie.
    level : (L,) array
        The means there.
    weight : (S, L, n) array
        K⁻¹ k(X, a).
    """

    posterior: Posterior
    noise: Callable[[Array], Array]
    places: Array
    level: Array
    weight: Array

    def screen(
        self, x: Array, correlation: NDArray[np.float32], mean: Array, variance: Array
    ) -> Array:
        """Its logarithm (m,) at points x (m, d) whose `Posterior.screen` is known, roughly.

        The highest line is looked up at a few values of Z instead of everywhere.
        """
        gp = self.posterior
        slope = np.zeros((len(x), len(self.level) + 1))
        for s, scale in enumerate(gp.length_scales):
            near = squared_distances(x / scale, self.places / scale)
            signal, constant = gp.signal_variance[s], gp.model.mean_variance
            line = np.empty_like(slope)
            line[:, :-1] = signal * gp.model.kernel.value(near)
            line[:, :-1] -= (signal * correlation[s]) @ self.weight[s].T
            line[:, :-1] += constant * (1.0 - self.weight[s].sum(axis=1))
            line[:, -1] = variance[s]
            line /= np.sqrt(variance[s] + self.noise(x)[s])[:, None]
            slope += line
        slope /= gp.settings
        level = np.empty_like(slope)
        level[:, :-1] = self.level
        level[:, -1] = mean.mean(axis=0)
        level -= level.max(axis=1, keepdims=True)
        rise = sum(w * np.max(level + z * slope, axis=1) for z, w in zip(_Z, _W, strict=True))
        return np.asarray(np.log(np.maximum(rise, 1e-300)))

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Its logarithm (m,) at x (m, d), and the gradient (m, d)."""
        gp, n = self.posterior, len(self.posterior.x)
        signal = gp.signal_variance[:, None, None]
        points = np.concatenate([gp.x, self.places])
        scale = gp.length_scales[:, None, :]
        kernel, fall = gp.model.kernel.value_and_slope(squared_distances(x / scale, points / scale))
        k = signal * kernel + gp.model.mean_variance
        with_data = k[:, :, :n]
        half = np.matmul(with_data, np.swapaxes(gp.inverse_factor, 1, 2))
        prior = gp.prior_variance[:, None]
        variance = np.maximum(prior - np.einsum("smn,smn->sm", half, half), 1e-14 * prior)
        mean = np.matmul(with_data, gp.alpha[:, :, None])[..., 0]
        covariance = k[:, :, n:] - np.matmul(with_data, np.swapaxes(self.weight, 1, 2))
        deviation = np.sqrt(variance + self.noise(x))
        slopes = np.concatenate([covariance, variance[:, :, None]], axis=2) / deviation[:, :, None]
        levels = np.broadcast_to(self.level, (len(x), len(self.level)))
        levels = np.concatenate([levels, mean.mean(axis=0)[:, None]], axis=1)
        rise = expected_rise(levels, slopes.mean(axis=0))
        # What k(X, x) and k(a, x) weigh in the derivative: by way of the covariances, of the mean
        # at x and of the variance at x.
        push = rise.by_slope / deviation[:, :, None]  # (S, m, L + 1)
        by_variance = push[:, :, -1] - 0.5 * np.einsum("sml,sml->sm", push, slopes) / deviation
        pull = np.empty_like(k)
        pull[:, :, n:] = push[:, :, :-1]
        pull[:, :, :n] = rise.by_level[:, -1:] * gp.alpha[:, None, :]
        pull[:, :, :n] -= np.matmul(push[:, :, :-1], self.weight)
        pull[:, :, :n] -= 2.0 * by_variance[:, :, None] * np.matmul(half, gp.inverse_factor)
        pull *= (2.0 / gp.settings) * signal * fall
        gradient = np.einsum("smn->sm", pull)[:, :, None] * x - np.matmul(pull, points)
        gradient = np.sum(gradient / np.square(scale), axis=0)
        value = np.maximum(rise.value, 1e-300)
        return np.log(value), gradient / value[:, None]


def knowledge(posterior: Posterior, noise: Callable[[Array], Array], places: Array) -> Knowledge:
    """The knowledge gradient for answers at the places (L, d), or at x itself."""
    covariance = posterior.covariance_with_data(places)  # (S, L, n)
    level = np.matmul(covariance, posterior.alpha[:, :, None])[..., 0].mean(axis=0)
    half = np.matmul(covariance, np.swapaxes(posterior.inverse_factor, 1, 2))
    return Knowledge(posterior, noise, places, level, np.matmul(half, posterior.inverse_factor))
