"""Slow, independent answers: the formulas of the paper in 50-digit arithmetic."""

from collections.abc import Sequence
from itertools import pairwise

import mpmath as mp

Number = float | mp.mpf


def _cdf(z: mp.mpf) -> mp.mpf:
    return mp.erfc(-z / mp.sqrt(2)) / 2


def _breakpoints(gammas: list[mp.mpf], rho: mp.mpf, c: mp.mpf) -> list[mp.mpf]:
    """Edges of the panels: where components have their mass, and around each step of Φ(g)."""
    marks = {mp.mpf(j) for j in range(-12, 13, 2)}
    for gamma in gammas:
        top = min(gamma, mp.mpf(0))
        peak = 2 * rho * gamma / (1 + rho**2)  # of φ(ν) Φ(−g)², where all weights are near one
        for j in range(-16, 17, 2):
            marks.update({(gamma + j * c) / rho, rho * gamma + j * c, peak + j * c})
        marks.update({top * rho, -mp.sqrt(top**2 + 30), -mp.sqrt(top**2 + 150)})
    low = min(-mp.sqrt(min(min(gammas), 0) ** 2 + 250), mp.mpf(-16))
    high = max(max(marks, key=lambda e: e if e < 60 else 0), mp.mpf(16))
    edges = [low]
    for mark in sorted(marks):
        if edges[-1] + min(c / rho, 1) < mark < high:  # closer edges would only cost time
            edges.append(mark)
    return [*edges, high]


def rmes_integral(
    mean: Number,
    variance: Number,
    noise_variance: Number,
    maxima: Sequence[Number],
    digits: int = 50,
    degree: int = 40,
    reference: str = "mixture",
) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """Eq. (rmesd) with its partial derivatives, by Gauss–Legendre quadrature over y.

    The integrand is p(y | f*) log(p(y | f*) / reference density), with the densities of Theorem 1
    written as they stand in the paper: in μ, σ, τ and y. The derivatives are those of that
    integrand, by the quotient rule. ``reference="gaussian"`` gives the noise-aware MES.
    """
    with mp.workdps(digits):
        mu, variance, noise = mp.mpf(mean), mp.mpf(variance), mp.mpf(noise_variance)
        tops = [mp.mpf(f) for f in maxima]
        s, tau = mp.sqrt(variance), mp.sqrt(noise)
        plus = mp.sqrt(variance + noise)
        count = len(tops)
        h = [(f - mu) / s for f in tops]
        cdf_h = [_cdf(x) for x in h]
        hazard_h = [mp.npdf(x) / p for x, p in zip(h, cdf_h, strict=True)]

        def integrand(nu: mp.mpf) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
            y = mu + plus * nu
            total = [mp.mpf(0)] * 3
            weights, slopes = [], []
            for f, x, p, hazard in zip(tops, h, cdf_h, hazard_h, strict=True):
                g = (plus**2 * f - noise * mu - variance * y) / (s * tau * plus)
                w = _cdf(g) / p
                # y = μ + σ₊ν moves with μ and σ²: derivatives of g at fixed ν
                g_mean = -plus / (s * tau)
                numerator = plus * (f - mu) - variance * nu
                g_variance = ((f - mu) / (2 * plus) - nu) / (s * tau) - numerator / (
                    2 * variance * s * tau
                )
                pdf_g = mp.npdf(g) / p
                weights.append(w)
                slopes.append(
                    (
                        pdf_g * g_mean + w * hazard / s,
                        pdf_g * g_variance + w * hazard * x / (2 * variance),
                    )
                )
            base = mp.fsum(weights) / count if reference == "mixture" else mp.mpf(1)
            for w, slope in zip(weights, slopes, strict=True):
                if w <= 0 or base <= 0:
                    continue
                log_ratio = mp.log(w / base)
                total[0] += w * log_ratio
                total[1] += slope[0] * log_ratio
                total[2] += slope[1] * log_ratio
            density = mp.npdf(nu) / count
            return total[0] * density, total[1] * density, total[2] * density

        edges = _breakpoints(h, s / plus, tau / plus)
        nodes = _legendre(degree, digits)
        sums = [mp.mpf(0)] * 3
        for low, high in pairwise(edges):
            half, middle = (high - low) / 2, (high + low) / 2
            for x, weight in nodes:
                for i, part in enumerate(integrand(middle + half * x)):
                    sums[i] += weight * half * part
        if reference == "gaussian":
            # H(N) + E_p[log N(y)] = (1 − E_p[ν²])/2, with E_p[ν²] = 1 − ρ²γλ(γ)
            for x, hazard in zip(h, hazard_h, strict=True):
                square, slope = variance / plus**2, hazard * (1 - x * (x + hazard)) / 2
                sums[0] += square * x * hazard / 2 / count
                sums[1] -= square * slope / s / count
                sums[2] += (
                    (noise / plus**4 * x * hazard - square * slope * x / variance) / 2 / count
                )
        return sums[0], sums[1], sums[2]


_LEGENDRE: dict[tuple[int, int], list[tuple[mp.mpf, mp.mpf]]] = {}


def _legendre(degree: int, digits: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """Nodes and weights on [−1, 1] by Newton's iteration on the Legendre polynomial."""
    if (degree, digits) not in _LEGENDRE:
        rule = []
        for i in range(degree):
            x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (degree + mp.mpf(1) / 2))
            for _ in range(12):
                below, here = mp.mpf(1), x
                for n in range(2, degree + 1):
                    below, here = here, ((2 * n - 1) * x * here - (n - 1) * below) / n
                slope = degree * (x * here - below) / (x * x - 1)
                x -= here / slope
            rule.append((x, 2 / ((1 - x * x) * slope**2)))
        _LEGENDRE[degree, digits] = rule
    return _LEGENDRE[degree, digits]
