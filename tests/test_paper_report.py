"""Verdicts and figures come from the file of results, and from nothing else."""

import json
import re

import numpy as np
import pytest

from rmes.paper import claims, extras, figures, instances, reproduce, runs
from rmes.paper.__main__ import main
from rmes.paper.problems import GP_LENGTH_SCALE, problem
from rmes.paper.results import Results, bootstrap, log_ratio
from rmes.paper.verdicts import FAILS, HOLDS, UNKNOWN

FIVE = ("ei", "ucb", "pes", "mes", "rmes")
FOUR = ("mes", "noisy-mes", "noiseless-rmes", "rmes")
CELLS = [
    *((name, noise) for name in ("branin", "eggholder", "gp") for noise in (0.01, 0.3)),
    ("michalewicz", 0.01),
    ("ph-simulated", 0.25),
    ("svm", 0.02),
]


def record(data, noise, method, seed, regret, entries=21):
    """A made-up run that ends at about the given regret."""
    rng = np.random.default_rng([seed, len(method)])
    level = regret * np.exp(0.1 * rng.standard_normal())
    curve = [float(v) for v in np.geomspace(1.0, level, entries)]
    chosen = {
        name: {"x": [0.5, 0.5], "mean": 0.0, "sd": 0.1, "seconds": 0.1, "share": 1.0}
        for name in ("rmes", "mes", "noisy-mes", "noiseless-rmes", "rmes-adam")
    }
    chosen["mes"] |= {"sd": 0.2, "mean": -0.1} if noise < 0.1 else {"sd": 0.05, "mean": 0.1}
    values = {
        "rmes": 0.1,
        "mes": 0.2,
        "mes_below_rmes": 0.0,
        "noisy_mes_below_rmes": 0.0,
        "mes_below_noiseless_rmes": 0.0,
        "maximum_below_mean": 0.0,
    }
    return {
        "problem": data.split("-")[0],
        "data": data,
        "noise": noise,
        "method": method,
        "seed": seed,
        "iterations": entries - 1,
        "version": "0",
        "simple_regret": curve,
        "inference_regret": curve,
        "distance": [level] * (entries + 1),
        "seconds": [0.01] * (entries - 1),
        "fit_seconds": [0.01] * (entries - 1),
        "same_posterior": [{"iteration": 3, "chosen": chosen, "values": values}],
    }


def made_up(regrets, cells=CELLS, seeds=8, methods=FIVE):
    return [
        record(data, noise, method, seed, regrets.get(method, 0.1))
        for data, noise in cells
        for method in methods
        for seed in range(seeds)
    ]


def verdicts(records):
    return {claim.letter: claim.verdict for claim in claims.judge(Results.of(records))}


def test_a_claim_follows_the_runs():
    better, worse = {"rmes": 0.01, "mes": 0.1}, {"rmes": 0.1, "mes": 0.01}
    assert verdicts(made_up(better))["A"] == HOLDS
    assert verdicts(made_up(worse))["A"] == FAILS
    assert verdicts(made_up({}))["A"] == UNKNOWN
    assert verdicts(made_up(better, seeds=3))["A"] == UNKNOWN
    assert set(verdicts([]).values()) == {UNKNOWN}


def test_one_part_that_fails_makes_the_claim_fail():
    records = made_up({"rmes": 0.01, "mes": 0.1})
    records = [r for r in records if (r["data"], r["noise"]) != ("gp", 0.3)]
    records += made_up({"rmes": 0.1, "mes": 0.01}, [("gp", 0.3)])
    claim = claims.judge(Results.of(records))[0]
    assert claim.verdict == FAILS
    assert (claim.count(HOLDS), claim.count(FAILS)) == (12, 2)


def test_what_mes_chooses_and_says_is_judged():
    records = made_up({})
    assert verdicts(records)["G"] == HOLDS
    assert verdicts(records)["H"] == HOLDS
    for r in records:
        state = r["same_posterior"][0]
        state["chosen"]["mes"], state["chosen"]["rmes"] = (
            state["chosen"]["rmes"],
            state["chosen"]["mes"],
        )
        state["values"]["mes_below_rmes"] = 0.05
    assert verdicts(records)["G"] == FAILS
    assert verdicts(records)["H"] == FAILS


def test_eggholder_needs_another_method_ahead_at_the_larger_noise():
    best = {"rmes": 0.001}
    assert verdicts(made_up(best))["C"] == FAILS
    records = [r for r in made_up(best) if (r["data"], r["noise"]) != ("eggholder", 0.3)]
    ahead = made_up({"rmes": 0.01}, [("eggholder", 0.3)])
    for r in ahead:
        if r["method"] == "ei":
            r["simple_regret"] = [1e-4] * 21
    assert verdicts(records + ahead)["C"] == HOLDS


def test_changing_the_file_changes_the_verdict(tmp_path):
    path = tmp_path / "results.jsonl"
    for regret, verdict in ((0.01, HOLDS), (0.9, FAILS)):
        lines = [json.dumps(r) + "\n" for r in made_up({"rmes": regret})]
        path.write_text("".join(lines))
        assert verdicts(runs.read(path))["A"] == verdict


def test_a_part_that_fails_by_chance_does_not_make_the_claim_fail():
    """No method is better: the parts that fail are the one in twenty that chance makes."""
    records = made_up({})
    for r in records:
        rng = np.random.default_rng([r["seed"], len(r["method"]), len(r["data"]), 7])
        level = float(0.1 * np.exp(rng.standard_normal()))
        r["simple_regret"] = r["inference_regret"] = [level] * 21
    assert FAILS not in {verdicts(records)[letter] for letter in "ADE"}


def test_intervals_are_paired():
    """Seeds differ a hundredfold, the methods by a tenth: unpaired, nothing could be told."""
    a = np.geomspace(0.01, 1.0, 12)
    interval = log_ratio(0.9 * a, a)
    assert interval.value == pytest.approx(np.log10(0.9))
    assert interval.high < -0.04


@pytest.mark.parametrize("count", [8, 15])
def test_bootstrap_intervals_hold_the_truth_as_often_as_they_say(count):
    """Of 300 means of few normals: 95 % within 3 standard errors of 300 trials, 0.038."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        values = rng.standard_normal(count)
        interval = bootstrap(lambda rows, v=values: v[rows].mean(axis=1), count)
        held += interval.low < 0.0 < interval.high
    assert 0.912 < held / 300 < 0.988


def test_the_two_corrections_add_up():
    regrets = {"mes": 0.1, "noisy-mes": 0.01, "noiseless-rmes": 0.1, "rmes": 0.01}
    (one,) = extras.ablation(
        Results.of(made_up(regrets, [("branin", 0.3)], methods=FOUR)), "simple_regret"
    )
    assert one.total.value == pytest.approx(1.0, abs=0.15)
    assert one.by_noise.value == pytest.approx(1.0, abs=0.15)
    assert one.by_entropy.value == pytest.approx(0.0, abs=0.15)
    assert one.by_noise.value + one.by_entropy.value == pytest.approx(one.total.value)


def test_adam_is_compared_on_points_information_and_time():
    records = made_up({}, [("branin", 0.3)])
    for r in records:
        r["same_posterior"][0]["chosen"]["rmes-adam"] |= {"x": [0.5, 0.8], "share": 0.5}
    found = extras.adam(Results.of(records))
    assert found.apart == pytest.approx(0.3)
    assert found.share.value == pytest.approx(0.5)
    assert found.slower == pytest.approx(10.0)
    assert (found.alike, found.worse) == (0.0, 1.0)


def test_runs_that_learnt_other_length_scales_tell_how_likely_those_are(rng):
    truth = [float(np.log(GP_LENGTH_SCALE))] * 2 + [0.0]
    records = made_up({}, cells=(("gp", 0.3),), seeds=4, methods=("rmes",))
    for record, off in zip(records, (0.0, 0.3, 1.0, 3.0), strict=True):
        x = rng.random((30, 2))
        measured = {"x": x.tolist(), "y": problem("gp").truth(x).tolist()}
        record |= measured | {"theta": [truth[0] - off, truth[1], 0.0]}
    (found,) = extras.learned(Results.of(records), GP_LENGTH_SCALE)
    assert (len(found.near), len(found.far)) == (2, 2)
    assert np.all(np.diff(found.likelier) < 0.0)  # the further away, the less likely
    assert np.all(found.likelier < 0.0)
    records[3]["theta"] = [5.0, 5.0, 0.0]
    (worse,) = extras.learned(Results.of(records), GP_LENGTH_SCALE)
    assert worse.likelier[0] == found.likelier[0]
    assert worse.likelier[1] < found.likelier[1]


def test_runs_of_another_length_are_left_out():
    records = [*made_up({}, seeds=2), record("gp", 0.3, "ei", 7, 0.1, entries=5)]
    assert Results.of(records).seeds("gp", 0.3, ["ei"]) == [0, 1]


def test_instances_of_figures_3_and_4_are_what_they_say(monkeypatch):
    monkeypatch.setattr(instances, "SEEDS", 25)
    instances.over_explores.cache_clear()
    instances.over_exploits.cache_clear()
    try:
        for found, sign in ((instances.over_explores(), 1), (instances.over_exploits(), -1)):
            theirs, ours = found.instance.choices
            sd, mean = found.instance.sd, found.instance.mean
            assert sign * (sd[theirs] - sd[ours]) > 0.0
            assert sign * (mean[theirs] - mean[ours]) < 0.0
            assert found.share > 0.0
    finally:
        instances.over_explores.cache_clear()
        instances.over_exploits.cache_clear()


def test_a_method_has_one_colour_and_no_two_share_it():
    from rmes.paper.experiments import EXTRAS, METHODS

    assert set(figures.COLOURS) == {*METHODS, *EXTRAS}
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)


@pytest.mark.slow
def test_quick_reproduction_reports_and_runs_nothing_twice(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="the figures need the plot extra")
    monkeypatch.delenv("RMES_BROOMSBARN", raising=False)
    monkeypatch.setattr(reproduce, "sweep", _sweep_of_made_up_runs)
    monkeypatch.setattr(instances, "SEEDS", 25)
    problem.cache_clear()
    arguments = ["--quick", "--results", str(tmp_path / "r.jsonl")]
    arguments += ["--report", str(tmp_path / "report")]
    assert main(arguments) == 0
    assert "100 runs made" in capsys.readouterr().out
    made = {path.name for path in (tmp_path / "report").iterdir()}
    for number in range(1, 16):
        assert {f"figure-{number:02d}.svg", f"figure-{number:02d}.png"} <= made
    for number in (6, 8, 9, 10, 12, 14):
        assert f"figure-{number:02d}-median.png" in made
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64") == 21
    assert "simulated" in page
    assert 'src="http' not in page
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| A |" in text
    for link in re.findall(r"\]\((.*?)\)", text):
        assert (tmp_path / link).is_file()
    assert main(arguments[:-2]) == 0
    assert "0 runs made" in capsys.readouterr().out


def _sweep_of_made_up_runs(wanted, path, workers):
    def perform(one):
        return record(*runs.key(one)[:4], 0.1, one.iterations + 1)

    done = {runs.recorded_key(r) for r in runs.read(path)}
    missing = [one for one in wanted if runs.key(one) not in done]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(perform(one)) + "\n" for one in missing)
    return len(missing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rosenbrock"], "experiment is 'rosenbrock'; expected one of gp, branin"),
        (["gp", "--methods", "luck"], "method is 'luck'; expected one of ei"),
        (["gp", "--seeds", "0"], "seeds is 0; expected at least 1"),
        (["gp", "--iterations", "0"], "iterations is 0; expected at least 1"),
    ],
)
def test_bad_arguments_are_named_before_anything_runs(tmp_path, capsys, arguments, message):
    path = tmp_path / "r.jsonl"
    assert main([*arguments, "--results", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert not path.exists()


def test_the_list_names_everything(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for word in ("gp", "branin", "michalewicz-10", "svm", "rmes-adam", "σ = 0.01, 0.3"):
        assert word in out
