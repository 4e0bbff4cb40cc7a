"""Seconds per suggestion, import and peak memory, beside other tools: `make bench`.

Every tool runs the same sequential loop in a process of its own: n measurements are in, one
suggestion warms up, then each timed step tells the last measurement and asks for the next point
(fit, draws and search included). Tools take turns run by run, so that a machine that slows down
slows all alike; several runs are pooled, since ten suggestions of one run differ by a fifth from
those of another. With few measurements they are also timed after a pause, as after a real
measurement: by then others have had the processor's caches.

    python benchmarks/speed.py                                  # everything, then the report
    python benchmarks/speed.py --tools optuna-gp bayes-opt --settings 10,2 50,2 --threads one
    python benchmarks/speed.py --report                         # results/speed.md from the rows
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np

from peers import TOOLS

SETTINGS = [(10, 2), (50, 2), (100, 2), (200, 6), (500, 6), (1000, 10)]
MEMORY_SETTING = (200, 6)
DEFAULT_TOOLS = ["rmes", "optuna-gp", "botorch-mes", "bayes-opt"]
THREADS = {"one": "One BLAS/OMP thread", "default": "Default threads"}
PAUSED_SETTING, PAUSE = (10, 2), 0.2  # seconds before each step
THREAD_VARIABLES = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
RUN = datetime.now(UTC).isoformat(timespec="seconds")
RESULTS = Path(__file__).parent / "results"
ROWS = RESULTS / "speed.jsonl"


# The process of one tool.


def bumps(d, rng):
    """A smooth random function on the unit cube with standard deviation 1: twelve wide bumps."""
    centres, heights = rng.random((12, d)), rng.normal(size=12)

    def f(X):
        return np.exp(-((X[:, None] - centres) ** 2).sum(-1) / (0.09 * d)) @ heights

    scale = f(rng.random((4096, d))).std()
    return lambda X: f(X) / scale


def work(tool, n, d, seed, steps, pause):
    """Suggest once, then `steps` times more, each after the pause; print what that took as JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a chatty tool must not garble the answer
    rng = np.random.default_rng(seed)
    f = bumps(d, rng)
    X = rng.random((n, d))
    y = f(X) + 0.1 * rng.normal(size=n)
    walls, cpus, model = [], [], None
    for _ in range(steps + 1):
        time.sleep(pause)
        wall, cpu = time.perf_counter(), time.process_time()
        model = model or TOOLS[tool](d, seed)  # the first, untimed step pays for the imports
        x = model.suggest(X, y)
        walls.append(round(time.perf_counter() - wall, 5))
        cpus.append(round(time.process_time() - cpu, 5))
        if x.shape != (d,) or not ((x >= 0) & (x <= 1)).all():
            raise RuntimeError(f"{tool} suggested {x}, which is no point of the unit cube")
        X = np.vstack([X, x])
        y = np.append(y, f(x[None]) + 0.1 * rng.normal())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
    said = {"first": walls[0], "wall": walls[1:], "cpu": cpus[1:], "peak": round(peak, 1)}
    print(json.dumps(said), file=answers)


def run(tool, n, d, seed, threads, steps, pause):
    """What `work` says in a process of its own, or None if the tool failed."""
    environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    if threads == "one":
        environment |= dict.fromkeys(THREAD_VARIABLES, "1")
    arguments = [tool, f"{n},{d}", str(seed), str(steps), str(pause)]
    command = [sys.executable, "-W", "ignore", __file__, "--work", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    return None if done.returncode else json.loads(done.stdout)


# Measuring: rows of numbers with their circumstances.


def circumstances(tool, threads):
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    model = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "run": RUN,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": tool,
        "threads": threads,
        "versions": {name: version(name) for name in TOOLS[tool].packages}
        | {"python": sys.version.split()[0]},
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "cpu_model": model[0].split(": ")[1] if model else "unknown",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def suggestions(tools, n, d, threads, steps, seeds, pause):
    """One row per tool: so many steps of a run for each seed, the runs in turns."""
    measured = {tool: [] for tool in tools}
    for seed in range(seeds):
        for tool in tools:
            measured[tool].append(run(tool, n, d, seed, threads, steps, pause))
    for tool, runs in measured.items():
        if None not in runs:
            yield circumstances(tool, threads) | {
                "what": "suggest",
                "n": n,
                "d": d,
                "pause": pause,
                "seeds": seeds,
                "seconds": [second for each in runs for second in each["wall"]],
                "cpu_seconds": [second for each in runs for second in each["cpu"]],
                "first_seconds": round(min(each["first"] for each in runs), 3),
                "peak_mb": max(each["peak"] for each in runs),
            }


def imports(tools):
    """One row per tool: seconds to import in five fresh processes, in turns."""
    seconds = {tool: [] for tool in tools}
    for tool in tools * 5:
        code = f"import time; t = time.perf_counter(); {TOOLS[tool].imports}"
        command = [sys.executable, "-c", f"{code}; print(time.perf_counter() - t)"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds[tool].append(round(float(done.stdout), 4))
    for tool in tools:
        yield circumstances(tool, "default") | {"what": "import", "seconds": seconds[tool]}


# Reporting.


def table(lines):
    """A Markdown table that is also readable as it stands; the first line is the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines = [lines[0], ["-" * width for width in widths], *lines[1:]]
    padded = ([f"{c:{w}}" for c, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def milliseconds(row, ours=None):
    """Median and quartiles, and how many times ours that is if one run measured both."""
    if row is None:
        return "–"
    low, median, high = 1e3 * np.quantile(row["seconds"], [0.25, 0.5, 0.75])
    digits = 1 if median < 10 else 0
    text = f"{median:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"
    if ours is None or ours is row or ours["run"] != row["run"]:
        return text
    return f"{text} ×{median / (1e3 * np.median(ours['seconds'])):.1f}"


def report(rows):
    """All tables, from the newest row of each measurement."""
    loads = {row["tool"]: row for row in rows if row["what"] == "import"}
    timed = {
        (r["threads"], r["pause"], r["n"], r["d"], r["tool"]): r
        for r in rows
        if r["what"] == "suggest"
    }
    rows = [*loads.values(), *timed.values()]
    tools = [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]
    parts = ["# Speed"]
    for (threads, title), pause in product(THREADS.items(), (0.0, PAUSE)):
        lines = [["n, d", *tools]]
        for n, d in sorted({(r["n"], r["d"]) for r in timed.values()}):
            found = {tool: timed.get((threads, pause, n, d, tool)) for tool in TOOLS}
            if any(found.values()):
                cells = [milliseconds(found[tool], found["rmes"]) for tool in tools]
                lines.append([f"{n}, {d}", *cells])
        if len(lines) > 1:
            after = f", each suggestion after a pause of {pause:g} s" if pause else ""
            parts += [f"## {title}{after}"]
            parts += ["Milliseconds per suggestion: median (quartiles) ×ratio to rmes."]
            parts += [table(lines)]

    n, d = MEMORY_SETTING
    lines = [["tool", "import, s", "import to first suggestion, s", "peak memory, MB"]]
    for tool in tools:
        load, ran = loads.get(tool), timed.get(("one", 0.0, n, d, tool))
        cells = [f"{min(load['seconds']):.2f}"] if load else ["–"]
        cells += [f"{ran['first_seconds']:.2f}", f"{ran['peak_mb']:.0f}"] if ran else ["–", "–"]
        lines.append([tool, *cells])
    parts += [f"## Import, and memory at n = {n}, d = {d}, one thread"]
    parts += ["Import is the best of five; some tools load torch only when they suggest."]
    parts += [table(lines), "## Circumstances"]

    notes = [f"- {r['cpu_model']}, {r['cores']} cores, {r['date'][:10]}" for r in rows]
    for row in rows:
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        notes.append(f"- {row['tool']}: {versions}")
    load = max((row["load"] for row in timed.values() if row["threads"] == "one"), default=0.0)
    if load > 1.3:
        notes.append(
            f"- **The machine was busy**: load average up to {load:.1f}, where one thread makes 1. "
            "The times are inflated; the ratios suffer less."
        )
    return "\n\n".join([*parts, "\n".join(dict.fromkeys(notes))])


def setting(text):
    n, d = text.split(",")
    return int(n), int(d)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=DEFAULT_TOOLS)
    parser.add_argument("--settings", nargs="+", type=setting, default=SETTINGS, metavar="N,D")
    parser.add_argument("--threads", nargs="+", choices=THREADS, default=list(THREADS))
    parser.add_argument("--steps", type=int, help="timed in a run (10; 3 from n = 500 on)")
    parser.add_argument("--seeds", type=int, help="runs (10; 3 from n = 200 on, 1 from 500 on)")
    parser.add_argument("--report", action="store_true", help="only write the report")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        tool, size, seed, steps, pause = options.work
        work(tool, *setting(size), int(seed), int(steps), float(pause))
        return

    cases = [(size, 0.0) for size in options.settings]
    cases += [(size, PAUSE) for size in options.settings if size == PAUSED_SETTING]

    def measurements():
        yield from imports(options.tools)
        for ((n, d), pause), threads in product(cases, options.threads):
            steps = options.steps or (3 if n >= 500 else 10)
            seeds = options.seeds or (1 if n >= 500 else 3 if n >= 200 else 10)
            yield from suggestions(options.tools, n, d, threads, steps, seeds, pause)

    RESULTS.mkdir(exist_ok=True)
    if not options.report:
        rows = []
        for row in measurements():
            rows.append(row)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            size = f"n = {row['n']}, d = {row['d']}" if "n" in row else "import"
            size += ", paused" if row.get("pause") else ""
            print(
                f"{size:24} {row['threads']:8} {row['tool']:15} {milliseconds(row)} ms", flush=True
            )
        print(f"\n{report(rows)}")
    saved = [json.loads(line) for line in ROWS.read_text().splitlines()]
    (RESULTS / "speed.md").write_text(report(saved) + "\n")
    wanted = len(options.tools) * (1 + len(cases) * len(options.threads))
    if not options.report and len(rows) < wanted:
        sys.exit(f"{wanted - len(rows)} of {wanted} measurements failed, see above")


if __name__ == "__main__":
    main()
