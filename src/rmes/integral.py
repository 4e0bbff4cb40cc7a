"""E_ν[F] for the integrands of max-value entropy search, in the arithmetic that suits γ and ρ.

Notation as in `rmes.information`: weights w_k(ν) = Φ(g_k)/Φ(γ_k) with g_k = (γ_k − ρν)/c are
compared with w̄, their mean or 1, and F = w̄ (1/K) Σ_k ψ(w_k/w̄). Every term is non-negative, and
w_k − 1 is computed without cancellation, so that sums keep their relative precision.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from rmes import quadrature
from rmes.normal import (
    LOG_ROOT_2PI,
    Array,
    hazard,
    log_cdf,
    log_pdf,
    log_scaled_cdf,
    mills,
    slack,
)

# Beyond this |γ| the ordinary arithmetic nears the end of double precision: Φ(−25)² is 1e-275.
FAR = 25.0
# Mehler's series replaces the ratio of Φ's where the weights differ by so little, about
# ρ(γ_j − γ_k), that rounding Φ costs more than 1e-12, if ρ(1 + |γ|) is small enough for it.
_FAINT = 3e-3
_MEHLER_BELOW = 0.5
# Noise whose c is below this times 1 + |γ| is lost in the rounding of γ.
NOISELESS = 1e-14
# Σ_k u_k² below which Σ_k ψ(1 + u_k) is taken from its series: both lose 3e-12 there.
_SERIES_BELOW = 1e-7
# Elements of a (nodes, maxima, blocks) array: five of them stay in the second-level cache.
_CHUNK = 16_000
_ONE = np.ones(1)
_ROOT_2PI = math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Problem:
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
        return np.asarray(self.c <= NOISELESS * (1.0 + np.maximum(-self.low, self.high)))

    def at(self, points: np.ndarray) -> tuple[Array, Array, Array]:
        """γ, c and ρ at some of the points."""
        return self.gamma[:, points], self.c[points], self.rho[points]

    def take(self, points: np.ndarray | slice) -> "Problem":
        """The problem at some of the points."""
        return Problem(
            self.gamma[:, points],
            self.rho[points],
            self.c[points],
            self.variance[points],
            self.low[points],
            self.high[points],
        )


# ------------------------------------------------------------------ comparing the weights

# From v_k = (w_k − offset)/unit, of shape (nodes, maxima, blocks): w̄ and u_k = (w_k/w̄ − 1)/unit.
Reference = Callable[[Array, Array, Array], tuple[Array, Array]]


def mixture(v: Array, offset: Array, unit: Array) -> tuple[Array, Array]:
    """w̄ = (1/K) Σ_k w_k: what rectified max-value entropy search compares with."""
    first = v[:, 0].copy()
    v -= first[:, None]  # exact: keeps Σ_k u_k = 0 to relative precision where maxima coincide
    mean = np.add.reduce(v, axis=1)
    mean /= v.shape[1]
    reference = np.maximum(offset + unit * (first + mean), 1e-300)
    v -= mean[:, None]
    v /= reference[:, None]
    return reference, v


def gaussian(v: Array, offset: Array, unit: Array) -> tuple[Array, Array]:
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


def compared(reference: Array, u: Array) -> tuple[Array, Array, Array]:
    """What `_compare` returns and writes, in new arrays."""
    log_ratio, weighted = np.empty_like(u), np.empty_like(u)
    return _compare(reference, u, log_ratio, weighted, np.empty_like(u)), log_ratio, weighted


def _compare_small(reference: Array, u: Array, unit: Array) -> tuple[Array, Array]:
    """Value over unit², and log(w_k/w̄) over unit, for weights 1 + unit·u of any small unit."""
    tiny = unit < 1e-13
    scale = np.where(tiny, 1.0, unit)
    value, log_ratio, _ = compared(reference, u * scale[:, None])
    value /= scale * scale
    log_ratio /= scale[:, None]
    if tiny.any():
        np.copyto(value, 0.5 * reference * np.einsum("nkp,nkp->np", u, u) / u.shape[1], where=tiny)
        np.copyto(log_ratio, u, where=tiny[:, None])
    return value, log_ratio


# ------------------------------------------------------------------ the integral over ν


def integrate(problem: Problem, reference: Reference) -> tuple[Array, Array]:
    """Sum the terms of each point over its nodes, in the arithmetic that suits its γ and ρ."""
    low, high, rho, c = problem.low, problem.high, problem.rho, problem.c
    # against the Gaussian, points beyond every step still count: ψ(0) = 1
    beyond = reference is gaussian
    last = np.where(low >= -FAR, np.inf, high) if beyond else high
    start, stop = quadrature.support(low, last, rho, c)
    left, right = quadrature.window(start, stop, low, high, rho, c)
    if not beyond:
        right = stop
    width = quadrature.strip(low, high, rho, c)
    step = quadrature.equal_steps(rho, c, width)
    # Panels around each step pay where the steps stand far apart.
    panels = 2 * quadrature.LEGENDRE_NODES * len(problem.gamma)
    group = (right - left > panels * step).astype(np.intp)
    if max(-low.min(), low.max()) > FAR:
        group += 2 * (low < -FAR) + 4 * (low > FAR)
    reach = rho * (1.0 + np.maximum(-low, high))
    if reach.min() < _MEHLER_BELOW:
        faint = reach < _MEHLER_BELOW
        if not beyond:
            faint &= np.minimum(reach, rho * (high - low)) < _FAINT
        group = np.where(faint, 6 + group % 2, group)
        left, right = np.where(faint, start, left), np.where(faint, stop, right)
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
                some.low,
                left[chosen],
                right[chosen],
                step[chosen],
                some.rho,
                some.c,
                (left > start)[chosen],
                (right < stop)[chosen],
                together,
            )
        terms = (_ordinary, below, _above, _faint)[label // 2](some, reference)
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


def _ordinary(problem: Problem, reference: Reference) -> _Terms:
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


def rough(problem: Problem) -> Array | None:
    """What `integrate` gives for the mixture, (3, points), to three digits; None if they are lost.

    The sums of `_ordinary` over few nodes that all points share, but for w_k log(w_k/w̄) in the
    place of ψ, which has the same mean over k: below 1e-10 it cancels. And the derivative in γ is
    taken as it stands, (1/K) Σ_k (E[φ(g_k) log(w_k/w̄)]/(cΦ(γ_k)) − λ(γ_k) E[w_k log(w_k/w̄)]),
    since few nodes would not bear to be divided by ρ.
    """
    gamma, rho, c = problem.gamma, problem.rho, problem.c
    if problem.low.min() <= -FAR:
        return None
    nodes = quadrature.few(problem.low, problem.high, rho, c)
    if nodes is None:
        return None
    g = gamma - (rho * nodes.nu)[:, None]  # (nodes, maxima, points)
    g /= c
    inverse = 1.0 / ndtr(gamma)
    weighted = ndtr(g)
    weighted *= inverse  # w_k
    level = np.add.reduce(weighted, axis=1)
    level /= len(gamma)
    np.maximum(level, 1e-300, out=level)
    log_ratio = weighted / level[:, None]
    np.maximum(log_ratio, 1e-300, out=log_ratio)
    np.log(log_ratio, out=log_ratio)
    weighted *= log_ratio
    value = np.add.reduce(weighted, axis=1)
    value *= nodes.weight
    by_hazard = np.einsum("nkp,np->kp", weighted, nodes.weight)
    by_hazard *= np.exp(-0.5 * gamma * gamma) * inverse  # √(2π) λ(γ_k)
    density = np.multiply(g, g, out=g)
    density *= -0.5
    np.exp(density, out=density)
    density *= log_ratio
    by_step = np.einsum("nkp,np->kp", density, nodes.weight)
    by_step *= inverse
    parts = np.empty((3, rho.size))
    np.add.reduce(value, out=parts[0])
    parts[1] = np.add.reduce(by_step / c - by_hazard) / _ROOT_2PI
    parts[2] = np.einsum("np,np->p", value, nodes.second)
    by_hazard -= c * by_step
    parts[2] += np.einsum("kp,kp->p", gamma, by_hazard) / _ROOT_2PI
    parts /= len(gamma)
    return parts


def _cdf(x: Array, saturated: bool, p: Array) -> None:
    """Write Φ(x) to p; where saturated, most x are so large that it is 0 or 1."""
    if saturated:
        between = np.abs(x) < 38.0
        p[:] = x > 0.0
        p[between] = ndtr(x[between])
    else:
        ndtr(x, out=p)


def below(problem: Problem, reference: Reference) -> _Terms:
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
        if reference is gaussian:
            weighted = ratio * log_w
            value = weighted.mean(axis=1)  # E[w_k] = 1: no need of ψ where the gain is not small
        else:
            value, log_ratio, _ = compared(*reference(v, _ONE, _ONE))
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


def _above(problem: Problem, reference: Reference) -> _Terms:
    """Every γ far above zero: w_k − 1 in units of the largest, which may underflow.

    Upper tails are Φ(−z) = φ(z) m(z) with Mills' ratio m: one exponential for both.
    """
    tail = log_cdf(-problem.gamma)
    highest = tail.max(axis=0)
    share, steep = np.exp(tail - highest), hazard(-problem.gamma)

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, c, _ = problem.at(nodes.owner)
        shape = (nodes.offset.shape[0], *gamma.shape)  # (nodes, maxima, blocks)
        g, density, beyond, v = _scratch.arrays(4, shape)
        np.subtract((gamma - nodes.anchor) / c, nodes.offset[:, None], out=g)
        least = np.minimum(g.min(axis=1), gamma.min(axis=0))
        log_unit = log_cdf(-least)
        unit = np.exp(log_unit)
        np.multiply(g, g, out=density)
        density *= -0.5
        density -= (log_unit + LOG_ROOT_2PI)[:, None]
        np.exp(density, out=density)  # φ(g)
        np.multiply(density, mills(np.maximum(g, 0.0)), out=v)  # Φ(−g)
        if least.min() < 0.0:  # closer to the last digit, as the difference of tails near 1 needs
            behind = g < 0.0
            v[behind] = ndtr(-g[behind]) / np.broadcast_to(unit[:, None], shape)[behind]
        most = np.exp(highest[nodes.owner] - log_unit)
        np.multiply(share[:, nodes.owner], most[:, None], out=beyond)  # Φ(−γ)
        np.subtract(beyond, v, out=v)  # Φ(−γ) − Φ(−g)
        by_hazard = (1.0 + unit[:, None] * v) * beyond
        level, u = reference(v, _ONE, unit)
        value, log_ratio = _compare_small(level, u, unit)
        scale, weight = _largest(nodes.log_weight + 2.0 * log_unit)
        by_hazard *= log_ratio
        density *= log_ratio
        lost = np.einsum("nkp,np->kp", by_hazard, weight) * steep[:, nodes.owner]
        step = np.einsum("nkp,np->kp", density, weight)
        g *= density
        turn = np.einsum("nkp,np->kp", g, weight)
        by_gamma = step / c - lost
        by_variance = turn - gamma * (c * step + by_gamma)
        sums = [
            np.einsum("np,np->p", value, weight),
            by_gamma.mean(axis=0),
            by_variance.mean(axis=0),
        ]
        return np.stack(sums), scale

    return terms


def _faint(problem: Problem, reference: Reference) -> _Terms:
    """Noise drowns f: Mehler's series w_k = 1 − λ(γ_k) Σ_n ρⁿ/n! He_{n−1}(γ_k) He_n(ν)."""

    def terms(nodes: quadrature.Nodes) -> tuple[Array, Array]:
        gamma, c, rho = problem.at(nodes.owner)
        log_hazard = log_pdf(gamma) - log_cdf(gamma)
        log_unit = np.minimum(log_hazard.max(axis=0) + np.log(rho), 0.0)
        lam = np.where(
            gamma < FAR,
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
    scale, weight = _largest(log_weight)
    slopes = [np.mean(slope * log_ratio, axis=1) for slope in (by_gamma, by_variance)]
    return np.einsum("inp,np->ip", np.stack([value, *slopes]), weight), scale


def _largest(log_weight: Array) -> tuple[Array, Array]:
    """Logarithm (blocks,) of the largest weight of each block, and the weights over it."""
    scale = np.maximum(log_weight.max(axis=0), -1e300)
    return scale, np.exp(log_weight - scale)
