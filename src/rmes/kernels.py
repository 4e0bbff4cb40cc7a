"""Stationary correlations: squared exponential and Matérn-5/2, with ARD length-scales.

Both are functions of one number, the scaled squared distance s = Σ_i ((x_i - x'_i) / ℓ_i)².
Derivatives in x and in log ℓ follow from dκ/ds by the chain rule, and dκ/ds is smooth at
s = 0 for both, so nothing here divides by a distance. Gradients and Hessians of the process have
covariances with dκ/ds to d³κ/ds³ in them (`slopes`).

A function may be more than that alike where a single coordinate is: with main effects, a sum of
functions of one coordinate each, which have the share a of the variance, the correlation is

    (1 - a) κ(Σ_i s_i) + (a / d) Σ_i κ(s_i),   s_i = ((x_i - x'_i) / ℓ_i)².
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]  # also in single precision, where many points are looked at

_ROOT_FIVE = float(np.sqrt(5.0))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A correlation κ(s) with κ(0) = 1.

    Attributes
    ----------
    name : str
        Its name in settings and files.
    value : callable
        s -> κ(s), any shape.
    value_and_slope : callable
        s -> (κ(s), dκ/ds).
    frequencies : callable
        Uniform numbers (count, d + 3) -> draws (count, d) from the spectral density for unit
        length-scales (Bochner); the last columns drive the scale mixture where there is one.
    slopes : callable
        s -> (κ, dκ/ds, d²κ/ds², d³κ/ds³). The third may diverge like s^(-1/2) at 0, where 0
        stands for it: it only ever multiplies terms of the order s^(3/2), whose limit is 0.
    """

    name: str
    value: Callable[[Array], Array]
    value_and_slope: Callable[[Array], tuple[Array, Array]]
    frequencies: Callable[[Array], Array]
    slopes: Callable[[Array], tuple[Array, Array, Array, Array]]


def _squared_exponential(s: Array) -> Array:
    return np.exp(-0.5 * s)


def _squared_exponential_slope(s: Array) -> tuple[Array, Array]:
    value = np.exp(-0.5 * s)
    return value, -0.5 * value


def _squared_exponential_slopes(s: Array) -> tuple[Array, Array, Array, Array]:
    value = np.exp(-0.5 * s)
    return value, -0.5 * value, 0.25 * value, -0.125 * value


def _squared_exponential_frequencies(uniform: Array) -> Array:
    return np.asarray(ndtri(uniform[:, :-3]), dtype=float)  # ~ N(0, I)


def _matern52(s: Array) -> Array:
    a = np.sqrt(s)
    a *= _ROOT_FIVE
    decay = np.exp(-a)
    a += 1.0
    a += s * (5.0 / 3.0)
    a *= decay
    return a


def _matern52_slope(s: Array) -> tuple[Array, Array]:
    # In place where it can be: a fresh large array costs more than the arithmetic on it.
    a = np.sqrt(s)
    a *= -_ROOT_FIVE
    decay = np.exp(a)
    np.subtract(1.0, a, out=a)
    a *= decay  # (1 + √5 r) exp(-√5 r)
    decay *= s
    decay *= 5.0 / 3.0
    decay += a
    a *= -5.0 / 6.0
    return decay, a


def _matern52_slopes(s: Array) -> tuple[Array, Array, Array, Array]:
    a = _ROOT_FIVE * np.sqrt(s)
    decay = np.exp(-a)
    linear = decay * (1.0 + a)
    # The third derivative is -(125/24) exp(-a) / a. Every covariance multiplies it by three
    # coordinate differences, so that its contribution at s = 0 is 0.
    third = (-125.0 / 24.0) * np.divide(decay, a, out=np.zeros_like(a), where=a > 0.0)
    second = (25.0 / 12.0) * decay
    return linear + decay * s * (5.0 / 3.0), linear * (-5.0 / 6.0), second, third


def _matern52_frequencies(uniform: Array) -> Array:
    normal = ndtri(uniform[:, :-2])
    # χ² with 5 degrees of freedom: two exponentials and the square of a normal
    chi_square = normal[:, -1] ** 2 - 2.0 * np.log(uniform[:, -2] * uniform[:, -1])
    scale = np.sqrt(5.0 / chi_square)
    return np.asarray(normal[:, :-1] * scale[:, None], dtype=float)  # ~ multivariate t_5


SQUARED_EXPONENTIAL = Kernel(
    "squared-exponential",
    _squared_exponential,
    _squared_exponential_slope,
    _squared_exponential_frequencies,
    _squared_exponential_slopes,
)
MATERN52 = Kernel("matern52", _matern52, _matern52_slope, _matern52_frequencies, _matern52_slopes)


def squared_distances(a: Array, b: Array, norms: Array | None = None) -> Array:
    """Squared Euclidean distances of points already divided by the length-scales.

    Shapes (..., m, d) and (..., n, d) give (..., m, n). The expanded form costs one matrix
    product; rounding can make it slightly negative, hence the floor at 0. `norms` (..., n) are
    the squared lengths of b, where they are known.
    """
    product = (-2.0 * a) @ np.swapaxes(b, -1, -2)
    product += np.vecdot(a, a)[..., :, None]
    product += (np.vecdot(b, b) if norms is None else norms)[..., None, :]
    return np.maximum(product, 0.0, out=product)


class Single(NamedTuple):
    """A main effect: its columns of x, and s_i, κ(s_i) and dκ/ds_i (..., m, n) in them alone."""

    columns: list[int]
    distance: Array
    value: Array
    slope: Array


@dataclass(frozen=True, slots=True)
class MainEffects:
    """What main effects depend on, for settings S or for rows m that have their own.

    Attributes
    ----------
    share : (S, 1, 1) or (m, 1) array
        The a of each.
    precision : (S, 1, d) or (m, d) array
        1/ℓ².
    groups : tuple of columns
        One column each, or the columns of a category, which share a length-scale.
    """

    share: Array
    precision: Array
    groups: tuple[tuple[int, ...], ...]

    def at(self, rows: NDArray[np.intp]) -> "MainEffects":
        """For m rows, of which each has its own of the S settings."""
        return MainEffects(self.share[rows, 0], self.precision[rows, 0], self.groups)

    def of(self, settings: slice, precision: type[np.floating[Any]]) -> "MainEffects":
        """Of some settings alone, in a floating-point precision."""
        share, scales = self.share[settings], self.precision[settings]
        return MainEffects(share.astype(precision), scales.astype(precision), self.groups)

    def blend(self, kernel: Kernel, together: Floats, x: Floats, points: Floats) -> None:
        """Make κ(Σ_i s_i) (..., m, n) of x (m, d) and points (n, d) the correlation, in place."""
        together *= 1.0 - self.share
        share = self.share / len(self.groups)
        for _, distance in self._distances(x, points):
            together += share * kernel.value(distance)

    def singles(self, kernel: Kernel, x: Array, points: Array) -> Iterator[Single]:
        """One after the other: who keeps them all needs memory for them all."""
        for columns, distance in self._distances(x, points):
            yield Single(columns, distance, *kernel.value_and_slope(distance))

    def _distances(self, x: Floats, points: Floats) -> Iterator[tuple[list[int], Any]]:
        for columns in self.groups:
            square = np.square(x[:, columns[0], None] - points[:, columns[0]])
            for column in columns[1:]:
                square += np.square(x[:, column, None] - points[:, column])
            yield list(columns), self.precision[..., columns[0], None] * square


class Correlation(NamedTuple):
    """A correlation (..., m, n), its slope in Σ_i s_i, and in each s_i alone."""

    value: Array
    slope: Array
    singles: list[tuple[list[int], Array]]

    def pull(self, weights: Array, x: Array, points: Array) -> Array:
        """½ ℓ² times the gradient (..., m, d) in x of Σ_j weights_j κ(x, points_j).

        For weights (..., m, n), which are used up, x (m, d) and points (n, d); no differences of
        them are formed.
        """
        alone = [
            (columns, _pull(weights * slope, x[:, columns], points[:, columns]))
            for columns, slope in self.singles
        ]
        weights *= self.slope
        pulled = _pull(weights, x, points)
        for columns, part in alone:
            pulled[..., columns] += part
        return pulled


def _pull(weights: Array, x: Array, points: Array) -> Array:
    """Σ_j weights_j (x - points_j)."""
    total = np.add.reduce(weights, axis=-1)[..., None]
    return np.asarray(total * x - np.matmul(weights, points))


def correlate(
    kernel: Kernel, distance: Array, x: Array, points: Array, main: MainEffects | None = None
) -> Correlation:
    """The correlation of x (m, d) with points (n, d), at scaled squared distances (..., m, n)."""
    value, slope = kernel.value_and_slope(distance)
    if main is None:
        return Correlation(value, slope, [])
    value *= 1.0 - main.share
    slope *= 1.0 - main.share
    share = main.share / len(main.groups)
    singles = []
    for single in main.singles(kernel, x, points):
        value += share * single.value
        singles.append((single.columns, share * single.slope))
    return Correlation(value, slope, singles)
