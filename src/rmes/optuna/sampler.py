"""The sampler: each trial where a noisy measurement tells most about the best value."""

import re
import secrets
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from optuna import logging
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from rmes.multistart import space_filling
from rmes.optimizer import Optimizer, SpaceExhausted
from rmes.optuna import board
from rmes.optuna.evidence import Evidence, direction_of, gather, retried
from rmes.optuna.spaces import outward, to_space
from rmes.settings import Settings
from rmes.space import Space
from rmes.trials import NoiseAt, read_noise_sd

_LOOKS = 3  # suggestions made anew because other workers published theirs meanwhile
_ATTEMPTS = 10  # the same, where theirs is the very same point

_logger = logging.get_logger(f"optuna.{__name__}")


class RMESSampler(BaseSampler):
    """Sampler for noisy, expensive objectives: rectified max-value entropy search.

    Each trial is put where a noisy measurement tells most about the best value, given all complete
    trials and the points that other processes are measuring now. Parameters that not all trials
    have in common are drawn independently. Failed trials, and those that violate a constraint,
    keep later ones away; pruned trials count as uncertain measurements once five complete trials
    show what follows after the step where they ended.

    A suggestion depends on nothing but the trials, the seed and the trial's number, so that
    processes may share one seed, and a run can be repeated.

    Parameters
    ----------
    seed : int, optional
        Drawn if not given.
    n_startup_trials : int, optional
        Trials of a lower number get space-filling points. By default two for each parameter and
        two more, at most ten.
    independent_sampler : BaseSampler, optional
        For parameters that are not shared by all trials, and all those of the very first ones. By
        default they are drawn uniformly.
    noise_sd : None, number or callable
        Standard deviation of the noise of a value: None infers it, 0 means exact, a number is
        known, a callable gives it for a dictionary of the shared parameters. A trial's user
        attribute "noise_sd" says it for that trial.
    search_space : mapping, optional
        Name -> distribution, where it is known beforehand; by default it is learnt from the
        complete trials, and the first ones are drawn independently.
    settings : Settings, optional
        How points are chosen.
    warn_independent_sampling : bool
        Whether to log a warning when a parameter is drawn independently after the start.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        n_startup_trials: int | None = None,
        independent_sampler: BaseSampler | None = None,
        noise_sd: float | NoiseAt | None = None,
        search_space: Mapping[str, BaseDistribution] | None = None,
        settings: Settings | None = None,
        warn_independent_sampling: bool = True,
    ) -> None:
        seed = secrets.randbits(63) if seed is None else seed
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed is {seed!r}; expected a whole number from 0")
        if n_startup_trials is not None and n_startup_trials < 0:
            raise ValueError(f"n_startup_trials is {n_startup_trials}; expected 0 or more")
        self.seed = int(seed)
        self.noise_sd = noise_sd if callable(noise_sd) else read_noise_sd(noise_sd)
        self._startup = n_startup_trials
        self._independent = independent_sampler
        self._search_space = None if search_space is None else dict(search_space)
        self._settings = settings
        self._warns = warn_independent_sampling

    def reseed_rng(self) -> None:
        """Nothing to do: draws depend on the number of the trial, not on who makes them."""
        if self._independent is not None:
            self._independent.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Forwarded to the independent sampler."""
        if self._independent is not None:
            self._independent.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Forwarded to the independent sampler."""
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The parameters that are chosen together: those of all complete trials."""
        space = self._search_space
        if space is None:
            space = intersection_search_space(study.get_trials(deepcopy=False))
        return {name: each for name, each in space.items() if not each.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the shared parameters; other processes see them at once as being measured."""
        direction = direction_of(study)
        if not search_space:
            return {}
        space = to_space(search_space)
        for attempt in range(_ATTEMPTS):
            seen = board.read(study)
            trials = study.get_trials(deepcopy=False)
            dead = retried(trials)
            evidence = gather(trials, seen, search_space, dead | {trial.number})
            index = _index(trial, dead)
            optimizer = evidence.optimizer(
                space,
                direction,
                self.noise_sd,
                self._derived(index, attempt),
                self._settings,
                seen.fit(space, index),
            )
            params, reason = self._choose(optimizer, evidence, index)
            suggested = outward(params, search_space)
            point = {
                name: float(each.to_internal_repr(suggested[name]))
                for name, each in search_space.items()
            }
            ended = {each.number for each in trials if each.state.is_finished()}
            board.publish(study, trial.number, point, reason, ended)
            # Whoever publishes later sees the earlier one's point: no two end with the same.
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            now = gather(running, board.read(study), search_space, {trial.number}).pending
            unseen = [one for one in now if one not in evidence.pending]
            if not unseen or (attempt >= _LOOKS and params not in unseen):
                break
        if optimizer.learned is not None:
            begun = seen.fit_key(space, index)
            board.leave_fit(study, index, optimizer.learned, space, begun)
        return suggested

    def _derived(self, *key: int) -> int:
        """A seed for one purpose."""
        state = np.random.SeedSequence([self.seed, *key]).generate_state(1, np.uint64)
        return int(state[0])

    def _choose(
        self, optimizer: Optimizer, evidence: Evidence, index: int
    ) -> tuple[dict[str, Any], str]:
        """Parameters, in the space's values, and why."""
        startup = self._startup
        if startup is None:
            startup = Optimizer(optimizer.space, seed=0).initial
        if index >= startup and evidence.measured:
            try:
                trial = optimizer.ask()
                return trial.params, _numbered(trial.reason, evidence)
            except SpaceExhausted as nothing_left:
                _logger.warning(f"a point is measured again: {nothing_left}")
        point = self._space_filling(optimizer.space, evidence, index)
        return point, f"space-filling point {index + 1}"

    def _space_filling(self, space: Space, evidence: Evidence, index: int) -> dict[str, Any]:
        """Point `index` of a space-filling sequence, or the next that has not been measured."""
        rng = np.random.default_rng([self.seed, 1])
        points = space.domain.snap(space_filling(index + 64, space.dimensions, rng))[index:]
        taken = {space.encode(params).tobytes() for params in evidence.points}
        free = (x for x in points if x.tobytes() not in taken)
        return space.decode(next(free, points[0]))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of a parameter that not all trials share."""
        direction_of(study)
        trials = study.get_trials(deepcopy=False)
        if self._warns and any(each.state == TrialState.COMPLETE for each in trials):
            _logger.warning(
                f"parameter {param_name!r} of trial {trial.number} is drawn independently: it, or "
                "its range, is not common to all complete trials. warn_independent_sampling=False "
                "turns this message off."
            )
        if self._independent is not None:
            return self._independent.sample_independent(
                study, trial, param_name, param_distribution
            )
        space = to_space({param_name: param_distribution})
        name = zlib.crc32(param_name.encode())
        rng = np.random.default_rng([self.seed, 2, _index(trial, retried(trials)), name])
        if space.domain.choices:
            table = space.domain.choices[0].table
            x = np.asarray(table[rng.integers(len(table))])
        else:
            x = rng.random(space.dimensions)
        return outward(space.decode(x), {param_name: param_distribution})[param_name]


def _numbered(reason: str, evidence: Evidence) -> str:
    """The reason with the study's number of a repeated trial: the optimizer has its own."""

    def number(told: re.Match[str]) -> str:
        return told[1] + str(evidence.measured[int(told[2])].number)

    return re.sub(r"^(repeat of trial )(\d+)", number, reason)


def _index(trial: FrozenTrial, dead: Collection[int]) -> int:
    """The trial's number, had no process died."""
    own = int(trial.number)
    return own - sum(number < own for number in dead)
