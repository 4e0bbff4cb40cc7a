"""Information about the maximum: the paper's formulas on moments, with partial derivatives.

Notation, as in the paper and in docs: f ~ N(μ, σ²), y = f + ε with ε ~ N(0, τ²), σ₊² = σ² + τ²,
ρ = σ/σ₊, c = τ/σ₊, γ_k = (f*_k − μ)/σ and y = μ + σ₊ν. Theorem 1 divided by N(y; μ, σ₊²) is
w_k(ν) = Φ(g_k)/Φ(γ_k) with g_k = (γ_k − ρν)/c, and eq. (rmesd) becomes an integral over ν alone:

    RMES = E_ν[(1/K) Σ_k w_k log(w_k/w̄)] = E_ν[w̄ (1/K) Σ_k ψ(w_k/w̄)],   ψ(r) = r log r − r + 1 ≥ 0.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from rmes import integral, quadrature
from rmes.integral import Problem
from rmes.normal import Array, hazard, log_cdf, log_scaled_cdf, slack

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
def rmes_rough(mean: Array, variance: Array, noise_variance: Array, maxima: Array) -> Gain:
    """RMES to three digits, where it is not tiny, for a third of the price: what a search climbs.

    One rule of a few dozen nodes serves all points; where that will not do, it is `rmes`. As
    there, but for arrays (points,) and maxima (maxima, points), which are not checked.
    """
    problem = _problem(mean, variance, noise_variance, maxima)
    parts = integral.rough(problem)
    if parts is None:
        parts, log_scale = _rmes_parts(problem)
        parts *= np.exp(log_scale)
    return _gain(problem, parts)


@_underflow_is_zero
def rmes_matched(mean: Array, variance: Array, noise_variance: Array, maxima: Array) -> Array:
    """RMES (points,) with p(y | f*) and their mixture replaced by normals of the same moments.

    Given f*_k, ν has the mean −ρλ_k and the variance 1 − ρ²δ_k, δ_k = λ_k(λ_k + γ_k), so that
    ½ log(1 − ρ² mean δ + ρ² var λ) − ½ mean_k log(1 − ρ²δ_k) is left of the integral. It ranks
    points much as `rmes` does, and shows where to begin a search. Parameters as in `rmes_rough`.
    """
    problem = _problem(mean, variance, noise_variance, maxima)
    gamma, share, each = problem.gamma, problem.rho**2, 1.0 / len(problem.gamma)
    lam = hazard(gamma)
    delta = np.minimum(lam * (lam + gamma), 1.0 - 1e-9)  # −dλ/dγ
    apart = lam - each * np.add.reduce(lam)
    lean = each * np.add.reduce(delta - apart * apart)
    within = np.add.reduce(np.log1p(-share * delta))
    return np.asarray(0.5 * (np.log1p(-share * lean) - each * within))


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
        divergence, log_scale = integral.integrate(noisy, integral.gaussian)
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
    parts, log_scale = integral.below(problem, integral.mixture)(nodes)
    return _gain(problem, parts * np.exp(log_scale))


# ------------------------------------------------------------------ the problem in its own units


def _standardize(
    mean: ArrayLike, variance: ArrayLike, noise_variance: ArrayLike, maxima: ArrayLike
) -> Problem:
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
    return _problem(mu, var, noise, tops if tops.ndim == 2 else tops[:, None])


def _problem(mean: Array, variance: Array, noise: Array, maxima: Array) -> Problem:
    """The same for mean and variance (points,), noise () or (points,), maxima (maxima, any)."""
    above = maxima - mean  # (maxima, points)
    low, high = np.minimum.reduce(above), np.maximum.reduce(above)
    # A vanishing variance is replaced by one so small that the limit is reached: |γ| ≤ 1e8.
    least = np.maximum((1e-8 * np.maximum(-low, high)) ** 2, 1e-280)
    variance = np.maximum(variance, least)
    deviation, total = np.sqrt(variance), variance + noise
    return Problem(
        gamma=above / deviation,
        rho=deviation / np.sqrt(total),
        c=np.sqrt(noise / total),
        variance=variance,
        low=low / deviation,
        high=high / deviation,
    )


def _gain(problem: Problem, parts: Array) -> Gain:
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


def _moment_parts(problem: Problem) -> Array:
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
    one = np.ones(1)
    v = np.where(alive, np.expm1(np.minimum(log_p[:, None] - log_p[None], 0.0)), -1.0)
    level, u = integral.mixture(v, one, one)
    value, _, weighted = integral.compared(level, u)
    weighted = np.where(alive, weighted * level[:, None], 0.0)
    total = np.sum(mass * value, axis=0)
    # value per interval as its limits move, then as the heights 1/Φ(γ_k) change
    following = np.concatenate([value[1:], np.zeros_like(value[:1])])
    by_gamma = lam * (value - kept * following)
    by_gamma -= lam * np.einsum("jm,jkm->km", mass, weighted) / size
    return np.stack([total, by_gamma.sum(axis=0), -(g * by_gamma).sum(axis=0)])


def _rmes_parts(problem: Problem) -> tuple[Array, Array]:
    """Value and derivatives of RMES in units of exp(log_scale)."""
    # far above every mean the limit underflows; noise that is negligible keeps its logarithm
    silent, differ = problem.noiseless, problem.low < problem.high
    if differ.all() and not silent.any():
        return integral.integrate(problem, integral.mixture)
    silent &= problem.low <= integral.FAR
    noisy = differ & ~silent
    parts, log_scale = np.zeros((3, noisy.size)), np.zeros(noisy.size)
    silent &= differ
    if silent.any():
        parts[:, silent] = _noiseless_parts(problem.gamma[:, silent])
    if noisy.any():
        some = problem.take(noisy)
        some = replace(some, c=np.maximum(some.c, integral.NOISELESS * (1.0 + np.abs(some.high))))
        parts[:, noisy], log_scale[noisy] = integral.integrate(some, integral.mixture)
    return parts, log_scale
