"""The one-call loop: measure where it tells most, on one worker or many, and answer."""

import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rmes.optimizer import Optimizer, SpaceExhausted
from rmes.report import Outlook
from rmes.space import Float, Integer, Space
from rmes.workers import Failure, evaluate

logger = logging.getLogger(__name__)


def minimize(
    f: Callable[..., Any],
    bounds: Any,
    args: Any = (),
    *,
    budget: int = 60,
    noise_sd: float | Callable[[Any], float] | None = None,
    x0: Any = None,
    workers: Any = 1,
    stop_when: Callable[[Outlook], Any] | None = None,
    callback: Callable[[Any], Any] | None = None,
    disp: bool = False,
    rng: Any = None,
) -> Any:
    """Minimise a noisy, expensive function.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` returns a number, or a pair (number, standard deviation of its noise). One
        that raises, or returns None, NaN or an infinity, is a failed measurement: it is logged,
        it counts, its neighbourhood is avoided, and the run goes on.
    bounds : sequence, scipy.optimize.Bounds, mapping or Space
        With one (low, high), `Float` or `Integer` for each coordinate, or with `Bounds`, x is an
        array. With a mapping of names to parameters, or a `Space`, x is a dictionary of
        parameters, here and in the result.
    args : tuple
        Further arguments of f.
    budget : int
        Evaluations, failed ones included.
    noise_sd : None, number or callable
        Standard deviation of the noise of a measurement: None infers it, 0 means exact, a
        callable gives it for an x. What f returns beside a value goes before it.
    x0 : point or sequence of points, optional
        Measured first.
    workers : int or executor
        1 evaluates in this process; a larger number in as many other processes, -1 in one for
        each core (a script then needs its ``if __name__ == "__main__":``). Or anything whose
        ``submit(function, *arguments)`` returns a future: an executor of `concurrent.futures`,
        loky's, a `dask.distributed.Client` for a cluster. As many evaluations are in flight as
        the executor has workers, the Dask cluster threads; as soon as one comes back, another
        goes out. An evaluation that is lost with its worker is sent again, at most twice.
    stop_when : callable, optional
        Gets the `Outlook` after each evaluation beyond the space-filling ones; the run ends once
        it returns something true: ``lambda outlook: outlook.probability_within(0.1) > 0.9``.
    callback : callable, optional
        Gets the result so far after each evaluation; a true return, or `StopIteration`, ends the
        run.
    disp : bool
        Show a progress bar, in a notebook too.
    rng : None, int or numpy.random.Generator
        Makes a run on one worker reproducible, bit for bit.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With `x` and `fun`, the recommendation and what is expected there: the optimum of the
        model's mean, not the luckiest measurement; `fun_std`, how sure that is; `x_observed` and
        `fun_observed`, the best single measurement; `success`, `status` and `message`; `nfev` and
        `nit`, the number of evaluations; `x_iters` and `func_vals`, all of them in the order they
        were begun, NaN where they failed; `recommendation`, to print; and `optimizer`, the
        `Optimizer`, for its outlook, to save it or to go on.

        `status` is 0 when the budget is spent, 1 when `stop_when` and 2 when `callback` ended the
        run, 3 when nothing is left to measure, and -1, with `success` False, when Ctrl-C did.
        Evaluations that are running when a run ends early are waited for, except after Ctrl-C.

    Raises
    ------
    RuntimeError
        When all evaluations failed; its cause is the first failure. Whatever is raised in the
        middle, by the callback for instance, has an attribute `optimizer` with all data so far.

    Examples
    --------
    >>> import rmes
    >>> result = rmes.minimize(lambda x: (x[0] - 0.3) ** 2, [(0, 1)], budget=10, noise_sd=0, rng=0)
    >>> print(f"{result.x[0]:.2f}")
    0.30
    """
    return _optimize(
        "minimize", f, bounds, args, budget, noise_sd, x0, workers, stop_when, callback, disp, rng
    )


def maximize(
    f: Callable[..., Any],
    bounds: Any,
    args: Any = (),
    *,
    budget: int = 60,
    noise_sd: float | Callable[[Any], float] | None = None,
    x0: Any = None,
    workers: Any = 1,
    stop_when: Callable[[Outlook], Any] | None = None,
    callback: Callable[[Any], Any] | None = None,
    disp: bool = False,
    rng: Any = None,
) -> Any:
    """Maximise a noisy, expensive function: `minimize`, the other way up.

    Arguments and result are those of `minimize`. Values keep their sign, so `fun` is what f is
    expected to give at `x`. It visits the points that `minimize` of -f would.
    """
    return _optimize(
        "maximize", f, bounds, args, budget, noise_sd, x0, workers, stop_when, callback, disp, rng
    )


def _optimize(
    direction: str,
    f: Callable[..., Any],
    bounds: Any,
    args: Any,
    budget: int,
    noise_sd: float | Callable[[Any], float] | None,
    x0: Any,
    workers: Any,
    stop_when: Callable[[Outlook], Any] | None,
    callback: Callable[[Any], Any] | None,
    disp: bool,
    rng: Any,
) -> Any:
    for name, hook in (("f", f), ("stop_when", stop_when), ("callback", callback)):
        if not callable(hook) and (hook is not None or name == "f"):
            raise TypeError(f"{name} is {hook!r}; expected a function")
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise TypeError(f"budget is {budget!r}; expected a whole number of evaluations")
    if budget < 1:
        raise ValueError(f"budget is {budget}; expected at least 1 evaluation")
    view = _view(bounds)
    own = view.points(x0)
    noise = partial(_noise_at, view, noise_sd) if callable(noise_sd) else noise_sd
    optimizer = Optimizer(view.space, direction, noise, _seed(rng))
    points = _points(optimizer, view, own, budget)
    outcomes = evaluate(f, args if isinstance(args, tuple) else (args,), points, workers)
    best = max if direction == "maximize" else min
    values: list[float] = []
    failures: list[Failure] = []
    ending: _Ending | None = None
    try:
        with closing(outcomes), _bar(disp, budget) as bar:
            for number, outcome in outcomes:
                if isinstance(outcome, Failure):
                    trial = optimizer.tell(number, failed=True)
                    failures.append(outcome)
                    logger.warning("evaluation %d at %s failed: %s", number, trial.params, outcome)
                else:
                    optimizer.tell(number, outcome[0], noise_sd=outcome[1])
                    values.append(outcome[0])
                if bar is not None:
                    bar.set_postfix_str(f"best measured {best(values, default=math.nan):.4g}")
                    bar.update()
                if ending is None:
                    ready = len(values) >= optimizer.initial
                    ending = _early(optimizer, view, stop_when if ready else None, callback)
                if ending is not None:
                    points.close()  # evaluations that are running still come back
        if not values:
            first = failures[0]
            if first.error.__traceback__ is None and first.text:
                first.error.add_note(f"In the worker:\n{first.text}")
            failed = f"all {len(failures)} evaluations failed; the first one: {first}"
            raise RuntimeError(failed) from first.error
    except BaseException as error:
        if not (values and isinstance(error, KeyboardInterrupt)):
            # Any exception takes attributes; the type of exceptions in general does not say so.
            error.optimizer = optimizer  # type: ignore[attr-defined]
            if values:
                error.add_note(f"The {len(values)} measurements are in its attribute `optimizer`.")
            raise
        ending = -1, f"Interrupted after {len(values)} measurements."
    if ending is None and len(values) + len(failures) < budget:
        ending = 3, "All points of the space have been measured."
    return _result(optimizer, view, ending or (0, f"The budget of {budget} evaluations is spent."))


_Ending = tuple[int, str]  # status and message


def _seed(rng: Any) -> int | None:
    """A seed from all that SciPy takes for `rng`; a number is the seed itself."""
    if rng is None:
        return None
    if isinstance(rng, int | np.integer) and rng >= 0:
        return int(rng)
    try:
        return int(np.random.default_rng(rng).integers(2**63 - 1))
    except (TypeError, ValueError):
        raise TypeError(
            f"rng is {rng!r}; expected None, a whole number from 0 or a numpy Generator"
        ) from None


def _points(
    optimizer: Optimizer, view: "_View", own: list[dict[str, Any]], budget: int
) -> Generator[tuple[int, Any], None, None]:
    """Numbers and places of what to measure, each decided when it is asked for."""
    for i in range(budget):
        try:
            trial = optimizer.announce(own[i]) if i < len(own) else optimizer.ask()
        except SpaceExhausted:
            return
        yield trial.id, view.show(trial.params)


def _early(
    optimizer: Optimizer,
    view: "_View",
    stop_when: Callable[[Outlook], Any] | None,
    callback: Callable[[Any], Any] | None,
) -> _Ending | None:
    """The reason to stop after an evaluation, if the user sees one."""
    if callback is not None:
        try:
            stop = callback(_result(optimizer, view, (4, "Under way.")))
        except StopIteration:
            stop = True
        if stop:
            return 2, "The callback asked to stop."
    if stop_when is not None and stop_when(optimizer.outlook()):
        return 1, "The rule stop_when is satisfied."
    return None


def _result(optimizer: Optimizer, view: "_View", ending: _Ending) -> Any:
    status, message = ending
    trials = [trial for trial in optimizer.trials if trial["state"] != "pending"]
    values = np.array([trial["values"][0] if trial["values"] else math.nan for trial in trials])
    failed = int(np.isnan(values).sum())
    if failed:
        message += f" {failed} of the {len(trials)} evaluations failed."
    answer = optimizer.recommend() if failed < len(trials) else None
    shown = [view.show(trial["params"]) for trial in trials]
    # Loading scipy.optimize takes as long as all of rmes: only where it is wanted.
    from scipy.optimize import OptimizeResult

    return OptimizeResult(
        message=message,
        success=0 <= status <= 3,
        status=status,
        fun=answer.mean if answer else math.nan,
        fun_std=answer.sd if answer else math.nan,
        x=view.show(answer.params) if answer else None,
        x_observed=view.show(answer.observed_params) if answer else None,
        fun_observed=answer.observed_value if answer else math.nan,
        nfev=len(trials),
        nit=len(trials),
        x_iters=np.array(shown, dtype=float if view.array else object),
        func_vals=values,
        recommendation=answer,
        optimizer=optimizer,
    )


def _bar(disp: bool, budget: int) -> Any:
    if not disp:
        return nullcontext()
    from tqdm.auto import tqdm  # takes a while to import

    return tqdm(total=budget, unit=" evaluations")


@dataclass(frozen=True, slots=True)
class _View:
    """Points as f takes them: arrays if `array`, else dictionaries."""

    space: Space
    array: bool

    def show(self, params: Mapping[str, Any]) -> Any:
        if not self.array:
            return dict(params)
        return np.array([float(params[name]) for name in self.space.parameters])

    def points(self, x0: Any) -> list[dict[str, Any]]:
        """One point or several, as parameters within the space."""
        if x0 is None:
            return []
        try:
            if self.array:
                rows = np.atleast_2d(np.asarray(x0, dtype=float)).tolist()
                points = [{f"x[{i}]": value for i, value in enumerate(row)} for row in rows]
            else:
                points = list(x0) if isinstance(x0, Sequence) else [x0]
            for point in points:
                self.space.encode(point)
        except (TypeError, ValueError) as error:
            raise type(error)(f"x0: {error}") from None
        return points


def _noise_at(view: _View, noise_sd: Callable[[Any], float], params: dict[str, Any]) -> float:
    return noise_sd(view.show(params))


def _view(bounds: Any) -> _View:
    if isinstance(bounds, Space | Mapping):
        return _View(bounds if isinstance(bounds, Space) else Space(bounds), array=False)
    from scipy.optimize import Bounds

    if isinstance(bounds, Bounds):
        bounds = np.transpose(np.broadcast_arrays(np.atleast_1d(bounds.lb), bounds.ub)).tolist()
    expected = "expected one (low, high) for each coordinate, such as [(0, 1), (-5, 5)], or a space"
    if not isinstance(bounds, Sequence | np.ndarray) or isinstance(bounds, str):
        raise TypeError(f"bounds is {bounds!r}; {expected}")
    parameters: dict[str, Any] = {}
    for i, pair in enumerate(bounds):
        if not isinstance(pair, Float | Integer) and np.shape(pair) != (2,):
            raise ValueError(f"bounds is {bounds!r}; {expected}")
        parameters[f"x[{i}]"] = pair if isinstance(pair, Float | Integer) else tuple(pair)
    if not parameters:
        raise ValueError(f"bounds is {bounds!r}; {expected}")
    return _View(Space(parameters), array=True)
