"""Runs are paired, and a sweep loses nothing and repeats nothing."""

import json

import numpy as np
import pytest

from rmes.evidence import log_evidence
from rmes.fit import fit
from rmes.measurements import merge
from rmes.paper import experiments, runs
from rmes.paper.experiments import EXTRAS, METHODS, MODEL, Experiment, run
from rmes.paper.likelihood import BOX, likeliest
from rmes.paper.problems import problem
from rmes.settings import Settings
from rmes.suggest import suggest


def fake(experiment):
    if experiment.seed == 13:
        raise RuntimeError("unlucky")
    return {
        "data": problem(experiment.problem).name,
        "noise": experiment.noise,
        "method": experiment.method,
        "seed": experiment.seed,
        "iterations": experiment.iterations,
    }


WANTED = [Experiment("branin", 0.3, method, seed, 5) for seed in (0, 1) for method in ("ei", "ucb")]


@pytest.mark.parametrize("method", [*METHODS, *EXTRAS])
def test_every_method_runs_and_is_measured(method):
    record = run(Experiment("branin", 0.3, method, 0, 4))
    assert len(record["simple_regret"]) == len(record["inference_regret"]) == 5
    assert len(record["x"]) == len(record["y"]) == len(record["distance"]) == 6
    assert len(record["seconds"]) == len(record["fit_seconds"]) == 4
    assert np.all(np.diff(record["simple_regret"]) <= 0.0)
    assert json.loads(json.dumps(record)) == record
    assert record["settings"]["maxima"] == 5


def test_all_methods_start_from_the_same_measurements_and_differ_after():
    ours, theirs = (run(Experiment("gp", 0.3, method, 1, 3)) for method in ("rmes", "ucb"))
    assert ours["x"][:2] == theirs["x"][:2]
    assert ours["y"][:2] == theirs["y"][:2]
    assert ours["x"][2:] != theirs["x"][2:]


def test_a_run_repeats_itself():
    once, again = (run(Experiment("michalewicz", 0.01, "rmes", 2, 4)) for _ in range(2))
    for name in ("x", "y", "simple_regret", "inference_regret"):
        assert once[name] == again[name]


def test_seeds_differ():
    assert (
        run(Experiment("gp", 0.3, "ei", 0, 1))["x"] != run(Experiment("gp", 0.3, "ei", 1, 1))["x"]
    )


def test_others_are_compared_on_the_same_draws():
    record = run(Experiment("branin", 0.3, "rmes", 0, 4))
    (same,) = record["same_posterior"]
    assert set(same["chosen"]) == {"rmes", "mes", "noisy-mes", "noiseless-rmes", "rmes-adam"}
    assert max(one["share"] for one in same["chosen"].values()) == 1.0
    assert same["chosen"]["rmes"]["share"] > 0.9
    assert same["chosen"]["rmes-adam"]["share"] > 0.9


@pytest.mark.parametrize("name", ["branin", "eggholder"])
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_hyperparameters_are_as_likely_as_a_search_of_the_whole_box_makes_them(name, noise, rng):
    x = rng.random((40, 2))
    what = problem(name)
    data = merge(x, what.truth(x) - what.shift + noise * rng.standard_normal(40), noise**2)
    ours = likeliest(MODEL, data, None, 40)
    cold = np.clip(fit(MODEL, data, rng).best, *BOX.T)
    values = log_evidence(MODEL, data, np.stack([ours, cold]))
    assert values[0] >= values[1] - 0.01


def test_without_repeats_a_new_point_is_chosen(rng):
    """With them UCB measures a point again that is as good within 1 % of its value."""
    x = rng.random((12, 2))
    data = merge(x, problem("branin").truth(x), 0.01**2)
    nobody = np.empty((0, 2))
    for seed in range(10):
        settings = Settings("ucb", samples=0, repeats=False, model=MODEL)
        found = suggest(data, nobody, settings, np.random.default_rng(seed))
        assert found.repeats is None


def test_experiments_go_seed_by_seed():
    found = experiments.experiments(("branin", "michalewicz"), seeds=2)
    assert [one.seed for one in found] == [0] * 15 + [1] * 15
    assert len(experiments.experiments(("branin",))) == 2 * 5 * 15


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"method": "random"}, "method is 'random'"), ({"iterations": 0}, "iterations is 0")],
)
def test_bad_experiments_are_refused(changes, message):
    arguments = {"problem": "gp", "noise": 0.3, "method": "ei", "seed": 0, **changes}
    with pytest.raises(ValueError, match=message):
        Experiment(**arguments)


@pytest.fixture
def here(monkeypatch):
    """Runs in threads: processes take a second to start."""
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(runs, "ProcessPoolExecutor", lambda workers, _: ThreadPoolExecutor(workers))


def test_a_second_sweep_runs_nothing(tmp_path, here):
    path = tmp_path / "deep" / "results.jsonl"
    assert runs.sweep(WANTED, path, 2, fake) == 4
    before = path.read_bytes()
    assert runs.sweep(WANTED, path, 2, fake) == 0
    assert path.read_bytes() == before
    assert {runs.recorded_key(r) for r in runs.read(path)} == {runs.key(e) for e in WANTED}


def test_an_interrupted_sweep_goes_on(tmp_path, here):
    path = tmp_path / "results.jsonl"
    assert runs.sweep(WANTED[:3], path, 1, fake) == 3
    assert runs.sweep(WANTED, path, 1, fake) == 1


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_that_is_cut_off_is_run_again(tmp_path, here, cut):
    path = tmp_path / "results.jsonl"
    runs.sweep(WANTED, path, 1, fake)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert len(runs.read(path)) == 3
    assert runs.sweep(WANTED, path, 1, fake) == 1
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "results.jsonl"
    good = json.dumps(fake(WANTED[0])) + "\n"
    path.write_text(good + "{oh\n" + good)
    with pytest.raises(ValueError, match=r"line 2 of .* is damaged"):
        runs.read(path)


def test_a_run_that_fails_stops_no_other_and_is_reported(tmp_path, here):
    path = tmp_path / "results.jsonl"
    unlucky = Experiment("branin", 0.3, "ei", 13, 5)
    with pytest.raises(RuntimeError, match=r"1 of 5 runs failed: .*seed=13.*unlucky"):
        runs.sweep([unlucky, *WANTED], path, 1, fake)
    assert len(runs.read(path)) == 4


def test_workers_are_checked(tmp_path):
    with pytest.raises(ValueError, match="workers is 0; expected at least 1, or a Dask address"):
        runs.sweep(WANTED, tmp_path / "r.jsonl", 0, fake)


def test_a_dask_cluster_runs_the_sweep(tmp_path):
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    path = tmp_path / "results.jsonl"
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        assert runs.sweep(WANTED, path, cluster.scheduler_address, fake) == 4
    assert len(runs.read(path)) == 4
