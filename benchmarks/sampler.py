"""What a suggestion inside Optuna costs: `RMESSampler` beside Optuna's `GPSampler`.

Studies in memory, one BLAS thread; the median of six trials that follow each other, so that both
samplers start from their last fit. Printed: measurements, parameters, milliseconds of each.
"""

import time
import warnings

import numpy as np
import optuna
import torch
from optuna.distributions import BaseDistribution, FloatDistribution
from threadpoolctl import threadpool_limits

from rmes.optuna import RMESSampler

SIZES = [(10, 2), (50, 2), (100, 2), (200, 6), (500, 6)]


def study_of(
    n: int, space: dict[str, BaseDistribution], sampler: optuna.samplers.BaseSampler
) -> optuna.Study:
    rng = np.random.default_rng(0)
    study = optuna.create_study(sampler=sampler)
    for _ in range(n):
        params = {name: float(rng.random()) for name in space}
        value = bowl(params) + 0.05 * rng.normal()
        study.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
    return study


def bowl(params: dict[str, float]) -> float:
    return sum((x - 0.4) ** 2 for x in params.values())


def milliseconds(n: int, d: int, sampler: optuna.samplers.BaseSampler) -> float:
    space: dict[str, BaseDistribution] = {f"x{i}": FloatDistribution(0, 1) for i in range(d)}
    study = study_of(n, space, sampler)
    taken = []
    for _ in range(7):
        start = time.perf_counter()
        trial = study.ask(space)
        taken.append(time.perf_counter() - start)
        study.tell(trial, bowl(trial.params))
    return 1e3 * float(np.median(taken[1:]))


def main() -> None:
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    print(f"{'n':>5}{'d':>4}{'RMESSampler':>14}{'GPSampler':>12}")
    with threadpool_limits(1):
        for n, d in SIZES:
            ours = milliseconds(n, d, RMESSampler(seed=0, n_startup_trials=0))
            theirs = milliseconds(n, d, optuna.samplers.GPSampler(seed=0, n_startup_trials=0))
            print(f"{n:>5}{d:>4}{ours:>14.0f}{theirs:>12.0f}", flush=True)


if __name__ == "__main__":
    main()
