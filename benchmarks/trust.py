"""How often the 90 % intervals hold on test functions, which are no draws from the model's prior.

python benchmarks/trust.py        # 61 functions, two seeds at each noise: a few minutes
"""

import os

if __name__ == "__main__":  # before NumPy is loaded: one thread for each of the processes
    os.environ |= dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], "1")

from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np

import rmes
from problems import NOISES, TABLES, all_names, problem
from speed import table

SEEDS, MEASUREMENTS = (0, 1), 40
RESULTS = Path(__file__).parent / "results" / "trust.md"


def run(name, noise, seed):
    """Whether recommend()'s interval holds; in, below or above outlook()'s; true / expected gap."""
    given = problem(name)
    space = {f"x{i}": (0.0, 1.0) for i in range(given.dimensions)}
    opt = rmes.Optimizer(space, "minimize", seed=seed)
    rng = np.random.default_rng([seed, 78])
    for _ in range(MEASUREMENTS):
        trial = opt.ask()
        opt.tell(trial, given.measure(np.array(list(trial.params.values())), noise, rng))
    answer, outlook = opt.recommend(), opt.outlook()
    value = given.truth(np.array(list(answer.params.values())))
    held = answer.interval[0] <= value <= answer.interval[1]
    low, high = outlook.optimum_interval
    where = low <= given.least <= high, given.least > high, given.least < low
    low, high = np.quantile(outlook.optima, [0.05, 0.95])
    return held, *where, low <= given.least <= high, (value - given.least) / outlook.expected_gap


def main():
    names = [name for name in all_names() if name not in {f"hpo-{t}" for t in TABLES}]
    tasks = list(product(names, NOISES, SEEDS))
    with ProcessPoolExecutor() as pool:
        found = np.array(list(pool.map(run, *zip(*tasks, strict=True), chunksize=4)), dtype=float)
    noise = np.array([task[1] for task in tasks])
    lines = [["noise", "recommend() held", "outlook() held", "less to gain", "more to gain"]]
    lines[0] += ["draws alone held", "true / expected gap", "gap larger than expected"]
    for level in NOISES:
        held, gap = found[noise == level, :-1], found[noise == level, -1]
        lines.append([f"{100 * share:.0f} %" for share in (level, *held.mean(axis=0))])
        lines[-1] += [f"{np.median(gap):.2f}", f"{100 * np.mean(gap > 1.0):.0f} %"]
    text = (
        f"# How often the 90 % intervals hold on test functions\n\n{len(names)} functions in 2 to "
        f"10 coordinates, {MEASUREMENTS} measurements, seeds {SEEDS[0]} and {SEEDS[-1]}, noise as "
        f"a share of the function's standard deviation, rmes {rmes.__version__}. Less or more to "
        f"gain: the true optimum was worse than all of `outlook()`'s interval, or better. Draws "
        f"alone: the central 90 % of the drawn optima, which `outlook()` does not give. The gap "
        f"is that between the recommendation and the optimum; its ratio is a median.\n\n"
        f"{table(lines)}\n"
    )
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
