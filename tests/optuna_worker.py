"""A process that works on a study of Optuna, for tests that need several of them or kill them."""

import argparse
import math
import os
import signal
import time
import warnings

import numpy as np
import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState

from rmes.optuna import RMESSampler, retry_running

STUDY = "study"


def sampler():
    return RMESSampler(seed=7, n_startup_trials=4, warn_independent_sampling=False)


def objective(trial, stage=lambda _: None, seconds=0.0):
    """Branin with noise that is a function of the point, so that a run can be repeated."""
    stage("start")
    x = trial.suggest_float("x", -5.0, 10.0)
    stage("half")
    y = trial.suggest_float("y", 0.0, 15.0)
    stage("end")
    time.sleep(seconds)
    value = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    value += 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    return value + 5 * np.random.default_rng(abs(hash((x, y)))).normal()


def storage(url, grace):
    """With a grace period, trials of processes that fell silent are queued again."""
    if grace is None:
        return RDBStorage(url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return RDBStorage(
            url,
            heartbeat_interval=1,
            grace_period=grace,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )


def close(storage):
    """Give back the connections: losing them is a warning."""
    storage.remove_session()
    storage.engine.dispose()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("complete", type=int)
    parser.add_argument("--grace", type=int)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--retry-running", action="store_true")
    parser.add_argument("--die-at", nargs=2, metavar=("NUMBER", "STAGE"))
    given = parser.parse_args()
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of heartbeats
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kept = storage(given.url, given.grace)
    study = optuna.load_study(study_name=STUDY, storage=kept, sampler=sampler())
    if given.retry_running:
        retry_running(study)

    def work(trial):
        def stage(name):
            if given.die_at == [str(trial.number), name]:
                os.kill(os.getpid(), signal.SIGKILL)

        return objective(trial, stage, given.seconds)

    enough = optuna.study.MaxTrialsCallback(given.complete, states=(TrialState.COMPLETE,))
    study.optimize(work, callbacks=[enough])
    close(kept)


if __name__ == "__main__":
    main()
