"""Maximise a function with gradients on the unit cube: screen, then climb from the best starts.

All starts climb together: every round evaluates the function once, on all points that are still
moving, and each point carries its own step and its own BFGS matrix. SciPy's L-BFGS-B climbs one
start at a time; on functions whose cost is mostly Python overhead, as ours are at a few hundred
data, one vectorised round costs hardly more than one point, which is where the time goes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.domain import Domain

Array = NDArray[np.float64]

ValueAndGradient = Callable[[Array], tuple[Array, Array]]
"""(m, d) points -> their values (m,) and gradients (m, d)."""

RowsValueAndGradient = Callable[[Array, NDArray[np.intp]], tuple[Array, Array]]
"""As above for m rows of which each climbs its own function; the rows' numbers come along."""

_SUFFICIENT = 1e-4  # Armijo's constant
_SAME_HILL = 0.04  # squared distance, in scales, from a higher point within which a start rests
_ROUNDS = 60  # a guard; typical climbs need 8 to 15 rounds


@dataclass(frozen=True, slots=True)
class Climb:
    """Where each start ended.

    Attributes
    ----------
    x : (m, d) array
    value : (m,) array
    curvature : (m, d, d) array
        BFGS estimates of the inverse of minus the Hessian, in units of x.
    """

    x: Array
    value: Array
    curvature: Array


def space_filling(count: int, dimensions: int, rng: np.random.Generator) -> Array:
    """Well-spread points (count, dimensions) in [0, 1)ᵈ: a Kronecker sequence, randomly shifted."""
    points = _kronecker(count, dimensions) + rng.random(dimensions)
    points -= np.floor(points)
    return points


@lru_cache(maxsize=32)
def _kronecker(count: int, dimensions: int) -> Array:
    """Multiples of its steps: powers of the root of t^(d+1) = t + 1, a golden ratio for d."""
    root = 2.0
    for _ in range(40):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    return np.asarray(np.arange(1, count + 1)[:, None] * steps)


def climb(
    function: RowsValueAndGradient,
    starts: Array,
    scale: Array,
    tolerance: float,
    curvature: Array | None = None,
    rounds: int = _ROUNDS,
    differences: bool = False,
    race: bool = False,
) -> Climb:
    """Climb from every start to a local maximum in the unit cube, never below the start.

    Projected BFGS: coordinates at a bound whose gradient points outwards are held there.

    Parameters
    ----------
    function : RowsValueAndGradient
    starts : (m, d) array
    scale : (d,) or (m, d) array
        The distance over which the function changes; it preconditions the first steps.
    tolerance : float
        A point rests when the next step promises less than this.
    curvature : (m, d, d) array, optional
        A first guess at `Climb.curvature`, for example from an earlier, similar function.
    rounds : int
        The most evaluations for each start, after the first.
    differences : bool
        Whether to begin with the curvature that differences of gradients give, d + 1 points for
        each start in the first call: in few coordinates they cost less than the rounds they save.
    race : bool
        Whether only the highest end matters: starts that do not promise to reach it rest.
    """
    x = np.minimum(np.maximum(starts, 0.0), 1.0)
    scale = np.zeros_like(x) + scale
    rows = np.arange(len(x))
    if differences:
        value, gradient, inverse = _curved(function, x, scale)
    else:
        value, gradient = function(x, rows)
        if curvature is None:
            inverse = np.zeros((*starts.shape, starts.shape[1]))
            np.einsum("mii->mi", inverse)[:] = scale * scale
        else:
            inverse = curvature.copy()
    finite = np.isfinite(value)
    best = Climb(x.copy(), np.where(finite, value, -np.inf), inverse.copy())
    fresh = np.full(len(x), curvature is None and not differences)
    step = np.where(finite, 1.0, 0.0)  # nothing can be climbed from elsewhere

    for left in range(rounds - 1, -1, -1):
        direction, promise = _direction(x, gradient, inverse, scale, fresh)
        promise[step < 1e-8] = 0.0
        if race:
            leader = int(np.argmax(best.value))
            offset = (x - best.x[leader]) / scale
            behind = np.vecdot(offset, offset) < _SAME_HILL
            behind &= rows != leader
            # a step to the top of a parabola rises by half of what is promised
            behind |= value + step * promise < best.value[leader]
            promise[behind] = 0.0
        live = promise > tolerance
        if not live.any():
            break
        if not live.all():
            best.curvature[rows] = inverse
            rows, x, value, gradient = rows[live], x[live], value[live], gradient[live]
            inverse, scale, fresh = inverse[live], scale[live], fresh[live]
            direction, step = direction[live], step[live]
        trial = x + step[:, None] * direction
        np.minimum(np.maximum(trial, 0.0, out=trial), 1.0, out=trial)
        moved = trial - x
        trial_value, trial_gradient = function(trial, rows)
        rise = np.vecdot(gradient, moved)
        better = trial_value >= value + _SUFFICIENT * rise  # False for NaN
        if left:  # there is a step to use it
            # Steps that failed say nothing, nor do coordinates held at a bound about the others.
            told = (moved != 0.0) & better[:, None]
            _update(inverse, fresh, moved, np.where(told, gradient - trial_gradient, 0.0))
        if better.all():
            x, value, gradient = trial, trial_value, trial_gradient
            step = np.ones(len(rows))
        else:
            # Shorten to the top of the parabola through what is known, within [0.1, 0.5].
            drop = np.where(np.isfinite(trial_value), value + rise - trial_value, np.inf)
            shorter = np.minimum(np.maximum(rise / (2.0 * np.maximum(drop, 1e-300)), 0.1), 0.5)
            step = np.where(better, 1.0, step * shorter)
            whole = better[:, None]
            x, value = np.where(whole, trial, x), np.where(better, trial_value, value)
            gradient = np.where(whole, trial_gradient, gradient)
        best.x[rows], best.value[rows] = x, value
    best.curvature[rows] = inverse
    return best


def _curved(function: RowsValueAndGradient, x: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Value (m,), gradient (m, d) and `Climb.curvature` at x (m, d), from one call.

    Differences of gradients a ten-thousandth of a scale inwards give the Hessian. Along an axis
    on which the function bends upwards the curvature is taken with the other sign, so that steps
    ascend; along one on which it hardly bends they are bounded.
    """
    m, d = x.shape
    step = np.where(x > 0.5, -1e-4, 1e-4) * scale
    points = np.repeat(x[:, None, :], d + 1, axis=1)
    points[:, np.arange(1, d + 1), np.arange(d)] += step
    value, gradient = function(points.reshape(-1, d), np.repeat(np.arange(m), d + 1))
    gradient = gradient.reshape(m, d + 1, d)
    bend = (gradient[:, :1] - gradient[:, 1:]) * (scale / step)[:, :, None] * scale[:, None, :]
    if not np.isfinite(bend).all():
        bend = np.where(np.isfinite(bend), bend, 0.0)
    values, vectors = np.linalg.eigh(0.5 * (bend + np.swapaxes(bend, 1, 2)))
    values = np.abs(values)
    # Where it does not bend at all, the squares of what follows must still be numbers.
    values = np.maximum(values, 1e-3 * values.max(axis=1, keepdims=True) + 1e-40)
    vectors *= scale[:, :, None]
    inverse = np.matmul(vectors / values[:, None, :], np.swapaxes(vectors, 1, 2))
    return value.reshape(m, d + 1)[:, 0], gradient[:, 0], inverse


def _direction(
    x: Array, gradient: Array, inverse: Array, scale: Array, fresh: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Ascent directions (m, d), and the rise (m,) that a step along them promises."""
    # A logarithm far in a tail can be steeper than squares of doubles can hold.
    masked = np.minimum(np.maximum(gradient, -1e100), 1e100)
    outward = np.where(gradient > 0.0, x >= 1.0, x <= 0.0)
    held = outward.any()
    if held:
        masked[outward] = 0.0
    direction = np.matmul(inverse, masked[:, :, None])[:, :, 0]
    if held:
        direction[outward] = 0.0
    promise = np.vecdot(direction, masked)
    scaled = direction / scale
    length = np.vecdot(scaled, scaled)
    # The first step has no curvature to go by: it is half a scale long at most. Later ones may
    # be as long as two scales.
    most = np.where(fresh, 0.25, 4.0)
    if (length > most).any():
        shrink = np.sqrt(most / np.maximum(length, most))
        direction *= shrink[:, None]
        promise *= shrink
    return direction, promise


def _update(inverse: Array, fresh: NDArray[np.bool_], s: Array, y: Array) -> None:
    """BFGS update (in place) of the inverse curvatures, for s = step, y = fall of the gradient.

    With u = H y and v = ½ (1 + y'u / s'y) s - u the formula (Nocedal & Wright, eq. 6.17) is
    H + (s v' + v s') / s'y. Where y is 0 a matrix stays what it is.
    """
    sy = np.vecdot(s, y)
    good = sy * sy > 1e-20 * np.vecdot(s, s) * np.vecdot(y, y)
    good &= sy > 0.0
    u = np.matmul(inverse, y[:, :, None])[:, :, 0]
    yu = np.vecdot(y, u)
    if fresh.any():  # size the matrix by the first curvature seen (Nocedal & Wright, eq. 6.20)
        first = fresh & good
        size = np.where(first, sy / np.where(first, yu, 1.0), 1.0)
        inverse *= size[:, None, None]
        u *= size[:, None]
        yu *= size
        fresh &= ~first
    sy = np.where(good, sy, np.inf)  # leaves the matrix as it is
    v = (0.5 + 0.5 * yu / sy)[:, None] * s
    v -= u
    v /= sy[:, None]
    product = s[:, :, None] * v[:, None, :]
    inverse += product
    inverse += product.transpose(0, 2, 1)


def search(
    function: RowsValueAndGradient,
    starts: Array,
    scale: Array,
    tolerance: float,
    domain: Domain,
    rounds: int = _ROUNDS,
    curvature: Array | None = None,
    differences: bool = False,
    race: bool = False,
) -> Climb:
    """`climb` to the best feasible points: choices are tried level by level, never rounded.

    Starts must be feasible. Coordinates climb while the choices are held, ordered ones of many
    levels at first with them; then each choice moves to its best level, all else fixed; until
    neither helps.
    """
    if not domain.choices:
        return climb(function, starts, scale, tolerance, curvature, rounds, differences, race)
    scale = np.broadcast_to(scale, starts.shape)
    rows = np.arange(len(starts))

    def along(
        columns: NDArray[np.bool_], x: Array, some: NDArray[np.intp], guess: Array | None
    ) -> Climb:
        how = {"tolerance": tolerance, "rounds": rounds, "race": race}
        how["differences"] = differences and guess is None
        return _climb_along(function, columns, x, some, scale[some], guess, **how)

    x = starts
    if not np.array_equal(domain.relaxed, domain.free):
        relaxed = along(domain.relaxed, starts, rows, curvature)
        both = np.stack([starts, domain.snap(relaxed.x)], axis=1)
        values = function(both.reshape(-1, starts.shape[1]), np.repeat(rows, 2))[0]
        x = both[rows, (values[1::2] > values[::2]).astype(np.intp)]
        curvature = relaxed.curvature
    result = along(domain.free, x, rows, curvature)
    for _ in range(4):
        x, value, moved = _sweep(function, result.x, result.value, rows, tolerance, domain)
        if not len(moved):
            break
        again = along(domain.free, x[moved], moved, result.curvature[moved])
        x[moved], value[moved], result.curvature[moved] = again.x, again.value, again.curvature
        result, rows = Climb(x, value, result.curvature), moved
    return result


def _climb_along(
    function: RowsValueAndGradient,
    columns: NDArray[np.bool_],
    starts: Array,
    rows: NDArray[np.intp],
    scale: Array,
    curvature: Array | None,
    **how: Any,
) -> Climb:
    """`climb` in some of the coordinates, for starts (m, d) that are those rows of a function."""
    places = np.flatnonzero(columns)
    whole = np.zeros((*starts.shape, starts.shape[1])) if curvature is None else curvature.copy()
    if not len(places):
        value = function(starts, rows)[0]
        return Climb(starts, np.where(np.isfinite(value), value, -np.inf), whole)

    def along(x: Array, live: NDArray[np.intp]) -> tuple[Array, Array]:
        point = starts[live]
        point[:, places] = x
        value, gradient = function(point, rows[live])
        return value, gradient[:, places]

    block = (slice(None), places[:, None], places)
    guess = None if curvature is None else curvature[block]
    found = climb(along, starts[:, places], scale[:, places], curvature=guess, **how)
    x = starts.copy()
    x[:, places], whole[block] = found.x, found.curvature
    return Climb(x, found.value, whole)


def _sweep(
    function: RowsValueAndGradient,
    x: Array,
    value: Array,
    rows: NDArray[np.intp],
    tolerance: float,
    domain: Domain,
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Move every choice of some rows to its best level; also the rows that moved."""
    x, value = x.copy(), value.copy()
    changed = np.zeros(len(x), dtype=bool)
    for choice in domain.choices:
        columns = list(choice.columns)
        owner, levels = choice.others(choice.nearest(x[rows][:, columns]))
        if not len(owner):
            continue
        owner = rows[owner]
        trials = x[owner]
        trials[:, columns] = choice.table[levels]
        trial_value = function(trials, owner)[0]
        order = np.lexsort((-trial_value, owner))
        first = order[np.unique(owner[order], return_index=True)[1]]
        better = first[trial_value[first] > value[owner[first]] + tolerance]
        x[owner[better]], value[owner[better]] = trials[better], trial_value[better]
        changed[owner[better]] = True
    return x, value, np.flatnonzero(changed)


def spread(values: Array, points: Array, count: int) -> NDArray[np.intp]:
    """Numbers of up to `count` points with high values, none close to a better one chosen.

    Close means within half a unit: points are given in units of the length-scales. Where too
    few remain, the best of the close ones fill up.
    """
    order = np.argsort(-values)
    order = order[np.isfinite(values[order])][: 16 * count]
    if not len(order):
        return np.arange(min(count, len(values)))
    candidates = points[order]
    chosen = [0]
    offset = candidates - candidates[0]
    nearest = np.vecdot(offset, offset)
    while len(chosen) < count:
        distant = np.flatnonzero(nearest > 0.25)
        if not len(distant):
            break
        pick = int(distant[0])
        chosen.append(pick)
        offset = candidates - candidates[pick]
        nearest = np.minimum(nearest, np.vecdot(offset, offset))
    if len(chosen) < count:
        rest = [number for number in range(len(order)) if number not in chosen]
        chosen.extend(rest[: count - len(chosen)])
    return np.asarray(order[chosen], dtype=np.intp)
