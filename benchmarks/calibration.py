"""Are the stated probabilities right: simulated runs on functions drawn from the prior.

Each run draws hyperparameters from `gp.Model`'s prior, a function from that Gaussian process (2-D,
Fourier features, so that its true optimum can be found), and noise of a size from the prior; then
it makes 25 measurements, as the optimiser suggests, with the noise inferred. Counted is how often

    recommend().interval          holds the true value at the recommended point    (90 % stated)
    outlook().optimum_interval    holds the true optimum                           (90 % stated)
    outlook().probability_within  comes true, by the stated probability

    python benchmarks/calibration.py --runs 200     # what is missing, table, docs/calibration.png
    python benchmarks/calibration.py --report
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import rmes
from rmes.model import Model, prior

Array = NDArray[np.float64]
ROWS = Path(__file__).parent / "results" / "calibration.jsonl"
PICTURE = Path(__file__).parents[1] / "docs" / "calibration.png"
MEASUREMENTS = 25
FEATURES = 2000
# The tolerances for which `probability_within` is asked, in standard deviations of the function.
# They are fixed beforehand: chosen by the answer, they would not be a fair question.
TOLERANCES = (0.01, 0.03, 0.1, 0.3, 1.0)


def function(rng: np.random.Generator) -> tuple[Callable[[Array], tuple[float, Array]], float]:
    """A draw from the prior with its gradient, and a noise sd, both from `gp.Model`."""
    model = Model()
    d = 2

    mean, precision = prior(model, d, True)
    drawn = np.exp(rng.multivariate_normal(mean, np.linalg.inv(precision)))
    scales, (signal, noise_sd) = drawn[:d], np.sqrt(drawn[d:])
    offset = math.sqrt(model.mean_variance) * rng.standard_normal()
    frequencies = model.kernel.frequencies(rng.random((FEATURES, d + 3))) / scales
    weights = signal * rng.standard_normal((2, FEATURES)) / math.sqrt(FEATURES)

    def both(x: Array) -> tuple[float, Array]:
        phase = frequencies @ x
        cosine, sine = np.cos(phase), np.sin(phase)
        slope = (weights[1] * cosine - weights[0] * sine) @ frequencies
        return float(offset + weights[0] @ cosine + weights[1] @ sine), slope

    return both, noise_sd


def optimum(both: Callable[[Array], tuple[float, Array]]) -> tuple[float, float]:
    """The least value, and the standard deviation over the square, from a grid and descents."""
    line = np.linspace(0.0, 1.0, 61)
    grid = np.stack(np.meshgrid(line, line), axis=2).reshape(-1, 2)
    values = np.array([both(x)[0] for x in grid])
    starts = grid[np.argsort(values)[:30:3]]
    found = [minimize(both, x, jac=True, bounds=[(0, 1)] * 2).fun for x in starts]
    return float(min(*found, values.min())), float(values.std())


def run(seed: int) -> dict:
    rng = np.random.default_rng([seed, 4])
    both, noise_sd = function(rng)
    least, spread = optimum(both)
    opt = rmes.Optimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, seed=seed)

    def truth(params: dict) -> float:
        return both(np.array([params["a"], params["b"]]))[0]

    for _ in range(MEASUREMENTS):
        trial = opt.ask()
        opt.tell(trial, truth(trial.params) + noise_sd * rng.standard_normal())
    answer, outlook = opt.recommend(), opt.outlook()
    here = truth(answer.params)
    return {
        "seed": seed,
        "spread": spread,
        "noise_sd": noise_sd,
        "truth": here,
        "mean": answer.mean,
        "sd": answer.sd,
        "interval": answer.interval,
        "least": least,
        "optimum_interval": outlook.optimum_interval,
        "expected_gap": outlook.expected_gap,
        "probability_within": [outlook.probability_within(t * spread) for t in TOLERANCES],
        "version": rmes.__version__,
    }


def stored() -> list[dict]:
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def share(hits: Array) -> str:
    """A share with its 90 % Wilson interval."""
    n, p, z = len(hits), float(np.mean(hits)), 1.645
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{100 * p:5.1f} %   ({100 * (center - half):.0f} to {100 * (center + half):.0f})"


def reliability(rows: list[dict]) -> list[tuple[float, float, int]]:
    """Stated probability, share that came true and count, in bins of the stated one."""
    stated = np.array([row["probability_within"] for row in rows]).ravel()
    gaps = np.array([(row["truth"] - row["least"]) / row["spread"] for row in rows])
    came = (gaps[:, None] <= np.array(TOLERANCES)).ravel()
    edges = np.array([0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0 + 1e-9])
    bins = []
    for low, high in pairwise(edges):
        inside = (stated >= low) & (stated < high)
        if inside.any():
            some = float(stated[inside].mean()), float(came[inside].mean())
            bins.append((*some, int(inside.sum())))
    return bins


def report(rows: list[dict]) -> None:
    def column(name: str) -> Array:
        return np.array([row[name] for row in rows])

    interval, best = column("interval"), column("optimum_interval")
    truth, least = column("truth"), column("least")
    print(f"{len(rows)} runs, {MEASUREMENTS} measurements each; stated 90 %, found (90 % interval)")
    inside = (interval[:, 0] <= truth) & (truth <= interval[:, 1])
    print(f"recommend().interval        {share(inside)}")
    print(f"  truth below it            {share(truth < interval[:, 0])}")
    print(f"  truth above it            {share(truth > interval[:, 1])}")
    inside = (best[:, 0] <= least) & (least <= best[:, 1])
    print(f"outlook().optimum_interval  {share(inside)}")
    print(f"  optimum below it          {share(least < best[:, 0])}")
    print(f"  optimum above it          {share(least > best[:, 1])}")
    ratio = np.mean((truth - least) / column("spread")) / np.mean(
        column("expected_gap") / column("spread")
    )
    print(f"true gap / expected gap     {ratio:5.2f}")
    score = (truth - column("mean")) / column("sd")
    print(
        f"(truth - mean) / sd         mean {score.mean():.2f}, rms {np.sqrt(np.mean(score**2)):.2f}"
    )
    print("\nprobability_within: stated, came true, questions")
    for stated, came, count in reliability(rows):
        print(f"{stated:8.2f} {came:8.2f} {count:6d}")


def draw(rows: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bins = reliability(rows)
    stated, came, count = (np.array(column) for column in zip(*bins, strict=True))
    half = 1.645 * np.sqrt(np.maximum(came * (1 - came), 0.25 / count) / count)
    figure, axes = plt.subplots(figsize=(4.2, 4.2), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", lw=1)
    axes.errorbar(stated, came, half, fmt="o", color="#1f6fb4", ms=5, lw=1, capsize=0)
    for x, y, n in bins:
        right = x > 0.9
        axes.annotate(
            str(n),
            (x, y),
            (-8 if right else 8, -4),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=8,
            color="0.4",
        )
    axes.set(
        xlim=(-0.04, 1.04),
        ylim=(-0.04, 1.04),
        xlabel="stated probability of being within ε of the optimum",
        ylabel="share of runs in which it was",
        title=f"outlook().probability_within, {len(rows)} simulated runs",
    )
    axes.title.set_fontsize(10)
    axes.set_aspect("equal")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150)
    print(f"\n{PICTURE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    rows = stored()
    if not arguments.report:
        ROWS.parent.mkdir(exist_ok=True)
        done = {row["seed"] for row in rows}
        for seed in range(arguments.runs):
            if seed not in done:
                start = time.perf_counter()
                row = run(seed)
                row["seconds"] = round(time.perf_counter() - start, 2)
                with ROWS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        rows = stored()
    report(rows)
    draw(rows)


if __name__ == "__main__":
    main()
