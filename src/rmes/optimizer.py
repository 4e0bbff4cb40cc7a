"""Ask where to measure, tell what came out; recommend an answer and say how sure it is."""

import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes import saved
from rmes.answer import Belief, believe, best_anywhere, best_measured, prospects
from rmes.choice import CHECK, chance, new_noise
from rmes.fit import Fit, fit, widened
from rmes.gp import Posterior
from rmes.measurements import Data
from rmes.model import Model
from rmes.multistart import space_filling
from rmes.report import Outlook, Recommendation
from rmes.settings import Settings, Situation
from rmes.space import Space
from rmes.suggest import Suggestion, choose, in_turn, posterior_given, small_work, worth
from rmes.trials import NoiseAt, Record, Trial, call_noise_sd, read_noise_sd, read_values
from rmes.units import Units
from rmes.views import view

Array = NDArray[np.float64]

_OUTLOOK_DRAWS = 256
_ANSWER_SAMPLES = 16  # settings of the hyperparameters behind an answer
_MAP_DRAWS = 16  # of the maximum for each setting: more than a suggestion needs, for smooth maps


class SpaceExhausted(RuntimeError):
    """Every point of a finite space has been measured without noise, or is being measured."""


@dataclass(frozen=True)
class _Knowledge:
    """What the data told so far say."""

    data: Data
    units: Units
    fit: Fit
    model: Model

    @cached_property
    def posterior(self) -> Posterior:
        """For all samples of the fit; a suggestion needs only one of them."""
        with small_work(self.data.size):
            none = np.empty((0, self.data.x.shape[1]))
            return posterior_given(self.data, none, self.model, self.fit.settings)


class Optimizer:
    """Bayesian optimisation of a noisy, expensive measurement, by ask and tell.

    Parameters
    ----------
    space : mapping
        Name -> (low, high), `Float`, `Integer` or `Categorical`.
    direction : "minimize" or "maximize"
    noise_sd : None, number or callable
        Standard deviation of the measurement noise: None infers it, 0 means exact, a number is
        known, a callable gives it for a dictionary of parameters. `tell` can give it for single
        measurements; those without it follow this rule. Measurements whose noise is to be
        inferred share one level, which is then assumed for new ones too; where the noise of all
        is known, a new one is assumed to have their mean variance.
    seed : int, optional
        Makes the run reproducible; drawn and remembered if not given.
    initial : int or sequence of dictionaries, optional
        How many space-filling points come first, or the points themselves. By default two for
        each parameter and two more, at most ten.
    settings : Settings, optional
        How points are chosen.
    learned : Fit, optional
        What another optimizer had `learned` from much the same measurements: where to start.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | Space,
        direction: str = "minimize",
        noise_sd: float | NoiseAt | None = None,
        seed: int | None = None,
        *,
        initial: int | Sequence[Mapping[str, Any]] | None = None,
        settings: Settings | None = None,
        learned: Fit | None = None,
    ) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        if direction not in ("minimize", "maximize"):
            raise ValueError(f"direction is {direction!r}; expected 'minimize' or 'maximize'")
        self.direction = direction
        self.noise_sd = noise_sd if callable(noise_sd) else read_noise_sd(noise_sd)
        if seed is None:
            seed = secrets.randbits(63)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed is {seed!r}; expected a whole number from 0")
        self.seed = int(seed)
        self.settings = settings or Settings()
        self._model = replace(self.settings.model, groups=self.space.groups)
        moving = len(set(self.space.groups))
        self._own: tuple[dict[str, Any], ...] = ()
        if initial is None:
            self.initial = min(2 * moving + 2, 10)
        elif isinstance(initial, int | np.integer) and not isinstance(initial, bool):
            if initial < 0:
                raise ValueError(f"initial is {initial}; expected 0 or more points")
            self.initial = int(initial)
        elif isinstance(initial, Sequence):
            for point in initial:
                self.space.encode(point)  # raises on bad ones
            self._own = tuple(self._params(point) for point in initial)
            self.initial = len(self._own)
        else:
            raise TypeError(f"initial is {initial!r}; expected a number or a list of points")
        self._records: list[Record] = []
        self._known: _Knowledge | None = None  # until the next value is told
        self._pondered: _Knowledge | None = None  # likewise
        self._fit = learned  # of the last suggestion, a warm start for the next
        self._fitted = 0  # number of values it was learnt from

    # ------------------------------------------------------------------ asking

    def ask(self, n: int | None = None) -> Any:
        """Suggest where to measure: a `Trial`, or a list of n of them to measure at once.

        Trials that have been asked for and not yet told are taken into account.
        """
        if n is None:
            return self._ask()
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n is {n!r}; expected a whole number from 1")
        asked, fit, fitted = len(self._records), self._fit, self._fitted
        try:
            return [self._ask() for _ in range(n)]
        except BaseException:  # all or none: nobody would tell the first few
            del self._records[asked:]
            self._fit, self._fitted = fit, fitted
            raise

    def announce(self, params: Mapping[str, Any]) -> Trial:
        """Count a point of your own as being measured; tell its trial what came out."""
        x = self.space.encode(params)
        return self._add(self._params(params), x, "your own point")

    def _ask(self) -> Trial:
        number = len(self._records)
        rng = np.random.default_rng([self.seed, 0, number])
        measured = [record for record in self._records if record.values]
        exact = self._exact
        if exact and self._remaining() == 0:
            raise SpaceExhausted(
                f"all {self.space.domain.size:.0f} points have been asked for, and measurements "
                "are exact: there is nothing left to learn"
            )
        own = self._next_own()
        if own is not None:
            params = self._own[own]
            reason = f"your point {own + 1} of {len(self._own)}"
            return self._add(params, self.space.encode(params), reason)
        if number < self.initial or not measured or not self.space.dimensions:
            x = self._space_filling(number)
            return self._add(self.space.decode(x), x, f"space-filling point {number + 1}")

        with small_work(len(measured)):
            known = self._learn()
            data, learned = known.data, known.fit
            pending = self._points([r for r in self._records if r.pending])
            situation = self._situation(known.units)
            theta = in_turn(data, pending, situation, learned)
            posterior = posterior_given(data, pending, self._model, theta, situation.noise_at)
            found = choose(data, posterior, pending, situation, self.settings, rng, learned)
        self._fit, self._fitted = learned, data.count
        x, reason = found.x, _reason(found, known.units)
        if found.repeats is not None:
            original = next(r for r in measured if np.array_equal(r.x, x))
            reason = f"repeat of trial {original.trial.id}: {reason}"
            return self._add(original.trial.params, original.x, reason)
        if exact and np.any(np.all(self._points(self._records) == x, axis=1)):
            x, reason = self._space_filling(number), "among the last points not yet measured"
        return self._add(self.space.decode(x), x, reason)

    def _next_own(self) -> int | None:
        """The first of the user's own points that has been neither asked for nor told."""
        had = Counter(record.x.tobytes() for record in self._records) if self._own else Counter()
        for number, point in enumerate(self._own):
            key = self.space.encode(point).tobytes()
            if not had[key]:
                return number
            had[key] -= 1
        return None

    def _situation(self, units: Units) -> Situation:
        failed = self._points([record for record in self._records if record.failed])
        noise_at = self._noise_at(units) if callable(self.noise_sd) else None
        return Situation(self.space.domain, failed, self._exact, noise_at)

    def _params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters in the order of the space, NumPy's numbers as plain ones."""
        read = {name: given[name] for name in self.space.parameters}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in read.items()}

    def _add(self, params: Mapping[str, Any], x: Array, reason: str) -> Trial:
        record = Record(Trial(len(self._records), dict(params), reason), x)
        self._records.append(record)
        return record.for_user()

    def _space_filling(self, number: int) -> Array:
        """Point `number` of a space-filling sequence, skipping what an exact run has measured."""
        rng = np.random.default_rng([self.seed, 1])
        points = self.space.domain.snap(space_filling(number + 64, self.space.dimensions, rng))
        if self._exact:
            taken = self._points(self._records)
            for x in points[number:]:
                if not np.any(np.all(taken == x, axis=1)):
                    return np.asarray(x)
            if np.isfinite(self.space.domain.size):
                for x in self.space.domain.enumerate():
                    if not np.any(np.all(taken == x, axis=1)):
                        return np.asarray(x)
        return np.asarray(points[number])

    def _remaining(self) -> float:
        """Points of the space that have not been asked for."""
        size = self.space.domain.size if self.space.dimensions else 1.0
        if not math.isfinite(size) or size > 1e5:
            return math.inf
        return size - len({record.x.tobytes() for record in self._records})

    @property
    def _exact(self) -> bool:
        return not callable(self.noise_sd) and self.noise_sd == 0.0

    def _points(self, records: Sequence[Record]) -> Array:
        if not records:
            return np.empty((0, self.space.dimensions))
        return np.array([record.x for record in records]).reshape(len(records), -1)

    # ------------------------------------------------------------------ telling

    def tell(
        self,
        trial: Trial | int | Mapping[str, Any],
        value: float | Sequence[float] | None = None,
        *,
        noise_sd: float | None = None,
        failed: bool = False,
    ) -> Trial:
        """Record what a measurement gave.

        Parameters
        ----------
        trial : Trial, int or mapping
            From `ask`, its id, or the parameters of a measurement made elsewhere.
        value : number or sequence of numbers
            The measurement, or several replicates of it.
        noise_sd : number, optional
            Standard deviation of the noise of each value, where it is known.
        failed : bool
            The measurement gave no value. Points near it will be avoided.

        Telling the same again changes nothing; telling a trial something else is an error.
        """
        values = read_values(value, failed)
        sd = read_noise_sd(noise_sd)
        record = self._find(trial)
        told = replace(record, values=values, noise_sds=(sd,) * len(values), failed=failed)
        if not record.pending:
            same = (told.values, told.noise_sds, told.failed)
            if same == (record.values, record.noise_sds, record.failed):
                return record.for_user()
            said = (
                "failed"
                if record.failed
                else f"told as {', '.join(f'{v:g}' for v in record.values)}"
            )
            raise ValueError(
                f"trial {record.trial.id} was already {said}; to add another measurement of the "
                "same point, tell its parameters instead of the trial"
            )
        number = record.trial.id
        if number == len(self._records):
            self._records.append(told)
        else:
            self._records[number] = told
        if values:
            self._known = self._pondered = None
        return record.for_user()

    def _find(self, trial: Trial | int | Mapping[str, Any]) -> Record:
        """The record meant; a new one for parameters that are not being waited for."""
        if isinstance(trial, Mapping):
            x = self.space.encode(trial)
            for record in self._records:
                if record.pending and np.array_equal(record.x, x):
                    return record
            params = self._params(trial)
            return Record(Trial(len(self._records), params, "told without being asked for"), x)
        number = trial.id if isinstance(trial, Trial) else trial
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise TypeError(f"expected a trial, its id or its parameters, not {trial!r}")
        if not 0 <= number < len(self._records):
            raise ValueError(
                f"there is no trial {number}; {len(self._records)} have been asked for or told"
            )
        record = self._records[int(number)]
        if isinstance(trial, Trial) and trial.params != record.trial.params:
            raise ValueError(
                f"trial {number} of this optimizer has the parameters {record.trial.params}, "
                f"not {trial.params}: it comes from another one"
            )
        return record

    # ------------------------------------------------------------------ answering

    @property
    def trials(self) -> list[dict[str, Any]]:
        """All trials so far: id, params, state, values, noise_sds and reason."""
        return [
            {
                "id": record.trial.id,
                "params": dict(record.trial.params),
                "state": record.state,
                "values": list(record.values),
                "noise_sds": list(record.noise_sds),
                "reason": record.trial.reason,
            }
            for record in self._records
        ]

    def recommend(self, among: str = "anywhere") -> Recommendation:
        """The best parameters as far as the model can tell from all data told so far.

        Parameters
        ----------
        among : "anywhere" or "measured"
            The optimum of the posterior mean over the whole space, or over the measured points.
        """
        if among not in ("anywhere", "measured"):
            raise ValueError(f"among is {among!r}; expected 'anywhere' or 'measured'")
        known = self._ponder()
        rng = np.random.default_rng([self.seed, 2, self._told()])
        with small_work(known.data.size):
            measured = best_measured(known.posterior)
            belief = measured
            if among == "anywhere" and self.space.dimensions:
                success = chance(known.data, known.posterior, self._situation(known.units))
                anywhere = best_anywhere(known.posterior, self.space.domain, rng, success)
                if anywhere.mean > measured.mean + 1e-6:  # else the measured one is as good
                    belief = anywhere
            return self._recommendation(known, belief)

    def _recommendation(self, known: _Knowledge, belief: Belief) -> Recommendation:
        units = known.units
        told = [record for record in self._records if record.values]
        values = [(units.sign * v, v, record) for record in told for v in record.values]
        _, luckiest, where = max(values, key=lambda item: item[0])
        scale = np.minimum(np.median(known.posterior.length_scales, axis=0), 1.0)
        distance = np.array([np.sum(((r.x - belief.x) / scale) ** 2) for r in told])
        near = sum(len(r.values) for r, s in zip(told, distance, strict=True) if s <= 0.25)
        place = where.x if self.space.dimensions else np.zeros(1)
        there = believe(known.posterior, place[None])[0]
        params = self.space.decode(belief.x)
        for record in told:  # as the user wrote them
            if np.array_equal(record.x, belief.x):
                params = dict(record.trial.params)
        return Recommendation(
            params=params,
            mean=float(units.backward(np.array(belief.mean))),
            sd=float(belief.sd * units.stretch(np.array(belief.mean))),
            interval=_interval(units, belief),
            near=near,
            measurements=len(values),
            observed_params=dict(where.trial.params),
            observed_value=luckiest,
            observed_mean=float(units.backward(np.array(there.mean))),
            direction=self.direction,
        )

    def outlook(self) -> Outlook:
        """What is still to gain: where the true optimum lies, and how far the answer is from it."""
        known = self._ponder()
        answer = self.recommend()
        rng = np.random.default_rng([self.seed, 3, self._told()])
        x = self.space.encode(answer.params)
        units = known.units
        if not self.space.dimensions:
            gaps, optima = np.zeros(_OUTLOOK_DRAWS), np.full(_OUTLOOK_DRAWS, answer.mean)
            return Outlook(answer.interval, 0.0, 0.0, gaps, optima)
        with small_work(known.data.size):
            success = chance(known.data, known.posterior, self._situation(units))
            drawn = prospects(known.posterior, x, self.space.domain, _OUTLOOK_DRAWS, rng, success)
            optimum = units.backward(drawn.maximum)
            here = units.backward(drawn.here)
            information = 0.0
            if not (self._exact and self._remaining() == 0):
                settings = replace(self.settings, acquisition="rmes", settle=False)
                situation = replace(self._situation(units), failed=self._points([]))
                none = self._points([])
                next_one = choose(
                    known.data, self._learn().posterior, none, situation, settings, rng, known.fit
                )
                information = float(np.exp(next_one.value))
        low, high = sorted(units.backward(drawn.interval).tolist())
        return Outlook(
            optimum_interval=(low, high),
            expected_gap=float(np.mean(np.abs(optimum - here))),
            information=information,
            gaps=np.sort(np.abs(optimum - here)),
            optima=np.sort(optimum),
        )

    def predict(self, params: Sequence[Mapping[str, Any]]) -> tuple[Array, Array]:
        """What is believed of the objective, without measurement noise, at m points.

        Parameters
        ----------
        params : sequence of m dictionaries

        Returns
        -------
        mean, sd : (m,) arrays
            In the units of the told values. Pending trials play no part.
        """
        known, x = self._ponder(), self._cube(params)
        beliefs = believe(known.posterior, x)
        mean, sd = np.array([(belief.mean, belief.sd) for belief in beliefs]).reshape(-1, 2).T
        return known.units.backward(mean), sd * known.units.stretch(mean)

    def predict_noise(self, params: Sequence[Mapping[str, Any]]) -> Array:
        """Standard deviations (m,) that the noise of a new measurement would have at m points.

        Known or inferred; in the units of the told values.
        """
        x = self._cube(params)
        if callable(self.noise_sd):
            noise_sd = self.noise_sd
            return np.array([call_noise_sd(noise_sd, self.space.decode(point)) for point in x])
        if self.noise_sd is not None:
            return np.full(len(x), float(self.noise_sd))
        known = self._ponder()
        noise = new_noise(known.data, known.posterior, self._situation(known.units).noise_at)
        mean = known.posterior.predict(x)[0].mean(axis=0)
        return np.asarray(np.sqrt(noise(x).mean(axis=0)) * known.units.stretch(mean))

    def information(self, params: Sequence[Mapping[str, Any]]) -> Array:
        """What a new measurement at each of m points would tell about the best value, in nats.

        That is RMES (m,), for the noise that a measurement there would have. Pending and failed
        trials play no part, so `ask` may prefer another point.
        """
        known, x = self._learn(), self._cube(params)
        if not self.space.dimensions or not len(x):
            return np.zeros(len(x))
        rng = np.random.default_rng([self.seed, 5, self._told()])
        settings = replace(self.settings, maxima=_MAP_DRAWS)
        situation = replace(self._situation(known.units), failed=self._points([]))
        with small_work(known.data.size):
            log_rmes = worth(known.data, known.posterior, situation, settings, rng)
            return np.asarray(np.exp(log_rmes(x)[0]))

    def _cube(self, params: Sequence[Mapping[str, Any]]) -> Array:
        """Points (m, d) as the model wants them."""
        if isinstance(params, Mapping):
            raise TypeError("expected a list of dictionaries of parameters, not one dictionary")
        if not self.space.dimensions:
            return np.zeros((len(params), 1))
        x = np.array([self.space.encode(point) for point in params])
        return x.reshape(len(params), self.space.dimensions)

    # ------------------------------------------------------------------ the model

    @property
    def learned(self) -> Fit | None:
        """The hyperparameters behind the last suggestion; a warm start for another optimizer."""
        return self._fit

    def _data(self, pressed: bool) -> tuple[Data, Units]:
        """All values told so far, as the model sees them; pressed together or not."""
        return view(self._records, self.noise_sd, self.direction, pressed)

    def _noise_at(self, units: Units) -> Callable[[Array], Array]:
        """The user's noise at new points, as standardised variances."""
        noise_sd = self.noise_sd
        assert callable(noise_sd)

        def noise_at(x: Array) -> Array:
            sds = [call_noise_sd(noise_sd, self.space.decode(point)) for point in x]
            return (np.array(sds) / units.unit) ** 2

        return noise_at

    def _learn(self) -> _Knowledge:
        """What all values told so far say; a function of them and of the last suggestion's fit.

        Neither asking, nor answering, nor failed trials change it.
        """
        if self._known is None:
            told = self._told()
            if not told:
                raise ValueError("nothing has been measured yet: tell a value first")
            learned = self._fit
            pressed = learned is not None and learned.pressed
            data, units = self._data(pressed)
            with small_work(data.size):
                if learned is None or self._fitted != told:
                    rng = np.random.default_rng([self.seed, 4, told])
                    learned = fit(
                        self._model,
                        data,
                        rng,
                        self.settings.samples,
                        self._fit,
                        lambda: self._data(not pressed)[0],
                    )
                    if learned.pressed != pressed:
                        data, units = self._data(learned.pressed)
            self._known = _Knowledge(learned.seen(data), units, learned, self._model)
        return self._known

    def _ponder(self) -> _Knowledge:
        """What `_learn` says, with more settings of the hyperparameters: for answers."""
        known = self._learn()
        if self._pondered is None:
            if not len(known.fit.samples):
                return known
            rng = np.random.default_rng([self.seed, 5, self._told()])
            with small_work(known.data.size):
                wide = widened(self._model, known.data, known.fit, _ANSWER_SAMPLES, rng)
            self._pondered = replace(known, fit=wide)
        return self._pondered

    def _told(self) -> int:
        """Number of values told so far."""
        return sum(len(record.values) for record in self._records)

    # ------------------------------------------------------------------ saving

    def to_json(self) -> str:
        """The whole state as text; `from_json` continues the same run, bit for bit."""
        learned = None if self._fit is None else self._fit.to_json() | {"values": self._fitted}
        return saved.write(
            {
                "space": self.space.to_json(),
                "direction": self.direction,
                "noise_sd": saved.CALLABLE if callable(self.noise_sd) else self.noise_sd,
                "seed": self.seed,
                "initial": list(self._own) or self.initial,
                "acquisition": self.settings.acquisition,
                "trials": [record.to_json() for record in self._records],
                "fit": learned,
            }
        )

    @classmethod
    def from_json(
        cls,
        text: str,
        *,
        noise_sd: NoiseAt | None = None,
        settings: Settings | None = None,
    ) -> "Optimizer":
        """Continue from what `to_json` wrote.

        A callable `noise_sd` and settings other than the default are code, not data: hand them
        over again.
        """
        state = saved.read(text, noise_sd)
        optimizer = cls(
            Space.from_json(state["space"]),
            state["direction"],
            noise_sd if noise_sd is not None else state["noise_sd"],
            state["seed"],
            initial=state["initial"],
            settings=settings or Settings(acquisition=state["acquisition"]),
        )
        optimizer._records = saved.records(state, optimizer.space)
        if state["fit"] is not None:
            optimizer._fit, optimizer._fitted = saved.learned(state)
        return optimizer


def _interval(units: Units, belief: Belief) -> tuple[float, float]:
    """The central 90 % for f at the point, in the user's units."""
    ends = units.backward(belief.mean + np.array([-1.0, 1.0]) * 1.6448536269514722 * belief.sd)
    return float(ends.min()), float(ends.max())


def _reason(found: Suggestion, units: Units) -> str:
    if found.acquisition == CHECK:
        return "one of the best values once more, to tell ripples from noise"
    if found.acquisition == "rmes":
        return f"expected to tell {math.exp(found.value):.2g} nats about the best value"
    if found.acquisition == "knowledge-gradient":
        gain = units.unit * math.exp(found.value)
        return f"expected to improve the answer by {gain:.2g}"
    return f"best point under {found.acquisition}"
