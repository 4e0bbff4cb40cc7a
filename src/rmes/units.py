"""The sign, scale and outliers of measured values, handled once, at the door.

Inside, values are maximised and have mean 0 and standard deviation 1. A value far outside all
others (three interquartile ranges beyond the quartiles, Tukey's "far out") would take the whole
scale for itself. Beyond that fence a good value counts by its logarithm and a bad one by the
logarithm of its logarithm. The map is monotone, invertible, smooth, and the identity, up to shift
and scale, on a side where no value is far out.

On the bad side one logarithm is not enough: a misprint of 1e6 would still lie 14 standard
deviations beyond the fence, and bend the model around it. With a bowl, noise of 1 % and one such
value among 21, the regret after them was 0.02 with one logarithm and 0.002 with two (medians of 6
seeds). On the good side two would be too many: what is believed of the optimum lies there, and
would be blown up when it is said in the user's units.

Values may also be pressed together as a whole, by a logarithm below the best quarter of them. A
function that falls off steeply, as powers do, is then as rough around its optimum as elsewhere,
which is what the model takes for granted. Whether values are better seen so, `rmes.fit` decides.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Values beyond these are taken for them. Squares of the first do not overflow; a penalty of
# 1.8e308 is no more a measurement than one of 1e150.
_LARGEST_GIVEN, _LARGEST_SAID = 1e150, 1e300


@dataclass(frozen=True, slots=True)
class Units:
    """A monotone map between a user's values and standardised ones.

    Attributes
    ----------
    sign : float
        1 to maximise, -1 to minimise.
    center, scale : float
        Of the signed values.
    low, high : float
        The fences, in standardised units.
    knee : float
        Standardised values below it are pressed; -inf where none are.
    middle, width : float
        Mean and standard deviation of the pressed values, by which they are standardised again.
    """

    sign: float
    center: float
    scale: float
    low: float
    high: float
    knee: float = -np.inf
    middle: float = 0.0
    width: float = 1.0

    @staticmethod
    def of(values: Array, sign: float, noise: float = 0.0) -> "Units":
        """Units in which the values (n,) are standardised.

        Where they hardly differ, the known standard deviation of their `noise`, if there is one,
        says on what scale to look at them.
        """
        signed = sign * _within(values, -_LARGEST_GIVEN, _LARGEST_GIVEN)
        if not len(signed):
            return Units(sign, 0.0, 1.0, -np.inf, np.inf)
        # Quartiles as np.quantile has them, which takes longer than all the rest here.
        last = len(signed) - 1
        first, third = np.interp([0.25 * last, 0.75 * last], np.arange(last + 1), np.sort(signed))
        reach = 3.0 * (third - first)
        inside = signed
        if reach > 0.0:
            inside = _within(signed, first - reach, third + reach)
        center = float(np.add.reduce(inside) / len(inside))
        offset = inside - center
        scale = float(np.sqrt(np.add.reduce(offset * offset) / len(inside)))
        scale = scale or float(np.ptp(inside))  # squares of tiny differences are 0
        if not scale > 1e-12 * abs(center):
            scale = noise or abs(center) or 1.0  # all values are equal; any scale will do
        # The last: differences too small to divide the others by are none.
        scale = max(scale, 0.1 * noise, 1e-290 * float(np.max(np.abs(signed))))
        low = (first - reach - center) / scale if (inside > signed).any() else -np.inf
        high = (third + reach - center) / scale if (inside < signed).any() else np.inf
        return Units(sign, center, scale, float(low), float(high))

    def pressed(self, values: Array) -> "Units":
        """The same units, with all of the values (n,) pressed but the best quarter."""
        z = self.forward(values)
        knee = float(np.quantile(z, 0.75))
        pressed = replace(self, knee=knee).forward(values)
        width = float(np.std(pressed))
        return replace(self, knee=knee, middle=float(np.mean(pressed)), width=width or 1.0)

    @property
    def unit(self) -> float:
        """How much a standardised unit is in the user's, among values that are not pressed."""
        return self.scale * self.width

    def forward(self, values: Array) -> Array:
        """Standardised values."""
        signed = self.sign * _within(values, -_LARGEST_GIVEN, _LARGEST_GIVEN)
        z = (signed - self.center) / self.scale
        if self._linear:
            return np.asarray(z, dtype=float)
        below, above = np.minimum(z - self.low, 0.0), np.maximum(z - self.high, 0.0)
        z = np.clip(z, self.low, self.high) - np.log1p(np.log1p(-below)) + np.log1p(above)
        z = np.maximum(z, self.knee) - np.log1p(np.maximum(self.knee - z, 0.0))
        return np.asarray((z - self.middle) / self.width, dtype=float)

    def backward(self, z: Array) -> Array:
        """The user's values."""
        with np.errstate(over="ignore"):
            z = self._unpressed(z)
            below, above = np.minimum(z - self.low, 0.0), np.maximum(z - self.high, 0.0)
            linear = np.clip(z, self.low, self.high)
            linear = linear - np.expm1(np.expm1(-below)) + np.expm1(above)
            values = self.sign * (self.center + self.scale * linear)
        return np.asarray(np.clip(values, -_LARGEST_SAID, _LARGEST_SAID), dtype=float)

    def stretch(self, z: Array) -> Array:
        """How much a small standardised difference at z is in the user's units, positive."""
        if self._linear:
            return np.full_like(z, self.unit, dtype=float)
        under = self._under_knee(z)
        with np.errstate(over="ignore"):
            z = self._unpressed(z)
            below, above = np.maximum(self.low - z, 0.0), np.maximum(z - self.high, 0.0)
            stretch = self.unit * np.exp(np.expm1(below) + below + above + under)
        return np.asarray(np.minimum(stretch, _LARGEST_SAID), dtype=float)

    def log_slope(self, z: Array) -> float:
        """Σ log of the slope that pressing has at the values z (n,) that it gave.

        The density of values is that of the pressed ones times it: so evidence is compared.
        """
        return float(-np.sum(self._under_knee(z)) - len(z) * np.log(self.width))

    @property
    def _linear(self) -> bool:
        """Whether there is nothing but a shift and a scale, as mostly."""
        return self.low == -np.inf and self.high == np.inf and self.knee == -np.inf

    def _under_knee(self, z: Array) -> Array:
        """How far (n,) below the knee, as pressed values lie."""
        return np.asarray(np.maximum(self.knee - (self.middle + self.width * z), 0.0))

    def _unpressed(self, z: Array) -> Array:
        """Standardised values as they were before they were pressed."""
        return np.maximum(self.middle + self.width * z, self.knee) - np.expm1(self._under_knee(z))


def _within(values: Array, low: float, high: float) -> Array:
    """As `np.clip`, which takes as long as all the rest for a few values."""
    return np.minimum(np.maximum(values, low), high)
