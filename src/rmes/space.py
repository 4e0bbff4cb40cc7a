"""Parameters as a person names them, and their place in the unit cube."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.domain import Choice, Domain

Array = NDArray[np.float64]

_LARGEST = 8e307  # of a bound: twice as much is still a double
_LEVELS = 100_000  # an integer range beyond this is treated as continuous and rounded at the door


@dataclass(frozen=True, slots=True)
class Float:
    """A real number from `low` to `high`; `log` for scales, `step` for a grid starting at low."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.log, float)
        if self.step is not None and (self.log or not self.step > 0):
            raise ValueError(f"step is {self.step}; it must be positive and log must be off")


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.log, int)
        if int(self.step) != self.step or self.step < 1 or (self.log and self.step != 1):
            raise ValueError(f"step is {self.step}; it must be a whole number from 1, 1 if log")


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of several things without an order."""

    choices: tuple[Any, ...]

    def __init__(self, choices: Sequence[Any]) -> None:
        if isinstance(choices, str) or not len(choices):
            raise ValueError(f"choices must be a list of at least one thing, not {choices!r}")
        for first, one in enumerate(choices):
            if one is not None and not isinstance(one, str | bool | int | float):
                raise TypeError(
                    f"choice {one!r} is a {type(one).__name__}; "
                    "expected a string, a number, a truth value or None"
                )
            if any(_same(one, other) for other in choices[:first]):
                raise ValueError(f"choice {one!r} is given twice")
        object.__setattr__(self, "choices", tuple(choices))


Parameter = Float | Integer | Categorical


def _check_range(low: Any, high: Any, log: bool, kind: type) -> None:
    for name, bound in (("low", low), ("high", high)):
        if isinstance(bound, bool) or not isinstance(bound, int | float | np.number):
            raise TypeError(f"{name} is {bound!r}; expected a number")
        if not -_LARGEST <= bound <= _LARGEST:  # nor NaN
            raise ValueError(f"{name} is {bound}; expected a finite number, 8e307 at most")
        if kind is int and int(bound) != bound:
            raise ValueError(f"{name} is {bound}; expected a whole number")
    if low > high:
        raise ValueError(f"low is {low} and high is {high}; expected low to be the smaller one")
    if log and low <= 0:
        raise ValueError(f"low is {low}; a log scale needs a positive one")


def _same(a: Any, b: Any) -> bool:
    """Equal and of one type: True is not 1 here."""
    return type(a) is type(b) and bool(a == b)


@dataclass(frozen=True, slots=True)
class _Column:
    """The columns of the cube that one parameter takes, and how it is read from them."""

    name: str
    parameter: Parameter
    first: int
    width: int
    levels: tuple[float, ...] | None  # of a grid or of integers, in the user's units

    def encode(self, value: Any) -> Array:
        parameter = self.parameter
        if isinstance(parameter, Categorical):
            return np.asarray(self.table[self._choice(value)])
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise TypeError(f"{self.name} is {value!r}; expected a number")
        number = float(value)
        if not parameter.low <= number <= parameter.high:  # False for NaN
            raise ValueError(
                f"{self.name} is {value}; expected it from {parameter.low} to {parameter.high}"
            )
        if isinstance(parameter, Integer) and number != int(number):
            raise ValueError(f"{self.name} is {value}; expected a whole number")
        return np.array([self._forward(number)] * self.width)

    def decode(self, x: Array) -> Any:
        parameter = self.parameter
        if isinstance(parameter, Categorical):
            if self.width == 0:
                return parameter.choices[0]
            level = int(np.argmin(np.sum((self.table - x) ** 2, axis=1)))
            return parameter.choices[level]
        if self.width == 0:
            return int(parameter.low) if isinstance(parameter, Integer) else float(parameter.low)
        if parameter.log:
            low, high = math.log(parameter.low), math.log(parameter.high)
            number = math.exp(low + float(x[0]) * (high - low))
        else:
            number = parameter.low + float(x[0]) * (parameter.high - parameter.low)
        if self.levels is not None:
            step = parameter.step or 1.0
            level = round((number - parameter.low) / step)
            number = self.levels[min(max(level, 0), len(self.levels) - 1)]
        number = min(max(number, parameter.low), parameter.high)
        return round(number) if isinstance(parameter, Integer) else float(number)

    @property
    def table(self) -> Array:
        """The encoded levels (levels, width); two categories need one column only."""
        if isinstance(self.parameter, Categorical):
            count = len(self.parameter.choices)
            if self.width <= 1:
                return np.arange(float(count))[:, None][:, : self.width]
            # Any two categories are at distance 1.
            return np.eye(count) * math.sqrt(0.5)
        assert self.levels is not None
        return np.array([[self._forward(level)] for level in self.levels])

    def _forward(self, number: float) -> float:
        parameter = self.parameter
        assert not isinstance(parameter, Categorical)
        if self.width == 0:
            return 0.0
        if parameter.log:
            low, high = math.log(parameter.low), math.log(parameter.high)
            return min(max((math.log(number) - low) / (high - low), 0.0), 1.0)
        return (number - parameter.low) / (parameter.high - parameter.low)

    def _choice(self, value: Any) -> int:
        assert isinstance(self.parameter, Categorical)
        for level, choice in enumerate(self.parameter.choices):
            if _same(choice, value):
                return level
        for level, choice in enumerate(self.parameter.choices):
            if choice == value:
                return level
        expected = ", ".join(repr(choice) for choice in self.parameter.choices)
        raise ValueError(f"{self.name} is {value!r}; expected one of {expected}")


@dataclass(frozen=True)
class Space:
    """Named parameters and their encoding in the unit cube.

    Columns are laid out by name, so the order in which parameters are given does not matter. A
    parameter with a single possible value takes no column.
    """

    parameters: dict[str, Parameter]

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise ValueError(f"a space is a dictionary of parameters, not {parameters!r}")
        read = {}
        for name, given in parameters.items():
            if not isinstance(name, str):
                raise TypeError(f"a parameter is named {name!r}; expected a string")
            try:
                read[name] = _parameter(given)
            except (TypeError, ValueError) as error:
                raise type(error)(f"parameter {name!r}: {error}") from None
        object.__setattr__(self, "parameters", read)

    @cached_property
    def _columns(self) -> tuple[_Column, ...]:
        columns, first = [], 0
        for name in sorted(self.parameters):
            column = _column(name, self.parameters[name], first)
            columns.append(column)
            first += column.width
        return tuple(columns)

    @cached_property
    def domain(self) -> Domain:
        """The feasible points of the cube."""
        choices = []
        for column in self._columns:
            discrete = column.levels is not None or isinstance(column.parameter, Categorical)
            if discrete and column.width:
                places = tuple(range(column.first, column.first + column.width))
                choices.append(Choice(places, column.table))
        return Domain(self.dimensions, tuple(choices))

    @property
    def dimensions(self) -> int:
        """Columns of the cube."""
        return sum(column.width for column in self._columns)

    @property
    def groups(self) -> tuple[int, ...]:
        """The length-scale of each column: a parameter has one, however many columns it takes."""
        moving = [column for column in self._columns if column.width]
        return tuple(i for i, column in enumerate(moving) for _ in range(column.width))

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point (d,) of the cube for one value of each parameter."""
        if not isinstance(params, Mapping):
            raise TypeError(f"expected a dictionary of parameters, not {params!r}")
        unknown = sorted(map(str, set(params) - set(self.parameters)))
        missing = sorted(set(self.parameters) - set(params))
        if unknown or missing:
            known = ", ".join(self.parameters)
            said = [f"unknown parameter {', '.join(unknown)}"] * bool(unknown)
            said += [f"no value for {', '.join(missing)}"] * bool(missing)
            raise ValueError(f"{'; '.join(said)} (the parameters are {known})")
        parts = [column.encode(params[column.name])[: column.width] for column in self._columns]
        return np.concatenate(parts) if parts else np.empty(0)

    def decode(self, x: Array) -> dict[str, Any]:
        """The parameters at a point (d,) of the cube, in the order they were given."""
        read = {
            column.name: column.decode(x[column.first : column.first + column.width])
            for column in self._columns
        }
        return {name: read[name] for name in self.parameters}

    def check_place(self, params: Mapping[str, Any], x: Array) -> None:
        """Raise ValueError where x (d,) is not the place of the parameters."""
        place = self.encode(params)
        if x.shape == place.shape:
            # whole numbers of a long range are rounded when said, but not in the cube
            near = np.allclose(x, place, rtol=0.0, atol=1e-9)
            if near or self.decode(x) == params:
                return
        raise ValueError(f"its x {x.tolist()} is not the place of its params {params}")

    def to_json(self) -> dict[str, Any]:
        """The parameters as plain lists and dictionaries."""
        return {name: _describe(parameter) for name, parameter in self.parameters.items()}

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> "Space":
        """Read what `to_json` wrote."""
        kinds = {"float": Float, "integer": Integer, "categorical": Categorical}
        parameters = {}
        for name, fields in described.items():
            try:
                others = {key: value for key, value in fields.items() if key != "type"}
                parameters[name] = kinds[fields["type"]](**others)
            except (AttributeError, KeyError, TypeError) as error:
                raise ValueError(f"parameter {name!r} of the saved space: {fields!r}") from error
        return Space(parameters)


def _describe(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Categorical):
        return {"type": "categorical", "choices": list(parameter.choices)}
    kind = "integer" if isinstance(parameter, Integer) else "float"
    return {
        "type": kind,
        "low": parameter.low,
        "high": parameter.high,
        "log": parameter.log,
        "step": parameter.step,
    }


def _parameter(given: Any) -> Parameter:
    if isinstance(given, Float | Integer | Categorical):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        low, high = given
        if isinstance(low, np.number):
            low = low.item()
        if isinstance(high, np.number):
            high = high.item()
        return Float(low, high)
    raise TypeError(f"{given!r} is no parameter; expected (low, high), Float, Integer, Categorical")


def _column(name: str, parameter: Parameter, first: int) -> _Column:
    if isinstance(parameter, Categorical):
        count = len(parameter.choices)
        return _Column(name, parameter, first, {1: 0, 2: 1}.get(count, count), None)
    levels = None
    if parameter.step is not None:
        count = math.floor((parameter.high - parameter.low) / parameter.step * (1 + 1e-12)) + 1
        if count <= _LEVELS:
            levels = tuple(
                min(parameter.low + i * parameter.step, parameter.high) for i in range(count)
            )
    single = parameter.low == parameter.high or (levels is not None and len(levels) == 1)
    return _Column(name, parameter, first, 0 if single else 1, levels)
