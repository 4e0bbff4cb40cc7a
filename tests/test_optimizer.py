import json
import math
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmes
from rmes import gp
from rmes.measurements import merge
from rmes.settings import Settings
from rmes.space import Space

SQUARE = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
LINE = {"x": (0.0, 1.0)}
QUICK = Settings(samples=2, maxima=3, candidates=64, climbs=2)


def bowl(params):
    return (params["a"] - 0.3) ** 2 + 2.0 * (params["b"] - 0.6) ** 2


def steps(opt, f, count):
    """Ask and tell `count` times; the points visited."""
    visited = []
    for _ in range(count):
        trial = opt.ask()
        opt.tell(trial, f(trial.params))
        visited.append(trial.params)
    return visited


def noisy(f, sd, seed=0):
    rng = np.random.default_rng(seed)
    return lambda params: f(params) + sd * rng.standard_normal()


def apart(some, others):
    """The largest difference of any parameter between two lists of points."""
    return max(abs(p[k] - q[k]) for p, q in zip(some, others, strict=True) for k in p)


# ------------------------------------------------------------------ invariance


def test_minimising_f_and_maximising_its_negative_visit_the_same_points():
    f = noisy(bowl, 0.1)
    down = rmes.Optimizer(SQUARE, "minimize", seed=1)
    up = rmes.Optimizer(SQUARE, "maximize", seed=1)
    for _ in range(14):
        one, other = down.ask(), up.ask()
        assert one == other  # bit for bit, and for the same reason
        value = f(one.params)
        down.tell(one, value)
        up.tell(other, -value)
    assert down.recommend().params == up.recommend().params
    assert down.recommend().mean == -up.recommend().mean
    assert down.outlook().expected_gap == up.outlook().expected_gap


def valley(params):
    """Steep on both sides: its values are pressed together."""
    return 100.0 * (4.0 * params["b"] - (3.0 * params["a"] - 1.0) ** 2) ** 2 + params["a"]


def test_pressed_values_are_the_same_run_for_any_sign_scale_and_shift():
    down = rmes.Optimizer(SQUARE, "minimize", seed=1)
    up = rmes.Optimizer(SQUARE, "maximize", seed=1)
    scaled = rmes.Optimizer(SQUARE, "minimize", seed=1)
    for _ in range(24):
        one, other, third = down.ask(), up.ask(), scaled.ask()
        assert one == other
        assert apart([one.params], [third.params]) < 1e-4
        down.tell(one, valley(one.params))
        up.tell(other, -valley(other.params))
        scaled.tell(third, 1e6 * valley(third.params) - 1e5)
    assert down.learned.pressed
    assert up.learned.pressed
    assert down.recommend().mean == -up.recommend().mean
    assert scaled.recommend().mean / 1e6 + 0.1 == pytest.approx(down.recommend().mean, abs=1e-2)


def test_pressed_values_are_said_in_the_users_units():
    opt = rmes.Optimizer(SQUARE, seed=1)
    steps(opt, valley, 30)
    assert opt.learned.pressed
    places = [{"a": a, "b": b} for a in (0.1, 0.4, 0.9) for b in (0.1, 0.5, 0.9)]
    truth = np.array([valley(place) for place in places])
    mean, sd = opt.predict(places)
    # In one run of seven a far corner is missed; in wrong units all of them would be.
    assert np.sum(np.abs(mean - truth) < 4.0 * sd + 0.02 * np.ptp(truth)) >= 8
    here = valley(opt.recommend().params)
    assert opt.recommend().mean == pytest.approx(here, abs=2e-3 * np.ptp(truth))
    saved = opt.to_json()
    resumed = rmes.Optimizer.from_json(saved)
    assert resumed.learned.pressed
    assert str(resumed.recommend()) == str(opt.recommend())
    assert steps(resumed, valley, 6) == steps(opt, valley, 6)
    assert resumed.to_json() == opt.to_json()


def test_a_noise_that_is_known_counts_in_full_where_values_are_good():
    """Pressed or not, a new measurement near the optimum has the noise that was told."""
    opt = rmes.Optimizer(SQUARE, noise_sd=0.5, seed=1)
    steps(opt, noisy(valley, 0.5), 24)
    assert opt.learned.pressed
    known = opt._learn()
    assert np.sqrt(known.data.level) * known.units.unit == pytest.approx(0.5)
    best = np.argmax(known.data.y)
    assert np.sqrt(known.data.known[best]) * known.units.unit == pytest.approx(0.5)
    assert known.data.known.min() < 0.01 * known.data.known.max()


def test_a_scale_that_rounds_nothing_changes_no_bit():
    f = [noisy(bowl, 0.1) for _ in range(2)]
    one = rmes.Optimizer(SQUARE, seed=2, noise_sd=0.1)
    other = rmes.Optimizer(SQUARE, seed=2, noise_sd=0.1 * 2.0**20)
    assert steps(one, f[0], 12) == steps(other, lambda p: f[1](p) * 2.0**20, 12)


@pytest.mark.parametrize(
    ("scale", "shift", "tolerance"),
    # Values of spread 1 lose eps × 1e8 ≈ 1e-8 to the shift; a climb stops where the next step
    # promises 1e-4 of the logarithm, so it turns a rounding of its input into that of its root.
    [(1e6, 0.0, 1e-5), (1e-6, 0.0, 1e-5), (1.0, 1e8, 1e-2)],
)
def test_scale_and_shift_of_the_values_do_not_matter(scale, shift, tolerance):
    plain, changed = noisy(bowl, 0.1), noisy(bowl, 0.1)
    one = rmes.Optimizer(SQUARE, seed=3)
    other = rmes.Optimizer(SQUARE, seed=3)
    visited = steps(one, plain, 12)
    assert apart(visited, steps(other, lambda p: changed(p) * scale + shift, 12)) < tolerance
    mean = (other.recommend().mean - shift) / scale
    assert mean == pytest.approx(one.recommend().mean, abs=max(tolerance, 1e-6))


def test_the_order_of_names_does_not_matter():
    f = [noisy(bowl, 0.1) for _ in range(2)]
    one = rmes.Optimizer(SQUARE, seed=4)
    other = rmes.Optimizer(dict(reversed(SQUARE.items())), seed=4)
    assert steps(one, f[0], 10) == steps(other, f[1], 10)
    other.tell({"a": 0.1, "b": 0.2}, 1.0)
    one.tell({"b": 0.2, "a": 0.1}, 1.0)
    assert list(other.recommend().params) == ["b", "a"]  # as the user wrote them
    assert one.ask().params == other.ask().params


def test_one_seed_is_one_run_and_another_is_another():
    runs = [steps(rmes.Optimizer(SQUARE, seed=s), bowl, 8) for s in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    opt = rmes.Optimizer(SQUARE)
    steps(opt, bowl, 8)
    opt.outlook()
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# ------------------------------------------------------------------ resume


def worker_pool(opt, count, first=0):
    """Two trials are always pending; one fails now and then; the noise is told now and then."""
    waiting = [record["id"] for record in opt.trials if record["state"] == "pending"]
    for i in range(first, first + count):
        while len(waiting) < 3:
            waiting.append(opt.ask().id)
        number = waiting.pop((7 * i) % 3)
        if i % 9 == 5:
            opt.tell(number, failed=True)
        else:
            value = bowl(opt.trials[number]["params"]) + 0.1 * math.sin(37.0 * i)
            opt.tell(number, value, noise_sd=0.1 if i % 4 == 0 else None)
    waiting.append(opt.ask().id)
    return opt


def test_a_resumed_run_is_the_same_run():
    straight = worker_pool(rmes.Optimizer(SQUARE, seed=7), 12)
    saved = straight.to_json()
    resumed = rmes.Optimizer.from_json(saved)
    assert resumed.to_json() == saved
    assert sum(t["state"] == "pending" for t in resumed.trials) == 3
    assert str(resumed.recommend()) == str(straight.recommend())
    np.testing.assert_array_equal(resumed.outlook().gaps, straight.outlook().gaps)
    text = worker_pool(straight, 12, 12).to_json()
    assert worker_pool(resumed, 12, 12).to_json() == text
    # and in a new process
    code = (
        "import sys, rmes; from test_optimizer import worker_pool; "
        "print(worker_pool(rmes.Optimizer.from_json(sys.stdin.read()), 12, 12).to_json())"
    )
    # The same number of BLAS threads: a different order of sums is a different rounding.
    environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__)}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], input=saved, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == text


def test_asking_for_an_answer_does_not_change_the_run():
    f = [noisy(bowl, 0.1) for _ in range(2)]
    silent, curious = (rmes.Optimizer(SQUARE, seed=8) for _ in range(2))
    for _ in range(9):
        trial = silent.ask()
        assert trial == curious.ask()
        silent.tell(trial, f[0](trial.params))
        curious.tell(trial, f[1](trial.params))
        curious.recommend()
        curious.outlook()
    assert silent.to_json() == curious.to_json()


def test_mixed_parameters_noise_and_own_points_survive_saving():
    space = {
        "x": rmes.Float(1e-3, 1.0, log=True),
        "g": rmes.Float(0.0, 1.0, step=0.25),
        "k": rmes.Integer(1, 12),
        "c": rmes.Categorical(["a", None, True, 1]),
        "fixed": (2.0, 2.0),
    }
    own = [{"x": np.float32(0.5), "g": 0.5, "k": np.int64(3), "c": True, "fixed": 2}]
    opt = rmes.Optimizer(space, "maximize", noise_sd=0.5, seed=9, initial=own)
    opt.tell(opt.ask(), np.float32(1.5), noise_sd=np.float64(0.25))
    opt.tell({"x": 1.0, "g": 0.0, "k": np.int32(4), "c": np.bool_(True), "fixed": 2.0}, [1, 2])
    again = rmes.Optimizer.from_json(opt.to_json())
    assert again.to_json() == opt.to_json()
    assert again.trials == opt.trials
    assert again.trials[0]["params"]["c"] is True
    assert again.ask() == opt.ask()


def test_a_callable_noise_is_handed_over_again():
    def level(params):
        return 0.1 + params["a"]

    opt = rmes.Optimizer(SQUARE, noise_sd=level, seed=10)
    steps(opt, bowl, 8)
    with pytest.raises(ValueError, match="pass it again"):
        rmes.Optimizer.from_json(opt.to_json())
    assert rmes.Optimizer.from_json(opt.to_json(), noise_sd=level).ask() == opt.ask()
    plain = rmes.Optimizer(SQUARE, seed=0).to_json()
    with pytest.raises(ValueError, match="cannot be replaced"):
        rmes.Optimizer.from_json(plain, noise_sd=level)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a saved optimizer"),
        ("[]", "lacks format"),
        ('{"format": "optuna"}', "lacks format"),
        ('{"format": "rmes", "version": 99}', "version 99; expected 1"),
    ],
)
def test_what_is_no_saved_optimizer_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        rmes.Optimizer.from_json(text)


def _without(name):
    return lambda state: state.pop(name)


def _trial(**changes):
    return lambda state: state["trials"][1].update(changes)


def _fit(**changes):
    return lambda state: state["fit"].update(changes)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without("trials"), "the saved optimizer lacks trials"),
        (lambda state: state["trials"][1].pop("params"), "trial 1 .* lacks 'params'"),
        (_trial(values=["7.1"]), "trial 1 of the saved optimizer: value is '7.1'"),
        (_trial(values=[1.0, 2.0]), "trial 1 .* 2 values and 1 noise_sds"),
        (_trial(failed=True), "trial 1 .* has failed, and has values"),
        (_trial(noise_sds=[-1.0]), "trial 1 .* noise_sd is -1.0; expected 0 or more"),
        (_trial(params={"x": 0.4, "n": 10}), "trial 1 .* is not the place of its params"),
        (_trial(params={"x": 7.0, "n": 10}), "trial 1 .* x is 7.0; expected it from 0"),
        (_trial(x=[0.5]), "trial 1 .* is not the place of its params"),
        (_fit(covariance=[[0.0] * 4] * 4), "the fit of the saved optimizer is damaged"),
        (_fit(covariance=[[1.0]]), "the fit of the saved optimizer is damaged"),
        (_fit(samples=[[1.0, 2.0]]), "the fit of the saved optimizer is damaged"),
        (_fit(best=[None] * 4), "the fit of the saved optimizer is damaged"),
        (lambda state: state["space"]["x"].pop("type"), "parameter 'x' of the saved space"),
    ],
)
def test_a_damaged_optimizer_is_refused_with_what_is_wrong(damage, said):
    opt = rmes.Optimizer({"x": (0.0, 1.0), "n": rmes.Integer(1, 10**6, log=True)}, seed=0)
    steps(opt, noisy(lambda p: p["x"] + math.log(p["n"]), 0.1), 9)
    state = json.loads(opt.to_json())
    assert rmes.Optimizer.from_json(json.dumps(state)).ask() == opt.ask()
    damage(state)
    with pytest.raises(ValueError, match=said):
        rmes.Optimizer.from_json(json.dumps(state))


# ------------------------------------------------------------------ spaces

MIXED = {
    "x": (-1.0, 1.0),
    "y": rmes.Float(0.0, 10.0),
    "dose": rmes.Float(1e-4, 1.0, log=True),
    "cycles": rmes.Integer(1, 12),
    "solvent": rmes.Categorical(["DMF", "THF", "water", "DMSO"]),
}


def mixed(params):
    """Optimum 0 at (0.4, 7, 0.01, 9, "THF"); a sum, and an interaction with the category."""
    worse = {"DMF": 0.5, "THF": 0.0, "water": 1.0, "DMSO": 0.7}[params["solvent"]]
    return (
        (params["x"] - 0.4 + 0.2 * worse) ** 2
        + (params["y"] / 10.0 - 0.7) ** 2
        + 0.3 * (math.log10(params["dose"]) / 2.0 + 1.0) ** 2
        + ((params["cycles"] - 9) / 6.0) ** 2
        + worse
    )


def test_a_mixed_space_is_searched_far_better_than_at_random():
    found = []
    for seed in range(2):
        opt = rmes.Optimizer(MIXED, seed=seed)
        steps(opt, noisy(mixed, 0.05, seed), 35)
        found.append(mixed(opt.recommend().params))
    space, rng = rmes.Optimizer(MIXED).space, np.random.default_rng(0)
    tries = space.domain.snap(rng.random((50 * 35, space.dimensions)))
    values = np.array([mixed(space.decode(x)) for x in tries])  # and these without noise
    assert np.mean(found) < 0.3 * np.mean(values.reshape(50, 35).min(axis=1))


@pytest.mark.parametrize(
    "space", [{"k": rmes.Integer(3, 5)}, {"c": rmes.Categorical(["a", "b", "c"])}]
)
def test_an_exact_space_of_three_points_is_exhausted_gracefully(space):
    opt = rmes.Optimizer(space, noise_sd=0, seed=0)
    visited = steps(opt, lambda p: float(len(str(p))) + hash(str(p)) % 7, 3)
    assert len({str(p) for p in visited}) == 3
    before = opt.to_json()
    with pytest.raises(rmes.SpaceExhausted, match=r"all 3 points.*nothing left"):
        opt.ask()
    assert opt.to_json() == before
    values = {str(t["params"]): t["values"][0] for t in opt.trials}
    best = opt.recommend()
    assert values[str(best.params)] == min(values.values())
    assert opt.outlook().information == 0.0


def test_a_noisy_space_of_three_points_is_measured_again():
    opt = rmes.Optimizer({"k": rmes.Integer(0, 2)}, seed=0)
    f = noisy(lambda p: float(p["k"]), 1.0)
    steps(opt, f, 12)
    assert "repeat of trial" in opt.trials[-1]["reason"]
    assert len(opt.ask(5)) == 5  # more than there are points, all pending
    assert opt.recommend().params == {"k": 0}


def test_an_exact_run_over_many_points_ends_at_the_last_one(rng):
    rough = rng.permutation(20).astype(float)
    opt = rmes.Optimizer({"k": rmes.Integer(0, 19)}, noise_sd=0, seed=0, settings=QUICK)
    visited = steps(opt, lambda p: rough[p["k"]], 20)
    assert sorted(p["k"] for p in visited) == list(range(20))


def test_all_parameters_may_be_fixed():
    opt = rmes.Optimizer({"x": (1.5, 1.5), "c": rmes.Categorical(["only"])}, seed=0)
    steps(opt, noisy(lambda p: 3.0, 0.1), 5)
    answer = opt.recommend()
    assert answer.params == {"x": 1.5, "c": "only"}
    assert answer.interval[0] < 3.0 < answer.interval[1]
    assert opt.outlook().expected_gap == 0.0


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"x": (1.0, 0.0)}, "'x': low is 1.0 and high is 0.0"),
        ({"x": (0.0, math.inf)}, "'x': high is inf; expected a finite number"),
        ({"x": (math.nan, 1.0)}, "'x': low is nan; expected a finite number"),
        ({"x": (-1.7e308, 1.7e308)}, "'x': low is -1.7e.308; expected .* 8e307 at most"),
        ({"x": (0, 10**400)}, "'x': high is 10000.*; expected .* 8e307 at most"),
        ({"x": rmes.Categorical}, "no parameter"),
        ({}, "dictionary of parameters"),
        ({"x": (0.0, "1")}, "'x': high is '1'; expected a number"),
    ],
)
def test_bad_spaces_are_refused_with_what_was_given(space, said):
    with pytest.raises((ValueError, TypeError), match=said):
        rmes.Optimizer(space)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"direction": "down"}, "direction is 'down'"),
        ({"noise_sd": -1.0}, "noise_sd is -1.0; expected 0 or more"),
        ({"noise_sd": math.nan}, "noise_sd is nan"),
        ({"noise_sd": "small"}, "noise_sd is 'small'; expected a number"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"initial": -1}, "initial is -1"),
        ({"initial": 2.5}, "initial is 2.5"),
        ({"initial": [{"a": 0.5}]}, "no value for b"),
    ],
)
def test_bad_arguments_are_refused_with_what_was_given(arguments, said):
    with pytest.raises((ValueError, TypeError), match=said):
        rmes.Optimizer(SQUARE, **arguments)


# ------------------------------------------------------------------ the first points


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_run_can_start_from_any_number_of_measurements(count):
    opt = rmes.Optimizer(SQUARE, seed=0, initial=0)
    for i in range(count):
        opt.tell({"a": 0.3 * i, "b": 0.5}, float(i))
    if count:
        assert opt.recommend().measurements == count
        assert opt.outlook().expected_gap >= 0.0
    else:
        for answer in (opt.recommend, opt.outlook):
            with pytest.raises(ValueError, match="nothing has been measured yet"):
                answer()
    trial = opt.ask()
    assert set(trial.params) == {"a", "b"}
    assert ("space-filling" in trial.reason) == (count == 0)


def test_first_points_fill_the_space_and_a_warm_start_counts_among_them():
    opt = rmes.Optimizer(SQUARE, seed=0, initial=8)
    first = opt.ask(8)
    assert all("space-filling" in trial.reason for trial in first)
    points = np.array([list(t.params.values()) for t in first])
    gaps = np.linalg.norm(points[:, None] - points, axis=2) + 9.0 * np.eye(8)
    assert gaps.min() > 0.15  # eight random points: 0.08 on average
    warm = rmes.Optimizer(SQUARE, seed=0, initial=2)
    warm.tell({"a": 0.1, "b": 0.2}, 1.0)
    warm.tell({"a": 0.9, "b": 0.2}, 2.0)
    assert "nats" in warm.ask().reason


def test_own_points_come_first_and_none_is_skipped():
    own = [{"a": 0.1, "b": 0.1}, {"a": 0.2, "b": 0.2}, {"a": 0.1, "b": 0.1}]
    opt = rmes.Optimizer(SQUARE, seed=0, initial=own)
    opt.tell({"a": 0.9, "b": 0.9}, 1.0)  # made elsewhere
    opt.tell(own[1], 2.0)  # one of them, made elsewhere
    assert [trial.params for trial in opt.ask(2)] == [own[0], own[2]]
    assert "your point" not in opt.ask().reason


def test_an_announced_point_is_waited_for():
    opt = rmes.Optimizer(SQUARE, seed=0)
    trial = opt.announce({"b": 0.5, "a": 0.5})
    assert opt.trials[0]["state"] == "pending"
    assert opt.tell({"a": 0.5, "b": 0.5}, 1.0).id == trial.id


# ------------------------------------------------------------------ telling


@pytest.fixture
def started():
    """Six told measurements, one failed, one pending (number 7)."""
    opt = rmes.Optimizer(SQUARE, seed=11)
    steps(opt, noisy(bowl, 0.1), 6)
    opt.tell(opt.ask(), failed=True)
    opt.ask()
    return opt


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda o: o.tell(7, math.nan), ValueError, "value is nan.*failed=True"),
        (lambda o: o.tell(7, -math.inf), ValueError, "value is -inf.*failed=True"),
        (lambda o: o.tell(7, [1.0, math.nan]), ValueError, "value is nan"),
        (lambda o: o.tell(7, []), ValueError, "empty"),
        (lambda o: o.tell(7), ValueError, "no value was given"),
        (lambda o: o.tell(7, "1"), TypeError, "value is '1'; expected a number"),
        (lambda o: o.tell(7, True), TypeError, "value is True; expected a number"),
        (lambda o: o.tell(7, None, noise_sd=0.1), ValueError, "no value was given"),
        (lambda o: o.tell(7, 1.0, noise_sd=-0.1), ValueError, "noise_sd is -0.1"),
        (lambda o: o.tell(7, 1.0, noise_sd=math.inf), ValueError, "noise_sd is inf"),
        (lambda o: o.tell(7, 1.0, noise_sd=[0.1]), TypeError, "noise_sd is"),
        (lambda o: o.tell(7, 1.0, failed=True), ValueError, "failed measurement has no value"),
        (lambda o: o.tell(8, 1.0), ValueError, "no trial 8; 8 have been"),
        (lambda o: o.tell(-1, 1.0), ValueError, "no trial -1"),
        (lambda o: o.tell(0.5, 1.0), TypeError, "expected a trial"),
        (lambda o: o.tell(None, 1.0), TypeError, "expected a trial"),
        (
            lambda o: o.tell(0, 123.0),
            ValueError,
            "trial 0 was already told as .*parameters instead",
        ),
        (lambda o: o.tell(0, failed=True), ValueError, "trial 0 was already told"),
        (lambda o: o.tell(6, 1.0), ValueError, "trial 6 was already failed"),
        (lambda o: o.tell({"a": 0.5}, 1.0), ValueError, "no value for b"),
        (lambda o: o.tell({"a": 0.5, "b": 0.5, "c": 1}, 1.0), ValueError, "unknown parameter c"),
        (lambda o: o.tell({"a": 1.5, "b": 0.5}, 1.0), ValueError, "a is 1.5; expected it from 0.0"),
        (lambda o: o.tell({"a": math.nan, "b": 0.5}, 1.0), ValueError, "a is nan"),
        (lambda o: o.tell({"a": "low", "b": 0.5}, 1.0), TypeError, "a is 'low'"),
        (lambda o: o.announce({"a": 0.5}), ValueError, "no value for b"),
        (lambda o: o.ask(0), ValueError, "n is 0"),
        (lambda o: o.ask(2.0), ValueError, "n is 2.0"),
        (lambda o: o.recommend("here"), ValueError, "among is 'here'"),
        (lambda o: o.outlook().probability_within(-1.0), ValueError, "epsilon is -1.0"),
    ],
)
def test_an_error_says_what_was_given_and_changes_nothing(started, call, error, said):
    before = started.to_json()
    with pytest.raises(error, match=said):
        call(started)
    assert started.to_json() == before


def test_a_trial_of_another_optimizer_is_refused(started):
    stranger = rmes.Optimizer(SQUARE, seed=99).ask()
    before = started.to_json()
    with pytest.raises(ValueError, match="comes from another one"):
        started.tell(stranger, 1.0)
    assert started.to_json() == before


def test_changing_the_parameters_of_a_trial_changes_nothing(started):
    before = started.to_json()
    trial = started.tell(0, started.trials[0]["values"])
    trial.params["a"] = 0.123
    started.trials[0]["params"]["a"] = 0.123
    assert started.to_json() == before


def test_telling_the_same_twice_changes_nothing(started):
    trial = started.ask()
    started.tell(trial, [0.5, 0.6], noise_sd=0.1)
    before = started.to_json()
    assert started.tell(trial, [0.5, 0.6], noise_sd=0.1) == trial
    assert started.tell(trial.id, (0.5, 0.6), noise_sd=0.1) == trial
    started.tell(6, failed=True)
    assert started.to_json() == before
    with pytest.raises(ValueError, match=r"already told as 0\.5, 0\.6"):
        started.tell(trial, [0.5, 0.6], noise_sd=0.2)


def test_replicates_at_once_equal_separate_ones():
    whole, parts = (rmes.Optimizer(LINE, "maximize", seed=12) for _ in range(2))
    rng = np.random.default_rng(0)
    for x in np.linspace(0.0, 1.0, 6):
        values = math.sin(4.0 * x) + 0.3 * rng.standard_normal(3)
        whole.tell({"x": x}, values)
        for value in values:
            parts.tell({"x": x}, value)
    assert parts.recommend() == whole.recommend()
    assert whole.recommend().measurements == 18


def test_a_batch_is_given_whole_or_not_at_all():
    opt = rmes.Optimizer({"k": rmes.Integer(0, 4)}, noise_sd=0, seed=0)
    opt.tell(opt.ask(), 1.0)
    before = opt.to_json()
    with pytest.raises(rmes.SpaceExhausted):
        opt.ask(8)
    assert opt.to_json() == before  # four points pending for ever would be lost
    assert len(opt.ask(4)) == 4


# ------------------------------------------------------------------ noise


def test_a_precise_measurement_outweighs_noisy_ones():
    opt = rmes.Optimizer(LINE, "maximize", seed=13)
    for x in (0.0, 0.25, 0.75, 1.0):
        opt.tell({"x": x}, 0.0, noise_sd=0.01)
    opt.tell({"x": 0.5}, [3.0] * 4, noise_sd=2.0)  # four lucky ones
    opt.tell({"x": 0.5}, 0.1, noise_sd=0.01)
    opt.tell({"x": 0.3}, 1.0, noise_sd=0.05)
    answer = opt.recommend("measured")
    assert answer.params == {"x": 0.3}
    assert answer.observed_value == 3.0
    assert answer.observed_mean == pytest.approx(0.1, abs=0.05)


def test_the_noise_told_reaches_the_answer():
    sds = []
    for noise in (0.01, 0.5):
        opt = rmes.Optimizer(LINE, "maximize", noise_sd=noise, seed=14)
        for x in np.linspace(0.0, 1.0, 9):
            opt.tell({"x": x}, math.sin(3.0 * x))
        sds.append(opt.recommend().sd)
    assert sds[0] < 0.02
    assert 0.1 < sds[1] < 0.5


def test_inferred_noise_is_near_the_truth():
    opt = rmes.Optimizer(LINE, seed=15)
    rng = np.random.default_rng(15)
    for x in np.linspace(0.0, 1.0, 40):
        opt.tell({"x": x}, math.sin(3.0 * x) + 0.3 * rng.standard_normal())
    known = opt._learn()
    inferred = np.sqrt(np.median(known.posterior.noise_variance)) * known.units.scale
    assert 0.2 < inferred < 0.45


def test_the_noise_of_a_callable_is_that_of_numbers_told():
    called = rmes.Optimizer(LINE, noise_sd=lambda p: 0.1 + p["x"], seed=16)
    told = rmes.Optimizer(LINE, noise_sd=0.3, seed=16)
    for x in np.linspace(0.0, 1.0, 8):
        called.tell({"x": x}, math.cos(5.0 * x))
        told.tell({"x": x}, math.cos(5.0 * x), noise_sd=0.1 + x)
    assert called.recommend() == told.recommend()


def test_a_callable_keeps_suggestions_away_from_loud_regions():
    """Two equal optima, one of them behind ten times the noise."""

    def f(params):
        return math.sin(3.0 * math.pi * params["x"])  # tops at 1/6 and 5/6

    asked = []
    for seed in range(3):
        opt = rmes.Optimizer(
            LINE, "maximize", lambda p: 0.05 if p["x"] < 0.5 else 2.0, seed, initial=6
        )
        visited = steps(opt, f, 16)
        asked += [p["x"] for p in visited[6:]]
    assert np.mean(np.array(asked) < 0.5) > 0.7


@pytest.mark.parametrize("returned", [None, -1.0, math.nan, "0.1"])
def test_a_callable_without_a_noise_is_refused(returned):
    opt = rmes.Optimizer(LINE, noise_sd=lambda p: returned, seed=0, initial=1)
    opt.tell({"x": 0.5}, 1.0)
    before = opt.to_json()
    with pytest.raises(
        ValueError, match=r"noise_sd\(\{'x': 0.5\}\) returned .*; expected a number"
    ):
        opt.ask()
    assert opt.to_json() == before


def test_large_noise_asks_for_repeats_and_says_so():
    opt = rmes.Optimizer(LINE, noise_sd=1.0, seed=17)
    visited = steps(opt, noisy(lambda p: (p["x"] - 0.3) ** 2, 1.0), 20)
    repeats = [t for t in opt.trials if t["reason"].startswith("repeat of trial ")]
    assert len(repeats) >= 3
    for trial in repeats:
        original = int(trial["reason"].split()[3].rstrip(":"))
        assert visited[original] == trial["params"]  # the same bits, so that repeats merge
        assert original < trial["id"]


def test_exact_measurements_are_never_repeated():
    opt = rmes.Optimizer(SQUARE, noise_sd=0, seed=18)
    visited = steps(opt, bowl, 25)
    assert len({tuple(p.values()) for p in visited}) == 25
    assert not any("repeat" in t["reason"] for t in opt.trials)
    assert bowl(opt.recommend().params) < 1e-3


# ------------------------------------------------------------------ failures


def rises_into_failures(seed):
    """Told of a value that rises towards a = 1, and of failures wherever a > 0.6."""
    opt = rmes.Optimizer(SQUARE, "maximize", noise_sd=0.05, seed=seed)
    rng = np.random.default_rng(seed)
    for a, b in rng.random((24, 2)):
        if a > 0.6:
            opt.tell({"a": a, "b": b}, failed=True)
        else:
            opt.tell({"a": a, "b": b}, 3.0 * a + 0.05 * rng.standard_normal())
    return opt


def test_the_answer_does_not_lie_where_measurements_fail():
    runs = [rises_into_failures(seed) for seed in range(5)]
    answers = [opt.recommend().params["a"] for opt in runs]
    assert np.median(answers) > 0.5
    assert min(answers) > 0.4  # of 30 seeds 0.44, whatever the draws of the hyperparameters
    assert max(answers) < 0.72  # 0.94 if failures were no matter
    # nor does the outlook hope for what is there: up to 3, at a = 1
    assert np.median([opt.outlook().optimum_interval[1] for opt in runs]) < 2.3  # 2.9 otherwise


def test_failures_do_not_bend_the_model():
    opt = rmes.Optimizer(SQUARE, "maximize", seed=19)
    steps(opt, noisy(lambda p: p["a"], 0.05), 8)
    places = [{"a": a, "b": 0.5} for a in (0.1, 0.5, 0.8, 1.0)]
    before = opt.predict(places)
    for b in np.linspace(0.0, 1.0, 6):
        opt.tell({"a": 0.8, "b": b}, failed=True)
    np.testing.assert_array_equal(opt.predict(places), before)


def test_a_reason_tells_what_a_point_is_for_in_the_users_units():
    """Scaled by 1024, the same points are asked for, with gains 1024 times as large."""
    gains = {}
    for scale in (1.0, 1024.0):
        opt = rmes.Optimizer(SQUARE, seed=3, noise_sd=0.3 * scale)
        steps(opt, noisy(lambda p, scale=scale: scale * bowl(p), 0.3 * scale), 40)
        reasons = [trial["reason"] for trial in opt.trials[opt.initial :]]
        assert sum("nats about the best value" in reason for reason in reasons) > 5
        said = [re.search(r"improve the answer by (\S+)$", reason) for reason in reasons]
        gains[scale] = [float(match[1]) for match in said if match]
    assert len(gains[1.0]) > 5
    rounded = 0.1  # to two digits, both of them
    np.testing.assert_allclose(gains[1024.0], 1024 * np.array(gains[1.0]), rtol=rounded)


def test_a_region_that_fails_is_left_alone():
    """The value rises towards a region in which every measurement fails: stay at its edge."""
    asked = []
    for seed in range(2):
        opt = rmes.Optimizer(SQUARE, "maximize", noise_sd=0.05, seed=seed)
        for i in range(18):
            trial = opt.ask()
            if i >= opt.initial:
                asked.append(trial.params["a"])
            if trial.params["a"] > 0.6:
                opt.tell(trial, failed=True)
            else:
                opt.tell(trial, trial.params["a"])
    # Without a memory of failures all of these would be 1.
    assert np.median(asked) < 0.68
    assert np.mean(np.array(asked) > 0.8) < 0.1


def test_a_failed_trial_is_no_longer_pending_and_no_measurement():
    opt = rmes.Optimizer(SQUARE, seed=0)
    trials = opt.ask(3)
    opt.tell(trials[0], 1.0)
    opt.tell(trials[1], failed=True)
    assert [t["state"] for t in opt.trials] == ["measured", "failed", "pending"]
    assert opt.recommend().measurements == 1


def test_a_run_in_which_everything_fails_goes_on_asking():
    opt = rmes.Optimizer(SQUARE, seed=0, initial=2)
    for _ in range(15):
        opt.tell(opt.ask(), failed=True)
    assert len({tuple(t["params"].values()) for t in opt.trials}) == 15
    with pytest.raises(ValueError, match="nothing has been measured"):
        opt.recommend()


# ------------------------------------------------------------------ batches and pending trials


def log_determinant(opt, points):
    """Of the posterior covariance of measurements at the points: the information they carry."""
    known = opt._learn()
    x = np.array([opt.space.encode(p) for p in points])
    total = 0.0
    for theta in known.fit.samples:
        posterior = gp.posterior(opt._model, known.data, theta[None])
        noise = posterior.noise_variance
        for point in x:  # the chain rule: one after another
            _, variance = posterior.predict(point[None])
            total += 0.5 * math.log1p(float(variance[0, 0] / noise[0]))
            mean, _ = posterior.predict(point[None])
            posterior = posterior.condition(point[None], mean, noise[:, None])
    return total / len(known.fit.samples)


def gaps(points):
    """Distance (n,) from each point to the nearest other one."""
    x = np.array([list(p.values()) for p in points])
    return np.min(np.linalg.norm(x[:, None] - x, axis=2) + 9.0 * np.eye(len(x)), axis=1)


@pytest.mark.parametrize("seed", [20, 21])
def test_a_batch_tells_more_than_independent_suggestions_and_than_one_point(seed):
    opt = rmes.Optimizer(SQUARE, seed=seed)
    steps(opt, noisy(lambda p: math.sin(6.0 * p["a"]) + math.cos(5.0 * p["b"]), 0.1), 6)
    alone = []
    for other_seed in range(8):  # the same knowledge, eight generators, no pending trials
        other = rmes.Optimizer.from_json(opt.to_json())
        other._learn()
        other.seed = other_seed + 100
        alone.append(other.ask().params)
    batch = [trial.params for trial in opt.ask(8)]
    assert gaps(batch).min() > 0.0
    assert np.median(gaps(batch)) > np.median(gaps(alone))
    joint = log_determinant(opt, batch)
    assert joint > log_determinant(opt, alone)
    assert joint > 2.0 * log_determinant(opt, [batch[0]] * 8)


def test_workers_without_results_never_get_a_point_twice():
    opt = rmes.Optimizer(SQUARE, seed=21)
    steps(opt, bowl, 8)
    asked = [opt.ask() for _ in range(12)]
    assert len({tuple(t.params.values()) for t in asked}) == 12
    assert len({t.id for t in asked}) == 12


def test_pending_trials_do_not_leak_into_what_is_believed():
    opt = rmes.Optimizer(SQUARE, seed=22)
    steps(opt, noisy(bowl, 0.1), 10)
    before = opt.recommend(), opt.outlook().optimum_interval, opt.outlook().information
    trials = opt.ask(4)
    assert (opt.recommend(), opt.outlook().optimum_interval, opt.outlook().information) == before
    for trial in trials:
        opt.tell(trial, bowl(trial.params))
    assert not any(t["state"] == "pending" for t in opt.trials)
    known = opt._learn()
    assert known.data.size == len({str(t["params"]) for t in opt.trials})
    assert opt.recommend() != before[0]


def test_results_may_come_back_in_any_order():
    one, other = (rmes.Optimizer(SQUARE, seed=23, initial=4) for _ in range(2))
    trials = one.ask(6)
    assert trials == other.ask(6)
    for trial in trials:
        one.tell(trial, bowl(trial.params))
    for trial in reversed(trials):
        other.tell(trial.id, bowl(trial.params))
    assert one.to_json() == other.to_json()
    assert one.ask() == other.ask()


# ------------------------------------------------------------------ answers


def test_the_recommendation_uses_the_last_value_told():
    opt = rmes.Optimizer(LINE, "maximize", noise_sd=0.01, seed=24)
    for x in np.linspace(0.0, 1.0, 6):
        opt.tell({"x": x}, 0.0)
    opt.recommend()
    opt.tell({"x": 0.3}, 5.0)
    answer = opt.recommend()
    assert answer.params["x"] == pytest.approx(0.3, abs=0.1)
    assert answer.mean == pytest.approx(5.0, abs=0.5)
    assert answer.measurements == 7


def test_the_lucky_measurement_is_not_recommended_and_the_sentence_says_why():
    opt = rmes.Optimizer(LINE, "maximize", seed=25)
    rng = np.random.default_rng(25)
    for x in np.linspace(0.0, 1.0, 11):
        for _ in range(4):
            opt.tell({"x": x}, -((x - 0.3) ** 2) + 0.05 * rng.standard_normal())
    opt.tell({"x": 0.9}, 0.35)  # ten sd above the truth
    answer = opt.recommend()
    assert abs(answer.params["x"] - 0.3) < 0.15
    assert answer.observed_best == ({"x": 0.9}, 0.35)
    assert answer.luck > 0.3
    assert answer.interval[0] < 0.0 < answer.interval[1]
    assert str(answer) == answer.reason
    assert str(answer).startswith("Use x=0.")
    assert "90 % sure it is between" in str(answer)
    assert "judged from 45 measurements" in str(answer)
    assert "The best single measurement, 0.35 at x=0.9, was probably lucky" in str(answer)
    assert "too high" in str(answer)


def test_the_better_of_two_answers_is_offered_and_the_other_too():
    opt = rmes.Optimizer(LINE, "minimize", noise_sd=0.01, seed=26)
    for x in (0.0, 0.15, 0.25, 0.45, 0.55, 0.7, 1.0):
        opt.tell({"x": x}, (x - 0.35) ** 2)
    anywhere, measured = opt.recommend(), opt.recommend("measured")
    assert measured.params["x"] in (0.25, 0.45)
    assert anywhere.params["x"] == pytest.approx(0.35, abs=0.1)
    assert anywhere.mean <= measured.mean


@pytest.mark.slow
def test_the_outlook_does_not_rest_on_what_corners_may_hold():
    """The function only falls off there: draws of its optimum alone miss the true one, 0.

    The interval held in 76 % of 80 runs, that of the draws alone in 9 %.
    """
    held, drawn, names = 0, 0, "abcd"
    for seed in range(16):
        opt = rmes.Optimizer({name: (0.0, 1.0) for name in names}, seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(30):
            trial = opt.ask()
            square = sum((9.0 * trial.params[name] - 4.0) ** 2 for name in names)
            opt.tell(trial, square + 0.1 * square**2 + 20.0 * rng.standard_normal())
        outlook = opt.outlook()
        low, high = outlook.optimum_interval
        held += low <= 0.0 <= high
        drawn += np.quantile(outlook.optima, 0.05) <= 0.0 <= np.quantile(outlook.optima, 0.95)
    assert drawn <= 5
    assert held >= 8


def test_an_outlook_shrinks_as_measurements_come_in():
    # The noise is known: while it is not, six measurements may promise little information.
    opt = rmes.Optimizer(SQUARE, seed=27, noise_sd=0.02)
    f = noisy(bowl, 0.02)
    steps(opt, f, 6)
    early = opt.outlook()
    steps(opt, f, 20)
    late = opt.outlook()
    assert late.expected_gap < 0.5 * early.expected_gap
    assert np.ptp(late.optimum_interval) < np.ptp(early.optimum_interval)
    assert late.probability_within(0.0) <= late.probability_within(0.05) <= 1.0
    assert late.probability_within(0.05) > early.probability_within(0.05)
    assert 0.0 <= late.information < early.information
    assert "The true optimum is between" in str(late)


# ------------------------------------------------------------------ odd data


@pytest.mark.parametrize("noise_sd", [None, 0, 0.5])
@pytest.mark.parametrize("value", [0.0, 7.0, -1e8, 1e-30])
def test_constant_values_are_no_trouble(value, noise_sd):
    opt = rmes.Optimizer(SQUARE, noise_sd=noise_sd, seed=28, settings=QUICK)
    steps(opt, lambda p: value, 9)
    answer = opt.recommend()
    assert answer.mean == pytest.approx(value, abs=1e-6 * abs(value) + 1e-6)
    assert all(map(math.isfinite, (*answer.interval, *opt.outlook().optimum_interval)))
    assert opt.ask().params != opt.ask().params


@pytest.mark.parametrize("noise_sd", [None, 0, 1.0])
def test_two_hundred_repeats_of_one_point_are_one_row(noise_sd, rng):
    opt = rmes.Optimizer(SQUARE, noise_sd=noise_sd, seed=29, initial=2)
    values = 3.0 + rng.standard_normal(200) * (noise_sd != 0)
    for value in values:
        opt.tell({"a": 0.5, "b": 0.5}, value)
    assert opt._learn().data.size == 1
    answer = opt.recommend()
    assert answer.measurements == 200
    assert answer.mean == pytest.approx(values.mean(), abs=0.1)
    assert answer.sd < 0.2
    assert opt.ask().params != {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize("outlier", [1e6, -1e6, 1.7e308, -1.7e308])
def test_an_outlier_does_not_hide_the_rest(outlier):
    f = noisy(bowl, 0.01)
    opt = rmes.Optimizer(SQUARE, seed=30)
    steps(opt, f, 6)
    opt.tell({"a": 0.95, "b": 0.05}, outlier)
    steps(opt, f, 14)
    if outlier > 0:  # a bad one: a misprint, a penalty
        assert bowl(opt.recommend().params) < 0.05
    else:  # too good to be true: its neighbourhood is looked at again
        later = [trial["params"] for trial in opt.trials[7:]]
        assert min(math.hypot(p["a"] - 0.95, p["b"] - 0.05) for p in later) < 0.1
    assert all(map(math.isfinite, opt.recommend().interval))
    assert np.all(np.isfinite(opt.outlook().gaps))


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e8, 1e140])
def test_any_unit_will_do(scale):
    opt = rmes.Optimizer(SQUARE, seed=31)
    f = noisy(bowl, 0.01)
    steps(opt, lambda p: scale * f(p), 14)
    assert bowl(opt.recommend().params) < 0.05
    assert opt.recommend().sd > 0.0


@pytest.mark.parametrize("value", [1e-258, 1e-3, 1e3])
def test_known_noise_sets_the_scale_of_a_single_value(value):
    opt = rmes.Optimizer(SQUARE, noise_sd=0.3, seed=0, initial=0)
    opt.tell({"a": 0.5, "b": 0.5}, value)
    assert 0.05 < opt.recommend().sd < 1.0  # some 0.3, whatever the value happens to be
    assert opt.ask().reason


def test_neighbouring_floats_are_two_points():
    opt = rmes.Optimizer(LINE, noise_sd=0, seed=32)
    for k in range(12):
        opt.tell({"x": 0.5 + k * 1e-15}, 1.0 + 1e-9 * k)
    opt.tell({"x": 0.2}, 0.5)
    assert opt.recommend().params["x"] < 0.5
    assert opt.ask().params["x"] < 0.49


# ------------------------------------------------------------------ any sequence


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 3)),
        st.tuples(st.just("tell"), st.integers(0, 30), st.floats(-1e9, 1e9)),
        st.tuples(
            st.just("replicates"), st.integers(0, 30), st.lists(st.floats(-9, 9), min_size=1)
        ),
        st.tuples(st.just("fail"), st.integers(0, 30)),
        st.tuples(st.just("own"), st.floats(0, 1), st.integers(0, 3), st.floats(-3, 3)),
        st.tuples(st.just("answer")),
        st.tuples(st.just("resume")),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.sampled_from([None, 0, 0.3]), st.integers(0, 5), st.sampled_from([0, 2]))
def test_no_sequence_of_asks_and_tells_crashes(sequence, noise_sd, seed, initial):
    space = {"x": (0.0, 1.0), "k": rmes.Integer(0, 3), "c": rmes.Categorical(["u", "v"])}
    opt = rmes.Optimizer(space, "maximize", noise_sd, seed, initial=initial, settings=QUICK)
    for step, *rest in [*sequence, ("ask", 1)]:
        pending = [t["id"] for t in opt.trials if t["state"] == "pending"]
        if step == "ask":
            trials = opt.ask(rest[0])
            assert all(opt.space.encode(t.params).shape == (3,) for t in trials)
        elif step in ("tell", "replicates", "fail") and pending:
            number = pending[rest[0] % len(pending)]
            opt.tell(number, rest[1] if len(rest) > 1 else None, failed=step == "fail")
        elif step == "own":
            opt.tell({"x": rest[0], "k": rest[1], "c": "u"}, rest[2])
        elif step == "resume":
            text = opt.to_json()
            opt = rmes.Optimizer.from_json(text, settings=QUICK)
            assert opt.to_json() == text
        elif step == "answer" and any(t["values"] for t in opt.trials):
            answer, outlook = opt.recommend(), opt.outlook()
            assert answer.interval[0] <= answer.mean <= answer.interval[1]
            assert 0.0 <= outlook.probability_within(1.0) <= 1.0
            assert outlook.information >= 0.0
            assert str(answer)
            assert str(outlook)
    json.loads(opt.to_json())


# ------------------------------------------------------------------ endurance


def soak(count, opt):
    """Peak memory of the process in MB, and seconds of the ask, after each of `count` steps."""
    import resource  # not on Windows

    f = noisy(bowl, 0.05)
    memory, seconds = [], []
    for _ in range(count):
        start = time.perf_counter()
        trial = opt.ask()
        seconds.append(time.perf_counter() - start)
        opt.tell(trial, f(trial.params))
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return np.array(memory), np.array(seconds)


@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from getrusage")
def test_memory_and_time_stay_within_bounds():
    memory, seconds = soak(120, rmes.Optimizer(SQUARE, seed=33, settings=QUICK))
    # A leaked posterior is 2 settings × 3 matrices × 8 n² B, 0.3 MB on average: 25 MB in all.
    assert memory[-1] - memory[30] < 12
    early, late = np.median(seconds[30:50]), np.median(seconds[-20:])
    assert late < 2.0 * early * (110 / 40) ** 2  # n², and a factor for a busy machine


def test_repeated_rows_are_merged_before_the_model_sees_them(rng):
    opt = rmes.Optimizer({"k": rmes.Integer(0, 9)}, seed=34, initial=0)
    for _ in range(300):
        opt.tell({"k": int(rng.integers(10))}, float(rng.normal()))
    data = opt._learn().data
    assert data.size == 10
    assert data.repeats == 290
    assert merge(data.x, data.y).size == 10


# ------------------------------------------------------------------ questions about any point


def test_a_prediction_at_the_recommendation_is_the_recommendation():
    opt = rmes.Optimizer(SQUARE, "maximize", seed=4)
    steps(opt, noisy(lambda p: 1e3 - bowl(p), 0.1), 12)
    answer = opt.recommend()
    mean, sd = opt.predict([answer.params])
    assert mean[0] == pytest.approx(answer.mean, rel=1e-9)
    assert sd[0] == pytest.approx(answer.sd, rel=1e-6)


def test_predictions_hold_the_truth_where_noise_is_known():
    places = [{"a": a, "b": b} for a in np.linspace(0, 1, 6) for b in np.linspace(0, 1, 6)]
    held = []
    for seed in range(4):
        opt = rmes.Optimizer(SQUARE, seed=seed, noise_sd=0.05)
        steps(opt, noisy(bowl, 0.05), 20)
        mean, sd = opt.predict(places)
        held.append(np.abs(mean - [bowl(place) for place in places]) < 2.0 * sd)
    assert np.mean(held) > 0.8
    np.testing.assert_allclose(opt.predict_noise(places), 0.05, rtol=1e-9)


def test_inferred_noise_is_said_in_the_units_of_the_values():
    opt = rmes.Optimizer(LINE, seed=5)
    f = noisy(lambda p: 1e4 * (p["x"] - 0.4) ** 2, 300.0)
    for x in np.linspace(0.0, 1.0, 40):
        opt.tell({"x": float(x)}, f({"x": x}))
    assert opt.predict_noise([{"x": 0.5}])[0] == pytest.approx(300.0, rel=0.4)


def test_where_to_ask_next_tells_more_than_elsewhere():
    # Alone: for the answer's sake a point is chosen that need not tell most about the best value.
    opt = rmes.Optimizer(SQUARE, seed=6, settings=Settings(maxima=16, settle=False))
    steps(opt, noisy(bowl, 0.1), 15)
    before = opt.information([{"a": 0.9, "b": 0.1}])
    trial = opt.ask()
    places = [{"a": a, "b": b} for a in np.linspace(0, 1, 8) for b in np.linspace(0, 1, 8)]
    told = opt.information([trial.params, *places])
    assert np.all(told >= 0.0)
    assert np.mean(told[0] > told[1:]) > 0.9
    assert opt.information([{"a": 0.9, "b": 0.1}]) == before  # a pending trial plays no part


def test_questions_need_a_value_and_a_list_of_points():
    opt = rmes.Optimizer(LINE, seed=0)
    with pytest.raises(ValueError, match="nothing has been measured"):
        opt.predict([{"x": 0.5}])
    opt.tell({"x": 0.5}, 1.0)
    with pytest.raises(TypeError, match="expected a list of dictionaries"):
        opt.information({"x": 0.5})
    with pytest.raises(ValueError, match="x is 2"):
        opt.predict_noise([{"x": 2.0}])
    assert [len(part) for part in opt.predict([])] == [0, 0]
    assert len(opt.information([])) == len(opt.predict_noise([])) == 0


def test_questions_are_answered_where_every_parameter_is_fixed():
    opt = rmes.Optimizer({"x": (1.0, 1.0)}, seed=0)
    opt.tell({"x": 1.0}, [2.0, 2.5])
    assert opt.predict([{"x": 1.0}])[0] == pytest.approx(opt.recommend().mean)
    assert opt.information([{"x": 1.0}]) == 0.0
    assert opt.predict_noise([{"x": 1.0}]) > 0.0
    assert len(opt.outlook().optima) == len(opt.outlook().gaps)


def test_a_run_with_main_effects_goes_on_as_it_was():
    """Sums over parameters, a category among them, are learnt as such; also after a pause."""
    space = {"a": (0.0, 1.0), "b": (0.0, 1.0), "c": rmes.Categorical(["x", "y", "z"])}
    height = {"x": 0.0, "y": 1.2, "z": -1.0}

    def measure(params):
        return np.sin(9 * params["a"]) + np.cos(7 * params["b"]) + height[params["c"]]

    opt, rng = rmes.Optimizer(space, "maximize", noise_sd=0.05, seed=3), np.random.default_rng(3)
    for params in [Space(space).decode(x) for x in rng.random((40, 5))]:
        opt.tell(params, measure(params) + 0.05 * rng.standard_normal())
    opt.ask()
    assert opt.learned.main
    again = rmes.Optimizer.from_json(opt.to_json())
    for _ in range(3):
        one, two = opt.ask(), again.ask()
        assert one == two
        for each in (opt, again):
            each.tell(one.id, measure(one.params))
    best = opt.recommend()
    assert best.params["c"] == "y"
    assert measure(best.params) > 3.0  # of 3.2


def ripples(params):
    """A bowl whose ripples cannot be resolved; its best value is next to 0.6."""
    bowl = -3.0 * ((params["a"] - 0.4) ** 2 + (params["b"] - 0.4) ** 2)
    return bowl + 0.6 * np.sin(1e4 * params["a"])


def test_ripples_are_not_reported_as_noise_and_the_answer_is_on_top_of_one():
    opt = rmes.Optimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, "maximize", seed=0)
    rng, resumed = np.random.default_rng(0), None
    for number in range(40):
        trial = opt.ask()
        value = ripples(trial.params) + 0.03 * rng.standard_normal()
        opt.tell(trial, value)
        if resumed is not None:  # grain and all
            assert resumed.ask() == trial
            resumed.tell(trial, value)
        elif number == 30:
            assert opt.learned.grainy
            resumed = rmes.Optimizer.from_json(opt.to_json())
    checks = [each for each in opt.trials if "to tell ripples from noise" in each["reason"]]
    assert 1 <= len(checks) <= 3
    assert opt.predict_noise([{"a": 0.5, "b": 0.5}])[0] < 0.1
    answer, outlook = opt.recommend(), opt.outlook()
    assert ripples(answer.params) > 0.45  # where the bowl alone has 0
    assert answer.interval[0] < ripples(answer.params) < answer.interval[1]
    assert outlook.optimum_interval[0] < 0.6 < outlook.optimum_interval[1]
    batch = opt.ask(n=8)  # nobody knows the grain of a pending point, but it is one
    places = np.array([list(trial.params.values()) for trial in batch])
    apart = np.linalg.norm(places[:, None] - places, axis=2) + np.eye(8)
    assert apart.min() > 1e-3
    mean, sd = opt.predict([answer.params, {"a": 0.4, "b": 0.4}])
    assert mean[0] == pytest.approx(answer.mean)
    assert sd[1] > 0.2  # a new point may be on a ripple or under one


def test_exact_and_noisy_values_of_a_rippled_function_are_told_together():
    """A row that is known exactly has no noise left to learn, only grain."""
    opt = rmes.Optimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, "maximize", seed=0)
    rng = np.random.default_rng(0)
    for number in range(36):
        start = {"a": float(rng.random()), "b": float(rng.random())}
        params = start if number < 6 else opt.ask().params
        value = ripples(params) + 0.02 * rng.standard_normal()
        exact = number % 3 == 0
        again = number < 12 and not exact
        opt.tell(params, [value, value + 0.01] if again else value, noise_sd=0.0 if exact else None)
    assert opt.learned.grainy
    assert len(opt.ask(n=3)) == 3
    assert np.isfinite(opt.recommend().interval).all()
    assert np.isfinite(opt.outlook().optimum_interval).all()
