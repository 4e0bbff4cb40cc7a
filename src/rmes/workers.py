"""Evaluations here, in other processes or on any executor, which may lose some of them."""

import importlib
import logging
import math
import multiprocessing
import os
import pickle
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # of an evaluation whose worker is lost, before it counts as failed
_IN_FLIGHT = 4  # on an executor that does not say how many workers it has
_GLANCE = 0.005  # seconds between looks at what is running


@dataclass(frozen=True, slots=True)
class Failure:
    """An evaluation without a value. The text is its traceback, which an error loses on the way."""

    error: BaseException
    text: str = ""

    def __reduce__(self) -> Any:
        error = self.error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # many classes of errors can be pickled but not unpickled
            error = RuntimeError(str(self))
        return Failure, (error, self.text)

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


Outcome = tuple[float, float | None] | Failure  # the value and, if f gave it, its sd


def evaluate(
    f: Callable[..., Any], args: tuple[Any, ...], points: Iterator[tuple[int, Any]], workers: Any
) -> Generator[tuple[int, Outcome], None, None]:
    """Evaluate f at numbered points; yield the number and what came out, in order of completion.

    A point is taken when a worker is free, so it may depend on all that has been yielded. An
    evaluation that is lost with its worker is sent again. Close the iterator to end it early.
    """
    executor = _executor(workers)
    objective = _Objective(f, args)
    running: list[tuple[int, Any, int, Any]] = []  # number, x, attempt, future

    def send(number: int, x: Any, attempt: int) -> None:
        # Dask computes equal calls once, and repeats are equal calls but for a token.
        future = executor.submit(_evaluate, objective, x, uuid.uuid4().hex)
        running.append((number, x, attempt, future))

    try:
        while True:
            while len(running) < _size(executor) and (point := next(points, None)) is not None:
                send(*point, 1)
            if not running:
                return
            first = _first_done([future for *_, future in running])
            number, x, attempt, future = running.pop(first)
            try:
                outcome: Outcome = future.result()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # not of f, whose errors are results: of the executor
                logger.warning("evaluation %d was lost, attempt %d: %r", number, attempt, error)
                if attempt < _ATTEMPTS:
                    send(number, x, attempt + 1)
                    continue
                outcome = Failure(error)
            del future  # a Dask cluster computes anew what it loses while somebody refers to it
            yield number, outcome
    finally:
        for *_, future in running:  # none, unless something was raised
            if hasattr(future, "cancel"):
                future.cancel()
        if isinstance(executor, _Processes):
            executor.stop()


def _first_done(futures: list[Any]) -> int:
    while True:
        for i, future in enumerate(futures):
            if future.done():
                return i
        time.sleep(_GLANCE)


def _executor(workers: Any) -> Any:
    if callable(getattr(workers, "submit", None)) and not isinstance(workers, type):
        return workers
    if not isinstance(workers, int | np.integer) or isinstance(workers, bool):
        raise TypeError(
            f"workers is {workers!r}; expected a number, or something with submit(), such as a "
            "concurrent.futures executor or a dask.distributed.Client"
        )
    if workers < -1 or workers == 0:
        raise ValueError(f"workers is {workers}; expected 1 or more, or -1 for all cores")
    if workers == 1:
        return _Here()
    return _Processes(int(workers) if workers > 0 else os.cpu_count() or 1)


def _size(executor: Any) -> int:
    """How many evaluations an executor can run at once; a Dask cluster may grow and shrink."""
    if hasattr(executor, "ncores"):
        return max(int(sum(executor.ncores().values())), 1)
    return int(getattr(executor, "_max_workers", None) or _IN_FLIGHT)


class _Here:
    """An executor that evaluates as soon as it is asked to, in this process."""

    _max_workers = 1

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


class _Processes:
    """An executor of processes: pools of one each, so that one that dies takes no other along.

    They are spawned, never forked: a fork of a process that has run OpenMP code can hang.
    """

    def __init__(self, count: int) -> None:
        self._max_workers = count
        self._pools = [_pool() for _ in range(count)]
        self._last: list[Future[Any]] = [self._pools[0].submit(int)] * count
        try:
            self._last[0].result()
        except BrokenExecutor as error:
            raise RuntimeError(
                "a worker process died as it started; a script that uses workers= must do its "
                'work under `if __name__ == "__main__":`'
            ) from error

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        idle = next(i for i, last in enumerate(self._last) if last.done())
        try:
            future = self._pools[idle].submit(function, *arguments)
        except BrokenExecutor:
            self._pools[idle] = _pool()
            future = self._pools[idle].submit(function, *arguments)
        self._last[idle] = future
        return future

    def stop(self) -> None:
        """End all processes, without waiting for what they do."""
        for pool, last in zip(self._pools, self._last, strict=True):
            for process in (pool._processes or {}).values() if not last.done() else ():
                process.terminate()
            pool.shutdown(cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    # Ctrl-C reaches all processes of a terminal, but is the business of the first.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), signal.signal, ignore)


class _Objective:
    """x -> f(x, *args), in any process.

    It travels as bytes, since a process that cannot unpickle its work dies, and is unpacked once
    in a process, so that an f with a state of its own, such as a random generator, keeps it.
    """

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._f, self._args = f, args
        self._packed = b""

    def __call__(self, x: Any) -> Any:
        return self._f(x, *self._args)

    def __reduce__(self) -> Any:
        try:
            self._packed = self._packed or _pickler().dumps((self._f, self._args))
        except Exception as error:
            raise TypeError(
                f"f is {self._f!r}, which cannot be sent to another process ({error}); define it "
                "in a module, install cloudpickle, or use a concurrent.futures.ThreadPoolExecutor"
            ) from error
        return _Packed, (self._packed,)


@dataclass(frozen=True, slots=True)
class _Packed:
    pickled: bytes

    def __call__(self, x: Any) -> Any:
        f, args = _unpack(self.pickled)
        return f(x, *args)


@lru_cache(maxsize=1)
def _unpack(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _pickler() -> Any:
    """Cloudpickle where it is installed: it takes lambdas and functions of notebooks too."""
    try:
        return importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        return pickle


def _evaluate(objective: Callable[[Any], Any], x: Any, token: str) -> Outcome:
    try:
        return _read(objective(x))
    except Exception as error:
        return Failure(error, traceback.format_exc())


def _read(returned: Any) -> tuple[float, float | None]:
    """What f returned: a number, or a number and its sd."""
    pair = isinstance(returned, tuple | list) and len(returned) == 2
    value, sd = returned if pair else (returned, None)
    try:
        value = np.asarray(value, dtype=float).item()
        sd = None if sd is None else np.asarray(sd, dtype=float).item()
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or not (sd is None or 0.0 <= sd < math.inf):
        raise ValueError(f"f returned {returned!r}; expected a finite number, or (number, sd)")
    return value, sd
