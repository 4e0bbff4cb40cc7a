"""Noisy Hartmann-6 by BoTorch, once with RMES and once with its own max-value entropy search.

Run it in the environment of `make test-torch`:

    .torch/venv/bin/python benchmarks/botorch_loop.py --seeds 5 --budget 60

All but the acquisition is shared: the model, its fit, the first points, the noise, the search. The
regret is the true one, of the measured point with the best posterior mean.
"""

import argparse
import time
import warnings

import numpy as np
import torch

with warnings.catch_warnings():  # BoTorch's dependencies use what torch has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.test_functions import Hartmann
    from gpytorch.mlls import ExactMarginalLogLikelihood

from rmes.botorch import RectifiedMaxValueEntropy


def acquisition_of(name, model, bounds):
    if name == "RMES":
        return RectifiedMaxValueEntropy(model, bounds=bounds)
    return qMaxValueEntropy(model, torch.rand(1000, bounds.shape[1], dtype=bounds.dtype))


def run(name, seed, initial, budget, noise_sd):
    """Regret after the initial points and after each further one, and seconds."""
    problem = Hartmann(dim=6, negate=True)
    bounds = problem.bounds.double()
    torch.manual_seed(seed)
    x = torch.rand(initial, 6, dtype=torch.double)
    noise = noise_sd * torch.randn(budget, 1, dtype=torch.double)
    y = problem(x)[:, None] + noise[:initial]
    regrets = []
    began = time.perf_counter()
    while True:
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        best = x[model.posterior(x).mean.argmax()]
        regrets.append(float(problem.optimal_value - problem(best[None])))
        if len(x) == budget:
            return regrets, time.perf_counter() - began
        new, _ = optimize_acqf(
            acquisition_of(name, model, bounds), bounds, q=1, num_restarts=4, raw_samples=256
        )
        x = torch.cat([x, new])
        y = torch.cat([y, problem(new)[:, None] + noise[len(x) - 1 : len(x)]])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--initial", type=int, default=12)
    options.add_argument("--budget", type=int, default=60)
    options.add_argument("--noise-sd", type=float, default=0.1)
    given = options.parse_args()
    torch.set_num_threads(1)
    print("| acquisition | seed | first | middle | last | seconds |", "| --- " * 6 + "|", sep="\n")
    for name in ("RMES", "qMaxValueEntropy"):
        last = []
        for seed in range(given.seeds):
            regrets, seconds = run(name, seed, given.initial, given.budget, given.noise_sd)
            last.append(regrets[-1])
            shown = " | ".join(f"{regrets[i]:.3f}" for i in (0, len(regrets) // 2, -1))
            print(f"| {name} | {seed} | {shown} | {seconds:.0f} |", flush=True)
        print(f"| {name} | median | | | {np.median(last):.3f} | |", flush=True)


if __name__ == "__main__":
    main()
