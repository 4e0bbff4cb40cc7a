import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

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


def noise_on_the_right(x):
    return 0.03 + 0.03 * float(x[0])


def unwanted(x):
    raise AssertionError("f was evaluated")


# ------------------------------------------------------------------------------ one call


def test_a_noisy_bowl_is_minimised_in_scipys_manners():
    f = noisy_bowl(sd=0.03)
    result = rmes.minimize(f, SQUARE, budget=20, noise_sd=noise_on_the_right, rng=0)
    assert isinstance(result, OptimizeResult)
    assert (result.success, result.status) == (True, 0)
    assert result.message == "The budget of 20 evaluations is spent."
    assert result.nfev == result.nit == 20
    assert result.x_iters.shape == (20, 2)
    assert result.func_vals.shape == (20,)
    assert bowl(result.x) < 0.1  # the bowl spans 0.98
    assert result.recommendation.mean == result.fun
    assert result.fun_std > 0
    assert result.fun_observed == result.func_vals.min()
    at = int(np.argmin(result.func_vals))
    np.testing.assert_array_equal(result.x_observed, result.x_iters[at])
    assert "Use x[0]=" in str(result)
    again = pickle.loads(pickle.dumps(result))
    assert again.optimizer.recommend() == result.recommendation


def test_minimising_f_and_maximising_minus_f_visit_the_same_points():
    down = rmes.minimize(noisy_bowl(), SQUARE, budget=14, rng=1)
    f = noisy_bowl()
    up = rmes.maximize(lambda x: -f(x), SQUARE, budget=14, rng=1)
    np.testing.assert_array_equal(down.x_iters, up.x_iters)
    np.testing.assert_array_equal(down.x, up.x)
    assert (down.fun, down.fun_observed) == (-up.fun, -up.fun_observed)


def test_a_seed_makes_the_run_reproducible_and_hooks_do_not_disturb_it():
    plain = rmes.minimize(noisy_bowl(), SQUARE, budget=9, rng=2)
    hooks = {"callback": lambda result: None, "stop_when": lambda outlook: False}
    watched = rmes.minimize(noisy_bowl(), SQUARE, budget=9, rng=2, **hooks)
    np.testing.assert_array_equal(plain.x_iters, watched.x_iters)
    rng = np.random.default_rng(2)
    runs = [rmes.minimize(bowl, SQUARE, budget=1, rng=g).x[0] for g in (2, rng, rng)]
    assert len(set(runs)) == 3


# ------------------------------------------------------------------------------ bounds and points


def test_bounds_may_be_pairs_an_array_or_scipys_and_mean_the_same():
    pairs = [(0, 1), (0, 2)]
    expected = rmes.minimize(bowl, pairs, budget=3, rng=0).x_iters
    for bounds in (np.array(pairs), Bounds(0, [1, 2]), [rmes.Float(0, 1), (0, 2)]):
        run = rmes.minimize(bowl, bounds, budget=3, rng=0).x_iters
        np.testing.assert_array_equal(run, expected)


def test_a_space_gives_dictionaries_and_the_order_of_its_names_does_not_matter():
    space = {"dose": rmes.Float(1e-3, 1, log=True), "solvent": rmes.Categorical(["DMF", "THF"])}

    def f(params):
        return np.log(params["dose"]) ** 2 + (params["solvent"] == "DMF")

    one = rmes.minimize(f, space, budget=12, rng=0)
    two = rmes.minimize(f, Space(dict(reversed(space.items()))), budget=12, rng=0)
    assert list(one.x_iters) == list(two.x_iters)
    assert one.x == two.x
    assert one.x["solvent"] == "THF"
    assert one.x_observed in list(one.x_iters)


def test_equal_bounds_fix_a_coordinate_and_integers_stay_whole():
    result = rmes.minimize(bowl, [rmes.Integer(0, 9), (0.7, 0.7)], budget=8, rng=0)
    np.testing.assert_array_equal(result.x_iters[:, 0], np.round(result.x_iters[:, 0]))
    np.testing.assert_array_equal(result.x_iters[:, 1], 0.7)


@pytest.mark.parametrize(("noise_sd", "evaluations"), [(None, 6), (0.1, 6), (0, 1)])
def test_where_all_bounds_are_equal_the_one_point_is_measured(noise_sd, evaluations):
    fixed = [(0.5, 0.5), (2, 2)]
    result = rmes.minimize(noisy_bowl(), fixed, budget=6, noise_sd=noise_sd, rng=0)
    assert result.nfev == evaluations
    assert result.x.tolist() == [0.5, 2.0]
    assert abs(result.fun - np.mean(result.func_vals)) < 0.1  # one sd
    assert result.optimizer.outlook().probability_within(0.0) == 1.0


@pytest.mark.parametrize(
    ("bounds", "x0", "first"),
    [
        (SQUARE, [0.25, 0.5], [[0.25, 0.5]]),
        (SQUARE, [[0.25, 0.5], [0.5, 1]], [[0.25, 0.5], [0.5, 1.0]]),
        ({"a": (0, 1)}, [{"a": 0.5}, {"a": 0.75}], [{"a": 0.5}, {"a": 0.75}]),
    ],
)
def test_points_of_ones_own_come_first(bounds, x0, first):
    result = rmes.minimize(lambda x: 1.0, bounds, budget=3, x0=x0)
    assert result.x_iters[: len(first)].tolist() == first
    assert result.nfev == 3


NAMED = {"a": (0, 1)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rng": "seven"}, "rng is 'seven'; expected None, a whole number from 0 or a numpy Gen"),
        ({"rng": -1}, "rng is -1; expected None, a whole number"),
        ({"bounds": 5.0}, r"bounds is 5.0; expected one \(low, high\) for each coordinate"),
        ({"bounds": (0, 1)}, r"bounds is \(0, 1\); expected one .* such as \[\(0, 1\)"),
        ({"bounds": [(0, 1), (2, 1)]}, r"x\[1\].*low is 2 and high is 1; expected low to be"),
        ({"bounds": [(0, np.nan)]}, r"x\[0\].*high is nan; expected a finite number"),
        ({"bounds": Bounds()}, r"x\[0\].*low is -inf; expected a finite number"),
        ({"bounds": {"a": (1, 0)}}, "'a': low is 1 and high is 0"),
        ({"x0": [0.5, 2.0]}, r"x0: x\[1\] is 2.0; expected it from 0.0 to 1.0"),
        ({"x0": [0.5]}, r"x0: no value for x\[1\]"),
        ({"x0": [0.5, 0.5, 0.5]}, r"x0: unknown parameter x\[2\]"),
        ({"x0": {"b": 1}, "bounds": NAMED}, "x0: unknown parameter b"),
        ({"x0": 0.5, "bounds": NAMED}, "x0: expected a dictionary of parameters, not 0.5"),
        ({"f": 3}, "f is 3; expected a function"),
        ({"budget": 0}, "budget is 0; expected at least 1"),
        ({"budget": 2.5}, "budget is 2.5; expected a whole number"),
        ({"noise_sd": -1}, "noise_sd is -1; expected 0 or more"),
        ({"callback": 3}, "callback is 3; expected a function"),
        ({"workers": 0}, "workers is 0; expected 1 or more, or -1"),
        ({"workers": None}, "workers is None; expected a number, or something with submit"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_evaluated(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        rmes.minimize(**{"f": unwanted, "bounds": SQUARE, **arguments})


def test_f_gets_further_arguments_and_may_write_into_its_point():
    seen = []

    def f(x, *rest):
        seen.append(rest)
        x[:] = 9.0
        return 1.0

    result = rmes.minimize(f, SQUARE, (1, "a"), budget=2)
    rmes.minimize(f, SQUARE, 7, budget=1)
    assert seen == [(1, "a"), (1, "a"), (7,)]
    assert np.max(result.x_iters) <= 1.0


# ------------------------------------------------------------------------------ values and noise


@pytest.mark.parametrize("value", [1, np.float32(1), np.array([1.0]), (1.0, None), (1.0, 0.25)])
def test_values_come_as_numbers_alone_or_with_their_sd(value):
    result = rmes.minimize(lambda x: value, SQUARE, budget=2, rng=0)
    assert result.func_vals.tolist() == [1.0, 1.0]
    sd = value[1] if isinstance(value, tuple) else None
    assert [trial["noise_sds"] for trial in result.optimizer.trials] == [[sd]] * 2


def test_exact_measurements_are_never_repeated():
    result = rmes.minimize(bowl, SQUARE, budget=15, noise_sd=0, rng=0)
    assert len(np.unique(result.x_iters, axis=0)) == 15


@pytest.mark.parametrize("bad", [np.nan, -np.inf, None, "text", (1.0, -1.0), [1, 2, 3], OSError])
def test_a_failed_measurement_is_recorded_and_the_run_goes_on(bad, caplog):
    count = iter(range(100))

    def f(x):
        if next(count) not in (0, 4):
            return bowl(x)
        if bad is OSError:
            raise OSError("no luck")
        return bad

    seen = []
    with caplog.at_level(logging.WARNING, "rmes"):
        result = rmes.minimize(f, SQUARE, budget=8, rng=0, callback=seen.append)
    assert np.flatnonzero(np.isnan(result.func_vals)).tolist() == [0, 4]
    assert (result.success, result.nfev) == (True, 8)
    expected = "The budget of 8 evaluations is spent. 2 of the 8 evaluations failed."
    assert result.message == expected
    assert [trial["state"] for trial in result.optimizer.trials].count("failed") == 2
    assert seen[0].x is None  # nothing to recommend yet
    assert "evaluation 4 at" in caplog.text
    assert ("no luck" if bad is OSError else repr(bad)) in caplog.text


def fail(x):
    raise KeyError(f"at {x}")


def test_if_all_fail_the_error_has_the_first_traceback():
    words = r"all 4 evaluations failed; the first one: KeyError: 'at \[0.25 0.5"
    with pytest.raises(RuntimeError, match=words) as caught:
        rmes.minimize(fail, SQUARE, budget=4, x0=[0.25, 0.5])
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert "fail" in [frame.name for frame in frames]
    assert len(caught.value.optimizer.trials) == 4


# ------------------------------------------------------------------------------ ends


def stop_iteration(result):
    if result.nfev == 3:
        raise StopIteration


@pytest.mark.parametrize("callback", [stop_iteration, lambda result: result.nfev == 3])
def test_the_callback_may_end_the_run(callback):
    result = rmes.minimize(bowl, SQUARE, budget=9, callback=callback)  # it sees the result so far
    assert (result.nfev, result.success, result.status) == (3, True, 2)
    assert result.message == "The callback asked to stop."


def test_a_callback_that_raises_loses_no_measurement():
    def callback(result):
        if result.nfev == 4:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full") as caught:
        rmes.minimize(bowl, SQUARE, budget=9, rng=0, callback=callback)
    optimizer = caught.value.optimizer
    assert optimizer.recommend().measurements == 4
    assert "4 measurements" in caught.value.__notes__[0]
    for x in rmes.minimize(bowl, SQUARE, budget=9, rng=0).x_iters[4:]:  # the run can go on
        trial = optimizer.ask()
        assert list(trial.params.values()) == x.tolist()
        optimizer.tell(trial, bowl(x))


def test_a_stopping_rule_on_the_outlook_ends_the_run():
    def stop_when(outlook):
        return outlook.probability_within(0.05) > 0.9

    result = rmes.minimize(bowl, SQUARE, budget=40, noise_sd=0, rng=0, stop_when=stop_when)
    assert (result.success, result.status) == (True, 1)
    assert result.message == "The rule stop_when is satisfied."
    assert result.optimizer.initial <= result.nfev < 40
    assert bowl(result.x) < 0.05


def test_an_interrupted_run_returns_what_it_has():
    values = iter([1.0, 2.0])

    def f(x):
        try:
            return next(values)
        except StopIteration:
            raise KeyboardInterrupt from None

    result = rmes.minimize(f, SQUARE, budget=9, rng=0)
    assert (result.success, result.status, result.nfev) == (False, -1, 2)
    assert result.message == "Interrupted after 2 measurements."
    assert result.optimizer.trials[2]["state"] == "pending"
    with pytest.raises(KeyboardInterrupt):  # there is nothing to return
        rmes.minimize(f, SQUARE, budget=9)


def test_a_finite_space_is_exhausted_gracefully():
    def f(params):
        return -((params["n"] - 2) ** 2)

    space = {"n": rmes.Integer(1, 3)}
    with ThreadPoolExecutor(2) as pool:
        result = rmes.maximize(f, space, budget=20, noise_sd=0, rng=0, workers=pool)
    assert (result.nfev, result.success, result.status) == (3, True, 3)
    assert result.message == "All points of the space have been measured."
    assert result.x == {"n": 2}


def test_the_bar_shows_only_where_it_is_wanted(capsys):
    result = rmes.minimize(bowl, SQUARE, budget=3, rng=0)
    assert capsys.readouterr() == ("", "")
    rmes.minimize(bowl, SQUARE, budget=3, rng=0, disp=True)
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert f"best measured {result.fun_observed:.4g}" in shown


# ------------------------------------------------------------------------------ executors


class Ticket:
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
        self.waiting.append(Ticket(self, x, end, function(*arguments)))
        self.busiest = max(self.busiest, len(self.waiting))
        return self.waiting[-1]


def test_all_workers_are_kept_busy_at_different_points():
    clock = Clock(4, seed=0)
    result = rmes.minimize(noisy_bowl(), SQUARE, budget=20, rng=0, workers=clock)
    assert clock.busiest == 4
    assert clock.now < 20 / 4 * 1.5  # a mean duration of 1
    assert [trial["state"] for trial in result.optimizer.trials] == ["measured"] * 20


def test_a_pool_of_one_is_the_sequential_run():
    alone = rmes.minimize(noisy_bowl(), SQUARE, budget=9, rng=0)
    with ThreadPoolExecutor(1) as pool:
        pooled = rmes.minimize(noisy_bowl(), SQUARE, budget=9, rng=0, workers=pool)
    np.testing.assert_array_equal(alone.x_iters, pooled.x_iters)


def spawned(workers):
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


def test_executors_of_the_standard_library_and_loky_are_welcome():
    loky = pytest.importorskip("joblib.externals.loky")
    for make in (ThreadPoolExecutor, spawned, loky.ProcessPoolExecutor):
        with make(2) as pool:
            result = rmes.minimize(bowl, SQUARE, budget=4, rng=0, workers=pool)
        np.testing.assert_array_equal(result.func_vals, [bowl(x) for x in result.x_iters])


class Lossy:
    """Loses the first attempts of every third evaluation, in one of two ways."""

    def __init__(self, attempts):
        self.attempts, self.lost = attempts, {}

    def submit(self, function, *arguments):
        place, future = tuple(arguments[1]), Future()
        self.lost.setdefault(place, 0 if len(self.lost) % 3 else self.attempts)
        if not self.lost[place]:
            future.set_result(function(*arguments))
            return future
        self.lost[place] -= 1
        if self.lost[place] % 2:
            future.cancel()
        else:
            future.set_exception(ConnectionError("worker lost"))
        return future


@pytest.mark.parametrize(("attempts", "failed"), [(2, 0), (3, 3)])
def test_a_lost_evaluation_is_sent_again_but_not_for_ever(attempts, failed):
    result = rmes.minimize(bowl, SQUARE, budget=8, noise_sd=0, rng=0, workers=Lossy(attempts))
    assert result.nfev == 8
    assert np.isnan(result.func_vals).sum() == failed
    good = ~np.isnan(result.func_vals)
    np.testing.assert_array_equal(result.func_vals[good], [bowl(x) for x in result.x_iters[good]])


def test_what_runs_when_a_run_ends_early_is_still_counted():
    def f(x):
        time.sleep(0.05)
        return bowl(x)

    with ThreadPoolExecutor(4) as pool:
        result = rmes.minimize(f, SQUARE, budget=30, workers=pool, callback=lambda r: r.nfev >= 5)
    assert result.status == 2
    assert 5 <= result.nfev <= 9
    assert all(trial["state"] == "measured" for trial in result.optimizer.trials)


# ------------------------------------------------------------------------------ our processes


def test_processes_do_the_work_and_one_that_dies_takes_no_measurement_along(tmp_path, caplog):
    pids, once = tmp_path / "pids", tmp_path / "once"

    def f(x):  # a local function needs cloudpickle
        with open(pids, "a") as lines:
            lines.write(f"{os.getpid()}\n")
        if x[0] > 0.5 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return bowl(x)

    with caplog.at_level(logging.WARNING, "rmes"):
        result = rmes.minimize(f, SQUARE, budget=8, rng=0, workers=2)
    assert caplog.text.count("was lost, attempt 1") == 1
    np.testing.assert_array_equal(result.func_vals, [bowl(x) for x in result.x_iters])
    evaluated = pids.read_text().split()
    assert len(evaluated) == 9
    assert len(set(evaluated)) == 3
    assert str(os.getpid()) not in evaluated


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail_unpicklably(x):
    raise Unpicklable("this", "that")


def test_an_error_elsewhere_arrives_with_its_traceback_even_if_it_cannot_travel():
    with pytest.raises(RuntimeError, match="Unpicklable: this and that") as caught:
        rmes.minimize(fail_unpicklably, SQUARE, budget=2, workers=2)
    assert "in fail_unpicklably" in caught.value.__cause__.__notes__[0]


def test_without_cloudpickle_a_lambda_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(RuntimeError, match=r"cannot be sent to another process .* define it in a"):
        rmes.minimize(lambda x: bowl(x), SQUARE, budget=2, workers=2)


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import rmes\nrmes.minimize(sum, [(0, 1)], budget=2, workers=2)\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert ran.returncode == 1
    assert 'must do its work under `if __name__ == "__main__":`' in ran.stderr


def slow_but_first(x):
    if x[0]:
        time.sleep(60)
    return bowl(x)


def test_ctrl_c_ends_running_processes_at_once():
    def callback(result):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    begun = time.perf_counter()
    result = rmes.minimize(slow_but_first, SQUARE, x0=[0, 0], workers=2, callback=callback)
    assert (result.status, result.nfev) == (-1, 1)
    assert time.perf_counter() - begun < 30


# ------------------------------------------------------------------------------ as good, and faster

BRANIN_BOUNDS = [(-5.0, 10.0), (0.0, 15.0)]


def branin(x):
    """Branin's function above its minimum."""
    valley = (x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10 - 0.39788735772973816


def regret(seed, workers):
    """True regret of the recommendation on noisy Branin."""
    rng = np.random.default_rng([seed, 7])

    def f(x):
        return branin(x) + 5 * rng.standard_normal()

    return branin(rmes.minimize(f, BRANIN_BOUNDS, budget=30, rng=seed, workers=workers).x)


@pytest.mark.slow
def test_four_workers_learn_as_much_from_as_many_evaluations():
    seeds = range(8)
    alone = np.array([regret(seed, 1) for seed in seeds])
    together = np.array([regret(seed, Clock(4, seed)) for seed in seeds])
    # Regrets are roughly chi-squared: eight runs give the ratio of their medians within a factor
    # of two or so. They may not contradict 1.25, at a level of 10 %.
    pick = np.random.default_rng(0).integers(len(seeds), size=(2, 1000, len(seeds)))
    ratios = np.median(together[pick[0]], axis=1) / np.median(alone[pick[1]], axis=1)
    assert np.quantile(ratios, 0.1) < 1.25


@pytest.mark.slow
def test_four_workers_take_a_third_of_the_time():
    durations = np.random.default_rng(0).gamma(4.0, 0.125, 32)

    def seconds(workers, durations):
        remaining = iter(durations)

        def f(x):
            time.sleep(next(remaining))
            return branin(x)

        begun = time.perf_counter()
        rmes.minimize(f, BRANIN_BOUNDS, budget=32, noise_sd=5, rng=0, workers=workers)
        return time.perf_counter() - begun

    alone = np.sum(durations) + seconds(1, np.zeros(32))  # as if it had slept
    with ThreadPoolExecutor(4) as pool:
        assert seconds(pool, durations) < 0.35 * alone
