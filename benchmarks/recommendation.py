"""Which answer has the lower true regret: the best point anywhere or the best measured one.

Part "rules" runs the optimiser on functions of 2 to 8 coordinates and compares, at the same
moment of the same run, `recommend("anywhere")` with `recommend("measured")`. Part "branin" measures
both against the best single measurement, which is what most tools report.

    python benchmarks/recommendation.py                    # what is missing, then the tables
    python benchmarks/recommendation.py --seeds 4 --parts branin
    python benchmarks/recommendation.py --report           # the tables from the rows on file

Rows are appended to results/recommendation.jsonl and never computed twice.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import rmes
from problems import CLASSIC, branin, hartmann3, hartmann6, levy
from rmes.kernels import MATERN52

Array = NDArray[np.float64]
ROWS = Path(__file__).parent / "results" / "recommendation.jsonl"
BUDGETS = (30, 60)
NOISE = (0.05, 0.2, 0.5)  # in units of the function's standard deviation over the cube
RULES = ("anywhere", "measured")


@dataclass(frozen=True)
class Problem:
    """A function to minimise on the unit cube, and its least value."""

    name: str
    dimensions: int
    function: Callable[[Array], float]
    least: float

    def spread(self) -> float:
        """Standard deviation over the cube."""
        points = np.random.default_rng(0).random((4000, self.dimensions))
        return float(np.std([self.function(x) for x in points]))


def ackley(x: Array) -> float:
    z = 4.0 * x - 1.6  # in [-1.6, 2.4]; the usual box of ±32 is flat but for a spike
    hills = np.exp(np.mean(np.cos(2 * np.pi * z)))
    return float(-20 * np.exp(-0.2 * np.sqrt(np.mean(z * z))) - hills + 20 + np.e)


def gp_draw(dimensions: int, scale: float, seed: int) -> Problem:
    """A draw from a Matérn-5/2 prior (1000 Fourier features), its minimum by many descents."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    frequencies = MATERN52.frequencies(rng.random((1000, dimensions + 3))) / scale
    weights = rng.standard_normal((2, 1000)) / math.sqrt(1000)

    def both(x: Array) -> tuple[float, Array]:
        phase = frequencies @ x
        cosine, sine = np.cos(phase), np.sin(phase)
        slope = (weights[1] * cosine - weights[0] * sine) @ frequencies
        return float(weights[0] @ cosine + weights[1] @ sine), slope

    starts = rng.random((4000, dimensions))
    starts = starts[np.argsort([both(x)[0] for x in starts])[:40]]
    box = [(0.0, 1.0)] * dimensions
    least = min(minimize(both, x, jac=True, bounds=box).fun for x in starts)
    return Problem(f"gp-{dimensions}", dimensions, lambda x: both(x)[0], float(least))


def problems() -> list[Problem]:
    return [
        Problem("branin", 2, branin, CLASSIC["branin"][2]),
        Problem("hartmann-3", 3, hartmann3, CLASSIC["hartmann-3"][2]),
        Problem("levy-4", 4, levy, 0.0),
        Problem("ackley-5", 5, ackley, 0.0),
        Problem("hartmann-6", 6, hartmann6, CLASSIC["hartmann-6"][2]),
        gp_draw(8, 1.0, 8),
    ]


def run(problem: Problem, noise_sd: float, budgets: tuple[int, ...], seed: int) -> list[dict]:
    """The true regret of each rule after each budget."""
    rng = np.random.default_rng([seed, 77])
    names = [f"x{i}" for i in range(problem.dimensions)]
    opt = rmes.Optimizer({name: (0.0, 1.0) for name in names}, seed=seed)

    def truth(params: dict) -> float:
        return problem.function(np.array([params[name] for name in names])) - problem.least

    rows = []
    for count in range(1, max(budgets) + 1):
        trial = opt.ask()
        opt.tell(trial, truth(trial.params) + noise_sd * rng.standard_normal())
        if count in budgets:
            answers = {rule: opt.recommend(rule) for rule in RULES}
            row = {rule: truth(answer.params) for rule, answer in answers.items()}
            row["observed"] = truth(answers["measured"].observed_params)
            row["near"] = answers["anywhere"].near
            rows.append({"budget": count, **row})
    return rows


def tasks(parts: list[str], seeds: int) -> list[tuple[str, Problem, float, tuple[int, ...], int]]:
    """Seeds slowest, so that a run which is cut short has seen every problem."""
    chosen = problems()
    spread = {problem.name: problem.spread() for problem in chosen}
    jobs = []
    for seed in range(seeds):
        if "branin" in parts:
            jobs += [("branin", chosen[0], sd, (50,), seed) for sd in (1.0, 10.0, 30.0)]
        if "rules" in parts:
            for problem in chosen:
                for share in NOISE:
                    jobs.append(("rules", problem, share * spread[problem.name], BUDGETS, seed))
    return jobs


def key(part: str, problem: str, noise_sd: float, seed: int) -> tuple:
    return part, problem, f"{noise_sd:.6g}", seed


def stored() -> list[dict]:
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def interval(values: Array, statistic: Callable[[Array], float]) -> tuple[float, float]:
    """Bootstrap, 90 %."""
    rng = np.random.default_rng(0)
    draws = [statistic(rng.choice(values, len(values))) for _ in range(2000)]
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def report(rows: list[dict]) -> None:
    branin_rows = [row for row in rows if row["part"] == "branin"]
    if branin_rows:
        print("\nBranin, 50 measurements: median true regret of the answer")
        print(f"{'noise sd':>8} {'seeds':>6} {'anywhere':>9} {'measured':>9} {'best observed':>14}")
        for sd in sorted({row["noise_sd"] for row in branin_rows}):
            some = [row for row in branin_rows if row["noise_sd"] == sd]
            medians = [np.median([row[rule] for row in some]) for rule in (*RULES, "observed")]
            print(
                f"{sd:8.3g} {len(some):6d} {medians[0]:9.3f} {medians[1]:9.3f} {medians[2]:14.3f}"
                f"   {medians[2] / medians[0]:.1f} times lower"
            )
    rules = [row for row in rows if row["part"] == "rules"]
    if not rules:
        return
    print('\nTrue regret of "anywhere" over that of "measured": geometric mean, 90 % bootstrap')
    head = f"{'problem':<12} {'noise':>6} {'budget':>6} {'runs':>5} {'anywhere':>9} {'measured':>9}"
    print(head + "   ratio")
    cells = sorted({(row["dimensions"], row["problem"], row["noise_sd"]) for row in rules})
    order = {name: sorted({c[2] for c in cells if c[1] == name}) for _, name, _ in cells}

    def ratio(some: list[dict]) -> str:
        # regrets below a thousandth of the spread are equal for any purpose
        floor = np.array([1e-3 * row["spread"] for row in some])
        one, other = (np.array([row[rule] for row in some]) for rule in RULES)
        logs = np.log((one + floor) / (other + floor))
        low, high = interval(logs, np.mean)
        return f"{math.exp(logs.mean()):.2f} ({math.exp(low):.2f} to {math.exp(high):.2f})"

    for budget in BUDGETS:
        for _, name, sd in cells:
            some = [
                row
                for row in rules
                if (row["problem"], row["noise_sd"], row["budget"]) == (name, sd, budget)
            ]
            if some:
                share = NOISE[order[name].index(sd)] if len(order[name]) == len(NOISE) else sd
                a, m = (np.median([row[rule] for row in some]) for rule in RULES)
                cell = f"{name:<12} {share:6.2g} {budget:6d} {len(some):5d} {a:9.3f} {m:9.3f}"
                print(f"{cell}   {ratio(some)}")
        print(f"all, budget {budget}: {ratio([row for row in rules if row['budget'] == budget])}")
    for d in sorted({row["dimensions"] for row in rules}):
        print(f"all in {d} dimensions: {ratio([row for row in rules if row['dimensions'] == d])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=["branin", "rules"])
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    rows = stored()
    if not arguments.report:
        done = {key(r["part"], r["problem"], r["noise_sd"], r["seed"]) for r in rows}
        ROWS.parent.mkdir(exist_ok=True)
        for part, problem, noise_sd, budgets, seed in tasks(arguments.parts, arguments.seeds):
            if key(part, problem.name, noise_sd, seed) in done:
                continue
            start = time.perf_counter()
            measured = run(problem, noise_sd, budgets, seed)
            shared = {
                "part": part,
                "problem": problem.name,
                "dimensions": problem.dimensions,
                "spread": problem.spread(),
                "noise_sd": noise_sd,
                "seed": seed,
                "version": rmes.__version__,
                "seconds": round(time.perf_counter() - start, 2),
            }
            with ROWS.open("a") as file:
                for row in measured:
                    file.write(json.dumps(shared | row) + "\n")
        rows = stored()
    report(rows)


if __name__ == "__main__":
    main()
