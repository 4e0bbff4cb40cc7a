"""Answers in the user's units, and the sentences in which they are said."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The parameters to use, and what is believed of them. Printing it gives a sentence.

    Attributes
    ----------
    params : dict
    mean, sd : float
        The value of the objective there, without measurement noise, and its uncertainty.
    interval : (float, float)
        Central 90 % for that value.
    near : int
        Measurements within half a length-scale.
    measurements : int
        All measurements.
    observed_params, observed_value : dict, float
        The best single measurement: often the luckiest rather than the best.
    observed_mean : float
        What the model believes of that point.
    direction : str
    """

    params: dict[str, Any]
    mean: float
    sd: float
    interval: tuple[float, float]
    near: int
    measurements: int
    observed_params: dict[str, Any]
    observed_value: float
    observed_mean: float
    direction: str

    @property
    def observed_best(self) -> tuple[dict[str, Any], float]:
        """The best single measurement: its parameters and its value."""
        return self.observed_params, self.observed_value

    @property
    def luck(self) -> float:
        """By how much the best single measurement looks better than its point is."""
        gain = self.observed_value - self.observed_mean
        return gain if self.direction == "maximize" else -gain

    @property
    def reason(self) -> str:
        """Why this point, in a sentence or two."""
        low, high = (_number(end, self.sd) for end in self.interval)
        text = (
            f"Use {_params(self.params)}: the expected value is {_number(self.mean, self.sd)} "
            f"(90 % sure it is between {low} and {high}), "
            f"judged from {_measurements(self.measurements, self.near)}."
        )
        word = "high" if self.direction == "maximize" else "low"
        observed = _number(self.observed_value, self.sd)
        if self.luck > self.sd:
            text += (
                f" The best single measurement, {observed} at {_params(self.observed_params)}, "
                f"was probably lucky: it looks {_number(self.luck, self.sd)} too {word}."
            )
        elif self.observed_params != self.params:
            text += (
                f" The best single measurement was {observed} at {_params(self.observed_params)}."
            )
        return text

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is still to gain. Printing it gives a sentence.

    Attributes
    ----------
    optimum_interval : (float, float)
        90 % for the best value that the objective takes anywhere: from what the recommendation
        gives at the least to what some place may give at the most.
    expected_gap : float
        How far, on average, the recommendation's value is from that optimum.
    information : float
        What the next measurement can tell about the best value, in nats.
    gaps : (draws,) array
        Draws of the gap, ascending.
    optima : (draws,) array
        Draws of the best value, ascending.
    """

    optimum_interval: tuple[float, float]
    expected_gap: float
    information: float
    gaps: NDArray[np.float64]
    optima: NDArray[np.float64]

    def probability_within(self, epsilon: float) -> float:
        """Probability that the recommendation is within epsilon of the optimum."""
        if not epsilon >= 0.0:
            raise ValueError(f"epsilon is {epsilon}; expected 0 or more")
        return float(np.searchsorted(self.gaps, epsilon, side="right") / len(self.gaps))

    def __str__(self) -> str:
        low, high = (_number(end, self.expected_gap) for end in self.optimum_interval)
        return (
            f"The true optimum is between {low} and {high} (90 % sure); the recommendation is "
            f"expected to be {_number(self.expected_gap, self.expected_gap)} away from it. "
            f"The next measurement can tell {self.information:.2g} nats about the best value."
        )


def _measurements(all_of_them: int, near: int) -> str:
    if all_of_them == 1:
        return "one measurement"
    if near in (0, all_of_them):
        return f"{all_of_them} measurements, {'all' if near else 'none'} of them close by"
    return f"{all_of_them} measurements, {near} of them close by"


def _number(value: float, resolution: float) -> str:
    """The value with two digits more than its resolution can bear."""
    if not (np.isfinite(value) and resolution > 0.0) or value == 0.0:
        return f"{value:.6g}"
    digits = int(np.floor(np.log10(abs(value)))) - int(np.floor(np.log10(resolution))) + 2
    return f"{value:.{min(max(digits, 2), 12)}g}"


def _params(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
    )
