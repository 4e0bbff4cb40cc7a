"""Information about the maximum: the paper's formulas on moments, with partial derivatives.

Notation, as in the paper and in docs: f ~ N(μ, σ²), y = f + ε with ε ~ N(0, τ²), σ₊² = σ² + τ²,
ρ = σ/σ₊, c = τ/σ₊, γ_k = (f*_k − μ)/σ and y = μ + σ₊ν. Theorem 1 divided by N(y; μ, σ₊²) is
w_k(ν) = Φ(g_k)/Φ(γ_k) with g_k = (γ_k − ρν)/c, and eq. (rmesd) becomes an integral over ν alone:

    RMES = E_ν[(1/K) Σ_k w_k log(w_k/w̄)] = E_ν[w̄ (1/K) Σ_k ψ(w_k/w̄)],   ψ(r) = r log r − r + 1 ≥ 0.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from rmes import quadrature
from rmes.normal import (
    Array,
    hazard,
    log_cdf,
    log_pdf,
    log_scaled_cdf,
    slack,
)

# Beyond this |γ| the ordinary arithmetic nears the end of double precision: Φ(−25)² is 1e-275.
_FAR = 25.0
# Mehler's series replaces the ratio of Φ's where the weights differ by so little, about
# ρ(γ_j − γ_k), that rounding Φ costs more than 1e-12, if ρ(1 + |γ|) is small enough for it.
_FAINT = 3e-3
_MEHLER_BELOW = 0.5
# Noise whose c is below this times 1 + |γ| is lost in the rounding of γ.
_NOISELESS = 1e-14
# Σ_k u_k² below which Σ_k ψ(1 + u_k) is taken from its series: both lose 3e-12 there.
_SERIES_BELOW = 1e-7
# Elements of a (nodes, maxima, blocks) array: five of them stay in the second-level cache.
_CHUNK = 16_000
_ONE = np.ones(1)
_ROOT_2PI = math.sqrt(2.0 * math.pi)
_underflow_is_zero = np.errstate(under="ignore")  # in the far tails; nothing else is hushed


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain of information at m points, in nats, with its partial derivatives."""

    value: Array  # (points,)
    by_mean: Array  # (points,) derivative in the posterior mean of f
    by_variance: Array  # (points,) derivative in the posterior variance of f


@_underflow_is_zero
def rmes(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> Gain:
    """Rectified max-value entropy search, eq. (rmesd), exactly.

    Parameters
    ----------
    mean, variance : array_like, (points,)
        Posterior of f at each point. Two scalars are one point.
    noise_variance : float or array_like, (points,)
        Variance of the measurement y about f.
    maxima : array_like, (maxima,) or (maxima, points)
        Draws of the maximum: shared by all points, or the points' own.

    Returns
    -------
    Gain
        Mutual information of y and the maximum, between 0 and log K.
    """
    problem = _standardize(mean, variance, noise_variance, maxima)
    parts, log_scale = _rmes_parts(problem)
    return _gain(problem, parts * np.exp(log_scale))


@_underflow_is_zero
def log_rmes(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> Gain:
    """Logarithm of `rmes`, with useful derivatives where RMES itself is too small to represent.

    Where RMES is zero (one maximum, or identical ones) the value is −inf and the derivatives are 0.
    """
    problem = _standardize(mean, variance, noise_variance, maxima)
    parts, log_scale = _rmes_parts(problem)
    some = parts[0] > 0.0
    if some.all():
        parts[1:] /= parts[0]
        np.log(parts[0], out=parts[0])
        parts[0] += log_scale
        return _gain(problem, parts)
    scale = np.where(some, parts[0], 1.0)
    value = np.where(some, np.log(scale) + log_scale, -np.inf)
    return _gain(problem, np.stack([value, *(np.where(some, parts[1:] / scale, 0.0))]))


@_underflow_is_zero
def rmes_matched(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> Gain:
    """RMES with p(y | f*) and their mixture replaced by normals of the same mean and variance.

    Given f*_k, ν has the mean −ρλ_k and the variance 1 − ρ²δ_k, δ_k = λ_k(λ_k + γ_k), so that
    ½ log(1 − ρ² mean δ + ρ² var λ) − ½ mean_k log(1 − ρ²δ_k) is left of the integral. It ranks
    points much as `rmes` does for a tenth of the price: a stand-in while a search is far from its
    end. Parameters as in `rmes`.
    """
    problem = _standardize(mean, variance, noise_variance, maxima)
    gamma, share = problem.gamma, problem.rho**2
    each = 1.0 / len(gamma)
    lam = hazard(gamma)
    delta = np.minimum(lam * (lam + gamma), 1.0 - 1e-9)  # −dλ/dγ
    slope = lam - delta * (2.0 * lam + gamma)  # dδ/dγ
    apart = lam - each * lam.sum(axis=0)
    lean = each * (delta - apart * apart).sum(axis=0)
    within, whole = 1.0 - share * delta, 1.0 - share * lean
    value = 0.5 * (np.log1p(-share * lean) - each * np.log1p(-share * delta).sum(axis=0))
    by_gamma = slope / within - (slope + 2.0 * apart * delta) / whole
    by_gamma *= 0.5 * each * share
    by_share = 0.5 * (each * (delta / within).sum(axis=0) - lean / whole)
    by_variance = 2.0 * share * problem.c**2 * by_share - (gamma * by_gamma).sum(axis=0)
    return _gain(problem, np.stack([value, by_gamma.sum(axis=0), by_variance]))


@_underflow_is_zero
def noisy_mes(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> Gain:
    """Max-value entropy search on the measurement: H(N(μ, σ₊²)) − mean_k H(p(y | f*_k)).

    That is mean_k of E_ν[w_k log w_k] + ρ²γ_k λ(γ_k)/2: the divergence of p(y | f*_k) from the
    Gaussian posterior of y, and what its narrower second moment takes off the cross entropy. It
    tends to `mes` as the noise vanishes. Parameters as in `rmes`.
    """
    problem = _standardize(mean, variance, noise_variance, maxima)
    silent = problem.noiseless
    parts = np.empty((3, silent.size))
    parts[:, silent] = _mes_parts(problem.gamma[:, silent])
    if not silent.all():
        noisy = problem.take(np.flatnonzero(~silent))
        divergence, log_scale = _integrate(noisy, _gaussian)
        parts[:, ~silent] = divergence * np.exp(log_scale) + _moment_parts(noisy)
    return _gain(problem, parts)


@_underflow_is_zero
def mes(mean: ArrayLike, variance: ArrayLike, maxima: ArrayLike) -> Gain:
    """Max-value entropy search (Wang & Jegelka 2017): mean_k of γ_k λ(γ_k)/2 − log Φ(γ_k)."""
    problem = _standardize(mean, variance, 0.0, maxima)
    return _gain(problem, _mes_parts(problem.gamma))


@_underflow_is_zero
def noiseless_rmes(mean: ArrayLike, variance: ArrayLike, maxima: ArrayLike) -> Gain:
    """RMES of an exact measurement: the limit τ → 0, where w_k is a step at γ_k."""
    problem = _standardize(mean, variance, 0.0, maxima)
    return _gain(problem, _noiseless_parts(problem.gamma))


@_underflow_is_zero
def rmes_sampled(
    mean: ArrayLike,
    variance: ArrayLike,
    noise_variance: ArrayLike,
    maxima: ArrayLike,
    nu: ArrayLike,
) -> Gain:
    """The paper's estimator of eq. (rmesd): an average over shared samples ν ~ N(0, 1).

    The derivatives are those of the average itself (the reparameterised gradient). `nu` has shape
    (samples,); other parameters as in `rmes`. The noise must be positive.
    """
    problem = _standardize(mean, variance, noise_variance, maxima)
    samples = np.asarray(nu, dtype=np.float64)
    if samples.ndim != 1 or samples.size == 0 or not np.isfinite(samples).all():
        raise ValueError(f"nu has shape {samples.shape}; expected finite samples of shape (s,)")
    if problem.noiseless.any():
        raise ValueError("noise_variance is 0; samples of y need a positive noise variance")
    points = problem.rho.size
    grid = np.broadcast_to(samples[:, None], (samples.size, points))
    nodes = quadrature.Nodes(
        owner=np.arange(points),
        anchor=np.zeros(points),
        offset=grid * (problem.rho / problem.c),
        nu=grid,
        log_weight=np.full(grid.shape, -np.log(samples.size)),
        first=grid,
        second=grid,
    )
    parts, log_scale = _below(problem, _mixture)(nodes)
    return _gain(problem, parts * np.exp(log_scale))


# ------------------------------------------------------------------ the problem in its own units


@dataclass(frozen=True, slots=True)
class _Problem:
    """Standardised moments: everything the integrals depend on."""

    gamma: Array  # (maxima, points)
    rho: Array  # (points,)
    c: Array  # (points,)
    variance: Array  # (points,)

    low: Array  # (points,) smallest γ
    high: Array  # (points,) largest γ

    @property
    def noiseless(self) -> np.ndarray:
        """Where noise is not representable beside γ."""
        return np.asarray(self.c <= _NOISELESS * (1.0 + np.maximum(-self.low, self.high)))

    def at(self, points: np.ndarray) -> tuple[Array, Array, Array]:
        """γ, c and ρ at some of the points."""
        return self.gamma[:, points], self.c[points], self.rho[points]

    def take(self, points: np.ndarray | slice) -> "_Problem":
        """The problem at some of the points."""
        return _Problem(
            self.gamma[:, points],
            self.rho[points],
            self.c[points],
            self.variance[points],
            self.low[points],
            self.high[points],
        )


def _standardize(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> _Problem:
    """Check the arguments and write them in units of the posterior deviation."""
    mu = np.atleast_1d(np.asarray(mean, dtype=np.float64))
    var = np.atleast_1d(np.asarray(variance, dtype=np.float64))
    noise = np.asarray(noise_variance, dtype=np.float64)
    tops = np.asarray(maxima, dtype=np.float64)
    if mu.ndim != 1 or mu.shape != var.shape or mu.size == 0:
        raise ValueError(
            f"mean has shape {mu.shape} and variance {var.shape}; expected (points,) for both"
        )
    if noise.ndim and noise.shape != mu.shape:
        raise ValueError(f"noise_variance has shape {noise.shape}; expected a number or {mu.shape}")
    if tops.ndim not in (1, 2) or tops.shape[0] == 0 or tops.shape[1:] not in ((), mu.shape):
        raise ValueError(
            f"maxima has shape {tops.shape}; expected (maxima,) or (maxima, {mu.size}), not empty"
        )
    for name, array in (("mean", mu), ("maxima", tops)):
        if not math.isfinite(array.sum()) and not np.isfinite(array).all():
            raise ValueError(f"{name} holds a value that is not finite")
    for name, array in (("variance", var), ("noise_variance", noise)):
        if not (array.min() >= 0.0 and array.max() < np.inf):
            raise ValueError(f"{name} holds a negative or non-finite value; expected 0 or more")
    above = (tops if tops.ndim == 2 else tops[:, None]) - mu  # (maxima, points)
    low, high = above.min(axis=0), above.max(axis=0)
    # A vanishing variance is replaced by one so small that the limit is reached: |γ| ≤ 1e8.
    var = np.maximum(var, np.maximum((1e-8 * np.maximum(-low, high)) ** 2, 1e-280))
    deviation, total = np.sqrt(var), var + noise
    return _Problem(
        gamma=above / deviation,
        rho=deviation / np.sqrt(total),
        c=np.sqrt(noise / total),
        variance=var,
        low=low / deviation,
        high=high / deviation,
    )


def _gain(problem: _Problem, parts: Array) -> Gain:
    """Back to the units of f: parts are the value, Σ_k ∂/∂γ_k and 2σ² ∂/∂σ²."""
    return Gain(
        value=parts[0],
        by_mean=-parts[1] / np.sqrt(problem.variance),
        by_variance=parts[2] / (2.0 * problem.variance),
    )


# ------------------------------------------------------------------ closed forms


def _mes_parts(gamma: Array) -> Array:
    lam, gap = hazard(gamma), slack(gamma)
    below = np.minimum(gamma, 0.0)
    entropy = np.where(
        gamma < 0.0,
        0.5 * below * gap - log_scaled_cdf(below),  # the parabolas of the two terms cancel
        0.5 * gamma * lam - log_cdf(gamma),
    )
    slope = -0.5 * lam * (1.0 + gamma * gap)
    return np.asarray(np.stack([entropy, slope, -gamma * slope]).mean(axis=1))


def _moment_parts(problem: _Problem) -> Array:
    """Mean over k of (1 − E[ν² | f*_k])/2 = ρ²γ_k λ(γ_k)/2."""
    gamma, square = problem.gamma, problem.rho**2
    lam = hazard(gamma)
    slope = 0.5 * square * lam * (1.0 - gamma * slack(gamma))
    value = 0.5 * square * gamma * lam
    by_variance = 2.0 * problem.c**2 * value - gamma * slope
    return np.asarray(np.stack([value, slope, by_variance]).mean(axis=1))


def _noiseless_parts(gamma: Array) -> Array:
    """Between γ_{j−1} and γ_j the weights are 1/Φ(γ_k) for k ≥ j and 0 for the others."""
    g = np.sort(gamma, axis=0)  # (maxima, points)
    size = g.shape[0]
    log_p, lam = log_cdf(g), hazard(g)
    drop = log_p[:-1] - log_p[1:]
    mass = np.concatenate([np.ones_like(g[:1]), -np.expm1(drop)])  # of interval j, over Φ(γ_j)
    kept = np.concatenate([np.exp(drop), np.zeros_like(g[:1])])  # Φ(γ_j) / Φ(γ_{j+1})
    alive = np.tri(size, dtype=bool).T[:, :, None]  # (interval j, maximum k, 1): k ≥ j
    v = np.where(alive, np.expm1(np.minimum(log_p[:, None] - log_p[None], 0.0)), -1.0)
    level, u = _mixture(v, _ONE, _ONE)
    value, _, weighted = _compared(level, u)
    weighted = np.where(alive, weighted * level[:, None], 0.0)
    total = np.sum(mass * value, axis=0)
    # value per interval as its limits move, then as the heights 1/Φ(γ_k) change
    following = np.concatenate([value[1:], np.zeros_like(value[:1])])
    by_gamma = lam * (value - kept * following)
    by_gamma -= lam * np.einsum("jm,jkm->km", mass, weighted) / size
    return np.stack([total, by_gamma.sum(axis=0), -(g * by_gamma).sum(axis=0)])


# ------------------------------------------------------------------ comparing the weights

# From v_k = (w_k − offset)/unit, of shape (nodes, maxima, blocks): w̄ and u_k = (w_k/w̄ − 1)/unit.
_Reference = Callable[[Array, Array, Array], tuple[Array, Array]]


def _mixture(v: Array, offset: Array, unit: Array) -> tuple[Array, Array]:
    """w̄ = (1/K) Σ_k w_k: what rectified max-value entropy search compares with."""
    first = v[:, 0].copy()
    v -= first[:, None]  # exact: keeps Σ_k u_k = 0 to relative precision where maxima coincide
    mean = np.add.reduce(v, axis=1)
    mean /= v.shape[1]
    reference = np.maximum(offset + unit * (first + mean), 1e-300)
    v -= mean[:, None]
    v /= reference[:, None]
    return reference, v


def _gaussian(v: Array, offset: Array, unit: Array) -> tuple[Array, Array]:
    """w̄ = 1, the Gaussian posterior of y: what max-value entropy search compares with."""
    v += (offset - 1.0)[..., None, :]
    return np.ones_like(v[:, 0]), v


class _Scratch(threading.local):
    """Memory that one thread uses again and again: fresh pages cost more than the arithmetic."""

    def __init__(self) -> None:
        self.memory = np.empty((0, 0))

    def arrays(self, count: int, shape: tuple[int, ...]) -> list[Array]:
        """As many arrays of that shape, with arbitrary contents."""
        size = math.prod(shape)
        if size > self.memory.shape[1] or count > len(self.memory):
            self.memory = np.empty((count, max(size, _CHUNK)))
        return [row[:size].reshape(shape) for row in self.memory[:count]]


_scratch = _Scratch()


def _compare(reference: Array, u: Array, log_ratio: Array, weighted: Array, square: Array) -> Array:
    """Return (1/K) Σ_k w̄ ψ(w_k/w̄); log(w_k/w̄) and (w_k/w̄) log(w_k/w̄) are written in place."""
    np.maximum(u, -1.0 + 2.0**-53, out=u)
    np.log1p(u, out=log_ratio)
    np.multiply(u, log_ratio, out=weighted)
    weighted += log_ratio
    value = np.add.reduce(weighted, axis=1) - np.add.reduce(u, axis=1)  # Σ_k ψ(1 + u_k)
    with np.errstate(over="ignore", invalid="ignore"):  # of large u, which the series leaves out
        second = np.einsum("nkp,nkp->np", u, u)
        small = second < _SERIES_BELOW
        if small.any():
            np.multiply(u, u, out=square)
            third = np.einsum("nkp,nkp->np", square, u)
            fourth = np.einsum("nkp,nkp->np", square, square)
            np.copyto(value, 0.5 * second - third / 6.0 + fourth / 12.0, where=small)
    return np.asarray(value * reference / u.shape[1])


def _compared(reference: Array, u: Array) -> tuple[Array, Array, Array]:
    """What `_compare` returns and writes, in new arrays."""
    log_ratio, weighted = np.empty_like(u), np.empty_like(u)
    return _compare(reference, u, log_ratio, weighted, np.empty_like(u)), log_ratio, weighted


def _compare_small(reference: Array, u: Array, unit: Array) -> tuple[Array, Array]:
    """Value over unit², and log(w_k/w̄) over unit, for weights 1 + unit·u of any small unit."""
    tiny = unit < 1e-13
    scale = np.where(tiny, 1.0, unit)
    value, log_ratio, _ = _compared(reference, u * scale[:, None])
    value = np.where(tiny, 0.5 * reference * np.mean(u * u, axis=1), value / (scale * scale))
    return value, np.where(tiny[:, None], u, log_ratio / scale[:, None])


# ------------------------------------------------------------------ the integral over ν


def _rmes_parts(problem: _Problem) -> tuple[Array, Array]:
    """Value and derivatives of RMES in units of exp(log_scale)."""
    # far above every mean the limit underflows; noise that is negligible keeps its logarithm
    silent, differ = problem.noiseless, problem.low < problem.high
    if differ.all() and not silent.any():
        return _integrate(problem, _mixture)
    silent &= problem.low <= _FAR
    noisy = differ & ~silent
    parts, log_scale = np.zeros((3, noisy.size)), np.zeros(noisy.size)
    silent &= differ
    if silent.any():
        parts[:, silent] = _noiseless_parts(problem.gamma[:, silent])
    if noisy.any():
        some = problem.take(noisy)
        some = replace(some, c=np.maximum(some.c, _NOISELESS * (1.0 + np.abs(some.high))))
        parts[:, noisy], log_scale[noisy] = _integrate(some, _mixture)
    return parts, log_scale


def _integrate(problem: _Problem, reference: _Reference) -> tuple[Array, Array]:
    """Sum the terms of each point over its nodes, in the arithmetic that suits its γ and ρ."""
    low, high, rho, c = problem.low, problem.high, problem.rho, problem.c
    # against the Gaussian, points beyond every step still count: ψ(0) = 1
    beyond = reference is _gaussian
    last = np.where(low >= -_FAR, np.inf, high) if beyond else high
    start, stop = quadrature.support(low, last, rho, c)
    width = quadrature.strip(low, high, c)
    group = quadrature.sharp(start, stop, rho, c).astype(np.intp)
    if max(-low.min(), low.max()) > _FAR:
        group += 2 * (low < -_FAR) + 4 * (low > _FAR)
    reach = rho * (1.0 + np.maximum(-low, high))
    if reach.min() < _MEHLER_BELOW:
        faint = reach < _MEHLER_BELOW
        if not beyond:
            faint &= np.minimum(reach, rho * (high - low)) < _FAINT
        group = np.where(faint, 6 + group % 2, group)
    if (group == group[0]).all():
        members: list[tuple[int, Any]] = [(int(group[0]), slice(None))]
    else:
        members = [(g, np.flatnonzero(group == g)) for g in sorted(set(group.tolist()))]
    parts, log_scale = np.empty((3, rho.size)), np.empty(rho.size)
    together = 0 if beyond else _CHUNK // len(problem.gamma)
    for label, chosen in members:
        some = problem if len(members) == 1 else problem.take(chosen)
        if label % 2:
            rules = quadrature.panels(
                some.gamma, some.rho, some.c, stop[chosen], width[chosen], beyond
            )
        else:
            rules = quadrature.trapezoidal(
                start[chosen], stop[chosen], some.rho, some.c, width[chosen], together
            )
        terms = (_ordinary, _below, _above, _faint)[label // 2](some, reference)
        parts[:, chosen], log_scale[chosen] = _sum(rules, terms, *some.gamma.shape)
    return parts, log_scale


def _sum(
    rules: tuple[quadrature.Nodes, ...], terms: "_Terms", size: int, points: int
) -> tuple[Array, Array]:
    """Add up blocks of nodes, a cache's worth at a time."""
    if (
        len(rules) == 1
        and rules[0].offset.shape[1] == points
        and rules[0].offset.size * size <= _CHUNK
    ):
        return terms(rules[0])  # a block is a point
    owners, sums, scales = [], [], []
    for rule in rules:
        nodes, blocks = rule.offset.shape
        step = max(_CHUNK // (nodes * size), 1)
        for i in range(0, blocks, step):
            part = rule if blocks <= step else rule.part(i, i + step)
            summed, scale = terms(part)
            owners.append(part.owner)
            sums.append(summed)
            scales.append(scale)
    owner, summed, scale = (
        np.concatenate(owners),
        np.concatenate(sums, axis=1),
        np.concatenate(scales),
    )
    log_scale = np.zeros(points)
    if scale.any():
        log_scale = np.full(points, -np.inf)
        np.maximum.at(log_scale, owner, scale)
        summed *= np.exp(scale - log_scale[owner])
    return np.stack([np.bincount(owner, part, points) for part in summed]), log_scale


# Sums of (value, Σ_k ∂/∂γ_k, 2σ² ∂/∂σ²) over blocks of nodes, (3, blocks), and their log scales.
# Every derivative is E_ν[(1/K) Σ_k (∂w_k) log(w_k/w̄)], since Σ_k w_k ∂log(w_k/w̄) = 0, with
#     ∂w_k/∂γ_k = φ(g_k)/(cΦ(γ_k)) − λ(γ_k) w_k,
#     2σ² ∂w_k/∂σ² = −γ_k ∂w_k/∂γ_k + (g_k − cγ_k) φ(g_k)/Φ(γ_k).
_Terms = Callable[[quadrature.Nodes], tuple[Array, Array]]


def _ordinary(problem: _Problem, reference: _Reference) -> _Terms:
    """|γ| moderate: Φ itself. Where every γ > 0 it is w_k − 1 that is computed, by upper tails.

    With ∂w_k/∂g_k = −(c/ρ) ∂w_k/∂ν and Stein's E[F′] = E[νF], E[(νF)′] = E[ν²F], what is common
    to all steps of the derivatives of RMES = E[F] needs no difference of terms in 1/c:

        Σ_k ∂/∂γ_k = −E[νF]/ρ − (1/K) Σ_k λ(γ_k) E[w_k log(w_k/w̄)],
        2σ² ∂/∂σ² = E[(ν² − 1)F] + (1/K) Σ_k γ_k (λ(γ_k) E[w_k log(w_k/w̄)]
                                                  − c E[φ(g_k) log(w_k/w̄)]/Φ(γ_k)).
    """
    gamma, c = problem.gamma, problem.c
    upper = gamma.min(axis=0) > 0.0
    sign = np.where(upper, 1.0, -1.0)  # x = −sign g is the argument whose Φ is small
    inverse = 1.0 / ndtr(gamma)
    start = np.where(upper, ndtr(-gamma) * inverse, 0.0)
    table = np.stack([gamma, start, -sign * inverse, hazard(gamma)])
    row = np.stack([sign / c, sign, c, problem.rho, upper])

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, start, slope, lam = table[:, :, nodes.owner]  # (maxima, blocks)
        scale, sign, c, rho, offset = row[:, nodes.owner]  # (blocks,)
        shift = (gamma - nodes.anchor) * scale
        shape = (nodes.offset.shape[0], *gamma.shape)  # (nodes, maxima, blocks)
        x, v, log_ratio, weighted, spare = _scratch.arrays(5, shape)
        np.subtract((sign * nodes.offset)[:, None], shift, out=x)
        _cdf(x, np.abs(shift).max() > 60.0, v)
        v *= slope
        v += start  # w_k − offset
        level, u = reference(v, offset, _ONE)
        value = _compare(level, u, log_ratio, weighted, spare)
        weight = np.exp(nodes.log_weight)
        by_hazard = np.einsum("nkp,np->kp", weighted, weight * level)
        density = np.multiply(x, x, out=spare)
        density *= -0.5
        np.exp(density, out=density)
        density *= log_ratio
        by_step = np.einsum("nkp,np->kp", density, weight) * np.abs(slope)
        value *= weight
        by_gamma = np.einsum("kp,kp->p", lam, by_hazard)
        by_variance = np.einsum("kp,kp->p", gamma, lam * by_hazard - (c / _ROOT_2PI) * by_step)
        size = len(gamma)
        sums = np.stack(
            [
                np.add.reduce(value),
                -np.einsum("np,np->p", value, nodes.first) / rho - by_gamma / size,
                np.einsum("np,np->p", value, nodes.second) + by_variance / size,
            ]
        )
        return sums, np.zeros(nodes.owner.size)

    return terms


def _cdf(x: Array, saturated: bool, p: Array) -> None:
    """Write Φ(x) to p; where saturated, most x are so large that it is 0 or 1."""
    if saturated:
        between = np.abs(x) < 38.0
        p[:] = x > 0.0
        p[between] = ndtr(x[between])
    else:
        ndtr(x, out=p)


def _below(problem: _Problem, reference: _Reference) -> _Terms:
    """Some γ far below zero: log w_k, free of the parabolas that cancel between g and γ."""

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, c, rho = problem.at(nodes.owner)
        g = (gamma - nodes.anchor) / c - nodes.offset[:, None]  # (nodes, maxima, blocks)
        nu, near = nodes.nu[:, None], c < rho
        # distance from ργ, the mean of y for f at its bound, in units of c
        apart = np.where(near, (c * gamma - g) / rho, (nu - rho * gamma) / c)
        parabola = np.where(near, (gamma - g) * (gamma + g), (nu - apart) * (nu + apart))
        under = np.minimum(g, 0.0)
        scaled = log_scaled_cdf(np.minimum(gamma, 0.0))
        log_w = np.where(
            (g < 0.0) & (gamma < 0.0),
            0.5 * parabola + log_scaled_cdf(under) - scaled,
            log_cdf(g) - np.where(gamma < 0.0, scaled - 0.5 * gamma * gamma, log_cdf(gamma)),
        )
        top = log_w.max(axis=1)
        ratio, v = np.exp(log_w - top[:, None]), np.expm1(log_w - top[:, None])
        if reference is _gaussian:
            weighted = ratio * log_w
            value = weighted.mean(axis=1)  # E[w_k] = 1: no need of ψ where the gain is not small
        else:
            value, log_ratio, _ = _compared(*reference(v, _ONE, _ONE))
            weighted = ratio * log_ratio
        # Below zero λ(z) = slack(z) − z, and what the −z of g and γ leave is written out.
        sg, sgamma, lam = slack(under), slack(gamma), hazard(g)
        direct = lam / c - hazard(gamma)
        by_gamma = np.where(g < 0.0, rho * apart / c + sg / c - sgamma, direct)
        by_variance = np.where(
            g < 0.0,
            gamma * sgamma - sg * (c * gamma + rho * nu / c) - rho * rho * nu * apart / c,
            (g - c * gamma) * lam - gamma * direct,
        )
        return _collapse(value, by_gamma, by_variance, weighted, nodes.log_weight + top)

    return terms


def _above(problem: _Problem, reference: _Reference) -> _Terms:
    """Every γ far above zero: w_k − 1 in units of the largest, which may underflow."""

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, c, _ = problem.at(nodes.owner)
        g = (gamma - nodes.anchor) / c - nodes.offset[:, None]  # (nodes, maxima, blocks)
        log_unit = log_cdf(-np.minimum(g, gamma).min(axis=1))
        unit, scale = np.exp(log_unit), log_unit[:, None]
        v = np.exp(log_cdf(-gamma) - scale) - np.exp(log_cdf(-g) - scale)
        density = np.exp(log_pdf(g) - scale)
        by_gamma = density / c - np.exp(log_pdf(gamma) - scale) * (1.0 + unit[:, None] * v)
        by_variance = (g - c * gamma) * density - gamma * by_gamma
        value, log_ratio = _compare_small(*reference(v, _ONE, unit), unit)
        return _collapse(value, by_gamma, by_variance, log_ratio, nodes.log_weight + 2.0 * log_unit)

    return terms


def _faint(problem: _Problem, reference: _Reference) -> _Terms:
    """Noise drowns f: Mehler's series w_k = 1 − λ(γ_k) Σ_n ρⁿ/n! He_{n−1}(γ_k) He_n(ν)."""

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, c, rho = problem.at(nodes.owner)
        log_hazard = log_pdf(gamma) - log_cdf(gamma)
        log_unit = np.minimum(log_hazard.max(axis=0) + np.log(rho), 0.0)
        lam = np.where(
            gamma < _FAR,
            hazard(gamma) * np.exp(np.minimum(-log_unit, 700.0)),  # closer to the last digit
            np.exp(log_hazard - log_unit),
        )
        gap = slack(gamma)  # (maxima, blocks)
        nu = nodes.nu[:, None]
        v, by_gamma, by_rho = (np.zeros((nu.shape[0], *gamma.shape)) for _ in range(3))
        previous, here = np.zeros_like(gamma), np.ones_like(gamma)  # He_{n−2}(γ), He_{n−1}(γ)
        before, now = np.ones_like(nu), nu  # He_{n−1}(ν), He_n(ν)
        power, left = rho, float((rho * (1.0 + np.abs(gamma)) * (1.0 + np.abs(nu)).max()).max())
        bound, n = 1.0, 1  # of what is left of the series, against its first term
        while bound > 1e-17:
            term = power * now
            v -= term * (lam * here)
            by_gamma += term * (lam * (gap * here - (n - 1) * previous))
            by_rho -= (n * term) * (lam * here)
            previous, here = here, gamma * here - (n - 1) * previous
            before, now = now, nu * now - n * before
            power = power * rho / (n + 1)
            bound, n = bound * left / (n + 1), n + 1
        unit = np.broadcast_to(np.exp(log_unit), nodes.nu.shape)
        by_variance = c * c * by_rho - gamma * by_gamma
        value, log_ratio = _compare_small(*reference(v, _ONE, unit), unit)
        return _collapse(value, by_gamma, by_variance, log_ratio, nodes.log_weight + 2.0 * log_unit)

    return terms


def _collapse(
    value: Array, by_gamma: Array, by_variance: Array, log_ratio: Array, log_weight: Array
) -> tuple[Array, Array]:
    """Sum terms over the nodes of each block, in units of its largest weight."""
    scale = np.maximum(log_weight.max(axis=0), -1e300)
    weight = np.exp(log_weight - scale)
    slopes = [np.mean(slope * log_ratio, axis=1) for slope in (by_gamma, by_variance)]
    return np.einsum("inp,np->ip", np.stack([value, *slopes]), weight), scale
