"""Which points of the unit cube can be measured: some coordinates take only certain values."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_FEW = 8  # ordered levels up to which all of them are tried
# Steps tried from the level that a relaxed climb ended next to. On 40 × 111 levels they find the
# best of all points as often as 36 levels did, and steps of up to 3 less often.
_STEPS = np.array([-8, -5, -3, -2, -1, 1, 2, 3, 5, 8])


@dataclass(frozen=True, slots=True)
class Choice:
    """Coordinates that move together through a table of levels.

    Attributes
    ----------
    columns : tuple of int
        One column for ordered levels (an integer), several for a category, which has no order.
    table : (levels, columns) array
        The encoded value of each level; ordered levels are ascending.
    """

    columns: tuple[int, ...]
    table: Array

    @property
    def ordered(self) -> bool:
        """Whether the levels lie on a line."""
        return len(self.columns) == 1

    def nearest(self, values: Array) -> NDArray[np.intp]:
        """Number of the level nearest to each of `values` (m, columns)."""
        if self.ordered:
            line = self.table[:, 0]
            right = np.clip(np.searchsorted(line, values[:, 0]), 1, max(len(line) - 1, 1))
            right = np.minimum(right, len(line) - 1)
            left = np.maximum(right - 1, 0)
            closer = values[:, 0] - line[left] <= line[right] - values[:, 0]
            return np.where(closer, left, right)
        distance = np.sum((values[:, None, :] - self.table) ** 2, axis=2)
        return np.asarray(np.argmin(distance, axis=1))

    @property
    def relaxed(self) -> bool:
        """Whether a gradient may move the coordinate before it is put on a level.

        Ordered choices of more than a few levels: their neighbours alone would be a long walk.
        """
        return self.ordered and len(self.table) > _FEW

    def others(self, levels: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Levels worth trying instead of each of `levels` (m,): rows ascending, and levels."""
        count = len(self.table)
        tried = levels[:, None] + _STEPS if self.relaxed else np.arange(count)[None]
        tried = np.broadcast_to(tried, (len(levels), tried.shape[1]))
        rows, places = np.nonzero((tried >= 0) & (tried < count) & (tried != levels[:, None]))
        return rows, tried[rows, places]


@dataclass(frozen=True)
class Domain:
    """The unit cube in `dimensions` coordinates, restricted by choices."""

    dimensions: int
    choices: tuple[Choice, ...] = ()

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which coordinates are continuous, (d,)."""
        free = np.ones(self.dimensions, dtype=bool)
        for choice in self.choices:
            free[list(choice.columns)] = False
        return free

    @cached_property
    def relaxed(self) -> NDArray[np.bool_]:
        """Which coordinates may be moved by a gradient before they are put on a level, (d,)."""
        relaxed = self.free.copy()
        for choice in self.choices:
            relaxed[list(choice.columns)] = choice.relaxed
        return relaxed

    @cached_property
    def moving(self) -> int:
        """How many coordinates a gradient may move."""
        return int(self.relaxed.sum())

    @cached_property
    def size(self) -> float:
        """Number of points; infinite where a coordinate is continuous."""
        if self.free.any():
            return np.inf
        return float(np.prod([float(len(choice.table)) for choice in self.choices]))

    def snap(self, x: Array) -> Array:
        """The feasible points (m, d) nearest to x (m, d), choice by choice."""
        if not self.choices:
            return x
        x = x.copy()
        for choice in self.choices:
            columns = list(choice.columns)
            x[:, columns] = choice.table[choice.nearest(x[:, columns])]
        return x

    def enumerate(self) -> Array:
        """All points (size, d) of a domain without continuous coordinates."""
        grids = np.meshgrid(*[np.arange(len(c.table)) for c in self.choices], indexing="ij")
        points = np.empty((int(self.size), self.dimensions))
        for choice, levels in zip(self.choices, grids, strict=True):
            points[:, list(choice.columns)] = choice.table[levels.ravel()]
        return points
