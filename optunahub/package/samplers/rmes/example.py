"""Tune two parameters of a noisy objective, and ask for the point to use."""

import numpy as np
import optuna
import optunahub

module = optunahub.load_module("samplers/rmes")
noise = np.random.default_rng(0)


def objective(trial: optuna.Trial) -> float:
    """A bowl whose values are noisy: the best one measured is mostly luck."""
    x = trial.suggest_float("x", -5.0, 5.0)
    y = trial.suggest_float("y", -5.0, 5.0)
    trial.set_user_attr("noise_sd", 2.0)  # where it is known; otherwise it is inferred
    return float((x - 1) ** 2 + (y + 2) ** 2 + noise.normal(0.0, 2.0))


if __name__ == "__main__":
    study = optuna.create_study(sampler=module.RMESSampler(seed=0))
    study.optimize(objective, n_trials=30)
    print("Luckiest trial:", study.best_params, study.best_value)
    print(module.recommend(study))
    print(module.outlook(study))
