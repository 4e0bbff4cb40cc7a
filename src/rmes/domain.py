"""Which points of the unit cube can be measured: some coordinates take only certain values."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NEIGHBOURS = 12  # levels tried at once on either side of the present one


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

    def around(self, level: int) -> NDArray[np.intp]:
        """Levels worth trying instead of this one: all of them, or the nearest and a few far."""
        count = len(self.table)
        if not self.ordered or count <= 2 * _NEIGHBOURS + 1:
            return np.delete(np.arange(count), level)
        near = np.arange(max(level - _NEIGHBOURS, 0), min(level + _NEIGHBOURS + 1, count))
        far = np.linspace(0, count - 1, _NEIGHBOURS).astype(int)
        return np.setdiff1d(np.union1d(near, far), [level])


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
        """Which coordinates may be moved by a gradient before they are put on a level, (d,).

        Ordered choices of more than a few levels: their neighbours alone would be a long walk.
        """
        relaxed = self.free.copy()
        for choice in self.choices:
            if choice.ordered and len(choice.table) > 8:
                relaxed[list(choice.columns)] = True
        return relaxed

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
