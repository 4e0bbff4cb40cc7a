"""The one-call loop: measure where it tells most, on one worker or many, and answer."""

import importlib
import itertools
import logging
import math
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from scipy.optimize import Bounds, OptimizeResult

from rmes.optimizer import Optimizer, SpaceExhausted, Trial
from rmes.report import Outlook
from rmes.space import Categorical, Float, Integer, Space

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # of an evaluation whose worker died, before it counts as failed
_HOPELESS = 10  # failures from the start that end a run; more when many are in flight
_IN_FLIGHT = 4  # on an executor that does not say how many workers it has


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
        Show a progress bar, on a terminal or in a notebook.
    rng : None, int or numpy.random.Generator
        Makes a run on one worker reproducible, bit for bit.

    Returns
    -------
    scipy.optimize.OptimizeResult
        With `x` and `fun`, the recommendation and what is expected there: the optimum of the
        model's mean, not the luckiest measurement; `fun_std` and `fun_interval` (90 %), how sure
        that is; `x_observed` and `fun_observed`, the best single measurement; `success`, `status`
        and `message`; `nfev` and `nit`, the number of evaluations; `x_iters` and `func_vals`, all
        of them in the order they were begun, NaN where they failed; `recommendation`, to print;
        and `optimizer`, the `Optimizer`, for its outlook, to save it or to go on.

        `status` is 0 when the budget is spent, 1 when `stop_when` and 2 when `callback` ended the
        run, 3 when nothing is left to measure, and -1, with `success` False, when Ctrl-C did.
        Evaluations that are running when a run ends early are waited for, except after Ctrl-C.

    Raises
    ------
    RuntimeError
        When all evaluations failed, or the first ten and one more for each worker beyond the
        first; its cause is the first failure.

    Notes
    -----
    Nothing measured is lost when something raises in the middle, such as the callback: the
    exception has an attribute `optimizer` that holds all data so far.

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


@dataclass(frozen=True, slots=True)
class _Ending:
    status: int
    message: str
    success: bool = True


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
    if not callable(f):
        raise TypeError(f"f is {f!r}; expected a function")
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise TypeError(f"budget is {budget!r}; expected a whole number of evaluations")
    if budget < 1:
        raise ValueError(f"budget is {budget}; expected at least 1 evaluation")
    for name, hook in (("stop_when", stop_when), ("callback", callback)):
        if hook is not None and not callable(hook):
            raise TypeError(f"{name} is {hook!r}; expected a function")
    view = _view(bounds)
    own = view.points(x0)
    noise = _NoiseOn(view, noise_sd) if callable(noise_sd) else noise_sd
    optimizer = Optimizer(view.space, direction, noise, _seed(rng))
    args = args if isinstance(args, tuple) else (args,)
    try:
        with _crew(workers, f, args, budget) as crew, _bar(disp, budget, direction) as bar:
            ending = _loop(optimizer, view, own, crew, budget, stop_when, callback, bar)
    except KeyboardInterrupt as error:
        told = sum(bool(trial["values"]) for trial in optimizer.trials)
        if not told:
            _keep(optimizer, error)
            raise
        ending = _Ending(-1, f"Interrupted after {told} measurements.", success=False)
    except BaseException as error:
        _keep(optimizer, error)
        raise
    return _result(optimizer, view, ending)


def _loop(
    optimizer: Optimizer,
    view: "_View",
    own: list[dict[str, Any]],
    crew: "_Crew",
    budget: int,
    stop_when: Callable[[Outlook], Any] | None,
    callback: Callable[[Any], Any] | None,
    bar: Callable[[float | None], None],
) -> _Ending:
    """Keep all workers busy until the budget is spent or something ends the run."""
    running: dict[int, _Task] = {}
    bell = threading.Event()
    started = measured = 0
    failures: list[_Failure] = []
    ending: _Ending | None = None

    def send(trial: Trial, attempt: int) -> None:
        future = crew.submit(view.show(trial.params))
        running[trial.id] = _Task(trial, future, attempt)
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda _: bell.set())

    try:
        while True:
            while ending is None and started < budget and len(running) < crew.size():
                try:
                    trial = (
                        optimizer.announce(own[started]) if started < len(own) else optimizer.ask()
                    )
                except SpaceExhausted as error:
                    ending = _Ending(3, f"{str(error).capitalize()}.")
                    break
                send(trial, 1)
                started += 1
            if not running:
                break
            task = _first_done(running, bell)
            del running[task.trial.id]
            trial, attempt, outcome = task.trial, task.attempt, _outcome(task)
            del task  # a Dask cluster computes anew what it loses while somebody refers to it
            if outcome is None:
                send(trial, attempt + 1)
                continue
            if isinstance(outcome, _Failure):
                optimizer.tell(trial, failed=True)
                failures.append(outcome)
                logger.warning("evaluation %d at %s failed: %s", trial.id, trial.params, outcome)
                hopeless = _HOPELESS + max(len(running), crew.size() - 1)
                if not measured and len(failures) >= min(budget, hopeless):
                    _give_up(failures)
                bar(None)
            else:
                optimizer.tell(trial, outcome.value, noise_sd=outcome.noise_sd)
                measured += 1
                logger.debug("evaluation %d at %s gave %r", trial.id, trial.params, outcome.value)
                bar(outcome.value)
            if ending is None:
                ending = _early(optimizer, view, measured, stop_when, callback)
    finally:
        for task in running.values():  # none, unless something has been raised
            if hasattr(task.future, "cancel"):
                task.future.cancel()
    if not measured:
        _give_up(failures)
    failed = f" {len(failures)} of the {measured + len(failures)} evaluations failed."
    ending = ending or _Ending(0, f"The budget of {budget} evaluations is spent.")
    return _Ending(ending.status, ending.message + failed * bool(failures))


def _early(
    optimizer: Optimizer,
    view: "_View",
    measured: int,
    stop_when: Callable[[Outlook], Any] | None,
    callback: Callable[[Any], Any] | None,
) -> _Ending | None:
    """The reason to stop after an evaluation, if the user sees one."""
    if callback is not None:
        try:
            stop = callback(_result(optimizer, view, _Ending(4, "Under way.", success=False)))
        except StopIteration:
            stop = True
        if stop:
            return _Ending(2, "The callback asked to stop.")
    enough = measured >= max(optimizer.initial, 2) and optimizer.space.dimensions
    if stop_when is not None and enough and stop_when(optimizer.outlook()):
        return _Ending(1, "The rule stop_when is satisfied.")
    return None


def _give_up(failures: "list[_Failure]") -> NoReturn:
    first = failures[0]
    if first.error.__traceback__ is None and first.text:
        first.error.add_note(f"In the worker:\n{first.text}")
    raise RuntimeError(
        f"all {len(failures)} evaluations failed; the first one: {first}"
    ) from first.error


def _keep(optimizer: Optimizer, error: BaseException) -> None:
    """Hand the measurements over to whoever catches the error."""
    error.optimizer = optimizer  # type: ignore[attr-defined]
    told = sum(bool(trial["values"]) for trial in optimizer.trials)
    if told:
        error.add_note(
            f"{told} measurements had been made: they are in the attribute `optimizer` of this "
            "exception, an rmes.Optimizer"
        )


def _result(optimizer: Optimizer, view: "_View", ending: _Ending) -> Any:
    trials = [trial for trial in optimizer.trials if trial["state"] != "pending"]
    values = [trial["values"][0] if trial["values"] else math.nan for trial in trials]
    shown = [view.show(trial["params"]) for trial in trials]
    answer = optimizer.recommend() if not all(map(math.isnan, values)) else None
    return OptimizeResult(
        message=ending.message,
        success=ending.success,
        status=ending.status,
        fun=answer.mean if answer else math.nan,
        fun_std=answer.sd if answer else math.nan,
        fun_interval=answer.interval if answer else (math.nan, math.nan),
        x=view.show(answer.params) if answer else None,
        x_observed=view.show(answer.observed_params) if answer else None,
        fun_observed=answer.observed_value if answer else math.nan,
        nfev=len(trials),
        nit=len(trials),
        x_iters=np.array(shown, dtype=float if view.array else object),
        func_vals=np.array(values),
        recommendation=answer,
        optimizer=optimizer,
    )


# ---------------------------------------------------------------------- how the user sees points


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
        if self.array:
            points = self._rows(x0)
        elif isinstance(x0, Mapping):
            points = [dict(x0)]
        elif isinstance(x0, Sequence) and not isinstance(x0, str):
            points = list(x0)
        else:
            raise TypeError(f"x0 is {x0!r}; expected a dictionary of parameters, or several")
        for point in points:
            try:
                self.space.encode(point)
            except (TypeError, ValueError) as error:
                raise type(error)(f"x0: {error}") from None
        return points

    def _rows(self, x0: Any) -> list[dict[str, Any]]:
        names = list(self.space.parameters)
        expected = f"expected {len(names)} numbers, or several such points"
        try:
            rows = np.asarray(x0, dtype=float)
        except (TypeError, ValueError):
            raise TypeError(f"x0 is {x0!r}; {expected}") from None
        if rows.ndim < 2:
            rows = rows.reshape(-1, 1) if len(names) == 1 else rows.reshape(1, -1)
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise ValueError(f"x0 is {x0!r}; {expected}")
        return [dict(zip(names, row.tolist(), strict=True)) for row in rows]


@dataclass(frozen=True, slots=True)
class _NoiseOn:
    """The user's noise at an x, for parameters."""

    view: _View
    noise_sd: Callable[[Any], float]

    def __call__(self, params: dict[str, Any]) -> float:
        return self.noise_sd(self.view.show(params))


def _view(bounds: Any) -> _View:
    if isinstance(bounds, Space):
        return _View(bounds, array=False)
    if isinstance(bounds, Mapping):
        return _View(Space(bounds), array=False)
    expected = "expected one (low, high) for each coordinate, such as [(0, 1), (-5, 5)], or a space"
    if isinstance(bounds, Bounds):
        lows, highs = np.broadcast_arrays(np.atleast_1d(bounds.lb), bounds.ub)
        pairs: list[Any] = list(zip(lows.tolist(), highs.tolist(), strict=True))
    elif isinstance(bounds, Sequence | np.ndarray) and not isinstance(bounds, str | bytes):
        pairs = list(bounds)
    else:
        raise TypeError(f"bounds is {bounds!r}; {expected}")
    parameters: dict[str, Any] = {}
    for i, pair in enumerate(pairs):
        if isinstance(pair, Categorical):
            raise TypeError(
                f"bounds[{i}] is {pair!r}, which is no number and has no place in an array: name "
                "the parameters, as in {'solvent': rmes.Categorical(...)}"
            )
        if not isinstance(pair, Float | Integer) and np.shape(pair) != (2,):
            raise ValueError(f"bounds is {bounds!r}; {expected}")
        parameters[f"x[{i}]"] = pair if isinstance(pair, Float | Integer) else tuple(pair)
    if not parameters:
        raise ValueError(f"bounds is {bounds!r}; {expected}")
    return _View(Space(parameters), array=True)


def _seed(rng: Any) -> int | None:
    whole = isinstance(rng, int | np.integer) and not isinstance(rng, bool)
    if rng is None or (whole and rng >= 0):
        return None if rng is None else int(rng)
    try:
        if isinstance(rng, bool):
            raise TypeError
        return int(np.random.default_rng(rng).integers(2**63 - 1))
    except (TypeError, ValueError):
        raise ValueError(
            f"rng is {rng!r}; expected None, a whole number from 0 or a numpy.random.Generator"
        ) from None


# ------------------------------------------------------------------------------- one evaluation


@dataclass(frozen=True, slots=True)
class _Value:
    value: float
    noise_sd: float | None


@dataclass(frozen=True, slots=True)
class _Failure:
    """An evaluation without a value. The text is its traceback, which an error loses on the way."""

    error: BaseException
    text: str = ""

    def __reduce__(self) -> Any:
        error = self.error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # whatever a foreign class may do
            error = RuntimeError(str(self))
        return _Failure, (error, self.text)

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def _evaluate(f: Callable[..., Any], x: Any, args: tuple[Any, ...]) -> _Value | _Failure:
    try:
        return _read(f(x, *args))
    except Exception as error:
        return _Failure(error, traceback.format_exc())


def _evaluate_elsewhere(
    f: Callable[..., Any], x: Any, args: tuple[Any, ...], token: str
) -> _Value | _Failure:
    """Evaluate in a worker, which `sys.exit` must not end.

    The token makes each call another one: Dask computes equal calls once, and a repeated
    measurement is an equal call.
    """
    try:
        return _evaluate(f, x, args)
    except SystemExit as error:
        return _Failure(error, traceback.format_exc())


def _read(returned: Any) -> _Value:
    """What f returned: a number, or a number and its sd."""
    value, sd = returned, None
    if isinstance(returned, tuple | list) and len(returned) == 2:
        value, sd = returned
    try:
        value = np.asarray(value, dtype=float).item()
        sd = None if sd is None else np.asarray(sd, dtype=float).item()
    except (TypeError, ValueError):
        value = math.nan
    if value is None or not math.isfinite(value) or not (sd is None or 0.0 <= sd < math.inf):
        raise ValueError(f"f returned {returned!r}; expected a finite number, or (number, sd)")
    return _Value(value, sd)


# ---------------------------------------------------------------------------------- the workers


class _FutureLike(Protocol):
    def done(self) -> bool: ...

    def result(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Task:
    trial: Trial
    future: Any
    attempt: int


@dataclass(frozen=True, slots=True)
class _Crew:
    """Whoever evaluates: x -> future, and how many at a time."""

    submit: Callable[[Any], _FutureLike]
    size: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A future whose result is here."""

    outcome: _Value | _Failure

    def done(self) -> bool:
        return True

    def result(self) -> _Value | _Failure:
        return self.outcome


def _first_done(running: Mapping[int, _Task], bell: threading.Event) -> _Task:
    """Wait for one of the tasks; the bell rings when one may be done."""
    rings = all(hasattr(task.future, "add_done_callback") for task in running.values())
    pause = 0.001
    while True:
        bell.clear()
        for task in running.values():
            if task.future.done():
                return task
        # Even where the bell rings, look up once in a while: Windows hears Ctrl-C only then.
        bell.wait(1.0 if rings else pause)
        pause = min(1.5 * pause, 0.1)


def _outcome(task: _Task) -> _Value | _Failure | None:
    """What came of a task; None if its worker was lost and another attempt is due."""
    try:
        outcome: _Value | _Failure = task.future.result()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # not of f, whose errors are results: of the executor
        logger.warning(
            "evaluation %d was lost, attempt %d of %d: %r",
            task.trial.id,
            task.attempt,
            _ATTEMPTS,
            error,
        )
        return _Failure(error) if task.attempt >= _ATTEMPTS else None
    return outcome


@contextmanager
def _crew(
    workers: Any, f: Callable[..., Any], args: tuple[Any, ...], budget: int
) -> Iterator[_Crew]:
    if isinstance(workers, int | np.integer) and not isinstance(workers, bool):
        if workers == 1:
            yield _Crew(lambda x: _Ready(_evaluate(f, x, args)), lambda: 1)
            return
        if workers < -1 or workers == 0:
            raise ValueError(f"workers is {workers}; expected 1 or more, or -1 for all cores")
        count = min(_cores() if workers == -1 else int(workers), budget)
        with _processes(count, f, args) as crew:
            yield crew
        return
    if isinstance(workers, type) or not callable(getattr(workers, "submit", None)):
        raise TypeError(
            f"workers is {workers!r}; expected a number, or something with submit(), such as a "
            "concurrent.futures executor or a dask.distributed.Client"
        )
    if getattr(workers, "asynchronous", False):
        raise TypeError("workers is an asynchronous Dask client; expected an ordinary one")
    run = uuid.uuid4().hex
    calls = itertools.count()
    yield _Crew(
        lambda x: workers.submit(_evaluate_elsewhere, f, x, args, f"{run}-{next(calls)}"),
        lambda: _size(workers),
    )


def _size(executor: Any) -> int:
    """How many evaluations an executor can run at once; a Dask cluster may grow and shrink."""
    if callable(getattr(executor, "ncores", None)):
        return max(int(sum(executor.ncores().values())), 1)
    for name in ("_max_workers", "num_workers"):
        size = getattr(executor, name, None)
        if isinstance(size, int) and size >= 1:
            return size
    return _IN_FLIGHT


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _processes(count: int, f: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[_Crew]:
    """Processes of our own: pools of one each, so that one that dies takes no other along.

    They are spawned, never forked: a fork of a process that has run OpenMP code can hang.
    """
    packed = _pack(f, args, count)
    context = multiprocessing.get_context("spawn")

    def pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, context, _install, (packed,))

    pools = [pool() for _ in range(count)]
    idle = list(range(count))

    def submit(x: Any) -> _FutureLike:
        place = idle.pop()
        future = pools[place].submit(_evaluate_installed, x)

        def free(done: "Future[Any]") -> None:
            if not done.cancelled() and isinstance(done.exception(), BrokenProcessPool):
                pools[place] = pool()
            idle.append(place)

        future.add_done_callback(free)
        return future

    try:
        try:
            pools[0].submit(_installed).result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process died as it started; a script that uses workers= must do its "
                'work under `if __name__ == "__main__":`'
            ) from error
        except Exception as error:
            raise TypeError(_elsewhere(f, count, error)) from error
        yield _Crew(submit, lambda: count)
    except BaseException:
        for one in pools:
            for process in (one._processes or {}).values():
                process.terminate()
        raise
    finally:
        for one in pools:
            one.shutdown(cancel_futures=True)


def _pack(f: Callable[..., Any], args: tuple[Any, ...], count: int) -> bytes:
    """Pickle f, with cloudpickle where it is installed: it takes lambdas and notebooks too."""
    try:
        pickler: Any = importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        pickler = pickle
    try:
        return bytes(pickler.dumps((f, args)))
    except Exception as error:
        raise TypeError(_elsewhere(f, count, error)) from error


def _elsewhere(f: Callable[..., Any], count: int, error: Exception) -> str:
    return (
        f"f is {f!r}, which cannot be sent to another process ({error}); define it in a module, "
        "install cloudpickle, or use threads: "
        f"workers=concurrent.futures.ThreadPoolExecutor({count})"
    )


_packed: bytes = b""
_unpacked: tuple[Callable[..., Any], tuple[Any, ...]] | None = None


def _install(packed: bytes) -> None:
    """Prepare a worker process; Ctrl-C is the business of the one that started it."""
    global _packed
    _packed = packed
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _installed() -> None:
    """Unpack f, once; here and not in `_install`, so that what goes wrong is told."""
    global _unpacked
    if _unpacked is None:
        _unpacked = pickle.loads(_packed)


def _evaluate_installed(x: Any) -> _Value | _Failure:
    _installed()
    assert _unpacked is not None
    f, args = _unpacked
    return _evaluate_elsewhere(f, x, args, "")


# ----------------------------------------------------------------------------------- the bar


@contextmanager
def _bar(disp: bool, budget: int, direction: str) -> Iterator[Callable[[float | None], None]]:
    """A progress bar, on a terminal or in a notebook; it takes each value, None for a failure."""
    if not disp:
        yield lambda value: None
        return
    from tqdm.auto import tqdm

    better = max if direction == "maximize" else min
    notebook = any("notebook" in kind.__module__ for kind in tqdm.__mro__)
    # None is for terminals only; in a notebook tqdm would take it for no bar.
    with tqdm(total=budget, unit=" evaluations", disable=False if notebook else None) as bar:
        best: float | None = None

        def advance(value: float | None) -> None:
            nonlocal best
            if value is not None:
                best = value if best is None else better(best, value)
                bar.set_postfix_str(f"best measured {best:.4g}", refresh=False)
            bar.update()

        yield advance
