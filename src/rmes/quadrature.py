"""Where to evaluate E_ν[F], when F changes only around the steps Φ((γ_k − ρν)/c)."""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss

from rmes.normal import LOG_ROOT_2PI, Array, log_mass, log_pdf

# What lies beyond the range is exp(−REACH²/2) = 3e-13 of the largest value of the integrand.
REACH = 7.6
# The strip of analyticity allows an error of exp(−EXPONENT) = 2e-12.
EXPONENT = 27.0
# Longest step, in units of the narrowest Gaussian among the factors. Largest relative error of
# values over 4,000 random cases: 1.5e-11 at 0.75, 3e-10 at 0.85, 1e-7 at 1.
STEP = 0.78
# Nodes are laid in blocks; six waste a tenth of them where eight waste an eighth.
TRAPEZOIDAL_NODES = 6
# Gauss–Legendre panels of 24 nodes, in units of the trapezoidal step that the strip allows: a lone
# step takes two. Against panels a quarter as long, over 6,000 random cases with c from 1e-6 to
# 0.2: values to 1e-11, derivatives to 1.5e-10.
LEGENDRE_NODES = 24
PANEL = 14.0
# At this c/ρ five steps that stand apart need as many nodes by either rule.
SHARP_BELOW = 0.12


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


def strip(low: Array, high: Array, c: Array) -> Array:
    """Trapezoidal step, in units of c/ρ, that the analyticity of the integrand in ν allows.

    log w̄ is singular where two components cancel, log w_j − log w_k = ±iπ; in g, with κ the
    difference of their slopes, that is π/κ off the real line, and the trapezoidal error is
    exp(−2π²/(κ step)). It is damped by exp(−κ²/8), the density where two components that far
    apart meet. Zeros of Φ(g) itself lie 2.8 off the line, as for κ = 1.12.
    """
    slope = np.clip(np.minimum(0.5 - low, (high - low) / c), 1.12, 8.5)
    return np.asarray(2.0 * np.pi**2 / (slope * (EXPONENT - slope * slope / 8.0)))


def sharp(start: Array, stop: Array, rho: Array, c: Array) -> np.ndarray:
    """Where panels around the steps need fewer nodes than equal steps over the whole range."""
    return np.asarray((c < SHARP_BELOW * rho) | ((stop - start) * rho > 60.0 * c + 60.0 * rho))


def _blocks(count: np.ndarray) -> tuple[np.ndarray, Array]:
    """Owner of each of sum(count) blocks, and its place among the blocks of that owner."""
    owner = np.repeat(np.arange(count.size), count)
    first = np.cumsum(count) - count
    return owner, np.arange(owner.size) - first[owner]


def trapezoidal(
    start: Array, stop: Array, rho: Array, c: Array, width: Array, together: int
) -> tuple[Nodes, ...]:
    """Equal steps over [start, stop]: converges geometrically, since both ends are negligible.

    Up to `together` nodes in all are laid in one block for each point, with as many nodes for
    all of them, of which those beyond `stop` weigh nothing: there is less to arrange.
    """
    length, ratio = stop - start, rho / c
    step = c * np.minimum(STEP / np.sqrt(1.0 + rho * rho), width / rho)
    per_block = TRAPEZOIDAL_NODES
    needed = per_block * np.maximum(np.ceil(length / (per_block * step)), 1.0)
    most = int(needed.max())
    if most * rho.size <= together:
        owner = np.arange(rho.size)
        step = length / needed
        index = np.arange(0.5, most)[:, None]
        nu = start + step * index
    else:
        owner, place = _blocks((needed / per_block).astype(np.intp))
        step, start, ratio = (length / needed)[owner], start[owner], ratio[owner]
        nu = start + step * (np.arange(0.5, per_block)[:, None] + place * per_block)
    square = nu * nu
    log_weight = (np.log(step) - LOG_ROOT_2PI) - 0.5 * square
    if most * rho.size <= together:
        log_weight[index > needed] = -np.inf
    anchor, offset = np.zeros(owner.size), nu * ratio  # (nodes, blocks)
    return (Nodes(owner, anchor, offset, nu, log_weight, nu, square - 1.0),)


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
