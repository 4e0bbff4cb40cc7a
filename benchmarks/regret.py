r"""True regret of many optimisers on the same noisy problems: same seeds, points and noise.

Every tool is told the same first ten points of a run and then suggests one point at a time. The
i-th measurement of a run has the same random number whoever suggested it. Regret is measured
without noise, at the answer the tool's documentation tells a user to take and, where the tool can
give it, at the optimum of its posterior mean; also at the answer of one referee, our own model
given the tool's data, which tells the choice of points from the choice of the answer.

    python benchmarks/regret.py --short             # minutes; prints the tables
    python benchmarks/regret.py                     # classic functions, 40 measurements, 5 seeds
    python benchmarks/regret.py --problems all --tools all --noises 0 0.05 0.2 0.5 table \
        --budget 160 --seeds 20                     # the whole grid: days
    python benchmarks/regret_page.py                # docs/benchmarks.md from the rows

Rows are appended to results/regret.jsonl as runs finish, and no run is made twice: stop it at any
time and start it again. Runs are spread over processes with one BLAS thread each.
"""

import argparse
import json
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from peers import TOOLS
from problems import (
    CLASSIC,
    FRESH,
    NOISES,
    OTHERS,
    TABLE,
    all_names,
    initial_points,
    noises_of,
    problem,
)

INITIAL = 10  # every tool's own random start is over by then
BUDGETS = (40, 160)  # where results are compared; a run of 160 passes through 40
DEFAULT_TOOLS = ["rmes", "optuna-gp", "optuna-tpe", "bayes-opt", "random", "botorch-lognei"]
SHORT = {
    "problems": ["branin", "hartmann-3"],
    "tools": ["rmes", "optuna-gp", "optuna-tpe", "bayes-opt", "random"],
    "noises": [0.2],
    "budget": 40,
    "seeds": 2,
}
THREAD_VARIABLES = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
ROWS = Path(__file__).parent / "results" / "regret.jsonl"
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run: a tool, a problem, its noise and a seed."""

    tool: str
    problem: str
    noise: float | str
    seed: int
    budget: int


# One run.


def checkpoints(budget: int) -> list[int]:
    """After how many measurements answers are looked at."""
    often = range(INITIAL, min(budget, 40) + 1, 5)
    return sorted({*often, *range(60, budget + 1, 20), budget})


def run(task: Task) -> tuple[Row, np.ndarray, np.ndarray]:
    """Everything measured in one run, its points (n, d) and its values (n,)."""
    given = problem(task.problem)
    X = initial_points(INITIAL, given.dimensions, task.seed)
    y = np.array([measure(task, x, i) for i, x in enumerate(X)])
    tool = TOOLS[task.tool](given.dimensions, task.seed, exact=task.noise == 0)
    looks = checkpoints(task.budget)
    row: Row = {"n": looks, "answer": [], "believed": [], "sampled": [], "referee": {}}
    wall, cpu = [], []
    while True:
        n = len(y)
        x = None
        if n < task.budget:  # before the answer, so that a suggestion pays for its own fit
            start, start_cpu = time.perf_counter(), time.process_time()
            x = checked(tool.suggest(X, -y), given.dimensions)
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
        if n in looks:
            row["answer"].append(regret(given, tool.answer(X, -y)))
            believed = tool.believed(X, -y)
            row["believed"].append(None if believed is None else regret(given, believed))
            row["sampled"].append(short(min(map(given.regret, X))))
        if x is None:
            break
        X, y = np.vstack([X, x]), np.append(y, measure(task, x, n))
    row["seconds"] = [short(np.median(wall)), short(np.sum(wall))]  # of a suggestion, of all
    row["cpu_seconds"] = [short(np.median(cpu)), short(np.sum(cpu))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
    row["peak_mb"] = short(peak)  # before the referee, who is not part of the tool
    for n in {n for n in (*BUDGETS, task.budget) if n <= task.budget}:
        judge = TOOLS["rmes"](given.dimensions, task.seed, exact=task.noise == 0)
        row["referee"][str(n)] = regret(given, judge.answer(X[:n], -y[:n]))
    row["repeats"] = len(X) - len(np.unique(X, axis=0))
    return row, X, y


def measure(task: Task, x: np.ndarray, index: int) -> float:
    """The measurement number `index`: its random number depends on nothing else but the seed."""
    rng = np.random.default_rng([task.seed, 77, index])
    return problem(task.problem).measure(x, task.noise, rng)


def checked(x: np.ndarray, dimensions: int) -> np.ndarray:
    x = np.asarray(x, dtype=float)
    if x.shape != (dimensions,) or not ((x >= 0.0) & (x <= 1.0)).all():
        raise ValueError(f"suggested {x}, which is no point of the unit cube")
    return x


def regret(given: Any, x: np.ndarray) -> float:
    return short(given.regret(checked(x, given.dimensions)))


def short(value: float) -> float:
    return float(f"{value:.5g}")


# A server for one tool: a process that has imported it and forks a child for each run, so that
# a run cannot disturb the next and its peak memory is its own.


def serve(tool: str, limit: float) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a chatty tool must not garble the answers
    exec(TOOLS[tool].imports)
    for line in sys.stdin:
        task = Task(**json.loads(line))
        spread = problem(task.problem).spread  # made once for all children
        row = {"spread": short(spread)} | in_child(task, limit)
        print(json.dumps(row), file=answers, flush=True)


def in_child(task: Task, limit: float) -> Row:
    """The row of a run made in a child, or of its failure."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with os.fdopen(sink, "w") as file:
                json.dump(outcome(task), file)
            status = 0
        finally:
            os._exit(status)  # whatever happened: the child must not go on as a second server
    os.close(sink)
    text, deadline = b"", time.monotonic() + limit
    while select.select([source], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        part = os.read(source, 1 << 16)
        if not part:
            break
        text += part
    else:
        os.kill(child, signal.SIGKILL)
        text = json.dumps({"error": f"not finished after {limit:.0f} seconds"}).encode()
    os.close(source)
    _, status = os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        return {"error": f"the process ended with status {status}"}


def outcome(task: Task) -> Row:
    try:
        return run(task)[0]
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:300]}


class Server:
    """That process, seen from outside."""

    def __init__(self, tool: str, limit: float):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve", tool, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
            start_new_session=True,  # Ctrl-C is for us: we end it, so that its end is no failure
        )

    def run(self, task: Task) -> Row:
        """The row of a run; of a failure if the server has gone."""
        try:
            self.process.stdin.write(json.dumps(asdict(task)) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return {"error": f"the server of {task.tool} ended with {self.process.wait()}"}

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with the run it may be making
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                stream.close()
        self.process.wait()


# Many runs.


def read_rows(path: Path) -> list[Row]:
    """The rows on file. A last line that was cut short is removed from the file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def key(row: Row) -> tuple:
    return row["tool"], row["problem"], row["noise"], row["seed"]


def missing(tasks: list[Task], rows: list[Row]) -> list[Task]:
    """The tasks that no row answers; one of a larger budget answers a smaller one too."""
    budgets: dict[tuple, int] = {}
    for row in rows:
        budgets[key(row)] = max(row["budget"], budgets.get(key(row), 0))
    return [task for task in tasks if budgets.get(key(asdict(task)), 0) < task.budget]


def plan(
    tools: list[str], problems: list[str], noises: list[float | str], seeds: int, budget: int
) -> list[Task]:
    """Seeds slowest, so that a plan cut short has seen every problem; tools fastest, in pairs."""
    return [
        Task(tool, name, noise, seed, budget)
        for seed in range(seeds)
        for name in problems
        for noise in noises_of(name, tuple(noises))
        for tool in tools
    ]


def circumstances(tool: str) -> Row:
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    model = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "versions": {name: version(name) for name in TOOLS[tool].packages}
        | {"python": sys.version.split()[0]},
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "cpu_model": model[0].split(": ")[1] if model else "unknown",
        "cores": os.cpu_count(),
    }


def work(tasks: list[Task], path: Path, processes: int, limit: float, minutes: float) -> None:
    """Make the runs, append their rows; after `minutes` begin no more."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    path.parent.mkdir(exist_ok=True, parents=True)
    end, lock, failed = time.monotonic() + 60.0 * minutes, threading.Lock(), 0
    stop, servers = threading.Event(), dict[tuple[int, str], Server]()
    facts = {tool: circumstances(tool) for tool in {task.tool for task in tasks}}
    bar = tqdm(total=len(tasks), smoothing=0.05, unit="run")

    def slot(number: int) -> None:
        nonlocal failed
        while time.monotonic() < end and not stop.is_set():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            place = number, task.tool
            if place not in servers or servers[place].process.poll() is not None:
                servers[place] = Server(task.tool, limit)
            found = servers[place].run(task)
            now = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "load": short(os.getloadavg()[0]),
            }
            row = asdict(task) | found | facts[task.tool] | now
            with lock:
                if stop.is_set():
                    return  # we ended the run ourselves
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                failed += "error" in found
                bar.set_postfix_str(f"{task.tool} {task.problem}, {failed} failed")
                bar.update()

    slots = [threading.Thread(target=slot, args=(number,)) for number in range(processes)]
    try:
        for thread in slots:
            thread.start()
        for thread in slots:
            thread.join()
    finally:
        with lock:
            stop.set()
        for server in list(servers.values()):
            server.close()
        bar.close()


def noise_level(text: str) -> float | str:
    return text if text == TABLE else float(text)


def main() -> None:
    groups = {"classic": list(CLASSIC), "others": list(OTHERS), "fresh": list(FRESH)}
    groups["all"] = all_names()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=[*TOOLS, "all"], default=DEFAULT_TOOLS)
    parser.add_argument(
        "--problems",
        nargs="+",
        choices=[*all_names(), *groups],
        default=["classic"],
        metavar="NAME",
        help="classic, others, fresh, all, or names such as branin, bbob-f8-5, hpo-vehicle",
    )
    parser.add_argument("--noises", nargs="+", type=noise_level, default=list(NOISES))
    parser.add_argument("--budget", type=int, default=40, help="measurements in a run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=3600, help="seconds for one run")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no run after that")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--short", action="store_true", help="a small grid, tables on the screen")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], float(options.serve[1]))
        return
    if options.short:
        vars(options).update(SHORT)
    if options.budget <= INITIAL:
        parser.error(f"--budget is {options.budget}; expected more than the {INITIAL} first points")
    tools = list(TOOLS) if "all" in options.tools else options.tools
    problems = [name for group in options.problems for name in groups.get(group, [group])]
    tasks = plan(tools, problems, options.noises, options.seeds, options.budget)
    left = missing(tasks, read_rows(options.rows))
    print(f"{len(tasks)} runs, {len(tasks) - len(left)} of them on file", file=sys.stderr)
    work(left, options.rows, options.processes, options.limit, options.minutes)
    if options.short:
        from regret_page import tables

        print(tables(read_rows(options.rows)))


if __name__ == "__main__":
    main()
