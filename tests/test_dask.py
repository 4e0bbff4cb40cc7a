"""A real cluster of processes, one of which is killed while it works."""

import contextlib
import os
import signal
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import rmes

distributed = pytest.importorskip("distributed")

# Sockets of a killed worker may be found unclosed by the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SQUARE = [(0.0, 1.0), (0.0, 1.0)]
BUDGET = 24


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def objective(x, journal):
    """A noisy value that no other evaluation has, and a line in the journal for each one."""
    time.sleep(0.05)
    value = float(np.sum((x - 0.3) ** 2) + 0.1 * np.random.default_rng().standard_normal())
    with open(journal, "a") as lines:
        lines.write(" ".join(map(repr, [*x.tolist(), value])) + "\n")
    return value


def objective_with_a_victim(x, journal, victim):
    """After a third of the run, one evaluation notes its process and waits to be killed."""
    if Path(journal).exists() and len(Path(journal).read_text().splitlines()) >= BUDGET // 3:
        with contextlib.suppress(FileExistsError), open(victim, "x") as note:
            note.write(str(os.getpid()))
            note.flush()
            time.sleep(60)
    return objective(x, journal)


def test_a_killed_worker_costs_no_measurement_and_none_counts_twice(client, tmp_path):
    journal, victim = tmp_path / "journal", tmp_path / "victim"
    killed = []

    def callback(result):
        if not killed and victim.exists() and (pid := victim.read_text()):
            os.kill(int(pid), signal.SIGKILL)
            killed.append(int(pid))

    result = rmes.minimize(
        objective_with_a_victim,
        SQUARE,
        (str(journal), str(victim)),
        budget=BUDGET,
        rng=0,
        workers=client,
        callback=callback,
    )
    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert result.success
    assert result.nfev == BUDGET
    trials = result.optimizer.trials
    assert [trial["id"] for trial in trials] == list(range(BUDGET))
    assert [trial["state"] for trial in trials] == ["measured"] * BUDGET
    assert [len(trial["values"]) for trial in trials] == [1] * BUDGET
    made = [tuple(map(float, line.split())) for line in journal.read_text().splitlines()]
    told = zip(result.x_iters.tolist(), result.func_vals.tolist(), strict=True)
    assert Counter(made) == Counter((*x, value) for x, value in told)
    assert len(set(made)) == BUDGET


def test_equal_measurements_are_made_anew(client, tmp_path):
    # Dask computes equal calls once, and repeats of a noisy measurement are equal calls.
    x0 = [[0.5, 0.5]] * 4
    result = rmes.minimize(
        objective, SQUARE, (str(tmp_path / "journal"),), budget=4, rng=0, x0=x0, workers=client
    )
    assert len(set(result.func_vals)) == 4


def test_as_many_evaluations_are_in_flight_as_the_cluster_has_threads(client):
    client.wait_for_workers(2)
    pids = set()
    result = rmes.minimize(
        lambda x: time.sleep(0.1) or float(os.getpid()),
        SQUARE,
        budget=8,
        rng=0,
        workers=client,
        callback=lambda result: pids.update(result.func_vals.tolist()),
    )
    assert result.nfev == 8
    assert len(pids) == 2


def test_an_error_on_the_cluster_arrives_with_its_traceback(client):
    def broken(x):
        return 1 / 0

    with pytest.raises(RuntimeError, match="all 3 evaluations failed") as caught:
        rmes.minimize(broken, SQUARE, budget=3, workers=client)
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert "in broken" in "".join(traceback.format_exception(cause))  # Dask sends tracebacks
