"""Optuna: a sampler, and answers for any study.

>>> import optuna
>>> from rmes.optuna import RMESSampler, outlook, recommend
>>> study = optuna.create_study(sampler=RMESSampler(seed=0))  # doctest: +SKIP
>>> study.optimize(objective, n_trials=30)  # doctest: +SKIP
>>> print(recommend(study), outlook(study))  # doctest: +SKIP

Nothing is kept between suggestions: each is computed from the study's trials, the seed and the
number of the trial, so that any process can make the next one and a resumed study is the same one.
What the last suggestion learnt of the model, a start for the next, is written into its trial too.
"""

import base64
import json
import math
import secrets
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.fit import Fit
from rmes.multistart import space_filling
from rmes.optimizer import Optimizer, SpaceExhausted
from rmes.report import Outlook, Recommendation
from rmes.space import Categorical, Float, Integer, Parameter, Space
from rmes.suggest import Settings
from rmes.trials import NoiseAt, read_noise_sd

try:
    import optuna
except ImportError as error:
    raise ImportError('rmes.optuna needs Optuna: pip install "rmes[optuna]"') from error

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

Array = NDArray[np.float64]

NOISE_SD = "noise_sd"
"""User attribute of a trial: the standard deviation of the noise of its value, where known."""

# System attributes of a trial, in pieces: a point for other processes, and a start for later fits.
_SUGGESTION, _FIT = "rmes:suggestion", "rmes:fit"
_CHUNK = 1000  # characters of an attribute: databases limit them to 2046, escapes included
_LOOKS = 3  # suggestions made anew because other workers published theirs meanwhile
_ATTEMPTS = 10  # the same, where theirs is the very same point
_ENOUGH = 5  # complete trials that say what a pruned one would have given

_logger = optuna.logging.get_logger(f"optuna.{__name__}")


# ---------------------------------------------------------------------- spaces


def space_of(study: Study) -> Space:
    """The parameters that all complete trials of a study share, as a space of rmes.

    Conditional parameters, and those whose range has changed, are not in it. Choices that
    `rmes.Categorical` does not take (NaN, objects) are represented by strings.
    """
    return _space(_shared(study))


def distributions_of(space: Space | Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """A space of rmes as Optuna's distributions: for `study.ask`, or a sampler's search space."""
    read = space if isinstance(space, Space) else Space(space)
    return {name: _distribution(parameter) for name, parameter in read.parameters.items()}


def _shared(study: Study) -> dict[str, BaseDistribution]:
    trials = study.get_trials(deepcopy=False)
    shared: dict[str, BaseDistribution] = intersection_search_space(trials)
    if not shared:
        raise ValueError(
            f"the complete trials of study {study.study_name!r} have no parameter in common; "
            "at least one complete trial is needed, and one parameter of fixed range in all"
        )
    return shared


def _space(distributions: Mapping[str, BaseDistribution]) -> Space:
    return Space({name: _parameter(each) for name, each in distributions.items()})


def _parameter(distribution: BaseDistribution) -> Parameter:
    if isinstance(distribution, FloatDistribution):
        return Float(
            distribution.low, distribution.high, log=distribution.log, step=distribution.step
        )
    if isinstance(distribution, IntDistribution):
        return Integer(
            distribution.low, distribution.high, log=distribution.log, step=distribution.step
        )
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(_labels(distribution))
    raise TypeError(f"{distribution!r} is of no kind known: float, integer or categorical")


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(parameter.choices)
    if isinstance(parameter, Integer):
        return IntDistribution(
            int(parameter.low), int(parameter.high), log=parameter.log, step=int(parameter.step)
        )
    return FloatDistribution(
        float(parameter.low), float(parameter.high), log=parameter.log, step=parameter.step
    )


def _labels(distribution: CategoricalDistribution) -> tuple[Any, ...]:
    """The choices, or numbered strings for those that cannot be compared or written down."""
    choices = tuple(distribution.choices)
    plain = all(isinstance(one, str | bool | int | float | None) for one in choices)
    if plain and all(one == one and choices.index(one) == i for i, one in enumerate(choices)):
        return choices
    return tuple(f"{i}: {one!r}" for i, one in enumerate(choices))


def _inward(
    params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Values as Optuna has them -> as the space has them. Raises on those outside."""
    read = {}
    for name, distribution in distributions.items():
        value = params[name]
        if isinstance(distribution, CategoricalDistribution):
            value = _labels(distribution)[int(distribution.to_internal_repr(value))]
        elif isinstance(distribution, FloatDistribution | IntDistribution):
            right = isinstance(distribution, FloatDistribution) or value == int(value)
            right = right and not isinstance(value, bool)
            if not (right and distribution.low <= value <= distribution.high):
                raise ValueError(f"{name} is {value}, which is not in {distribution}")
        read[name] = value
    return read


def _outward(
    params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Values as the space has them -> as Optuna wants them, on its grids."""
    read = {}
    for name, value in params.items():
        distribution = distributions[name]
        if isinstance(distribution, CategoricalDistribution):
            value = distribution.choices[_labels(distribution).index(value)]
        elif isinstance(distribution, IntDistribution):
            level = round((value - distribution.low) / distribution.step)
            value = min(distribution.low + level * distribution.step, distribution.high)
        elif isinstance(distribution, FloatDistribution) and distribution.step is not None:
            level = round((value - distribution.low) / distribution.step)
            value = float(min(distribution.low + level * distribution.step, distribution.high))
        read[name] = value
    return read


# ---------------------------------------------------------------------- trials


@dataclass(frozen=True, slots=True)
class _Measured:
    params: dict[str, Any]
    value: float
    noise_sd: float | None


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the trials of a study say about some of their parameters, in the space's values."""

    measured: tuple[_Measured, ...]
    failed: tuple[dict[str, Any], ...]
    pending: tuple[dict[str, Any], ...]

    @property
    def points(self) -> Iterator[dict[str, Any]]:
        """All that has been, or is being, measured."""
        yield from (each.params for each in self.measured)
        yield from self.failed
        yield from self.pending


def _evidence(
    trials: Sequence[FrozenTrial],
    distributions: Mapping[str, BaseDistribution],
    but: int | None = None,
) -> _Evidence:
    """Sort the trials, all but the one of number `but`, into measured, failed and pending."""
    retried = _retried(trials)
    further = cache(partial(_further, trials))
    measured, failed, pending = [], [], []
    for trial in trials:
        if trial.number == but or trial.number in retried:
            continue
        params = _params(trial, distributions)
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
                measured.append(_Measured(params, value, _noise_sd(trial)))
        elif trial.state == TrialState.PRUNED:
            guess = _without_pruning(trial, further)
            if guess is not None:
                measured.append(_Measured(params, *guess))
    return _Evidence(tuple(measured), tuple(failed), tuple(pending))


def _params(
    trial: FrozenTrial, distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any] | None:
    """The parameters of a trial in the space; None where it lacks some or has others."""
    have = trial.params
    if trial.state == TrialState.RUNNING:
        have = {**_published(trial, distributions), **have}
    if not distributions.keys() <= have.keys():
        return None
    try:
        return _inward(have, distributions)
    except (TypeError, ValueError):  # of another range or kind
        return None


def _noise_sd(trial: FrozenTrial) -> float | None:
    given = trial.user_attrs.get(NOISE_SD)
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


def _retried(trials: Iterable[FrozenTrial]) -> set[int]:
    """Numbers of the trials that died and were queued again: their successors stand for them.

    The key is Optuna's; its reader, `RetryHeartbeatStaleTrialCallback.retry_history`, warns.
    """
    return {number for trial in trials for number in trial.system_attrs.get("retry_history", ())}


def _index(trial: FrozenTrial, trials: Iterable[FrozenTrial]) -> int:
    """The trial's number, had no process died."""
    earlier = [number for number in _retried([*trials, trial]) if number < trial.number]
    return int(trial.number) - len(earlier)


def retry_running(study: Study) -> list[int]:
    """Queue again the trials of processes that were killed; their numbers.

    Where nobody else works on the study, a trial that is still running when it is resumed belongs
    to a process that died. It would count as being measured for ever. Storages with a heartbeat
    find that out by themselves: give them Optuna's `RetryHeartbeatStaleTrialCallback`.
    """
    lost = study.get_trials(states=(TrialState.RUNNING,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        again = RetryHeartbeatStaleTrialCallback()
    for trial in lost:
        study.tell(trial.number, state=TrialState.FAIL)
        again(study, trial)
    return [trial.number for trial in lost]


# ---------------------------------------------------------------------- other processes


def _publish(
    study: Study,
    trial: FrozenTrial,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    reason: str,
) -> None:
    """Let other processes see a point before the objective asks for its parameters one by one."""
    numbers = {name: float(distributions[name].to_internal_repr(v)) for name, v in params.items()}
    _write(study, trial, _SUGGESTION, json.dumps({"params": numbers, "reason": reason}))


def _write(study: Study, trial: FrozenTrial, key: str, text: str) -> None:
    for i in range(0, len(text), _CHUNK):
        # Optuna has no public way to a running trial's attributes from inside a sampler; its own
        # samplers use this one.
        study._storage.set_trial_system_attr(
            trial._trial_id, f"{key}:{i // _CHUNK}", text[i : i + _CHUNK]
        )


def _read(trial: FrozenTrial, key: str) -> dict[str, Any]:
    attributes = trial.system_attrs
    pieces: list[str] = []
    while (piece := attributes.get(f"{key}:{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        # What is left of an earlier, longer text may follow.
        read, _ = json.JSONDecoder().raw_decode("".join(pieces))
    except json.JSONDecodeError:  # none, or half written
        return {}
    return dict(read)


def _published(trial: FrozenTrial, distributions: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """The parameters that were suggested for a trial."""
    return {
        name: distributions[name].to_external_repr(number)
        for name, number in _read(trial, _SUGGESTION).get("params", {}).items()
        if name in distributions
    }


def reason_of(trial: FrozenTrial) -> str | None:
    """Why `RMESSampler` suggested the parameters of a trial; None if it did not."""
    return _read(trial, _SUGGESTION).get("reason")


def _write_fit(study: Study, trial: FrozenTrial, learned: Fit, space: Space) -> None:
    """Leave what was learnt to the next suggestion, whoever makes it."""
    half = learned.covariance[np.tril_indices(len(learned.best))]
    numbers = np.concatenate([learned.best, half, learned.samples.ravel()])
    text = base64.b64encode(numbers.astype("<f8").tobytes()).decode()
    sizes = [len(learned.best), learned.size]
    _write(study, trial, _FIT, json.dumps({"space": _sign(space), "sizes": sizes, "fit": text}))


def _read_fit(trials: Iterable[FrozenTrial], before: int, space: Space) -> Fit | None:
    """What the last suggestion before trial number `before` learnt in the same space."""
    retried = _retried(trials)
    earlier = [t for t in trials if t.number < before and t.number not in retried]
    for trial in sorted(earlier, key=lambda t: -t.number):
        saved = _read(trial, _FIT)
        if saved.get("space") == _sign(space):
            width, size = saved["sizes"]
            numbers = np.frombuffer(base64.b64decode(saved["fit"]), dtype="<f8")
            best, half, samples = np.split(numbers, [width, width + width * (width + 1) // 2])
            covariance = np.zeros((width, width))
            covariance[np.tril_indices(width)] = half
            covariance += np.tril(covariance, -1).T
            return Fit(best, covariance, samples.reshape(-1, width), size)
    return None


def _sign(space: Space) -> int:
    """A number that differs from space to space."""
    return zlib.crc32(json.dumps(space.to_json(), sort_keys=True).encode())


# ---------------------------------------------------------------------- answers


def optimizer_of(
    study: Study,
    *,
    noise_sd: float | NoiseAt | None = None,
    seed: int = 0,
    search_space: Mapping[str, BaseDistribution] | None = None,
    settings: Settings | None = None,
) -> Optimizer:
    """An `rmes.Optimizer` that has been told all trials of a study, whatever sampler made them.

    Parameters
    ----------
    study : Study
        With a single objective.
    noise_sd : None, number or callable
        Of measurements without the user attribute "noise_sd", as for `rmes.Optimizer`. None takes
        that of the study's sampler if it is an `RMESSampler`, and infers it otherwise.
    seed : int
    search_space : mapping, optional
        Name -> Optuna distribution; by default the parameters that all complete trials share.
    settings : Settings, optional
    """
    direction = _direction(study)
    if noise_sd is None and isinstance(study.sampler, RMESSampler):
        noise_sd = study.sampler.noise_sd
    distributions = _shared(study) if search_space is None else search_space
    space = _space(distributions)
    evidence = _evidence(study.get_trials(deepcopy=False), distributions)
    return _optimizer(space, direction, evidence, noise_sd, seed, settings)


def _optimizer(
    space: Space,
    direction: str,
    evidence: _Evidence,
    noise_sd: float | NoiseAt | None,
    seed: int,
    settings: Settings | None,
    learned: Fit | None = None,
) -> Optimizer:
    optimizer = Optimizer(
        space, direction, noise_sd, seed, initial=0, settings=settings, learned=learned
    )
    for each in evidence.measured:  # by trial: looking for a point that is waited for takes longer
        trial = optimizer.announce(each.params)
        optimizer.tell(trial, each.value, noise_sd=each.noise_sd)
    for params in evidence.failed:
        optimizer.tell(optimizer.announce(params), failed=True)
    for params in evidence.pending:
        optimizer.announce(params)
    return optimizer


def recommend(
    study: Study, among: str = "anywhere", *, noise_sd: float | NoiseAt | None = None
) -> Recommendation:
    """The best parameters of a study as far as a model of all its trials can tell.

    Unlike `study.best_params` this is not the luckiest measurement, and says how sure it is.

    Parameters
    ----------
    study : Study
        With a single objective, made by any sampler.
    among : "anywhere" or "measured"
        The optimum of the posterior mean over the whole space, or over the trials' points.
    noise_sd : None, number or callable
        As for `optimizer_of`.
    """
    _direction(study)  # before the parameters are compared: it says more
    shared = _shared(study)
    optimizer = optimizer_of(study, noise_sd=noise_sd, search_space=shared)
    found = optimizer.recommend(among)
    return replace(
        found,
        params=_outward(found.params, shared),
        observed_params=_outward(found.observed_params, shared),
    )


def outlook(study: Study, *, noise_sd: float | NoiseAt | None = None) -> Outlook:
    """What is still to gain in a study: where the optimum lies and how far the answer is from it.

    Parameters
    ----------
    study : Study
        With a single objective, made by any sampler.
    noise_sd : None, number or callable
        As for `optimizer_of`.
    """
    return optimizer_of(study, noise_sd=noise_sd).outlook()


def _direction(study: Study) -> str:
    if len(study.directions) != 1:
        raise ValueError(
            f"the study has {len(study.directions)} objectives; rmes knows studies with one"
        )
    return str(study.direction.name).lower()


# ---------------------------------------------------------------------- the sampler


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
        direction = _direction(study)
        if not search_space:
            return {}
        space = _space(search_space)
        for attempt in range(_ATTEMPTS):
            trials = study.get_trials(deepcopy=False)
            evidence = _evidence(trials, search_space, trial.number)
            index = _index(trial, trials)
            optimizer = _optimizer(
                space,
                direction,
                evidence,
                self.noise_sd,
                self._derived(index, attempt),
                self._settings,
                _read_fit(trials, trial.number, space),
            )
            params, reason = self._choose(optimizer, evidence, index)
            suggested = _outward(params, search_space)
            _publish(study, trial, suggested, search_space, reason)
            # Whoever publishes later sees the earlier one's point: no two end with the same.
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            now = _evidence(running, search_space, trial.number).pending
            unseen = [point for point in now if point not in evidence.pending]
            if not unseen or (attempt >= _LOOKS and params not in unseen):
                break
        if optimizer.learned is not None:
            _write_fit(study, trial, optimizer.learned, space)
        return suggested

    def _derived(self, *key: int) -> int:
        """A seed for one purpose."""
        state = np.random.SeedSequence([self.seed, *key]).generate_state(1, np.uint64)
        return int(state[0])

    def _choose(
        self, optimizer: Optimizer, evidence: _Evidence, index: int
    ) -> tuple[dict[str, Any], str]:
        """Parameters, in the space's values, and why."""
        startup = self._startup
        if startup is None:
            startup = Optimizer(optimizer.space, seed=0).initial
        if index >= startup and evidence.measured:
            try:
                trial = optimizer.ask()
                return trial.params, trial.reason
            except SpaceExhausted as nothing_left:
                _logger.warning(f"a point is measured again: {nothing_left}")
        point = self._space_filling(optimizer.space, evidence, index)
        return point, f"space-filling point {index + 1}"

    def _space_filling(self, space: Space, evidence: _Evidence, index: int) -> dict[str, Any]:
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
        _direction(study)
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
        space = _space({param_name: param_distribution})
        name = zlib.crc32(param_name.encode())
        rng = np.random.default_rng([self.seed, 2, _index(trial, trials), name])
        if space.domain.choices:
            table = space.domain.choices[0].table
            x = np.asarray(table[rng.integers(len(table))])
        else:
            x = rng.random(space.dimensions)
        return _outward(space.decode(x), {param_name: param_distribution})[param_name]
