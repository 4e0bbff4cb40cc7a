"""Measurements as the model sees them: exact repeats merged into sufficient statistics."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, slots=True)
class Data:
    """Measurements, exact repeats merged into sufficient statistics.

    Attributes
    ----------
    x : (n, d) array
        Distinct points of the unit cube (a point measured with known and with unknown noise
        keeps two rows).
    y : (n,) array
        Precision-weighted mean of the measurements of a row.
    known : (n,) array
        Variance of y where the noise was given, else 0.
    share : (n,) array
        1 / repeats where the noise is to be inferred, else 0: row i has the noise variance
        known_i + τ² share_i.
    repeats : int
        Measurements with inferred noise beyond the first of their row.
    scatter : float
        Sum of their squared deviations from the mean of their row.
    constant : float
        What is part of the log-evidence and no hyperparameter changes.
    count : int
        Number of measurements, the repeats with them.
    level : float
        Mean of the given variances of single measurements, 0 if none was given.
    pressed : bool
        Whether y was pressed together (`rmes.units`); the constant holds how densely.
    grainy : bool
        Whether each row is taken to have a deviation of its own from a smooth function, which its
        repeats share: grain, in `rmes.model`.
    infers_noise : bool
        Whether some measurement came without the size of its noise.
    """

    x: Array
    y: Array
    known: Array
    share: Array
    repeats: int
    scatter: float
    constant: float
    count: int
    level: float
    pressed: bool = False
    grainy: bool = False
    infers_noise: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "infers_noise", bool(self.share.any()))  # asked for very often

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.y)


def merge(x: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | None = None) -> Data:
    """Check measurements and merge exact repeats; the likelihood stays what it was.

    Parameters
    ----------
    x : (n, d) array-like
        Points of the unit cube.
    y : (n,) array-like
    noise_variance : None, number or (n,) array-like
        Known variance of each measurement; NaN or None where it is to be inferred.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"x must be (n, d) and y (n,), not {x.shape} and {y.shape}")
    if not len(y):
        raise ValueError("there is no measurement to learn from: x and y are empty")
    if not np.isfinite(x).all() or not np.isfinite(y).all():
        raise ValueError("x and y must be finite; they hold NaN or infinity")
    if (x < 0.0).any() or (x > 1.0).any():
        raise ValueError(f"x must lie in the unit cube, not in [{x.min()}, {x.max()}]")
    given = np.nan if noise_variance is None else noise_variance
    variance = np.array(np.broadcast_to(np.asarray(given, dtype=float), y.shape))
    if (variance < 0.0).any() or np.isinf(variance).any():
        raise ValueError(f"noise variances must be finite and not negative: {variance}")

    x = x + 0.0  # -0.0 is 0.0
    unknown = np.isnan(variance)
    level = 0.0 if unknown.all() else float(np.mean(variance[~unknown]))
    key, width = np.column_stack([x, unknown]).tobytes(), 8 * x.shape[1] + 8
    rows_of = (key[start : start + width] for start in range(0, len(key), width))
    number: dict[bytes, int] = {}  # rows keep the order in which they first appeared
    group = np.array([number.setdefault(row, len(number)) for row in rows_of])
    if len(number) == len(y):
        known = np.where(unknown, 0.0, variance)
        return Data(x, y, known, unknown.astype(float), 0, 0.0, 0.0, len(y), level)

    first = np.unique(group, return_index=True)[1]
    rows = len(first)
    times = np.bincount(group, minlength=rows)
    exact = np.zeros(rows, dtype=bool)
    exact[group[variance == 0.0]] = True  # an exact value outweighs all noisy ones of its row
    weight = np.where(unknown, 1.0, 0.0)
    with np.errstate(divide="ignore"):
        weight = np.where(unknown, 1.0, np.where(exact[group], variance == 0.0, 1.0 / variance))
    total = np.bincount(group, weight, rows)
    mean = np.bincount(group, weight * y, rows) / total
    deviation = (y - mean[group]) ** 2
    row_unknown = unknown[first]
    known = np.where(row_unknown | exact, 0.0, 1.0 / total)
    noisy = ~unknown & ~exact[group]
    # log Π N(y_j; f, v_j) - log N(mean; f, 1 / total), which does not depend on f
    constant = -0.5 * float(np.sum(deviation[noisy] / variance[noisy]))
    constant -= 0.5 * float(np.sum(np.log(variance[noisy]) + LOG_TWO_PI))
    merged = ~row_unknown & ~exact
    constant += 0.5 * float(np.sum(np.log(known[merged]) + LOG_TWO_PI))
    repeats = int(np.sum(times[row_unknown] - 1))
    constant -= 0.5 * float(np.sum(np.log(times[row_unknown]))) + 0.5 * repeats * LOG_TWO_PI
    return Data(
        x=x[first],
        y=mean,
        known=known,
        share=np.where(row_unknown, 1.0 / times, 0.0),
        repeats=repeats,
        scatter=float(np.sum(deviation[unknown])),
        constant=constant,
        count=len(y),
        level=level,
    )
