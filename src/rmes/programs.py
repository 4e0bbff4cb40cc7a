"""Measurements by any program: its arguments are made from parameters, its output is read.

Arguments are handed over as a list and never pass through a shell, so no value of a parameter can
become a command.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)(?![\w.]*\w)",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?:\.\d*)?(?![\d,])")
_TAIL = 65536  # bytes of the output that are looked at


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program gave: values, or the reason why there are none.

    Attributes
    ----------
    values : tuple of float
        Empty if the measurement failed.
    noise_sd : float or None
        If the program said it.
    error : str
        Why there is no value; empty if there is one.
    """

    values: tuple[float, ...] = ()
    noise_sd: float | None = None
    error: str = ""


def arguments(
    template: Sequence[str], params: Mapping[str, Any], number: int | str = ""
) -> list[str]:
    """The program and its arguments, with {name} replaced by the value of the parameter.

    {params} stands for all of them as JSON and {trial} for the number of the trial, unless
    parameters have these names.

    >>> arguments(["./measure", "--x={x}"], {"x": 0.5})
    ['./measure', '--x=0.5']
    """
    known = {"params": json.dumps(dict(params)), "trial": str(number)}
    known |= {name: str(value) for name, value in params.items()}
    # All at once: a value that looks like a placeholder is a value.
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in known))
    return [pattern.sub(lambda found: known[found[0][1:-1]], part) for part in template]


def check_template(template: Sequence[str], names: Sequence[str]) -> None:
    """Say what is wrong with a template before anything runs: every parameter must be used."""
    if not template:
        raise ValueError("no program was given; expected it after --, with {name} for a parameter")
    if "{" not in template[0] and shutil.which(template[0]) is None:
        raise FileNotFoundError(f"there is no program {template[0]!r} that can be run")
    text = "\n".join(template)
    if "{params}" in text:
        return
    missing = [name for name in names if f"{{{name}}}" not in text]
    if missing:
        raise ValueError(
            f"the command does not use {{{missing[0]}}}: write it where the program expects "
            f"{missing[0]!r}, or {{params}} for all parameters as JSON"
        )


class Programs:
    """Starts programs and waits for them; those still running can all be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def measure(self, command: Sequence[str], limit: float | None = None) -> Outcome:
        """Run a command to its end, or for `limit` seconds, and read what it printed.

        Raises OSError where it cannot be started at all.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self._lock:
                if self._ended:
                    return Outcome(error="ended")
                process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,  # its own children end with it
                )
                self._running.add(process)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                _kill(process)
                return Outcome(error=f"it took longer than {limit:g} s")
            finally:
                with self._lock:
                    self._running.discard(process)
            if code != 0:
                said = _tail(err).strip().splitlines()
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                return Outcome(error=f"{how}: {said[-1].strip()[:200]}" if said else how)
            return read_output(_tail(out))

    def end(self) -> None:
        """End all programs that are running, and start no more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a program and what it started; nothing happens if it has ended already."""
    if process.poll() is None:
        try:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        except ProcessLookupError:
            pass
        process.wait()


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    return file.read().decode(errors="replace")


def read_output(text: str) -> Outcome:
    r"""The measurement that a program printed: its last JSON object, or else its last number.

    An object has "value" (a number, or a list of replicates) and maybe "noise_sd", or
    "failed": true.

    >>> read_output("step 1\nscore: -2.5e-1").values
    (-0.25,)
    """
    for line in reversed(text.splitlines()):
        if line.strip().startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(found, dict) and ("value" in found or found.get("failed")):
                return _from_json(found)
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return Outcome(error="it printed no number")
    for grouped in _THOUSANDS.finditer(text):
        if grouped.end() >= numbers[-1].end():  # 1,234 is not 234
            return Outcome(error=f"it printed {grouped[0]}; expected a number without commas")
    value = float(numbers[-1][0])
    return Outcome((value,)) if math.isfinite(value) else Outcome(error=f"it printed {value}")


def _from_json(found: dict[str, Any]) -> Outcome:
    if found.get("failed"):
        return Outcome(error=str(found.get("reason", "it said that it failed")))
    value, sd = found["value"], found.get("noise_sd")
    values = value if isinstance(value, list) else [value]
    if not values or not all(_number(one) for one in values):
        return Outcome(error=f"it printed the value {json.dumps(value)[:80]}")
    if sd is not None and not (_number(sd) and sd >= 0):
        return Outcome(error=f"it printed the noise_sd {json.dumps(sd)[:80]}")
    return Outcome(tuple(float(one) for one in values), None if sd is None else float(sd))


def _number(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value)
