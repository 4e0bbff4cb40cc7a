"""Where to evaluate E_ν[F], when F changes only around the steps Φ((γ_k − ρν)/c)."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import ndtr

from rmes.normal import LOG_ROOT_2PI, Array, log_mass, log_pdf

_ROOT_2PI = float(np.sqrt(2.0 * np.pi))
# What lies beyond the range is exp(−REACH²/2) = 3e-13 of the largest value of the integrand.
REACH = 7.6
# The strip of analyticity allows an error of exp(−EXPONENT) = 1e-13.
EXPONENT = 30.0
# Longest step, in units of the narrowest Gaussian among the factors. Largest relative error of
# values over 16,000 random cases with 2 to 10 maxima: 7e-10 at 0.78, 7e-11 at 0.72, 3e-11 at 0.68.
STEP = 0.68
# Nodes are laid in blocks; six waste a tenth of them where eight waste an eighth.
TRAPEZOIDAL_NODES = 6
# Gauss–Legendre panels of 24 nodes, in units of the trapezoidal step that the strip allows: a lone
# step takes two. Against panels a quarter as long, over 6,000 random cases with c from 1e-6 to
# 0.2: values to 1e-11, derivatives to 1.5e-10.
LEGENDRE_NODES = 24
PANEL = 14.0
# A smooth step in ν, Φ((a − ν)/s) with s this many trapezoidal steps, is summed by the rule to
# exp(−2π² SMOOTH²) = 5e-13; SWITCH is that step at the first nodes, if it begins to fall there.
SMOOTH = 1.2
SWITCH = ndtr(REACH - np.arange(0.5, 2.0 * REACH * SMOOTH + 1.0) / SMOOTH)
# For three digits: exp(−ROUGH_REACH²/2) = 6e-5, and so many Gauss–Legendre nodes to the deviation
# of the narrowest Gaussian among the factors, and to that of ν.
ROUGH_REACH = 4.4
ROUGH_DENSITY = 0.8
ROUGH_LEAST = 1.7
ROUGH_LEVELS = 1e-3, 0.1  # of c and of ρ, below which digits are lost
ROUGH_NODES = (14, 16, 20, 24, 28, 32, 40, 48, 64, 96)
# Where probabilities beyond that many deviations would have to be held as logarithms, no single
# node stands for them.
DEEP = 30.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """Blocks of nodes of a rule; every block belongs to one point.

    A node sits at ρν = anchor + c·offset, so that distances from a step keep their digits however
    small c is.
    """

    owner: np.ndarray  # (blocks,) the point a block belongs to
    anchor: Array  # (blocks,)
    offset: Array  # (nodes, blocks)
    nu: Array  # (nodes, blocks)
    log_weight: Array  # (nodes, blocks) log of the weight times the density of ν
    first: Array  # (nodes, blocks) mean of ν over what the node stands for: ν itself, or of a gap
    second: Array  # (nodes, blocks) likewise, of ν² − 1

    def part(self, low: int, high: int) -> "Nodes":
        """Blocks low to high."""
        s = slice(low, high)
        return Nodes(
            self.owner[s],
            self.anchor[s],
            self.offset[:, s],
            self.nu[:, s],
            self.log_weight[:, s],
            self.first[:, s],
            self.second[:, s],
        )

    def and_also(self, other: "Nodes") -> "Nodes":
        """The nodes of both, for blocks of the same owners and anchors."""
        return Nodes(
            self.owner,
            self.anchor,
            np.concatenate([self.offset, other.offset]),
            np.concatenate([self.nu, other.nu]),
            np.concatenate([self.log_weight, other.log_weight]),
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
        )


def support(low: Array, high: Array, rho: Array, c: Array) -> tuple[Array, Array]:
    """Range of ν that holds the integrand, for γ between low and high (all of shape (points,)).

    Where every γ > 0 the integrand is at most φ(ν) max(Φ(−g), Φ(−γ))², whose first part peaks at
    2ργ/(1 + ρ²) with height exp(−γ²/(1 + ρ²)). Where γ < 0 a component is a density: with
    exponent −(ν − ργ)²/(2c²) beyond its step γ/ρ and (γ² − ν²)/2 before it.
    """
    positive = np.maximum(low, 0.0)
    spread = 1.0 + rho * rho
    peak = 2.0 * rho * positive / spread
    constant = REACH**2 - 2.0 * (positive * rho) ** 2 / spread
    above = np.minimum(
        peak - REACH * c / np.sqrt(spread),
        np.where(constant > 0.0, -np.sqrt(np.maximum(constant, 0.0)), np.inf),
    )
    below = np.where(-low * c > REACH * rho, rho * low - REACH * c, -np.sqrt(low * low + REACH**2))
    start = np.where(low > 0.0, above, below)
    early = peak + REACH * c / np.sqrt(spread)
    square = REACH**2 + 2.0 * positive**2 / spread
    beyond = rho * high + c * np.sqrt(np.maximum(square - np.maximum(high, 0.0) ** 2, 0.0))
    stop = np.where(square * rho * rho < np.maximum(high, 0.0) ** 2, np.sqrt(square), beyond)
    # where even the first step is out of reach, only the near side of the peak is left
    return start, np.where(early * rho < low, early, stop)


def strip(low: Array, high: Array, rho: Array, c: Array) -> Array:
    """Trapezoidal step, in units of c/ρ, that the analyticity of the integrand in ν allows.

    log w̄ is singular where two components cancel, log w_j − log w_k = ±iπ; in g, with κ the
    difference of their slopes, that is π/κ off the real line, and the trapezoidal error is
    exp(−2π²/(κ step)). It is damped by exp(−(ρκ)²/8), the density where two components that far
    apart meet: among pairs up to the farthest, those with (ρκ)² = 8 EXPONENT/3 are the hardest.
    Zeros of Φ(g) itself lie 2.8 off the line, as for κ = 1.12.
    """
    slope = np.minimum(np.minimum(0.5 - low, (high - low) / c), np.sqrt(8.0 * EXPONENT / 3.0) / rho)
    slope = np.maximum(slope, 1.12)
    return np.asarray(2.0 * np.pi**2 / (slope * (EXPONENT - (rho * slope) ** 2 / 8.0)))


def window(
    start: Array, stop: Array, low: Array, high: Array, rho: Array, c: Array
) -> tuple[Array, Array]:
    """The part of [start, stop] where some weight changes, for γ between low and high.

    Where every γ > 0 the integrand is φ(ν) times a square of Φ(−g) − Φ(−γ): what changes is the
    square of Φ(−g), as in `support`, and twice the product, φ(ν) Φ(−g), whose peak is at ργ and
    which counts where Φ(−γ)² does.
    """
    spread = 1.0 + rho * rho
    peak = 2.0 * rho * low / spread - REACH * c / np.sqrt(spread)
    constant = np.maximum(REACH**2 - 2.0 * (low * rho) ** 2 / spread, 0.0)
    above = np.minimum(peak, rho * low - c * np.sqrt(constant))
    left = (low - REACH * c) / rho
    left = np.where(low > 0.0, np.minimum(above, left), left)
    right = (high + c * (REACH + c * np.maximum(-high, 0.0))) / rho
    # much noise, or a component whose mass lies far beyond its step, changes everywhere
    whole = (c > 0.7) | (-low * c > REACH * rho)
    left = np.where(whole | (left < -DEEP), start, left)
    right = np.where(whole | (right > DEEP), stop, right)
    return np.maximum(start, left), np.minimum(stop, right)


class Few(NamedTuple):
    """Nodes of one rule for every point, the last for all that lies before the others.

    All are (nodes, points): ν, the weight times the density, and what a node stands for, on
    average, of ν² − 1.
    """

    nu: Array
    weight: Array
    second: Array


def few(low: Array, high: Array, rho: Array, c: Array) -> Few | None:
    """As many nodes as three digits take for γ between low and high; None where they are many.

    Where all weights begin to change, or where their squares do (see `support`), Gauss–Legendre
    nodes begin, which need no integrand that vanishes there. Before, every weight is constant, and
    E[ν² − 1; ν < a] = −aφ(a).
    """
    if c.min() < ROUGH_LEVELS[0] or rho.min() < ROUGH_LEVELS[1]:
        return None
    spread = 1.0 + rho * rho
    root = np.sqrt(spread)
    margin, positive = ROUGH_REACH * c, np.maximum(low, 0.0)
    left = np.minimum((low - margin) / rho, 2.0 * rho * positive / spread - margin / root)
    least = -np.sqrt(ROUGH_REACH**2 + np.square(low - positive))
    constant = left > least
    left = np.maximum(left, least)
    density_ends = np.sqrt(ROUGH_REACH**2 + 2.0 * np.square(positive) / spread)
    length = np.minimum((high + margin) / rho, density_ends)
    length -= left
    needed = float((length * np.maximum(ROUGH_DENSITY * root / c, ROUGH_LEAST)).max())
    count = next((count for count in ROUGH_NODES if count >= needed), None)
    if count is None:
        return None
    place, share = _legendre(count)
    nu = place * length
    nu += left
    second = nu * nu
    weight = np.exp(-0.5 * second)
    density = weight[-1] / _ROOT_2PI
    weight *= share
    weight *= length
    weight[-1] = before = np.where(constant, ndtr(left), 1e-300)
    second -= 1.0
    second[-1] = -left * density / before
    nu[-1] -= 40.0 * c / rho  # every weight is constant there
    return Few(nu, weight, second)


@cache
def _legendre(count: int) -> tuple[Array, Array]:
    """Places (count + 1, 1) in [0, 1] and weights over √(2π), and a last place at 0."""
    x, w = leggauss(count)
    return 0.5 * np.append(x + 1.0, 0.0)[:, None], (0.5 / _ROOT_2PI) * np.append(w, 0.0)[:, None]


def equal_steps(rho: Array, c: Array, width: Array) -> Array:
    """The longest trapezoidal step in ν, for the `strip` width."""
    return np.asarray(c * np.minimum(STEP / np.sqrt(1.0 + rho * rho), width / rho))


def _blocks(count: np.ndarray) -> tuple[np.ndarray, Array]:
    """Owner of each of sum(count) blocks, and its place among the blocks of that owner."""
    owner = np.repeat(np.arange(count.size), count)
    first = np.cumsum(count) - count
    return owner, np.arange(owner.size) - first[owner]


def trapezoidal(
    anchor: Array,
    left: Array,
    right: Array,
    step: Array,
    rho: Array,
    c: Array,
    before: np.ndarray,
    after: np.ndarray,
    together: int,
) -> tuple[Nodes, ...]:
    """Equal steps over the window, and a node for each side on which the integrand goes on.

    The rule converges geometrically where both ends are negligible. Where `before` (or `after`)
    says that the weights keep a constant value up to the window's end, a single node carries it:
    its weight makes the rule exact for a smooth step from that value to 0 inside the window, and
    what the step leaves of the integrand is negligible at the end.

    Up to `together` nodes in all are laid in one block for each point, with as many nodes for
    all of them, of which those too many weigh nothing: there is less to arrange.
    """
    length, per_block = right - left, TRAPEZOIDAL_NODES
    needed = per_block * np.maximum(np.ceil(length / (per_block * step)), 1.0)
    needed = np.where(before | after, np.maximum(needed, len(SWITCH)), needed)
    step = length / needed
    table = np.stack([anchor, left, (left * rho - anchor) / c, step, rho / c, needed])
    owner, most = np.arange(left.size), int(needed.max())
    single = most * left.size <= together
    if single:
        place = np.arange(0.5, most)[:, None]
        block = table
    else:
        owner, number = _blocks(np.ceil(needed / per_block).astype(np.intp))
        place = np.arange(0.5, per_block)[:, None] + per_block * number
        block = table[:, owner]
    base, first, origin, size, ratio, last = block
    along = size * np.minimum(place, last - 0.5)  # those too many repeat the last
    nu = first + along
    square = nu * nu
    log_weight = (np.log(size) - LOG_ROOT_2PI) - 0.5 * square
    log_weight[place > last] = -np.inf
    steps = Nodes(owner, base, origin + along * ratio, nu, log_weight, nu, square - 1.0)
    sides = []
    for side, edge, sign in ((before, left, 1.0), (after, right, -1.0)):
        if side.any():
            some = owner if single else np.flatnonzero(side)
            outside = _outside(some, anchor[some], edge[some], step[some], rho[some], c[some], sign)
            sides.append(outside)
            if single:
                outside.log_weight[0, ~side] = -np.inf
    if single:
        for outside in sides:
            steps = steps.and_also(outside)
        return (steps,)
    return steps, *sides


def _outside(
    owner: np.ndarray, anchor: Array, edge: Array, step: Array, rho: Array, c: Array, sign: float
) -> Nodes:
    """One node for all ν before the edge (sign 1) or after it (−1), beside equal steps inside.

    With r² = 1 + s², E[Φ((a − ν)/s)] = Φ(a/r), and Stein's lemma gives the moments of ν.
    """
    start = sign * edge
    nu = start + step * np.arange(0.5, len(SWITCH))[:, None]
    inside = (step / _ROOT_2PI) * np.exp(-0.5 * nu * nu) * SWITCH[:, None]
    middle, spread = start + REACH * SMOOTH * step, 1.0 + (SMOOTH * step) ** 2
    density = np.exp(log_pdf(middle / np.sqrt(spread))) / np.sqrt(spread)
    weight = np.maximum(ndtr(middle / np.sqrt(spread)) - inside.sum(axis=0), 1e-300)
    first = -density - (inside * nu).sum(axis=0)
    second = -density * middle / spread - (inside * (nu * nu - 1.0)).sum(axis=0)
    offset = (edge * rho - anchor) / c - sign * 100.0  # every weight is constant there
    return Nodes(
        owner,
        anchor,
        offset[None],
        ((anchor + c * offset) / rho)[None],
        np.log(weight)[None],
        (sign * first / weight)[None],
        (second / weight)[None],
    )


_X, _W = leggauss(LEGENDRE_NODES)


def panels(
    gamma: Array, rho: Array, c: Array, stop: Array, width: Array, beyond: bool
) -> tuple[Nodes, ...]:
    """Gauss–Legendre panels over the steps, and one node for each gap between them.

    Overlapping steps are merged. In a gap every weight is constant, and the node carries the
    probability of the gap; `beyond` adds the gap after the last step, where every weight is 0.
    `gamma` is (maxima, points).
    """
    size, points = gamma.shape
    g = np.sort(gamma, axis=0).T  # (points, maxima)
    rho, c, end = rho[:, None], c[:, None], (stop * rho)[:, None]
    before = np.maximum(REACH, 0.5 * c * g + 6.0)
    far = -g * c > REACH * rho  # the mass of the component lies far beyond its step
    low = np.where(far, rho * rho * g - rho * c * REACH, g - c * before)
    after = REACH + c * np.maximum(-g, 0.0)
    high = np.minimum(g + c * after, end)
    # a new window starts where the previous one has ended
    opens = np.ones((points, size), dtype=bool)
    opens[:, 1:] = low[:, 1:] > high[:, :-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], opens.size) - 1
    point = first // size
    anchor = g.ravel()[first]
    c, rho, end = c[point, 0], rho[point, 0], end[point, 0]
    left = np.where(far.ravel()[first], (low.ravel()[first] - anchor) / c, -before.ravel()[first])
    right = (high.ravel()[last] - anchor) / c
    alone = np.minimum(after.ravel()[last], (end - anchor) / c)
    right = np.maximum(np.where(first == last, alone, right), left)
    count = np.ceil((right - left) / (PANEL * np.minimum(width[point], rho / c))).astype(np.intp)
    owner, place = _blocks(count)
    width = ((right - left) / np.maximum(count, 1))[owner]
    offset = left[owner] + width * (place + 0.5 * (_X[:, None] + 1.0))
    nu = (anchor[owner] + c[owner] * offset) / rho[owner]
    log_weight = (
        np.log(0.5 * _W)[:, None]
        + np.log(width * c[owner] / rho[owner])
        - LOG_ROOT_2PI
        - 0.5 * nu * nu
    )
    steps = Nodes(point[owner], anchor[owner], offset, nu, log_weight, nu, nu * nu - 1.0)

    # gaps: before each window, and after the last one of each point
    edge, back = (anchor + c * left) / rho, (anchor + c * right) / rho
    leading = np.append(True, point[1:] != point[:-1])
    closing = np.append(leading[1:], True) & beyond
    previous = np.where(leading, -np.inf, np.append(0.0, back[:-1]))
    half = np.where(leading, 100.0, 0.5 * (edge - np.where(leading, edge, previous)) * rho / c)
    before_gap = np.where(far.ravel()[first], left, left - half)
    offset = np.append(before_gap, right[closing] + 100.0)
    members = np.append(np.arange(point.size), np.flatnonzero(closing))
    low_end, high_end = (
        np.append(previous, back[closing]),
        np.append(edge, np.full(closing.sum(), np.inf)),
    )
    mass = log_mass(low_end, high_end)
    known = np.maximum(mass, -1e300)
    at_low = np.where(low_end > -np.inf, np.exp(log_pdf(low_end) - known), 0.0)
    at_high = np.where(high_end < np.inf, np.exp(log_pdf(high_end) - known), 0.0)
    gaps = Nodes(
        point[members],
        anchor[members],
        offset[None],
        ((anchor[members] + c[members] * offset) / rho[members])[None],
        mass[None],
        (at_low - at_high)[None],
        (np.maximum(low_end, -1e300) * at_low - np.minimum(high_end, 1e300) * at_high)[None],
    )
    return steps, gaps
