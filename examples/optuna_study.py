"""A study in Optuna: the sampler, and the answer that `study.best_params` is not.

The win rate of a game engine is measured by matches. Its standard error is known, and given with
each trial. A second study is made by Optuna's own sampler: the answer of the model can be had for
any study, whoever made it.

Run: python examples/optuna_study.py [trials]   (needs pip install "rmes[optuna]")
"""

import sys

import numpy as np
import optuna

from rmes.optuna import NOISE_SD, RMESSampler, outlook, recommend

MATCHES = 100


def win_rate(params):
    """The truth, which nobody sees: at best 0.58, at depth 9 and aggression 0.35."""
    return 0.58 - 0.006 * (params["depth"] - 9) ** 2 - 0.5 * (params["aggression"] - 0.35) ** 2


def main(trials=40):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for sampler in (RMESSampler(seed=0), optuna.samplers.TPESampler(seed=0)):
        rng = np.random.default_rng(0)

        def objective(trial, rng=rng):
            params = {
                "depth": trial.suggest_int("depth", 3, 15),
                "aggression": trial.suggest_float("aggression", 0.0, 1.0),
            }
            rate = rng.binomial(MATCHES, win_rate(params)) / MATCHES
            error = np.sqrt(max(rate * (1 - rate), 0.01) / MATCHES)
            trial.set_user_attr(NOISE_SD, float(error))
            return rate

        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=trials)
        answer = recommend(study)
        print(f"{type(sampler).__name__}, {trials} trials of {MATCHES} matches")
        print(f"  best_params   promise {study.best_value:.3f}, "
              f"win {win_rate(study.best_params):.3f} in truth")  # fmt: skip
        print(f"  recommend     expects {answer.mean:.3f} ± {answer.sd:.3f}, "
              f"wins {win_rate(answer.params):.3f} in truth")  # fmt: skip
        print(f"  {answer}\n  {outlook(study)}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
