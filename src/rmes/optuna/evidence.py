"""What the trials of a study say: measured, failed or being measured."""

import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from rmes.fit import Fit
from rmes.optimizer import Optimizer
from rmes.optuna.board import Board
from rmes.optuna.spaces import inward
from rmes.settings import Settings
from rmes.space import Space
from rmes.trials import NoiseAt, read_noise_sd

Array = NDArray[np.float64]

NOISE_SD = "noise_sd"
"""User attribute of a trial: the standard deviation of the noise of its value, where known."""

_ENOUGH = 5  # complete trials that say what a pruned one would have given
_WARNINGS = threading.Lock()  # filters of warnings are shared by all threads


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a trial and its noise, at a point."""

    number: int
    params: dict[str, Any]
    value: float
    noise_sd: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the trials of a study say about some of their parameters, in the space's values."""

    measured: tuple[Measured, ...]
    failed: tuple[dict[str, Any], ...]
    pending: tuple[dict[str, Any], ...]

    @property
    def points(self) -> Iterator[dict[str, Any]]:
        """All that has been, or is being, measured."""
        yield from (each.params for each in self.measured)
        yield from self.failed
        yield from self.pending

    def optimizer(
        self,
        space: Space,
        direction: str,
        noise_sd: float | NoiseAt | None,
        seed: int,
        settings: Settings | None,
        learned: Fit | None = None,
    ) -> Optimizer:
        """An optimizer that has been told all of it."""
        told = Optimizer(
            space, direction, noise_sd, seed, initial=0, settings=settings, learned=learned
        )
        for each in self.measured:  # by trial: looking for a point that is waited for takes longer
            told.tell(told.announce(each.params), each.value, noise_sd=each.noise_sd)
        for params in self.failed:
            told.tell(told.announce(params), failed=True)
        for params in self.pending:
            told.announce(params)
        return told


def gather(
    trials: Sequence[FrozenTrial],
    board: Board,
    distributions: Mapping[str, BaseDistribution],
    but: Collection[int] = (),
) -> Evidence:
    """Sort the trials, all but those of some numbers, into measured, failed and pending."""
    further = cache(partial(_further, trials))
    measured, failed, pending = [], [], []
    for trial in trials:
        params = None if trial.number in but else _params(trial, board, distributions)
        if params is None:
            continue
        if trial.state == TrialState.RUNNING:
            pending.append(params)
        elif trial.state == TrialState.FAIL:
            failed.append(params)
        elif trial.state == TrialState.COMPLETE:
            value = trial.value
            feasible = all(excess <= 0.0 for excess in trial.constraints.values())
            if value is None or not math.isfinite(value) or not feasible:
                failed.append(params)
            else:
                measured.append(Measured(trial.number, params, value, _noise_sd(trial, board)))
        elif trial.state == TrialState.PRUNED:
            guess = _without_pruning(trial, further)
            if guess is not None:
                measured.append(Measured(trial.number, params, *guess))
    return Evidence(tuple(measured), tuple(failed), tuple(pending))


def _params(
    trial: FrozenTrial, board: Board, distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any] | None:
    """The parameters of a trial in the space; None where it lacks some or has others."""
    have = trial.params
    if trial.state == TrialState.RUNNING:
        point = board.point(trial.number)
        known = distributions.keys() & point.keys()
        have = {name: distributions[name].to_external_repr(point[name]) for name in known} | have
    if not distributions.keys() <= have.keys():
        return None
    try:
        return inward(have, distributions)
    except (TypeError, ValueError):  # of another range or kind
        return None


def _noise_sd(trial: FrozenTrial, board: Board) -> float | None:
    given = trial.user_attrs.get(NOISE_SD, board.note(trial.number, NOISE_SD))
    try:
        return read_noise_sd(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"user attribute of trial {trial.number}: {error}") from None


def _further(trials: Iterable[FrozenTrial], step: int) -> Array:
    """How far the final values of complete trials lie from those reported at a step."""
    return np.array(
        [
            trial.value - trial.intermediate_values[step]
            for trial in trials
            if trial.state == TrialState.COMPLETE
            and trial.value is not None
            and step in trial.intermediate_values
        ]
    )


def _without_pruning(
    trial: FrozenTrial, further: Callable[[int], Array]
) -> tuple[float, float] | None:
    """What a pruned trial would have given, and how sure that is; None if it cannot be said.

    Complete trials that reported at the step where this one ended show how far, and how
    regularly, the final value lies from the one there.
    """
    step = trial.last_step
    if step is None:
        return None
    guess = trial.intermediate_values[step] + further(step)
    if len(guess) < _ENOUGH or not np.all(np.isfinite(guess)):
        return None
    return float(np.mean(guess)), float(np.std(guess, ddof=1) * math.sqrt(1 + 1 / len(guess)))


def direction_of(study: Study) -> str:
    """Whether the study minimises or maximises its one objective."""
    if len(study.directions) != 1:
        raise ValueError(
            f"the study has {len(study.directions)} objectives; rmes knows studies with one"
        )
    return str(study.direction.name).lower()


# ---------------------------------------------------------------------- processes that died


def retried(trials: Collection[FrozenTrial]) -> frozenset[int]:
    """Numbers of the trials that died and were queued again: their successors stand for them."""
    if not any(trial.state == TrialState.FAIL for trial in trials):
        return frozenset()
    return frozenset(number for history in histories(trials) for number in history)


def histories(trials: Iterable[FrozenTrial]) -> list[list[int]]:
    """Numbers of the trials that each one stands for, the last of them last."""
    with _quiet():
        return [RetryHeartbeatStaleTrialCallback.retry_history(trial) for trial in trials]


def retry_running(study: Study) -> list[int]:
    """Queue again the trials of processes that were killed; their numbers.

    Where nobody else works on the study, a trial that is still running when it is resumed belongs
    to a process that died. It would count as being measured for ever. Storages with a heartbeat
    find that out by themselves: give them Optuna's `RetryHeartbeatStaleTrialCallback`.
    """
    lost = study.get_trials(states=(TrialState.RUNNING,))
    with _quiet():
        again = RetryHeartbeatStaleTrialCallback()
    for trial in lost:
        study.tell(trial.number, state=TrialState.FAIL)
        again(study, trial)
    return [trial.number for trial in lost]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that Optuna's retries are experimental."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield
