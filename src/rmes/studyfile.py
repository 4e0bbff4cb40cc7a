"""The file that describes a study: parameters, direction, noise and storage, in TOML."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmes.space import Categorical, Float, Integer, Parameter, Space
from rmes.trials import read_noise_sd

EXAMPLE = """\
# A study: what may be changed, and what is measured. Change this file to describe yours.

name = "{name}"
direction = "maximize"       # or "minimize"
# noise_sd = 2.0             # standard deviation of the noise of a measurement; 0: exact;
                             # without this line it is learnt from the measurements
storage = "{name}.db"        # a file beside this one, or the address of a database for a team:
                             # "postgresql://user:$PASSWORD@host/studies"
# seed = 0                   # makes suggestions repeatable

[parameters]
temperature_degC = [20.0, 90.0]                        # a number between two others
dose_mg = {{ low = 0.001, high = 1.0, log = true }}      # the same, by its order of magnitude
cycles = {{ low = 1, high = 12, integer = true }}        # a whole number
solvent = ["DMF", "THF", "water"]                      # one of several things
"""

_KEYS = ("name", "direction", "noise_sd", "storage", "seed", "parameters")
_RANGE = ("low", "high", "log", "step", "integer")


@dataclass(frozen=True, slots=True)
class StudyFile:
    """What a study file says.

    Attributes
    ----------
    path : Path
    name : str
    direction : "minimize" or "maximize"
    noise_sd : float or None
        None where the noise is to be inferred.
    storage : str
        A URL.
    database : Path or None
        The file of a SQLite storage.
    seed : int or None
    space : Space
    """

    path: Path
    name: str
    direction: str
    noise_sd: float | None
    storage: str
    database: Path | None
    seed: int | None
    space: Space


def write_example(path: Path) -> None:
    """Write an example to be changed; an error where there is a file already."""
    with path.open("x", encoding="utf-8") as file:
        file.write(EXAMPLE.format(name=re.sub(r"[^\w-]", "_", path.stem)))


def read(path: Path) -> StudyFile:
    """Read a study file. What is wrong with it is said in a `ValueError` that names it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return _read(path, content)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no study file {path}; 'rmes init {path}' writes an example, and "
            "--study FILE names another one"
        ) from None
    except (ValueError, TypeError) as error:  # TOMLDecodeError and UnicodeDecodeError too
        raise ValueError(f"{path}: {error}") from None


def _read(path: Path, content: Mapping[str, Any]) -> StudyFile:
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; expected {', '.join(_KEYS)}")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict) or not parameters:
        raise ValueError("there is no parameter; expected some below a line [parameters]")
    direction = content.get("direction", "minimize")
    if direction not in ("minimize", "maximize"):
        raise ValueError(f"direction is {direction!r}; expected 'minimize' or 'maximize'")
    seed = content.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise ValueError(f"seed is {seed!r}; expected a whole number from 0")
    name = content.get("name", path.stem)
    storage = content.get("storage", f"{path.stem}.db")
    for key, text in (("name", name), ("storage", storage)):
        if not isinstance(text, str) or not text:
            raise ValueError(f"{key} is {text!r}; expected a text in quotes")
    url, database = _storage(path, storage)
    return StudyFile(
        path=path,
        name=name,
        direction=direction,
        noise_sd=read_noise_sd(content.get("noise_sd")),
        storage=url,
        database=database,
        seed=seed,
        space=Space({key: _parameter(key, given) for key, given in parameters.items()}),
    )


def _storage(path: Path, given: str) -> tuple[str, Path | None]:
    """The URL of a storage, and its file if it is one; passwords may be in the environment."""
    text = os.path.expandvars(given)
    if "://" in text:
        missing = re.search(r"\$\w+|\$\{\w+\}", text)
        if missing:
            raise ValueError(f"storage names {missing[0]}, which is not set in the environment")
        return text, None
    database = (path.parent / Path(text).expanduser()).resolve()
    return f"sqlite:///{database}", database


def _parameter(name: str, given: Any) -> Parameter:
    try:
        if isinstance(given, list):
            return _listed(given)
        if isinstance(given, dict):
            return _table(given)
        raise TypeError(
            f"{given!r} is no parameter; expected [low, high], a list of texts, or "
            "{ low = ..., high = ... }"
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"parameter {name!r}: {error}") from None


def _listed(given: list[Any]) -> Parameter:
    numbers = [one for one in given if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < len(given) or not given:
        return Categorical(given)
    if len(given) != 2:
        raise ValueError(
            f"{given} has {len(given)} numbers; expected [low, high], or "
            f"{{ choices = {given} }} for one of several numbers"
        )
    return Float(*given)


def _table(given: dict[str, Any]) -> Parameter:
    if "choices" in given:
        if len(given) > 1 or not isinstance(given["choices"], list):
            raise ValueError(f"{given} is no parameter; expected {{ choices = [...] }}")
        return Categorical(given["choices"])
    unknown = [key for key in given if key not in _RANGE]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; expected {', '.join(_RANGE)} or choices")
    if "low" not in given or "high" not in given:
        raise ValueError("expected low and high, or choices")
    for key in ("log", "integer"):
        if not isinstance(given.get(key, False), bool):
            raise ValueError(f"{key} is {given[key]!r}; expected true or false")
    numbers = {key: value for key, value in given.items() if key != "integer"}
    return Integer(**numbers) if given.get("integer") else Float(**numbers)
