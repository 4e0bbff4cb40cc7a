"""Trials and what came of them: checked when told, plain when saved."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NoiseAt = Callable[[dict[str, Any]], float]


@dataclass(frozen=True, slots=True)
class Trial:
    """A point to measure: its number, its parameters and why it was chosen."""

    id: int
    params: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """A trial, its place in the cube, and what came of it; pending while there is nothing."""

    trial: Trial
    x: Array
    values: tuple[float, ...] = ()
    noise_sds: tuple[float | None, ...] = ()
    failed: bool = False

    @property
    def pending(self) -> bool:
        """Whether the measurement is still awaited."""
        return not self.values and not self.failed

    @property
    def state(self) -> str:
        """In a word: pending, failed or measured."""
        if self.pending:
            return "pending"
        return "failed" if self.failed else "measured"

    def for_user(self) -> Trial:
        """The trial, such that changing its parameters changes nothing here."""
        return replace(self.trial, params=dict(self.trial.params))

    def to_json(self) -> dict[str, Any]:
        """All there is, in plain types."""
        return {
            "params": self.trial.params,
            "reason": self.trial.reason,
            "x": self.x.tolist(),
            "values": list(self.values),
            "noise_sds": list(self.noise_sds),
            "failed": self.failed,
        }

    @staticmethod
    def from_json(number: int, saved: Mapping[str, Any]) -> "Record":
        """Read what `to_json` wrote for trial `number`, checked: people edit such files."""
        values = read_values(saved["values"], False) if saved["values"] else ()
        noise_sds = tuple(read_noise_sd(sd) for sd in saved["noise_sds"])
        if len(noise_sds) != len(values):
            raise ValueError(f"it has {len(values)} values and {len(noise_sds)} noise_sds")
        if values and saved["failed"]:
            raise ValueError("it has failed, and has values")
        return Record(
            Trial(number, saved["params"], saved["reason"]),
            np.array(saved["x"], dtype=float),
            values,
            noise_sds,
            bool(saved["failed"]),
        )


def read_values(value: Any, failed: bool) -> tuple[float, ...]:
    """The values of one measurement, checked; none if it failed."""
    if failed:
        if value is not None:
            raise ValueError(f"a failed measurement has no value, but {value!r} was given")
        return ()
    if value is None:
        raise ValueError("no value was given; a measurement without one is told as failed=True")
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    values = list(value) if several and np.ndim(value) else [value]
    if not values:
        raise ValueError("the list of values is empty")
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int | float | np.number | np.ndarray):
            raise TypeError(f"value is {one!r}; expected a number")
        if not math.isfinite(one):
            raise ValueError(
                f"value is {float(one)}; expected a finite number "
                "(a measurement that failed is told as failed=True)"
            )
    return tuple(float(one) for one in values)


def read_noise_sd(noise_sd: Any) -> float | None:
    """A standard deviation of noise, checked; None where it is to be inferred."""
    if noise_sd is None:
        return None
    if isinstance(noise_sd, bool) or not isinstance(noise_sd, int | float | np.number):
        raise TypeError(f"noise_sd is {noise_sd!r}; expected a number, or None to infer it")
    if not (math.isfinite(noise_sd) and noise_sd >= 0):
        raise ValueError(f"noise_sd is {noise_sd}; expected 0 or more, or None to infer it")
    return float(noise_sd)


def call_noise_sd(noise_sd: NoiseAt, params: dict[str, Any]) -> float:
    """The user's noise at params, checked."""
    sd = noise_sd(dict(params))
    try:
        checked = read_noise_sd(sd)
    except (TypeError, ValueError):
        checked = None
    if checked is None:
        raise ValueError(f"noise_sd({params}) returned {sd!r}; expected a number from 0")
    return checked
