"""The sweep: runs here, in other processes or on a Dask cluster, kept line by line in a file."""

import gzip
import json
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rmes.paper.experiments import Experiment, run
from rmes.paper.problems import problem

logger = logging.getLogger(__name__)

Record = dict[str, Any]
Key = tuple[str, float, str, int, int]


def key(experiment: Experiment) -> Key:
    """What tells runs apart. The data have a name of their own: a field may be simulated."""
    data = problem(experiment.problem).name
    return data, experiment.noise, experiment.method, experiment.seed, experiment.iterations


def recorded_key(record: Record) -> Key:
    """The key of a run in the file."""
    return (
        record["data"],
        record["noise"],
        record["method"],
        record["seed"],
        record["iterations"],
    )


def read(path: Path) -> list[Record]:
    """The finished runs in a file of JSON lines, gzipped if its name ends in .gz.

    A last line that is cut off, as an interruption leaves it, is not a finished run. A damaged
    line before the last is an error.
    """
    return _parse(path)[0]


def _parse(path: Path) -> tuple[list[Record], int]:
    """The records, and how many bytes of the file hold them."""
    if not path.exists():
        return [], 0
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    records: list[Record] = []
    good = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            recorded_key(record)
            if not line.endswith(b"\n"):
                raise ValueError("no end of line")
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise ValueError(
                    f"line {number} of {path} is damaged ({error}); expected one JSON object with "
                    "data, noise, method, seed and iterations: remove that line to run it again"
                ) from error
            logger.warning("the last line of %s is cut off; that run is made again", path)
            break
        records.append(record)
        good += len(line)
    return records, good


def sweep(
    wanted: list[Experiment],
    path: Path,
    workers: int | str = 1,
    perform: Callable[[Experiment], Record] = run,
) -> int:
    """Run what the file does not hold yet; return how many runs that were.

    Parameters
    ----------
    wanted : list of Experiment
        In the order in which they are begun.
    path : Path
        The results, one line for each run; made if there is none, else only added to.
    workers : int or str
        Processes on this machine, or the address of a Dask scheduler.
    perform : callable
        Experiment -> record.
    """
    if path.suffix == ".gz":
        raise ValueError(f"{path} is compressed, which cannot be added to; unpack it first")
    records, good = _parse(path)
    done = {recorded_key(record) for record in records}
    missing = list({key(one): one for one in wanted if key(one) not in done}.values())
    if not missing:
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(good)  # what follows the last whole line was cut off
    failed: list[str] = []
    bar = tqdm(total=len(missing), desc="runs", unit="run", disable=None)
    with path.open("a", encoding="utf-8") as file, bar, _executor(workers) as executor:
        futures = {executor.submit(perform, one): one for one in missing}
        try:
            for future in as_completed(futures):
                bar.update()
                error = future.exception()
                if error is not None:
                    failed.append(f"{futures[future]}: {error!r}")
                    continue
                file.write(json.dumps(future.result(), separators=(",", ":")) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(missing)} runs failed: {'; '.join(failed[:3])}")
    return len(missing)


@contextmanager
def _executor(workers: int | str) -> Iterator[Executor]:
    if isinstance(workers, str):
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError('a Dask cluster needs: pip install "rmes[dask]"') from error
        with Client(workers) as client:  # type: ignore[no-untyped-call]
            yield client.get_executor(pure=False)
        return
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1, or a Dask address")
    # Spawned, never forked: a fork of a process that has run OpenMP code can hang.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield pool
