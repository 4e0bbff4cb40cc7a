"""The parts of the benchmarks that decide what their numbers mean."""

import json
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

import ranking
import regret
import regret_page
from problems import CLASSIC, FRESH, OTHERS, TABLE, initial_points, noises_of, problem

MINIMISERS = {  # in the cube
    "branin": [(np.pi + 5) / 15, 2.275 / 15],
    "hartmann-3": [0.114614, 0.555649, 0.852547],
    "levy-4": [0.55] * 4,
    "rosenbrock-4": [0.4] * 4,
    "shekel-4": [0.4000747, 0.399951, 0.4000747, 0.399951],
    "ackley-5": [1 / 3] * 5,
    "hartmann-6": [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
    "goldstein-price-2": [0.5, 0.25],
    "six-hump-camel-2": [0.514974, 0.321836],
    "beale-2": [7.5 / 9, 5 / 9],
    "mccormick-2": [(1.5 - 0.5471976) / 5.5, (3 - 1.5471976) / 7],
    "eggholder-2": [1.0, (512 + 404.231805) / 1024],
    "rastrigin-2": [1 / 3] * 2,
    "griewank-3": [1 / 3] * 3,
    "michalewicz-3": [2.202906 / np.pi, 1.570796 / np.pi, 1.284992 / np.pi],
    "schwefel-3": [0.9209687463] * 3,
    "dixon-price-4": [(10 + 2.0 ** (2.0**-k - 1)) / 20 for k in range(4)],
    "styblinski-tang-5": [(5 - 2.903534) / 10] * 5,
    "zakharov-6": [1 / 3] * 6,
    "branin-4-idle": [(np.pi + 5) / 15, 2.275 / 15, 0.1, 0.4, 0.6, 0.9],
    "hartmann-3-5-idle": [0.114614, 0.555649, 0.852547, 0.1, 0.3, 0.5, 0.7, 0.9],
    "himmelblau-2": [0.8, 0.7],
    "bohachevsky-2": [80 / 180] * 2,
    "holder-table-2": [(10 + 8.055023) / 20, (10 + 9.664590) / 20],
    "drop-wave-2": [3 / 8] * 2,
    "colville-4": [0.55] * 4,
    "powell-4": [4 / 9] * 4,
    "alpine-4": [0.3] * 4,
    "hartmann-4": [0.187395, 0.194151, 0.557918, 0.264780],
    "salomon-5": [0.4] * 5,
    "friedman-5": [0.5, 1.0, 0.0, 1.0, 1.0],
    "trid-6": [(36 + z) / 72 for z in (6, 10, 12, 12, 10, 6)],
    "three-hump-camel-2": [0.4] * 2,
    "hosaki-2": [0.8, 1 / 3],
    "gramacy-lee-2": [(2 - np.sqrt(0.5)) / 8, 0.25],
    "langermann-2": [0.20029921, 0.10060959],
    "cross-in-tray-2": [(10 + 1.349407) / 20] * 2,
    "shubert-2": [0.74290284, 0.45998394],
    "different-powers-4": [0.35] * 4,
    "rotated-ellipsoid-5": [0.4] * 5,
    "otl-circuit-6": [0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    "borehole-8": [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0],
    "cosine-mixture-8": [0.4] * 8,
}


def row(tool, seed, answer, name="branin", noise=0.2, budget=40, **more):
    n = regret.checkpoints(budget)
    answers = answer if isinstance(answer, list) else [float(answer)] * len(n)
    return {
        "tool": tool,
        "problem": name,
        "noise": noise,
        "seed": seed,
        "budget": budget,
        "spread": 1.0,
        "n": n,
        "answer": answers,
        "believed": [None] * len(n),
        "sampled": answers,
        "referee": {str(budget): answers[-1]},
        "seconds": [0.1, 1.0],
        "cpu_seconds": [0.1, 1.0],
        "peak_mb": 1.0,
        "repeats": 0,
        "cpu_model": "one",
        "commit": "today",
        "date": "2026-01-01",
    } | more


@pytest.mark.parametrize("name", CLASSIC | OTHERS | FRESH)
def test_least_value_is_reached_at_the_known_place_and_not_undercut(name):
    given = problem(name)
    assert given.truth(np.array(MINIMISERS[name])) == pytest.approx(given.least, abs=1e-5)
    points = np.random.default_rng(1).random((500, given.dimensions))
    near = np.clip(MINIMISERS[name] + 1e-3 * (points - 0.5), 0.0, 1.0)
    assert min(given.truth(x) for x in [*points, *near]) > given.least - 1e-9


def test_noise_is_a_share_of_the_spread():
    given = problem("branin")
    rng = np.random.default_rng(0)
    x = np.array([0.5, 0.5])
    errors = [given.measure(x, 0.2, rng) - given.truth(x) for _ in range(2000)]
    assert np.std(errors) == pytest.approx(0.2 * given.spread, rel=0.05)
    assert given.measure(x, 0, rng) == given.truth(x)
    points = np.random.default_rng(1).random((4000, 2))
    assert np.std([given.truth(x) for x in points]) == pytest.approx(given.spread, rel=0.05)


def test_only_tables_have_the_noise_of_tables():
    assert noises_of("branin", (0, 0.2, TABLE)) == [0, 0.2]
    assert noises_of("hpo-vehicle", (0, 0.2, TABLE)) == [TABLE]
    with pytest.raises(ValueError, match="no noise of its own"):
        problem("branin").measure(np.zeros(2), TABLE, np.random.default_rng(0))


def test_unknown_problems_are_refused_by_name():
    with pytest.raises(ValueError, match="'branina'; expected one of branin"):
        problem("branina")


def test_first_points_depend_on_the_seed_alone():
    one, again, other = (initial_points(10, 3, seed) for seed in (0, 0, 1))
    assert one.shape == (10, 3)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_all_tools_start_from_the_same_measurements_and_meet_the_same_noise():
    runs = [regret.run(regret.Task(tool, "branin", 0.2, 3, 12)) for tool in ("rmes", "random")]
    (_, X, y), (_, other_X, other_y) = runs
    assert np.array_equal(X[:10], other_X[:10])
    assert np.array_equal(y[:10], other_y[:10])
    truth = problem("branin").truth
    errors = [[v - truth(x) for x, v in zip(X, y, strict=True)] for _, X, y in runs]
    assert errors[0] == pytest.approx(errors[1], abs=1e-9)


def test_a_run_can_be_made_again():
    task = regret.Task("rmes", "branin", 0.5, 0, 15)
    (one, X, _), (again, other_X, _) = regret.run(task), regret.run(task)
    assert np.array_equal(X, other_X)
    assert one["answer"] == again["answer"]
    assert one["n"] == [10, 15]


def test_checkpoints_end_at_the_budget():
    assert regret.checkpoints(40) == [10, 15, 20, 25, 30, 35, 40]
    assert regret.checkpoints(160)[-1] == 160
    assert set(regret.checkpoints(40)) <= set(regret.checkpoints(160))
    assert regret.checkpoints(12) == [10, 12]


# Ranks.


def test_ties_share_their_rank_and_failures_come_last():
    ranks = ranking.ranks(np.array([[1.0, 1.0, 2.0, np.inf]]))
    assert ranks.tolist() == [[1.5, 1.5, 3.0, 4.0]]


def test_only_blocks_that_every_tool_ran_are_ranked():
    rows = [row("a", 0, 1.0), row("b", 0, 2.0), row("a", 1, 1.0)]
    cells = ranking.blocks(rows, ["a", "b"], lambda r: ranking.at(r, "answer", 40))
    assert {cell: scores.tolist() for cell, scores in cells.items()} == {
        ("branin", 0.2): [[1.0, 2.0]]
    }


def test_cells_count_alike_whatever_their_number_of_seeds():
    cells = [np.array([[1.0, 2.0]] * 9), np.array([[2.0, 1.0]] * 3)]
    mean, low, high = ranking.bootstrap(cells)
    assert mean.tolist() == low.tolist() == high.tolist() == [1.5, 1.5]


def test_too_few_seeds_make_the_interval_wider_not_narrower():
    two = ranking.bootstrap([np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])])
    assert two[1][0] < two[0][0] < two[2][0]
    mean, low, high = ranking.bootstrap([np.array([[1.0]])])
    assert mean.tolist() == [1.0]
    assert np.isnan([low, high]).all()


def test_interval_is_that_of_the_mean_over_seeds():
    values = np.random.default_rng(0).normal(size=(400, 1))
    mean, low, high = ranking.bootstrap([values])
    assert high[0] - low[0] == pytest.approx(2 * 1.645 * values.std() / 20, rel=0.1)
    assert low[0] < mean[0] < high[0]


def test_a_lead_counts_problems_and_not_their_seeds():
    won, lost = np.array([[1.0, 2.0]] * 5), np.array([[2.0, 1.0]] * 5)
    scores = {(f"p{i}", noise): won for i in range(3) for noise in (0.05, 0.2)}
    assert ranking.lead(scores, 0, 1) == (-1.0, -1.0, -1.0)
    mean, low, high = ranking.lead(scores | {("q", 0.2): lost}, 0, 1)
    assert mean == -0.5  # three problems won, one lost, whatever their noises and seeds
    assert low == -1.0 < mean < 0.0 <= high  # it may be lost where problems are drawn


def test_ratios_are_paired():
    theirs = np.array([1e-3, 1.0, 1e3])  # as many as an interval needs
    assert ranking.ratio(2 * theirs, theirs) == pytest.approx((2.0, 2.0, 2.0))
    assert all(np.isnan(ranking.ratio(np.array([np.inf]), np.array([1.0]))))


def test_regret_is_in_units_of_the_spread_with_a_floor():
    assert ranking.at(row("a", 0, 3.0, spread=2.0), "answer", 40) == 1.5
    assert ranking.at(row("a", 0, 0.0), "answer", 40) == ranking.FLOOR
    assert ranking.at(row("a", 0, 3.0), "answer", 160) is None
    assert ranking.at({"budget": 40, "error": "no"}, "answer", 40) == np.inf


def test_without_a_posterior_mean_the_documented_answer_stands_in():
    assert ranking.at(row("a", 0, 3.0), "believed", 40) == 3.0
    assert ranking.at(row("a", 0, 3.0, believed=[1.0] * 7), "believed", 40) == 1.0


def test_area_is_the_mean_of_the_logarithm():
    assert ranking.area(row("a", 0, 0.01), 40) == pytest.approx(-2.0)
    falling = row("a", 0, [1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert ranking.area(falling, 40) == pytest.approx(-(0.5 * 5 + 25) / 30)


def test_the_longest_run_counts_and_the_newest_of_equals():
    rows = [row("a", 0, 1.0, budget=160), row("a", 0, 2.0), row("b", 0, 1.0), row("b", 0, 3.0)]
    assert [r["answer"][0] for r in ranking.longest(rows)] == [1.0, 3.0]


def test_tables_say_where_we_lose():
    rows = [row("rmes", seed, 2.0) for seed in range(3)]
    rows += [row("random", seed, 1.0) for seed in range(3)]
    rows += [row("optuna-tpe", seed, 4.0) for seed in range(2)]
    rows.append({k: v for k, v in row("optuna-tpe", 2, 0).items() if k != "n"} | {"error": "no"})
    text = regret_page.tables(rows)
    losses = text.split("### Where we lose: documented answers")[1].split("###")[0]
    assert "worse than the best peer of the cell in 1, in 1 of them beyond the interval" in losses
    assert "2.00 (2.00 to 2.00)" in losses
    assert "| random" in losses
    ranked = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert ranked[2:5] == ["random", "rmes", "optuna-tpe"]  # after the head and its rule


def test_functions_added_later_are_ranked_apart():
    rows = [row(tool, seed, 1.0) for tool in ("rmes", "random") for seed in range(3)]
    for seed in range(3):
        rows.append(row("rmes", seed, 2.0, "beale-2"))
        rows.append(row("random", seed, 1.0, "beale-2"))
    usual, others = regret_page.tables(rows).split("## Functions added later, 40 measurements")
    assert "beale-2" not in usual
    assert "branin" not in others.split("## Time")[0]
    assert "| rmes   | 1.50" in usual
    assert "| rmes   | 2.00" in others


def test_times_are_compared_in_pairs_of_one_commit_on_one_kind_of_processor():
    rows = [row("rmes", seed, 1.0) for seed in range(3)]
    rows += [row("optuna-gp", seed, 1.0, cpu_seconds=[0.1 * (2 + seed), 9.0]) for seed in range(3)]
    rows.append(row("optuna-tpe", 0, 1.0, cpu_model="another"))
    rows.append(row("bayes-opt", 0, 1.0, commit="yesterday"))
    head, _, *lines = regret_page.time_table(rows).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *lines)]
    assert cells == [
        ["measurements", "d", "rmes, ms", "optuna-gp"],
        ["40", "2", "100.0", "×3.0 (3)"],
    ]


# Resuming.


def test_a_line_cut_short_is_removed_and_the_rest_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert regret.read_rows(path) == []
    whole = json.dumps({"a": 1}) + "\n"
    path.write_text(whole + '{"a": 2, "b')
    assert regret.read_rows(path) == [{"a": 1}]
    assert path.read_text() == whole


def test_a_longer_run_answers_a_shorter_task():
    tasks = regret.plan(["a"], ["branin"], [0.2], 2, 40)
    assert regret.missing(tasks, [row("a", 0, 1.0, budget=160)]) == tasks[1:]
    longer = regret.plan(["a"], ["branin"], [0.2], 1, 160)
    assert regret.missing(longer, [row("a", 0, 1.0)]) == longer


def test_an_interrupted_plan_goes_on_where_it_stopped(tmp_path):
    tasks = regret.plan(["random"], ["branin"], [0.2], 2, 12)
    lines = [json.dumps(asdict(task) | regret.run(task)[0]) for task in tasks]
    path = tmp_path / "rows.jsonl"
    path.write_text(lines[0] + "\n" + lines[1][:-20])
    given = ["--tools", "random", "--problems", "branin", "--noises", "0.2", "--budget", "12"]
    command = [sys.executable, regret.__file__, *given, "--seeds", "2", "--processes", "1"]
    command += ["--rows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 runs, 1 of them on file" in done.stderr
    first, second = regret.read_rows(path)
    assert first == json.loads(lines[0])
    assert second["answer"] == json.loads(lines[1])["answer"]
    assert second["peak_mb"] > 1
    assert second["versions"]["numpy"] == np.__version__


def test_a_run_beyond_its_time_is_a_failure_and_the_next_one_is_made():
    task = regret.Task("random", "branin", 0.2, 0, 12)
    server = regret.Server("random", limit=0.0)
    try:
        assert [server.run(task)["error"] for _ in range(2)] == ["not finished after 0 seconds"] * 2
    finally:
        server.close()
