"""A study file and its Optuna study: asked, told, imported and listed, safely by many processes."""

import csv
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from rmes.optimizer import Optimizer
from rmes.optuna import NOISE_SD, RMESSampler, board, distributions_of, optimizer_of
from rmes.optuna.board import Board
from rmes.space import Categorical, Integer, Parameter, Space
from rmes.studyfile import StudyFile
from rmes.trials import read_noise_sd, read_values

_SEED = "rmes:seed"
_SOURCE = "source"
_ERROR = "error"
_WAIT = 60.0  # seconds that a process waits while another one writes to a SQLite file
_STATES = {
    TrialState.RUNNING: "pending",
    TrialState.WAITING: "queued",
    TrialState.COMPLETE: "measured",
    TrialState.FAIL: "failed",
    TrialState.PRUNED: "skipped",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One trial, as it is shown and exported."""

    trial: int
    state: str
    params: dict[str, Any]
    value: float | None = None
    noise_sd: float | None = None
    reason: str = ""  # why it was suggested
    note: str = ""  # why it failed, or where it comes from

    def to_json(self) -> dict[str, Any]:
        """All there is, in plain types."""
        return {
            "trial": self.trial,
            "state": self.state,
            "params": self.params,
            "value": self.value,
            "noise_sd": self.noise_sd,
            "reason": self.reason,
            "note": self.note,
        }


@dataclass(frozen=True)
class Ledger:
    """The study that a study file describes."""

    file: StudyFile
    study: optuna.Study
    asked: dict[int, optuna.Trial] = field(default_factory=dict)  # by this process

    # ------------------------------------------------------------------ asking and telling

    def ask(self) -> Entry:
        """A trial to measure, suggested by RMES; other processes see it as pending."""
        trial = self.study.ask()
        try:
            for name, parameter in self.file.space.parameters.items():
                _suggest(trial, name, parameter)
            self.asked[trial.number] = trial
            return self.entry(trial.number)
        except BaseException:
            # Nobody has seen it: it would be waited for, for ever.
            with suppress(Exception):  # of a storage that does not work; it is said already
                self.study.tell(trial.number, state=TrialState.PRUNED)
            raise

    def tell(
        self, number: int, values: Sequence[float], noise_sd: float | None = None
    ) -> list[Entry]:
        """Record the values of a trial: the first is its own, replicates become further trials.

        Telling the same again changes nothing; telling something else is an error.
        """
        checked = read_values(list(values), failed=False)
        sd = read_noise_sd(noise_sd)
        entry = self.entry(number)
        if entry.state == "measured":
            told = [entry, *self._replicates(number)]
            if [(e.value, e.noise_sd) for e in told] != [(v, sd) for v in checked[: len(told)]]:
                self._check_open(entry)
            missing = checked[len(told) :]  # of what was told before, maybe interrupted
        else:
            self._check_open(entry)
            if sd is not None:
                self._note(number, NOISE_SD, sd)
            self.study.tell(number, checked[0])
            missing = checked[1:]
        for value in missing:
            self.add(entry.params, value, sd, source=f"replicate of trial {number}")
        return [self.entry(number), *self._replicates(number)]

    def _replicates(self, number: int) -> list[Entry]:
        return [each for each in self.entries() if each.note == f"replicate of trial {number}"]

    def fail(self, number: int, error: str = "") -> Entry:
        """Record that a measurement gave no value; points near it will be avoided."""
        return self._close(number, TrialState.FAIL, "failed", error)

    def skip(self, number: int) -> Entry:
        """Record that a trial will not be measured; this says nothing about its point."""
        return self._close(number, TrialState.PRUNED, "skipped", "")

    def _close(self, number: int, state: TrialState, name: str, error: str) -> Entry:
        entry = self.entry(number)
        if entry.state != name:
            self._check_open(entry)
            if error:
                self._note(number, _ERROR, error)
            self.study.tell(number, state=state)
        return self.entry(number)

    def add(
        self,
        params: Mapping[str, Any],
        value: float | None,
        noise_sd: float | None = None,
        source: str = "",
    ) -> None:
        """Add a measurement that was not asked for; without a value, one that failed."""
        self.study.add_trial(_finished(self.file.space, params, value, noise_sd, source))

    def _check_open(self, entry: Entry) -> None:
        if entry.state == "measured":
            raise ValueError(
                f"trial {entry.trial} was already told as {entry.value:g}; for another measurement "
                "of the same point, tell its parameters instead of its number"
            )
        if entry.state != "pending":
            raise ValueError(f"trial {entry.trial} is {entry.state}, not pending")

    def _note(self, number: int, key: str, value: Any) -> None:
        # Optuna lets only the process that asked for a trial write into it.
        if number in self.asked:
            self.asked[number].set_user_attr(key, value)
        else:
            board.note(self.study, number, key, value)

    # ------------------------------------------------------------------ listing

    def entries(self) -> list[Entry]:
        """All trials, in the order of their numbers."""
        written = board.read(self.study)
        return [_entry(trial, written) for trial in self.study.get_trials(deepcopy=False)]

    def entry(self, number: int) -> Entry:
        """One trial."""
        trials = self.study.get_trials(deepcopy=False)
        if not 0 <= number < len(trials):
            have = f"the last one is {len(trials) - 1}" if trials else "none has been asked for yet"
            raise ValueError(f"there is no trial {number}; {have}")
        return _entry(trials[number], board.read(self.study))

    def optimizer(self) -> Optimizer:
        """An optimizer that has been told everything: to recommend, look ahead and draw."""
        told = optimizer_of(
            self.study,
            noise_sd=self.file.noise_sd,
            seed=self.study.user_attrs.get(_SEED, 0),
            search_space=distributions_of(self.file.space),
        )
        if not any(trial["values"] for trial in told.trials):
            raise ValueError("nothing has been measured yet: 'rmes ask', measure, 'rmes tell'")
        return told

    # ------------------------------------------------------------------ tables

    def read_table(self, path: Path, column: str = "value") -> tuple[int, int]:
        """Add the measurements of a CSV file; how many are new, and how many were there before.

        Its columns are the parameters, the value, and maybe noise_sd; an empty value is a
        measurement that failed. All rows are checked before the first is added.
        """
        rows = _read_rows(path, self.file.space, column)
        trials = self.study.get_trials(deepcopy=False)
        have = {(t.user_attrs.get(_SOURCE), t.value, tuple(t.params.items())) for t in trials}
        new = [row for row in rows if _key(row) not in have]
        self.study.add_trials(new)
        return len(new), len(rows) - len(new)

    def write_table(self, file: IO[str]) -> int:
        """Write all trials as CSV, in full precision; how many there were."""
        writer = csv.writer(file, lineterminator="\n")
        names = list(self.file.space.parameters)
        writer.writerow(["trial", "state", *names, "value", "noise_sd", "reason", "note"])
        entries = self.entries()
        for each in entries:
            params = [each.params.get(name, "") for name in names]
            row = [each.trial, each.state, *params, each.value, each.noise_sd]
            row += [each.reason, each.note]
            writer.writerow(["" if cell is None else cell for cell in row])
        return len(entries)


def create(file: StudyFile) -> Ledger:
    """The study that a file describes, made if there is none yet."""
    study = optuna.create_study(
        storage=_open(file),
        study_name=file.name,
        direction=StudyDirection[file.direction.upper()],
        load_if_exists=True,
    )
    if _SEED not in study.user_attrs or file.seed not in (None, study.user_attrs[_SEED]):
        study.set_user_attr(_SEED, secrets.randbits(31) if file.seed is None else file.seed)
    return _ledger(file, study)


def load(file: StudyFile) -> Ledger:
    """The study that a file describes, which must have been made."""
    missing = f"the study {file.name!r} has not been made yet: rmes init {file.path}"
    if file.database is not None and not file.database.exists():
        raise FileNotFoundError(missing)
    storage = _open(file)
    try:
        study = optuna.load_study(storage=storage, study_name=file.name)
    except KeyError:
        raise ValueError(missing) from None
    return _ledger(file, study)


def _open(file: StudyFile) -> optuna.storages.BaseStorage:
    options = {"connect_args": {"timeout": _WAIT}} if file.storage.startswith("sqlite:") else {}
    return optuna.storages.RDBStorage(file.storage, engine_kwargs=options)


def _ledger(file: StudyFile, study: optuna.Study) -> Ledger:
    if study.directions != [StudyDirection[file.direction.upper()]]:
        made = ", ".join(direction.name.lower() for direction in study.directions)
        raise ValueError(
            f"{file.path} says {file.direction!r}, but the study {file.name!r} was made with "
            f"{made!r}: change the file, or give the study another name"
        )
    study.sampler = RMESSampler(
        seed=study.user_attrs.get(_SEED, 0),
        noise_sd=file.noise_sd,
        search_space=distributions_of(file.space),
    )
    return Ledger(file, study)


def parse_params(text: str, space: Space) -> dict[str, Any]:
    """Parameters from `name=value,name=value`."""
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is no parameter; expected name=value, with commas between")
        given[name.strip()] = value.strip()
    return _params(given, space)


def _params(given: Mapping[str, str], space: Space) -> dict[str, Any]:
    """Parameters from texts, checked."""
    known = space.parameters
    read = {n: _value(n, known[n], text) if n in known else text for n, text in given.items()}
    space.encode(read)
    return {name: read[name] for name in known}


def _value(name: str, parameter: Parameter, text: str) -> Any:
    if isinstance(parameter, Categorical):
        for choice in parameter.choices:
            if text in (str(choice), json.dumps(choice)):
                return choice
        expected = ", ".join(str(choice) for choice in parameter.choices)
        raise ValueError(f"{name} is {text!r}; expected one of {expected}")
    number = read_number(name, text)
    whole = isinstance(parameter, Integer) and number.is_integer()
    return int(number) if whole else number


def read_number(name: str, text: str) -> float:
    """A finite number from a text."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; expected a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} is {text!r}; expected a finite number")
    return number


def _read_rows(path: Path, space: Space, column: str) -> list[FrozenTrial]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.DictReader(file, skipinitialspace=True)
        header = table.fieldnames or []
        missing = [name for name in (*space.parameters, column) if name not in header]
        if missing:
            raise ValueError(
                f"{path} has no column {missing[0]!r}; it has {', '.join(header) or 'none'}"
            )
        rows = []
        for row in table:
            place = f"{path.name}:{table.line_num}"
            try:
                params = _params({name: row[name] or "" for name in space.parameters}, space)
                value = read_number(column, row[column]) if row[column] else None
                told = row.get(NOISE_SD)
                sd = read_noise_sd(read_number(NOISE_SD, told)) if told else None
                rows.append(_finished(space, params, value, sd, place))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {table.line_num}: {error}") from None
    return rows


def _key(trial: FrozenTrial) -> tuple[Any, ...]:
    return trial.user_attrs.get(_SOURCE), trial.value, tuple(trial.params.items())


def _finished(
    space: Space,
    params: Mapping[str, Any],
    value: float | None,
    noise_sd: float | None,
    source: str,
) -> FrozenTrial:
    attributes: dict[str, Any] = {_SOURCE: source} if source else {}
    if noise_sd is not None:
        attributes[NOISE_SD] = noise_sd
    return optuna.create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params=dict(params),
        distributions=distributions_of(space),
        user_attrs=attributes,
    )


def _entry(trial: FrozenTrial, written: Board) -> Entry:
    def attribute(key: str) -> Any:
        return trial.user_attrs.get(key, written.note(trial.number, key))

    return Entry(
        trial=trial.number,
        state=_STATES[trial.state],
        params=dict(trial.params),
        value=trial.value if trial.state == TrialState.COMPLETE else None,
        noise_sd=attribute(NOISE_SD),
        reason=written.reason(trial.number) or "",
        note=str(attribute(_ERROR) or attribute(_SOURCE) or ""),
    )


def _suggest(trial: optuna.Trial, name: str, parameter: Parameter) -> None:
    if isinstance(parameter, Categorical):
        trial.suggest_categorical(name, parameter.choices)
    elif isinstance(parameter, Integer):
        ends = int(parameter.low), int(parameter.high)
        trial.suggest_int(name, *ends, step=int(parameter.step), log=parameter.log)
    else:
        bounds = float(parameter.low), float(parameter.high)
        trial.suggest_float(name, *bounds, step=parameter.step, log=parameter.log)
