import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds, OptimizeResult

import rmes
from rmes.space import Space

SQUARE = [(0.0, 1.0), (0.0, 1.0)]


def bowl(x):
    return float(np.sum((np.asarray(x) - 0.3) ** 2))


def noisy_bowl(seed=0, sd=0.1):
    rng = np.random.default_rng(seed)
    return lambda x: bowl(x) + sd * rng.standard_normal()


def branin(x):
    a, b = x
    valley = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


BRANIN_BOUNDS = [(-5.0, 10.0), (0.0, 15.0)]
BRANIN_MINIMUM = 0.39788735772973816


# ------------------------------------------------------------------------------ one call


def test_a_noisy_bowl_is_minimised_in_scipys_manners():
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=30, rng=0)
    assert isinstance(result, OptimizeResult)
    assert result.success
    assert result.status == 0
    assert result.message == "The budget of 30 evaluations is spent."
    assert result.nfev == result.nit == 30
    assert result.x.shape == (2,)
    assert result.x_iters.shape == (30, 2)
    assert result.func_vals.shape == (30,)
    assert bowl(result.x) < 0.1  # one sd of the noise; the bowl spans 0.98
    low, high = result.fun_interval
    assert low < result.fun < high
    assert result.fun_std > 0
    assert result.fun_observed == result.func_vals.min()
    at = int(np.argmin(result.func_vals))
    np.testing.assert_array_equal(result.x_observed, result.x_iters[at])
    assert result.recommendation.mean == result.fun
    assert result.optimizer.outlook().expected_gap >= 0


def test_a_result_prints_readably_and_can_be_pickled():
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=15, noise_sd=abs_noise, rng=0)
    text = str(result)
    assert len(text.splitlines()) < 25
    assert "Use x[0]=" in text
    again = pickle.loads(pickle.dumps(result))
    assert again.optimizer.recommend() == result.recommendation


def abs_noise(x):
    return 0.1 + 0.1 * float(abs(x[0]))


def test_minimising_f_and_maximising_minus_f_visit_the_same_points():
    down = rmes.minimize(noisy_bowl(), SQUARE, budget=14, rng=1)
    f = noisy_bowl()
    up = rmes.maximize(lambda x: -f(x), SQUARE, budget=14, rng=1)
    np.testing.assert_array_equal(down.x_iters, up.x_iters)
    np.testing.assert_array_equal(down.func_vals, -up.func_vals)
    np.testing.assert_array_equal(down.x, up.x)
    assert down.fun == -up.fun
    assert down.fun_observed == -up.fun_observed
    assert down.fun_interval == tuple(-end for end in reversed(up.fun_interval))


def test_a_seed_makes_the_run_reproducible():
    one, two = (rmes.minimize(noisy_bowl(), SQUARE, budget=12, rng=5) for _ in range(2))
    np.testing.assert_array_equal(one.x_iters, two.x_iters)
    np.testing.assert_array_equal(one.x, two.x)
    other = rmes.minimize(noisy_bowl(), SQUARE, budget=12, rng=6)
    assert not np.array_equal(one.x_iters, other.x_iters)


def test_an_integer_rng_is_the_seed_of_the_optimizer():
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=8, rng=5)
    optimizer = rmes.Optimizer({"x[0]": (0.0, 1.0), "x[1]": (0.0, 1.0)}, seed=5)
    f = noisy_bowl()
    for x in result.x_iters:
        trial = optimizer.ask()
        assert list(trial.params.values()) == x.tolist()
        optimizer.tell(trial, f(x))


def test_a_generator_may_be_the_rng_and_is_advanced():
    rng = np.random.default_rng(3)
    one = rmes.minimize(bowl, SQUARE, budget=4, rng=rng)
    two = rmes.minimize(bowl, SQUARE, budget=4, rng=rng)
    again = rmes.minimize(bowl, SQUARE, budget=4, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(one.x_iters, again.x_iters)
    assert not np.array_equal(one.x_iters, two.x_iters)


@pytest.mark.parametrize("rng", [-1, True, "seed", 0.5])
def test_a_wrong_rng_is_named(rng):
    with pytest.raises(ValueError, match=r"rng is .*; expected None, a whole number"):
        rmes.minimize(bowl, SQUARE, rng=rng)


def test_callbacks_and_stopping_rules_do_not_disturb_the_points():
    plain = rmes.minimize(noisy_bowl(), SQUARE, budget=10, rng=2)
    watched = rmes.minimize(
        noisy_bowl(),
        SQUARE,
        budget=10,
        rng=2,
        callback=lambda result: None,
        stop_when=lambda outlook: False,
    )
    np.testing.assert_array_equal(plain.x_iters, watched.x_iters)


# ------------------------------------------------------------------------------ bounds and points


def test_bounds_may_be_pairs_an_array_or_scipys_and_mean_the_same():
    runs = [
        rmes.minimize(bowl, bounds, budget=5, rng=0).x_iters
        for bounds in (
            [(-1, 1), (0, 2)],
            np.array([[-1, 1], [0, 2]]),
            Bounds([-1, 0], [1, 2]),
            [rmes.Float(-1, 1), (0, 2)],
        )
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


def test_bounds_of_scipy_may_share_an_end():
    result = rmes.minimize(bowl, Bounds(0, [1, 2]), budget=5, rng=0)
    assert result.x_iters.shape == (5, 2)


def test_an_integer_coordinate_stays_whole_in_the_array():
    result = rmes.minimize(
        lambda x: (x[0] - 2.2) ** 2 + x[1], [rmes.Integer(0, 9), (0, 1)], budget=12, rng=0
    )
    np.testing.assert_array_equal(result.x_iters[:, 0], np.round(result.x_iters[:, 0]))
    assert result.x[0] == 2


def test_a_space_gives_dictionaries():
    space = {"dose": rmes.Float(1e-3, 1, log=True), "solvent": rmes.Categorical(["DMF", "THF"])}
    seen = []

    def f(params):
        seen.append(params)
        return np.log(params["dose"]) ** 2 + (params["solvent"] == "DMF")

    for bounds in (space, Space(space)):
        result = rmes.minimize(f, bounds, budget=12, rng=0)
        assert set(result.x) == set(space)
        assert result.x["solvent"] == "THF"
        assert result.x_observed in seen
        assert list(result.x_iters) == seen[-12:]
        assert "Use dose=" in str(result)


def test_the_order_of_parameters_does_not_matter():
    def f(params):
        return (params["a"] - 0.2) ** 2 + params["b"]

    one = rmes.minimize(f, {"a": (0, 1), "b": (0, 2)}, budget=10, rng=0)
    two = rmes.minimize(f, {"b": (0, 2), "a": (0, 1)}, budget=10, rng=0)
    assert list(one.x_iters) == list(two.x_iters)
    assert one.x == two.x


@pytest.mark.parametrize(
    ("bounds", "error", "words"),
    [
        (5.0, TypeError, r"bounds is 5.0; expected one \(low, high\) for each coordinate"),
        ("ab", TypeError, "bounds is 'ab'; expected one"),
        (None, TypeError, "bounds is None; expected one"),
        ((0, 1), ValueError, r"bounds is \(0, 1\); expected one .* such as \[\(0, 1\)"),
        ([], ValueError, r"bounds is \[\]; expected one"),
        ([(0, 1, 2)], ValueError, r"bounds is \[\(0, 1, 2\)\]; expected one"),
        ([(0, 1), (2, 1)], ValueError, r"x\[1\].*low is 2 and high is 1; expected low to be"),
        ([(0, np.inf)], ValueError, r"x\[0\].*high is inf; expected a finite number"),
        ([(0, np.nan)], ValueError, r"x\[0\].*high is nan; expected a finite number"),
        ([(0, "b")], TypeError, r"x\[0\].*high is 'b'; expected a number"),
        (Bounds(), ValueError, r"x\[0\].*low is -inf; expected a finite number"),
        ([rmes.Categorical("ab"[:1].split())], TypeError, "name the parameters"),
        ({}, ValueError, "a space is a dictionary of parameters"),
        ({"a": (1, 0)}, ValueError, "'a': low is 1 and high is 0"),
    ],
)
def test_wrong_bounds_are_named_before_anything_is_evaluated(bounds, error, words):
    with pytest.raises(error, match=words):
        rmes.minimize(unwanted, bounds)


def unwanted(x):
    raise AssertionError("f was evaluated")


def test_equal_bounds_fix_a_coordinate():
    result = rmes.minimize(bowl, [(0, 1), (0.7, 0.7)], budget=8, rng=0)
    np.testing.assert_array_equal(result.x_iters[:, 1], 0.7)


@pytest.mark.parametrize("x0", [[0.25, 0.5], [[0.25, 0.5]], np.array([0.25, 0.5])])
def test_a_point_of_ones_own_comes_first(x0):
    result = rmes.minimize(bowl, SQUARE, budget=8, x0=x0, rng=0)
    assert result.x_iters[0].tolist() == [0.25, 0.5]
    # Space-filling ones follow as they would have without it.
    plain = rmes.minimize(bowl, SQUARE, budget=8, rng=0)
    np.testing.assert_array_equal(result.x_iters[1:6], plain.x_iters[1:6])


def test_several_points_of_ones_own_come_first():
    points = [[0.25, 0.5], [0.5, 0.25], [0.125, 1.0]]
    result = rmes.minimize(bowl, SQUARE, budget=5, x0=points, rng=0)
    assert result.x_iters[:3].tolist() == points
    assert rmes.minimize(bowl, [(0, 1)], budget=3, x0=[0.5, 0.25]).x_iters[:2, 0].tolist() == [
        0.5,
        0.25,
    ]
    assert rmes.minimize(bowl, [(0, 1)], budget=3, x0=0.5).x_iters[0].tolist() == [0.5]
    space = {"a": (0, 1)}
    named = rmes.minimize(lambda p: p["a"], space, budget=3, x0=[{"a": 0.5}, {"a": 0.75}])
    assert list(named.x_iters[:2]) == [{"a": 0.5}, {"a": 0.75}]
    one = rmes.minimize(lambda p: p["a"], space, budget=1, x0={"a": 0.5})
    assert one.x_observed == {"a": 0.5}


@pytest.mark.parametrize(
    ("bounds", "x0", "error", "words"),
    [
        (SQUARE, [0.5, 2.0], ValueError, r"x0: x\[1\] is 2.0; expected it from 0.0 to 1.0"),
        (SQUARE, [0.5], ValueError, r"x0 is \[0.5\]; expected 2 numbers"),
        (SQUARE, "ab", TypeError, "x0 is 'ab'; expected 2 numbers"),
        (SQUARE, [0.5, np.nan], ValueError, r"x0: x\[1\] is nan"),
        ({"a": (0, 1)}, {"b": 1}, ValueError, "x0: unknown parameter b"),
        ({"a": (0, 1)}, 0.5, TypeError, "x0 is 0.5; expected a dictionary"),
        ({"a": (0, 1)}, [0.5], TypeError, "x0: expected a dictionary"),
    ],
)
def test_a_wrong_x0_is_named_before_anything_is_evaluated(bounds, x0, error, words):
    with pytest.raises(error, match=words):
        rmes.minimize(unwanted, bounds, x0=x0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"budget": 0}, ValueError, "budget is 0; expected at least 1"),
        ({"budget": -3}, ValueError, "budget is -3; expected at least 1"),
        ({"budget": 2.5}, TypeError, "budget is 2.5; expected a whole number"),
        ({"budget": True}, TypeError, "budget is True; expected a whole number"),
        ({"noise_sd": -1}, ValueError, "noise_sd is -1; expected 0 or more"),
        ({"noise_sd": "big"}, TypeError, "noise_sd is 'big'; expected a number"),
        ({"callback": 3}, TypeError, "callback is 3; expected a function"),
        ({"stop_when": 0.1}, TypeError, "stop_when is 0.1; expected a function"),
        ({"workers": 0}, ValueError, "workers is 0; expected 1 or more, or -1"),
        ({"workers": -2}, ValueError, "workers is -2; expected 1 or more, or -1"),
        ({"workers": "all"}, TypeError, "workers is 'all'; expected a number, or something"),
        ({"workers": None}, TypeError, "workers is None; expected a number, or something"),
        ({"workers": ThreadPoolExecutor}, TypeError, "expected a number, or something"),
        ({"workers": map}, TypeError, "expected a number, or something with submit"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_evaluated(arguments, error, words):
    with pytest.raises(error, match=words):
        rmes.minimize(unwanted, SQUARE, **arguments)


def test_f_must_be_callable():
    with pytest.raises(TypeError, match="f is 3; expected a function"):
        rmes.minimize(3, SQUARE)


def test_further_arguments_are_passed_on():
    seen = []
    rmes.minimize(lambda x, *rest: seen.append(rest) or 1.0, SQUARE, (1, "a"), budget=2)
    rmes.minimize(lambda x, *rest: seen.append(rest) or 1.0, SQUARE, 7, budget=1)
    assert seen == [(1, "a"), (1, "a"), (7,)]


def test_f_may_write_into_its_point():
    def f(x):
        x[:] = 9.0
        return 1.0

    assert np.max(rmes.minimize(f, SQUARE, budget=3, rng=0).x_iters) <= 1.0


# ------------------------------------------------------------------------------ values and noise


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, np.float32(1), np.array(1.0), np.array([1.0]), (1.0, None), (1.0, 0.1), [1, 0]],
)
def test_values_come_as_numbers_alone_or_with_their_sd(value):
    result = rmes.minimize(lambda x: value, SQUARE, budget=2, rng=0)
    assert result.func_vals.tolist() == [1.0, 1.0]


def test_the_sd_beside_a_value_reaches_the_optimizer():
    result = rmes.minimize(lambda x: (bowl(x), 0.25), SQUARE, budget=3, rng=0)
    assert [trial["noise_sds"] for trial in result.optimizer.trials] == [[0.25]] * 3


def test_noise_may_be_a_function_of_the_point():
    seen = []

    def noise(x):
        seen.append(np.shape(x))
        return 0.1 + 0.1 * float(x[0])

    result = rmes.minimize(noisy_bowl(), SQUARE, budget=9, noise_sd=noise, rng=0)
    assert result.success
    assert set(seen) == {(2,)}


def test_exact_measurements_are_never_repeated():
    result = rmes.minimize(bowl, SQUARE, budget=15, noise_sd=0, rng=0)
    assert len(np.unique(result.x_iters, axis=0)) == 15


@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, -np.inf, None, "text", (1.0, -1.0), (1.0, np.nan), [1, 2, 3], {}]
)
def test_a_failed_measurement_is_recorded_and_the_run_goes_on(bad, caplog):
    count = iter(range(100))

    def f(x):
        return bad if next(count) in (1, 4) else bowl(x)

    with caplog.at_level(logging.WARNING, "rmes"):
        result = rmes.minimize(f, SQUARE, budget=8, rng=0)
    assert np.flatnonzero(np.isnan(result.func_vals)).tolist() == [1, 4]
    assert result.success
    assert result.nfev == 8
    expected = "The budget of 8 evaluations is spent. 2 of the 8 evaluations failed."
    assert result.message == expected
    assert [trial["state"] for trial in result.optimizer.trials].count("failed") == 2
    assert "evaluation 1 at" in caplog.text
    assert repr(bad) in caplog.text


def test_an_exception_is_a_failed_measurement():
    count = iter(range(100))

    def f(x):
        if next(count) == 0:
            raise ZeroDivisionError("no luck")
        return bowl(x)

    result = rmes.maximize(f, SQUARE, budget=4, rng=0)
    assert np.flatnonzero(np.isnan(result.func_vals)).tolist() == [0]


@pytest.mark.parametrize(("budget", "failures"), [(4, 4), (60, 10)])
def test_if_all_fail_the_error_has_the_first_traceback(budget, failures):
    count = iter(range(100))

    def f(x):
        raise KeyError(f"number {next(count)}")

    words = f"all {failures} evaluations failed; the first one: KeyError: 'number 0'"
    with pytest.raises(RuntimeError, match=words) as caught:
        rmes.minimize(f, SQUARE, budget=budget)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "f" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert len(caught.value.optimizer.trials) == failures


def test_if_all_values_are_useless_the_error_says_so():
    with pytest.raises(RuntimeError, match="f returned nan; expected a finite number"):
        rmes.minimize(lambda x: np.nan, SQUARE, budget=2)


# ------------------------------------------------------------------------------ ends


def test_the_callback_sees_the_result_so_far():
    seen = []
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=9, rng=0, callback=seen.append)
    assert [one.nfev for one in seen] == list(range(1, 10))
    assert seen[-1].fun == result.fun
    assert all(isinstance(one, OptimizeResult) and not one.success for one in seen)


def test_the_callback_comes_after_failures_too():
    seen = []
    values = iter([np.nan, 1.0, 2.0])
    rmes.minimize(lambda x: next(values), SQUARE, budget=3, callback=seen.append)
    assert seen[0].x is None
    assert np.isnan(seen[0].fun)
    assert seen[0].nfev == 1


def stop_iteration(result):
    if result.nfev == 3:
        raise StopIteration


@pytest.mark.parametrize("callback", [stop_iteration, lambda result: result.nfev == 3])
def test_the_callback_may_end_the_run(callback):
    result = rmes.minimize(bowl, SQUARE, budget=9, callback=callback)
    assert result.nfev == 3
    assert result.success
    assert result.status == 2
    assert result.message == "The callback asked to stop."


def test_a_callback_that_raises_loses_no_measurement():
    def callback(result):
        if result.nfev == 4:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full") as caught:
        rmes.minimize(bowl, SQUARE, budget=9, rng=0, callback=callback)
    optimizer = caught.value.optimizer
    assert len(optimizer.trials) == 4
    assert all(trial["values"] for trial in optimizer.trials)
    assert optimizer.recommend().measurements == 4
    assert "4 measurements had been made" in caught.value.__notes__[0]
    whole = rmes.minimize(bowl, SQUARE, budget=9, rng=0)
    for x in whole.x_iters[4:]:  # and the run can go on as if nothing had happened
        trial = optimizer.ask()
        assert list(trial.params.values()) == x.tolist()
        optimizer.tell(trial, bowl(x))


def test_a_stopping_rule_on_the_outlook_ends_the_run():
    seen = []

    def stop_when(outlook):
        seen.append(outlook)
        return outlook.probability_within(0.05) > 0.9

    result = rmes.minimize(bowl, SQUARE, budget=40, noise_sd=0, rng=0, stop_when=stop_when)
    assert result.status == 1
    assert result.success
    assert result.message == "The rule stop_when is satisfied."
    assert result.nfev == result.optimizer.initial + len(seen) - 1 < 40
    assert bowl(result.x) < 0.05


def test_an_interrupted_run_returns_what_it_has():
    count = iter(range(100))

    def f(x):
        if next(count) == 5:
            raise KeyboardInterrupt
        return bowl(x)

    result = rmes.minimize(f, SQUARE, budget=9, rng=0)
    assert not result.success
    assert result.status == -1
    assert result.message == "Interrupted after 5 measurements."
    assert result.nfev == 5
    assert result.optimizer.trials[5]["state"] == "pending"


def test_an_interrupt_before_any_measurement_is_one():
    def f(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rmes.minimize(f, SQUARE, budget=9)


def test_a_finite_space_is_exhausted_gracefully():
    space = {"n": rmes.Integer(1, 3)}
    result = rmes.maximize(lambda p: -((p["n"] - 2) ** 2), space, budget=20, noise_sd=0, rng=0)
    assert result.nfev == 3
    assert result.success
    assert result.status == 3
    assert result.message.startswith("All 3 points have been asked for")
    assert result.x == {"n": 2}
    with ThreadPoolExecutor(2) as pool:
        both = rmes.maximize(
            lambda p: -((p["n"] - 2) ** 2), space, budget=20, noise_sd=0, rng=0, workers=pool
        )
    assert both.nfev == 3


def test_a_budget_of_one_is_a_run():
    result = rmes.minimize(bowl, SQUARE, budget=1, rng=0)
    assert result.nfev == 1
    assert result.fun_observed == result.func_vals[0]


def test_the_bar_shows_only_where_it_is_wanted(capsys, monkeypatch):
    result = rmes.minimize(bowl, SQUARE, budget=3, rng=0)
    rmes.minimize(bowl, SQUARE, budget=3, rng=0, disp=True)  # not on a terminal
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    rmes.minimize(bowl, SQUARE, budget=3, rng=0, disp=True)
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert f"best measured {result.fun_observed:.4g}" in shown


# ------------------------------------------------------------------------------ workers


class _Ticket:
    def __init__(self, clock, x, end, outcome):
        self.clock, self.x, self.end, self.outcome = clock, x, end, outcome

    def done(self):
        return self is min(self.clock.waiting, key=lambda ticket: ticket.end)

    def result(self):
        self.clock.waiting.remove(self)
        self.clock.now = self.end
        return self.outcome


class Clock:
    """An executor in simulated time, with workers of random duration.

    Its futures have nothing but `done` and `result`. It refuses a point that is being measured.
    """

    def __init__(self, workers, seed):
        self._max_workers = workers
        self.rng = np.random.default_rng(seed)
        self.now, self.waiting, self.busiest = 0.0, [], 0

    def submit(self, function, *arguments):
        x = arguments[1]
        assert not any(np.array_equal(x, ticket.x) for ticket in self.waiting)
        end = self.now + self.rng.gamma(4.0, 0.25)
        self.waiting.append(_Ticket(self, x, end, function(*arguments)))
        self.busiest = max(self.busiest, len(self.waiting))
        return self.waiting[-1]


def test_all_workers_are_kept_busy_at_different_points():
    clock = Clock(4, seed=0)
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=20, rng=0, workers=clock)
    assert clock.busiest == 4
    assert result.nfev == 20
    assert clock.now < 20 / 4 * 1.5  # a mean duration of 1
    assert all(trial["state"] == "measured" for trial in result.optimizer.trials)


def test_a_pool_of_one_is_the_sequential_run():
    alone = rmes.minimize(noisy_bowl(), SQUARE, budget=12, rng=0)
    with ThreadPoolExecutor(1) as pool:
        pooled = rmes.minimize(noisy_bowl(), SQUARE, budget=12, rng=0, workers=pool)
    np.testing.assert_array_equal(alone.x_iters, pooled.x_iters)
    np.testing.assert_array_equal(alone.x, pooled.x)


def test_two_processes_of_our_own_do_the_work_of_this_one():
    pids = set()

    def callback(result):
        pids.update(result.func_vals.tolist())

    result = rmes.minimize(process_id, SQUARE, budget=8, rng=0, workers=2, callback=callback)
    assert result.nfev == 8
    assert len(pids) == 2
    assert os.getpid() not in pids


def process_id(x):
    time.sleep(0.05)
    return float(os.getpid())


def test_a_process_that_dies_takes_no_measurement_along(tmp_path, caplog):
    once = tmp_path / "died"
    with caplog.at_level(logging.WARNING, "rmes"):
        result = rmes.minimize(die_once, SQUARE, (once,), budget=8, rng=0, workers=2)
    assert once.exists()
    assert "evaluation" in caplog.text
    assert "was lost, attempt 1 of 3" in caplog.text
    assert not np.isnan(result.func_vals).any()
    np.testing.assert_array_equal(result.func_vals, [bowl(x) for x in result.x_iters])


def die_once(x, once: Path):
    if x[0] > 0.5 and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return bowl(x)


def test_a_point_that_kills_its_process_has_failed_in_the_end():
    result = rmes.minimize(die_on_the_right, SQUARE, budget=6, rng=0, workers=2)
    np.testing.assert_array_equal(np.isnan(result.func_vals), result.x_iters[:, 0] > 0.7)
    assert np.isnan(result.func_vals).any()
    assert result.nfev == 6


def die_on_the_right(x):
    if x[0] > 0.7:
        os.kill(os.getpid(), signal.SIGKILL)
    return bowl(x)


def test_if_all_fail_elsewhere_the_error_still_has_the_traceback():
    with pytest.raises(RuntimeError, match="all 2 evaluations failed") as caught:
        rmes.minimize(fail_in_depth, SQUARE, budget=2, workers=2)
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert "in fail_in_depth" in cause.__notes__[0]


def fail_in_depth(x):
    return 1 / 0


def test_leaving_is_a_failure_in_a_worker_but_not_here():
    def f(x):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        rmes.minimize(f, SQUARE, budget=2)
    with (
        ThreadPoolExecutor(2) as pool,
        pytest.raises(RuntimeError, match="the first one: SystemExit: 3"),
    ):
        rmes.minimize(f, SQUARE, budget=2, workers=pool)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail_unpicklably(x):
    raise Unpicklable("this", "that")


def test_an_error_that_cannot_travel_is_described():
    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        rmes.minimize(fail_unpicklably, SQUARE, budget=2, workers=2)


def test_a_lambda_goes_to_processes_with_cloudpickle_and_is_refused_without(monkeypatch):
    result = rmes.minimize(lambda x: bowl(x), SQUARE, budget=2, workers=2)
    assert result.nfev == 2
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeError, match=r"cannot be sent to another process .* use threads"):
        rmes.minimize(lambda x: bowl(x), SQUARE, budget=2, workers=2)


def test_an_error_in_the_callback_ends_running_processes_at_once():
    def callback(result):
        raise OSError("disk full")

    begun = time.perf_counter()
    with pytest.raises(OSError, match="disk full"):
        rmes.minimize(one_is_slow, SQUARE, x0=[[0, 0], [1, 1]], workers=2, callback=callback)
    assert time.perf_counter() - begun < 20


def one_is_slow(x):
    if x[0] == 1:
        time.sleep(60)
    return bowl(x)


def test_executors_of_the_standard_library_and_loky_are_welcome():
    loky = pytest.importorskip("joblib.externals.loky")
    for make in (ThreadPoolExecutor, spawned, loky.ProcessPoolExecutor):
        with make(2) as pool:
            result = rmes.minimize(bowl, SQUARE, budget=5, rng=0, workers=pool)
            assert result.nfev == 5
            np.testing.assert_array_equal(result.func_vals, [bowl(x) for x in result.x_iters])


def spawned(workers):
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


class Lossy:
    """Loses the first attempts of every third evaluation, in one of three ways."""

    def __init__(self, attempts):
        self.attempts, self.calls, self.lost = attempts, 0, {}

    def submit(self, function, *arguments):
        place = tuple(arguments[1])
        future = Future()
        if place not in self.lost:
            self.calls += 1
            self.lost[place] = self.attempts if self.calls % 3 == 1 else 0
        if self.lost[place]:
            self.lost[place] -= 1
            if self.lost[place] % 2:
                future.cancel()
            else:
                future.set_exception(ConnectionError("worker lost"))
        else:
            future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize(("attempts", "failed"), [(1, 0), (2, 0), (3, 4)])
def test_a_lost_evaluation_is_sent_again_but_not_for_ever(attempts, failed):
    result = rmes.minimize(bowl, SQUARE, budget=12, noise_sd=0, rng=0, workers=Lossy(attempts))
    assert result.nfev == 12
    assert np.isnan(result.func_vals).sum() == failed
    good = ~np.isnan(result.func_vals)
    np.testing.assert_array_equal(result.func_vals[good], [bowl(x) for x in result.x_iters[good]])


def test_an_executor_that_takes_no_more_work_ends_the_run_with_its_data():
    pool = ThreadPoolExecutor(2)

    def callback(result):
        if result.nfev == 3:
            pool.shutdown()

    with pytest.raises(RuntimeError, match="after shutdown") as caught:
        rmes.minimize(bowl, SQUARE, budget=9, workers=pool, callback=callback)
    assert caught.value.optimizer.recommend().measurements == 3


def test_what_runs_when_a_run_ends_early_is_still_counted():
    with ThreadPoolExecutor(4) as pool:
        result = rmes.minimize(
            lambda x: time.sleep(0.05) or bowl(x),
            SQUARE,
            budget=30,
            rng=0,
            workers=pool,
            callback=lambda result: result.nfev >= 5,
        )
    assert result.status == 2
    assert 5 <= result.nfev <= 9
    assert all(trial["state"] == "measured" for trial in result.optimizer.trials)


def test_ctrl_c_ends_a_run_on_processes():
    timer = threading.Timer(2.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        result = rmes.minimize(slow_but_first, SQUARE, x0=[0, 0], budget=9, workers=2)
    except KeyboardInterrupt:  # the processes took their time to start
        result = None
    finally:
        timer.cancel()
    assert result is None or (result.status == -1 and result.nfev == 1)


def slow_but_first(x):
    if x[0]:
        time.sleep(60)
    return bowl(x)


# ------------------------------------------------------------------------------ as good, and faster


def regrets(workers, seeds, budget=30, sd=5.0):
    """True regret of the recommendation on noisy Branin."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 7])
        result = rmes.minimize(
            lambda x, rng=rng: branin(x) + sd * rng.standard_normal(),
            BRANIN_BOUNDS,
            budget=budget,
            rng=seed,
            workers=workers(seed),
        )
        found.append(branin(result.x) - BRANIN_MINIMUM)
    return found


@pytest.mark.slow
def test_four_workers_learn_as_much_from_as_many_evaluations():
    seeds = range(8)
    alone = np.array(regrets(lambda seed: 1, seeds))
    together = np.array(regrets(lambda seed: Clock(4, seed), seeds))
    # Regrets are roughly chi-squared: eight runs give the ratio of their medians within a factor
    # of two or so. They may not contradict 1.25, at a level of 10 %.
    pick = np.random.default_rng(0).integers(len(seeds), size=(2, 1000, len(seeds)))
    ratios = np.median(together[pick[0]], axis=1) / np.median(alone[pick[1]], axis=1)
    assert np.quantile(ratios, 0.1) < 1.25


@pytest.mark.slow
def test_four_workers_take_a_third_of_the_time():
    rng = np.random.default_rng(0)
    durations = rng.gamma(4.0, 0.125, 40)  # long beside a suggestion, even on a busy machine
    took = []
    for workers in (1, ThreadPoolExecutor(4)):
        remaining = iter(durations)

        def f(x, remaining=remaining):
            time.sleep(next(remaining))
            return branin(x) + 5 * rng.standard_normal()

        begun = time.perf_counter()
        result = rmes.minimize(f, BRANIN_BOUNDS, budget=40, rng=0, workers=workers)
        took.append(time.perf_counter() - begun)
        assert result.nfev == 40
    assert took[1] < 0.35 * took[0]
