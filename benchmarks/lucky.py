"""Noisy Branin: the recommendation beside the luckiest measurement of the same runs.

    python benchmarks/lucky.py        # 20 seeds at each noise, 50 measurements: a few minutes

Regret is true regret. Counted is also how often the 90 % intervals held the truth, on a function
that is unlike a draw from the model's prior: nearly flat around three optima, steep in one corner.
"""

from pathlib import Path

import numpy as np

import rmes
from problems import problem
from speed import table

SEEDS, MEASUREMENTS, NOISES = 20, 50, (1.0, 10.0, 30.0)
RESULTS = Path(__file__).parent / "results" / "lucky.md"


def run(branin, noise_sd, seed):
    """Regret of the recommendation and of the luckiest point; whether the two intervals hold."""
    opt = rmes.Optimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, "minimize", seed=seed)
    rng = np.random.default_rng(seed)

    def truth(params):
        return branin.truth(np.array([params["a"], params["b"]]))

    measured = []
    for _ in range(MEASUREMENTS):
        trial = opt.ask()
        value = truth(trial.params)
        measured.append((value + noise_sd * rng.standard_normal(), value))
        opt.tell(trial, measured[-1][0])
    answer, (low, high) = opt.recommend(), opt.outlook().optimum_interval
    value, least = truth(answer.params), branin.least
    held = answer.interval[0] <= value <= answer.interval[1]
    return value - least, min(measured)[1] - least, held, low <= least <= high


def main():
    branin = problem("branin")
    head = ["noise sd", "recommended", "luckiest", "recommend() held", "outlook() held"]
    lines = [head]
    for noise_sd in NOISES:
        runs = np.array([run(branin, noise_sd, seed) for seed in range(SEEDS)], dtype=float)
        recommended, luckiest = np.median(runs[:, :2], axis=0)
        held = [f"{int(count)} of {SEEDS}" for count in runs[:, 2:].sum(axis=0)]
        lines.append([f"{noise_sd:g}", f"{recommended:.3f}", f"{luckiest:.3f}", *held])
    text = (
        f"# The recommendation and the luckiest measurement\n\nNoisy Branin (standard deviation "
        f"{branin.spread:.0f}), {MEASUREMENTS} measurements, seeds 0 to {SEEDS - 1}, rmes "
        f"{rmes.__version__}: median true regret, and how many of the 90 % intervals held.\n\n"
        f"{table(lines)}\n"
    )
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
