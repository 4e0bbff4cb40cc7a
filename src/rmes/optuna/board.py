"""What processes leave for each other: points being measured, reasons, the last fits.

Optuna lets a sampler write nothing into a running trial, but anybody into the study. So it is kept
in a few user attributes of the study:

- `rmes:trials:0` to `rmes:trials:15`, by the trial's number modulo 16: why a point was suggested,
  and while the trial is running the point itself;
- `rmes:fit:0` and `rmes:fit:1`: what the last suggestion learnt of the model, and what it began
  with;
- `rmes:noise_sd:17` and the like: what a process knows of a trial that another one asked for.

Two processes write to one place at once only for trials whose numbers differ by a multiple of 16.
Then a reason may be lost, or a point until the trial has its parameters; never a measurement.
"""

import base64
import json
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.study import Study

from rmes.fit import Fit
from rmes.space import Space

_SLOTS = 16
_FITS = ("rmes:fit:0", "rmes:fit:1")
_LONGEST = 60_000  # characters that every database takes as an attribute

# Pruners of brackets hand out studies that hide these two from whoever asks the object for them.
_attributes: Any = Study.user_attrs
_write = Study.set_user_attr


@dataclass(frozen=True, slots=True)
class Board:
    """What stood in the attributes of a study when they were read."""

    attributes: Mapping[str, Any]

    def point(self, number: int) -> dict[str, float]:
        """What was suggested for a running trial: name -> number that Optuna stores for it."""
        return dict(self.slot(number)["points"].get(str(number), {}))

    def reason(self, number: int) -> str | None:
        """Why a trial was suggested; None if the sampler did not suggest it."""
        said = self.slot(number)["reasons"].get(str(number))
        return None if said is None else str(said)

    def note(self, number: int, key: str) -> Any:
        """What was noted of a trial; None if nothing was."""
        return self.attributes.get(_note(number, key))

    def slot(self, number: int) -> dict[str, dict[str, Any]]:
        """The points and reasons that are kept with those of a trial."""
        return dict(self.attributes.get(_slot(number), {"points": {}, "reasons": {}}))

    def fit(self, space: Space, before: int) -> Fit | None:
        """What was learnt last in the same space, before the suggestion of some index."""
        key = self.fit_key(space, before)
        return None if key is None else _read_fit(self.attributes[key])

    def fit_key(self, space: Space, before: int) -> str | None:
        """Where that is kept."""
        kept = [(key, self.attributes[key]) for key in _FITS if key in self.attributes]
        same = [(each["index"], key) for key, each in kept if each["space"] == _sign(space)]
        earlier = [each for each in same if each[0] < before]
        return max(earlier)[1] if earlier else None


def read(study: Study) -> Board:
    """What stands there now."""
    return Board(_attributes.fget(study))


def publish(
    study: Study, number: int, point: Mapping[str, float], reason: str, ended: Container[int]
) -> None:
    """Let others see a point before the objective asks for its parameters one by one.

    Parameters
    ----------
    study : Study
    number : int
        Of the trial.
    point : mapping
        Name -> number that Optuna stores for the value.
    reason : str
    ended : container of int
        Trials whose points are no longer needed.
    """
    slot = read(study).slot(number)
    points = {n: each for n, each in slot["points"].items() if int(n) not in ended}
    points[str(number)] = dict(point)
    reasons = slot["reasons"] | {str(number): reason}
    _write(study, _slot(number), {"points": points, "reasons": reasons})


def note(study: Study, number: int, key: str, value: Any) -> None:
    """Keep something of a trial that another process asked for."""
    _write(study, _note(number, key), value)


def leave_fit(study: Study, index: int, learned: Fit, space: Space, begun: str | None) -> None:
    """Leave what the suggestion of an index learnt to the next, whoever makes it.

    What it began with, kept at `begun`, stays: should its process die, the same suggestion, made
    again, begins with the same.
    """
    half = learned.covariance[np.tril_indices(len(learned.best))]
    numbers = np.concatenate([learned.best, half, learned.samples.ravel()])
    text = base64.b64encode(numbers.astype("<f8").tobytes()).decode()
    if len(text) <= _LONGEST:
        sizes = [len(learned.best), learned.size, int(learned.main)]
        saved = {"index": index, "space": _sign(space), "sizes": sizes, "numbers": text}
        _write(study, next(key for key in _FITS if key != begun), saved)


def _read_fit(saved: Mapping[str, Any]) -> Fit:
    width, size, *main = saved["sizes"]  # older studies have two
    numbers = np.frombuffer(base64.b64decode(saved["numbers"]), dtype="<f8")
    best, half, samples = np.split(numbers, [width, width + width * (width + 1) // 2])
    covariance = np.zeros((width, width))
    covariance[np.tril_indices(width)] = half
    covariance += np.tril(covariance, -1).T
    return Fit(best, covariance, samples.reshape(-1, width), size, any(main))


def _slot(number: int) -> str:
    return f"rmes:trials:{number % _SLOTS}"


def _note(number: int, key: str) -> str:
    return f"rmes:{key}:{number}"


def _sign(space: Space) -> int:
    """A number that differs from space to space."""
    return zlib.crc32(json.dumps(space.to_json(), sort_keys=True).encode())
