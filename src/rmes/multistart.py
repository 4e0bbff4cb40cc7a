"""Maximise a function with gradients on the unit cube: screen, then climb from the best starts.

All starts climb together: every round evaluates the function once, on all points that are still
moving, and each point carries its own step and its own BFGS matrix. SciPy's L-BFGS-B climbs one
start at a time; on functions whose cost is mostly Python overhead, as ours are at a few hundred
data, one vectorised round costs hardly more than one point, which is where the time goes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.domain import Domain

Array = NDArray[np.float64]

ValueAndGradient = Callable[[Array], tuple[Array, Array]]
"""(m, d) points -> their values (m,) and gradients (m, d)."""

RowsValueAndGradient = Callable[[Array, NDArray[np.intp]], tuple[Array, Array]]
"""As above for m rows of which each climbs its own function; the rows' numbers come along."""

_SUFFICIENT = 1e-4  # Armijo's constant
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
    """Well-spread points (count, dimensions) in [0, 1)ᵈ: a Kronecker sequence, randomly shifted.

    The steps are powers of the root of t^(d+1) = t + 1, the generalised golden ratio.
    """
    root = 2.0
    for _ in range(40):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    points = np.arange(1, count + 1)[:, None] * steps + rng.random(dimensions)
    return np.asarray(points - np.floor(points), dtype=float)


def climb(
    function: RowsValueAndGradient,
    starts: Array,
    scale: Array,
    tolerance: float,
    curvature: Array | None = None,
    rounds: int = _ROUNDS,
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
        The most evaluations for each start.
    """
    scale = np.broadcast_to(scale, starts.shape)
    x = np.clip(starts, 0.0, 1.0)
    live = np.arange(len(x))
    value, gradient = function(x, live)
    best_x, best_value = x.copy(), value.copy()
    identity = np.eye(x.shape[1])
    if curvature is None:
        inverse = np.broadcast_to(identity, (*x.shape, x.shape[1])).copy()  # in units of scale
    else:
        inverse = curvature / (scale[:, :, None] * scale[:, None, :])
    best_inverse = inverse.copy()
    fresh = np.full(len(x), curvature is None)
    unit = scale
    # Non-finite starts cannot be climbed from.
    keep = np.isfinite(value)
    if not keep.all():
        best_value[~keep] = -np.inf
        live, x, value, gradient = live[keep], x[keep], value[keep], gradient[keep]
        inverse, fresh, unit = inverse[keep], fresh[keep], unit[keep]
    step = np.ones(len(live))
    direction, promise, gradient = _direction(x, gradient, inverse, unit, fresh)

    for _ in range(rounds):
        keep = promise > tolerance
        if not keep.all():
            best_inverse[live[~keep]] = inverse[~keep]
            live, x, value, gradient = live[keep], x[keep], value[keep], gradient[keep]
            inverse, fresh, unit, step = inverse[keep], fresh[keep], unit[keep], step[keep]
            direction = direction[keep]
        if not len(live):
            break
        trial = np.clip(x + step[:, None] * direction * unit, 0.0, 1.0)
        moved = (trial - x) / unit
        trial_value, trial_gradient = function(trial, live)
        rise = np.einsum("ij,ij->i", gradient, moved)
        better = trial_value >= value + _SUFFICIENT * rise  # False for NaN
        failed = ~better
        if failed.any():
            # Shorten to the top of the parabola through what is known, within [0.1, 0.5].
            drop = np.where(np.isfinite(trial_value), value + rise - trial_value, np.inf)
            with np.errstate(invalid="ignore", divide="ignore"):
                step[failed] *= np.clip(rise / (2.0 * drop), 0.1, 0.5)[failed]
        if better.any():
            rows = np.flatnonzero(better)
            new_gradient = trial_gradient[rows] * unit[rows]
            _update(inverse, fresh, rows, moved[rows], gradient[rows] - new_gradient, identity)
            x[rows], value[rows] = trial[rows], trial_value[rows]
            best_x[live[rows]], best_value[live[rows]] = x[rows], value[rows]
            step[rows] = 1.0
            direction[rows], promise_rows, gradient[rows] = _direction(
                x[rows], trial_gradient[rows], inverse[rows], unit[rows], fresh[rows]
            )
            promise = np.full(len(live), np.inf)
            promise[rows] = promise_rows
        else:
            promise = np.full(len(live), np.inf)
        promise[failed & (step < 1e-8)] = 0.0
    else:
        best_inverse[live] = inverse
    return Climb(best_x, best_value, best_inverse * (scale[:, :, None] * scale[:, None, :]))


def _direction(
    x: Array, gradient: Array, inverse: Array, unit: Array, fresh: NDArray[np.bool_]
) -> tuple[Array, Array, Array]:
    """Ascent directions and the rise they promise, both in units of the scale.

    Also returns the scaled gradient.
    """
    g = gradient * unit if gradient is not None else gradient
    free = ~(((x <= 0.0) & (g < 0.0)) | ((x >= 1.0) & (g > 0.0)))
    masked = g * free
    direction = np.einsum("mij,mj->mi", inverse, masked) * free
    promise = np.einsum("mi,mi->m", direction, masked)
    length = np.sqrt(np.einsum("mi,mi->m", direction, direction))
    # The first step has no curvature to go by: it is half a scale long at most. Later ones may
    # be as long as two scales.
    limit = np.where(fresh, 0.5, 2.0)
    shrink = np.minimum(1.0, limit / np.maximum(length, 1e-300))
    return direction * shrink[:, None], promise * shrink, g


def _update(
    inverse: Array,
    fresh: NDArray[np.bool_],
    rows: NDArray[np.intp],
    s: Array,
    y: Array,
    identity: Array,
) -> None:
    """BFGS update of the inverse curvature of `rows`, for s = step, y = fall of the gradient."""
    y = y * (s != 0.0)  # coordinates held at a bound say nothing about the others
    sy = np.einsum("mi,mi->m", s, y)
    yy = np.einsum("mi,mi->m", y, y)
    good = sy > 1e-10 * np.sqrt(np.einsum("mi,mi->m", s, s) * yy)
    if not good.all():
        rows, s, y, sy, yy = rows[good], s[good], y[good], sy[good], yy[good]
        if not len(rows):
            return
    first = fresh[rows]
    if first.any():  # size the matrix by the first curvature seen (Nocedal & Wright, eq. 6.20)
        inverse[rows[first]] *= (sy[first] / yy[first])[:, None, None]
        fresh[rows] = False
    left = identity - s[:, :, None] * (y / sy[:, None])[:, None, :]
    h = left @ inverse[rows] @ np.swapaxes(left, 1, 2)
    h += s[:, :, None] * (s / sy[:, None])[:, None, :]
    inverse[rows] = h


def search(
    function: RowsValueAndGradient,
    starts: Array,
    scale: Array,
    tolerance: float,
    domain: Domain,
) -> Climb:
    """`climb` to the best feasible points: choices are tried level by level, never rounded.

    Starts must be feasible. Continuous coordinates climb while the choices are held; then each
    choice moves to its best level, all else fixed; until neither helps.
    """
    if not domain.choices:
        return climb(function, starts, scale, tolerance)
    scale = np.broadcast_to(scale, starts.shape)
    found = starts
    if domain.relaxed.any() and not np.array_equal(domain.relaxed, domain.free):
        relaxed = climb(_held(function, domain.relaxed), starts, scale, tolerance)
        found = domain.snap(relaxed.x)
        rows = np.arange(len(starts))
        worse = function(found, rows)[0] < function(starts, rows)[0]
        found = np.where(worse[:, None], starts, found)
    result = climb(_held(function, domain.free), found, scale, tolerance)
    for _ in range(4):
        x, value, changed = _sweep(function, result.x, result.value, tolerance, domain)
        if not changed.any():
            break
        again = climb(_some(function, changed, domain), x[changed], scale[changed], tolerance)
        curvature = result.curvature.copy()
        x[changed], value[changed] = again.x, again.value
        curvature[changed] = again.curvature
        result = Climb(x, value, curvature)
    return result


def _held(function: RowsValueAndGradient, free: NDArray[np.bool_]) -> RowsValueAndGradient:
    """The function with the gradient of coordinates that are not free set to zero."""

    def held(x: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        value, gradient = function(x, rows)
        return value, gradient * free

    return held


def _some(
    function: RowsValueAndGradient, rows: NDArray[np.intp], domain: Domain
) -> RowsValueAndGradient:
    """The held function of a few rows, numbered anew."""
    held = _held(function, domain.free)
    return lambda x, live: held(x, rows[live])


def _sweep(
    function: RowsValueAndGradient, x: Array, value: Array, tolerance: float, domain: Domain
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Move every choice of every row to its best level; also the rows that moved."""
    x, value = x.copy(), value.copy()
    changed = np.zeros(len(x), dtype=bool)
    for choice in domain.choices:
        columns = list(choice.columns)
        present = choice.nearest(x[:, columns])
        levels = [choice.around(int(level)) for level in present]
        rows = np.repeat(np.arange(len(x)), [len(tried) for tried in levels])
        if not len(rows):
            continue
        trials = x[rows]
        trials[:, columns] = choice.table[np.concatenate(levels)]
        trial_value = function(trials, rows)[0]
        order = np.lexsort((-trial_value, rows))
        first = order[np.unique(rows[order], return_index=True)[1]]
        better = first[trial_value[first] > value[rows[first]] + tolerance]
        x[rows[better]], value[rows[better]] = trials[better], trial_value[better]
        changed[rows[better]] = True
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
    nearest = np.einsum("ij,ij->i", offset, offset)
    while len(chosen) < count:
        distant = np.flatnonzero(nearest > 0.25)
        if not len(distant):
            break
        pick = int(distant[0])
        chosen.append(pick)
        offset = candidates - candidates[pick]
        nearest = np.minimum(nearest, np.einsum("ij,ij->i", offset, offset))
    if len(chosen) < count:
        rest = np.setdiff1d(np.arange(len(order)), chosen)
        chosen.extend(rest[: count - len(chosen)].tolist())
    return np.asarray(order[chosen], dtype=np.intp)
