"""Studies of Optuna that several processes share, or that outlive one."""

import itertools
import os
import signal
import subprocess
import sys
import time

import optuna
import pytest
from optuna.trial import TrialState

import optuna_worker
import postgresql
from rmes.optuna import RMESSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def start(url, complete, *options, **variables):
    return subprocess.Popen(
        [sys.executable, "-W", "error", optuna_worker.__file__, url, str(complete), *options],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | variables,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, code=0):
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    return said


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name=optuna_worker.STUDY, storage=url)
    return url


def load(url):
    return optuna.load_study(study_name=optuna_worker.STUDY, storage=url)


def complete(study):
    return [(t.params, t.value) for t in study.get_trials(states=(TrialState.COMPLETE,))]


def at_the_same_time(study):
    """Pairs of points that were measured without the result of the other being known."""
    trials = study.get_trials(states=(TrialState.COMPLETE, TrialState.FAIL))
    for one, other in itertools.combinations(trials, 2):
        start = max(one.datetime_start, other.datetime_start)
        if start < min(one.datetime_complete, other.datetime_complete):
            yield one.params, other.params


@pytest.fixture(scope="module")
def uninterrupted():
    """Ten trials in this process."""
    study = optuna.create_study(sampler=optuna_worker.sampler())
    study.optimize(optuna_worker.objective, n_trials=10)
    return complete(study)


def test_the_same_seed_gives_the_same_study_and_another_gives_another(uninterrupted):
    again = optuna.create_study(sampler=optuna_worker.sampler())
    again.optimize(optuna_worker.objective, n_trials=10)
    assert complete(again) == uninterrupted
    other = optuna.create_study(sampler=RMESSampler(seed=8, n_startup_trials=4))
    other.optimize(optuna_worker.objective, n_trials=6)
    # both may measure a corner of the space
    assert sum(trial in uninterrupted for trial in complete(other)) <= 1


def test_each_trial_may_be_made_by_another_sampler(uninterrupted):
    study = optuna.create_study()
    for _ in range(10):
        study.sampler = optuna_worker.sampler()
        study.optimize(optuna_worker.objective, n_trials=1)
    assert complete(study) == uninterrupted


def test_processes_with_other_hash_seeds_give_the_same_study(url, uninterrupted):
    finish(start(url, 6, PYTHONHASHSEED="1"))
    finish(start(url, 10, PYTHONHASHSEED="2"))
    assert complete(load(url)) == uninterrupted


@pytest.mark.parametrize(("number", "stage"), [(0, "start"), (7, "half")])
def test_a_study_resumed_after_sigkill_is_the_uninterrupted_one(url, uninterrupted, number, stage):
    finish(start(url, 10, "--die-at", str(number), stage), -signal.SIGKILL)
    assert len(complete(load(url))) == number
    finish(start(url, 10, "--retry-running"))
    assert complete(load(url)) == uninterrupted


def test_a_heartbeat_makes_the_same_of_it_without_a_word(url, uninterrupted):
    finish(start(url, 10, "--grace", "2", "--die-at", "6", "end"), -signal.SIGKILL)
    time.sleep(3.0)  # until the trial counts as stale
    finish(start(url, 10, "--grace", "2"))
    assert complete(load(url)) == uninterrupted


def test_threads_share_a_study_and_measure_no_point_twice_at_once():
    study = optuna.create_study(sampler=optuna_worker.sampler())
    study.optimize(lambda t: optuna_worker.objective(t, seconds=0.05), n_trials=14, n_jobs=2)
    assert len(complete(study)) == 14
    pairs = list(at_the_same_time(study))
    assert len(pairs) > 3
    assert all(one != other for one, other in pairs)


def test_two_processes_share_a_file_and_measure_no_point_twice_at_once(url):
    workers = [start(url, 16, "--seconds", "0.1") for _ in range(2)]
    for worker in workers:
        finish(worker)
    study = load(url)
    assert len(complete(study)) >= 16
    assert not study.get_trials(states=(TrialState.FAIL,))
    pairs = list(at_the_same_time(study))
    assert len(pairs) > 3
    assert all(one != other for one, other in pairs)


@pytest.fixture(scope="module")
def postgresql_url():
    with postgresql.server() as url:
        yield url


def test_four_processes_on_postgresql_outlive_one_that_is_killed(postgresql_url):
    storage = optuna.storages.RDBStorage(postgresql_url)
    study = optuna.create_study(study_name=optuna_worker.STUDY, storage=storage)
    options = ("--grace", "4", "--seconds", "0.4")
    workers = [start(postgresql_url, 24, *options) for _ in range(4)]
    deadline = time.monotonic() + 60
    while len(complete(study)) < 8 and time.monotonic() < deadline:
        time.sleep(0.2)
    workers[0].kill()
    for worker in workers[1:]:
        assert finish(worker) == ""
    assert workers[0].wait() == -signal.SIGKILL
    workers[0].communicate()

    assert len(complete(study)) >= 24
    failed = study.get_trials(states=(TrialState.FAIL,))
    assert len(failed) <= 1  # the one that was killed, if it was in the middle of a trial
    again = [t for t in study.trials if t.system_attrs.get("retry_history")]
    assert [t.system_attrs["retry_history"] for t in again] == [[t.number] for t in failed]
    assert {t.state for t in again} <= {TrialState.COMPLETE, TrialState.WAITING}
    pairs = list(at_the_same_time(study))
    assert len(pairs) > 24
    assert all(one != other for one, other in pairs)
    optuna_worker.close(storage)
