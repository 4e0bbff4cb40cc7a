r"""What other settings of our own would do to the regret: the defaults, tried and not assumed.

    python benchmarks/variants.py                   # 84 runs of each: half an hour on two cores
    python benchmarks/variants.py --report          # results/variants.md from the rows

The classic functions with noise of 5, 20 and 50 %, 40 measurements and for some variants 160, on
seeds that no other benchmark uses. Every variant meets the same first points and the same noise as
the default; one variant is the default itself with other random numbers, which tells what a
difference that is chance looks like.
"""

import argparse
import json
import multiprocessing
from dataclasses import asdict
from pathlib import Path

import numpy as np
from tqdm import tqdm

from peers import RMES, TOOLS
from problems import CLASSIC, NOISES, problem
from ranking import at
from regret import Row, Task, circumstances, missing, outcome, read_rows, short
from speed import table

VARIANTS = {
    "default": {},
    "no settling": {"settle": False},
    "other random numbers": {},
    "knowledge-gradient": {"acquisition": "knowledge-gradient"},
    "log-ei": {"acquisition": "log-ei"},
    "noisy-mes": {"acquisition": "noisy-mes"},
    "mes": {"acquisition": "mes"},
    "16 maxima": {"maxima": 16},
    "2 maxima": {"maxima": 2},
    "2 settings of the hyperparameters": {"samples": 2},
    "8 settings": {"samples": 8},
}
LONG = ["default", "no settling"]
BUDGETS = {40: list(VARIANTS), 160: LONG}
SEEDS = range(100, 104)
RESULTS = Path(__file__).parent / "results"
ROWS = RESULTS / "variants.jsonl"


def register() -> None:
    """Make the variants tools that `regret.run` knows."""
    for name, settings in VARIANTS.items():
        shift = 1000 if name == "other random numbers" else 0

        def begin(self, d, seed, exact=False, shift=shift):
            RMES.__init__(self, d, seed + shift, exact)

        members = {"name": name, "settings": settings, "__init__": begin}
        TOOLS[name] = type("Variant", (RMES,), members)


def run(task: Task) -> Row:
    return asdict(task) | {"spread": short(problem(task.problem).spread)} | outcome(task)


def work(processes: int) -> None:
    tasks = [
        Task(name, problem, noise, seed, 160 if name in LONG else 40)  # 160 passes through 40
        for name in VARIANTS
        for seed in SEEDS
        for problem in CLASSIC
        for noise in NOISES
    ]
    tasks = missing(tasks, read_rows(ROWS))
    commit = circumstances("rmes")["commit"]
    with multiprocessing.get_context("fork").Pool(processes) as pool, ROWS.open("a") as file:
        for row in tqdm(pool.imap_unordered(run, tasks), total=len(tasks), unit="run"):
            file.write(json.dumps(row | {"commit": commit}) + "\n")
            file.flush()


def report() -> str:
    """Both budgets: mean paired log10 ratio of regrets to the default's, with an interval."""
    rows = read_rows(ROWS)
    commits = sorted({row["commit"] for row in rows})
    parts = [
        "# Other settings than the defaults\n",
        "Seven classic functions with noise of 5, 20 and 50 %, seeds "
        f"{SEEDS[0]} to {SEEDS[-1]}, paired with the default: true regret of the recommendation. "
        "Positive is worse than the default; intervals are 95 %, over runs.\n",
    ]
    for budget, names in BUDGETS.items():
        parts.append(f"{table(compared(rows, budget, names))}\n")
    return "\n".join([*parts, f"Commits: {', '.join(commits)}.\n"])


def compared(rows: list[Row], budget: int, names: list[str]) -> list[list[str]]:
    """A line for each of the named variants."""
    regrets = {
        (row["tool"], row["problem"], row["noise"], row["seed"]): at(row, "answer", budget)
        for row in rows
        if row["budget"] >= budget
    }
    rng = np.random.default_rng(0)
    head = [f"{budget} measurements, instead of the default", "runs"]
    lines = [[*head, "log10 of the regret's ratio", "won", "lost"]]
    for name in names[1:]:
        pairs = [
            (regrets[key], regrets["default", *key[1:]])
            for key in regrets
            if key[0] == name and ("default", *key[1:]) in regrets
        ]
        if not pairs:
            continue
        difference = np.array([np.log10(one / other) for one, other in pairs])
        means = rng.choice(difference, (2000, len(difference))).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        text = f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})".replace("-", "−")
        won, lost = np.mean(difference < -0.01), np.mean(difference > 0.01)
        lines.append([name, str(len(pairs)), text, f"{won:.0%}", f"{lost:.0%}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    register()
    if not options.report:
        work(options.processes)
    text = report()
    (RESULTS / "variants.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
