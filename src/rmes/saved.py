"""A saved optimizer as text, checked when read: people edit such files."""

import json
from collections.abc import Mapping
from typing import Any

from rmes.fit import Fit
from rmes.space import Space
from rmes.trials import NoiseAt, Record

CALLABLE = "callable"  # stands for a noise_sd that is code
_VERSION = 1
_FIELDS = ("space", "direction", "noise_sd", "seed", "initial", "acquisition", "trials", "fit")


def write(state: Mapping[str, Any]) -> str:
    """The fields of a state as text."""
    return json.dumps({"format": "rmes", "version": _VERSION, **state}, allow_nan=False)


def read(text: str, noise_sd: NoiseAt | None) -> dict[str, Any]:
    """The fields that `write` wrote; `noise_sd` is what was handed over for one that is code."""
    try:
        state = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not a saved optimizer: {error}") from None
    if not isinstance(state, dict) or state.get("format") != "rmes":
        raise ValueError("this is not a saved optimizer: it lacks format 'rmes'")
    if state.get("version") != _VERSION:
        raise ValueError(
            f"the saved optimizer has version {state.get('version')}; expected {_VERSION}"
        )
    lacking = [name for name in _FIELDS if name not in state]
    if lacking:
        raise ValueError(f"the saved optimizer lacks {', '.join(lacking)}")
    if (state["noise_sd"] == CALLABLE) != (noise_sd is not None):
        raise ValueError(
            "the saved noise_sd is a callable: pass it again as noise_sd="
            if state["noise_sd"] == CALLABLE
            else f"the saved noise_sd is {state['noise_sd']}; it cannot be replaced"
        )
    return state


def records(state: Mapping[str, Any], space: Space) -> list[Record]:
    """The saved trials, each at the place that its parameters have in the space."""
    read = []
    for number, written in enumerate(state["trials"]):
        try:
            record = Record.from_json(number, written)
            space.check_place(record.trial.params, record.x)
        except (KeyError, TypeError, ValueError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"trial {number} of the saved optimizer: {what}") from None
        read.append(record)
    return read


def learned(state: Mapping[str, Any]) -> tuple[Fit, int]:
    """The saved fit, and the number of values it was learnt from."""
    try:
        return Fit.from_json(state["fit"]), int(state["fit"]["values"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "the fit of the saved optimizer is damaged; put null there to learn it anew"
        ) from None
