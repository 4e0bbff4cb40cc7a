"""The sampler for Optuna, and answers for its studies."""

import math
import subprocess
import sys
import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import rmes
from rmes.fit import Fit
from rmes.optuna import (
    RMESSampler,
    board,
    distributions_of,
    optimizer_of,
    outlook,
    reason_of,
    recommend,
    retry_running,
    space_of,
)

optuna.logging.set_verbosity(optuna.logging.ERROR)

SPACE = {
    "x": FloatDistribution(-5.0, 10.0),
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "grid": FloatDistribution(0.0, 1.0, step=0.1),
    "layers": IntDistribution(1, 9, step=2),
    "width": IntDistribution(1, 64, log=True),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}


UNIT = {"x": FloatDistribution(0.0, 1.0)}


def mixed(trial):
    """All kinds of parameters; noise that depends on nothing but the trial's point."""
    x = trial.suggest_float("x", -5.0, 10.0)
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    grid = trial.suggest_float("grid", 0.0, 1.0, step=0.1)
    layers = trial.suggest_int("layers", 1, 9, step=2)
    width = trial.suggest_int("width", 1, 64, log=True)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    value = (x - 3) ** 2 / 10 + (math.log10(rate) + 2) ** 2 + (grid - 0.3) ** 2
    return value + abs(layers - 5) / 4 + abs(math.log(width / 8)) + "cab".index(kind)


def line(trial):
    return (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2


def added(values, distributions=None, **kwargs):
    """A study by nobody's sampler, with complete trials at the given points."""
    study = optuna.create_study(**kwargs)
    for params, value in values:
        which = distributions or {"x": FloatDistribution(0.0, 1.0)}
        study.add_trial(optuna.create_trial(params=params, distributions=which, value=value))
    return study


# ---------------------------------------------------------------------- suggestions


def test_all_kinds_of_parameters_are_suggested_within_their_grids():
    study = optuna.create_study(sampler=RMESSampler(seed=1, n_startup_trials=4))
    study.optimize(mixed, n_trials=12)
    for trial in study.trials:
        assert round(trial.params["grid"] * 10, 9) % 1 == 0
        assert trial.params["layers"] in (1, 3, 5, 7, 9)
        assert isinstance(trial.params["width"], int)
        assert type(trial.params["x"]) is float
    reasons = [reason_of(study, trial) for trial in study.trials]
    assert reasons[0] is None  # nothing was known of the parameters yet
    assert reasons[1] == "space-filling point 2"
    assert all("nats" in reason for reason in reasons[4:])


def test_it_finds_the_optimum_of_a_noisy_function_better_than_the_luckiest_trial():
    noise = np.random.default_rng(0)

    def objective(trial):
        return line(trial) + noise.normal(0, 0.1)

    study = optuna.create_study(sampler=RMESSampler(seed=0))
    study.optimize(objective, n_trials=25)
    answer = recommend(study)
    assert abs(answer.params["x"] - 0.3) < 0.15
    assert answer.interval[0] < 0.0 < answer.interval[1]
    assert answer.mean > study.best_value


def test_grids_of_too_many_levels_to_list_are_kept_too():
    space = {"a": IntDistribution(0, 7 * 10**6, step=7), "b": FloatDistribution(0, 1e6, step=0.25)}
    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=0))
    for _ in range(3):
        trial = study.ask(space)
        study.tell(trial, trial.params["a"] / 1e7 + trial.params["b"] / 1e6)
        assert trial.params["a"] % 7 == 0
        assert trial.params["b"] % 0.25 == 0


def test_choices_that_cannot_be_compared_come_back_as_they_are():
    space = {"c": CategoricalDistribution([float("nan"), None, 1, True, "1"])}
    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=0))
    for _ in range(8):
        trial = study.ask(space)
        study.tell(trial, float(trial.params["c"] is not None))
    assert recommend(study).params == {"c": None}


def test_a_declared_search_space_fills_from_the_first_trial_on():
    sampler = RMESSampler(seed=0, search_space=SPACE, n_startup_trials=3)
    study = optuna.create_study(sampler=sampler)
    first = [study.ask(SPACE) for _ in range(3)]
    reasons = [reason_of(study, trial) for trial in study.trials]
    assert reasons == [f"space-filling point {i}" for i in (1, 2, 3)]
    assert len({t.params["x"] for t in first}) == 3


def test_a_repeat_names_the_trial_that_it_repeats():
    """Failed trials have numbers too."""
    rng = np.random.default_rng(0)

    def sometimes(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.number % 5 == 1:
            raise RuntimeError("a bad well")
        return (x - 0.4) ** 2 + 0.5 * rng.standard_normal()

    study = optuna.create_study(sampler=RMESSampler(seed=1, noise_sd=0.5))
    study.optimize(sometimes, n_trials=30, catch=(RuntimeError,))
    repeats = [
        (trial.params, study.trials[int(reason.split(":")[0].split()[-1])].params)
        for trial in study.trials
        if (reason := reason_of(study, trial) or "").startswith("repeat of trial ")
    ]
    assert len(repeats) > 3
    assert all(again == first for again, first in repeats)


def test_an_exact_finite_space_is_measured_without_repeats_and_then_goes_on():
    space = {"x": IntDistribution(0, 3), "y": CategoricalDistribution(["a", "b"])}
    study = optuna.create_study(sampler=RMESSampler(seed=0, noise_sd=0, n_startup_trials=2))
    for _ in range(10):
        trial = study.ask(space)
        study.tell(trial, trial.params["x"])
    points = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(points[1:9] + points[:1])) == 8


def test_several_objectives_are_refused_with_their_number():
    study = optuna.create_study(directions=["minimize", "maximize"])
    for question in (recommend, outlook, optimizer_of):
        with pytest.raises(ValueError, match="2 objectives"):
            question(study)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": "a"}, ValueError, "seed is 'a'"),
        ({"n_startup_trials": -1}, ValueError, "n_startup_trials is -1"),
        ({"noise_sd": -1.0}, ValueError, "noise_sd is -1.0"),
        ({"noise_sd": "much"}, TypeError, "noise_sd is 'much'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, said):
    with pytest.raises(error, match=said):
        RMESSampler(**arguments)


# ---------------------------------------------------------------------- answers


def test_answers_are_those_of_an_optimizer_told_the_same():
    def objective(trial):
        return line(trial) + trial.suggest_int("n", 1, 8, log=True)

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=12)
    by_hand = rmes.Optimizer(space_of(study), seed=0, initial=0)
    for trial in study.trials:
        by_hand.tell(trial.params, trial.value)
    answer = recommend(study)
    assert answer == by_hand.recommend()
    assert answer.observed_value == study.best_value
    assert answer.observed_params == study.best_params
    assert outlook(study).expected_gap == by_hand.outlook().expected_gap


def test_maximising_is_minimising_the_negative():
    values = [({"x": x}, math.sin(5 * x)) for x in np.linspace(0, 1, 7)]
    down = recommend(added(values))
    up = recommend(added([(p, -v) for p, v in values], direction="maximize"))
    assert up.params == down.params
    assert up.mean == -down.mean


def test_spaces_of_both_libraries_translate_into_each_other():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(mixed, n_trials=1)
    space = space_of(study)
    assert list(space.parameters) == sorted(SPACE)
    assert distributions_of(space) == SPACE
    assert distributions_of({"x": (0, 1)}) == {"x": FloatDistribution(0.0, 1.0)}


def test_a_study_without_common_parameters_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="no parameter in common"):
        recommend(optuna.create_study())


def test_parameters_of_one_value_are_part_of_the_answer():
    space = {"x": FloatDistribution(0.0, 1.0), "fixed": IntDistribution(3, 3)}
    study = added([({"x": x, "fixed": 3}, x) for x in (0.1, 0.5, 0.9)], space)
    assert recommend(study).params["fixed"] == 3


# ---------------------------------------------------------------------- what trials say


def test_noise_of_single_trials_comes_from_their_user_attribute():
    study = optuna.create_study()
    for x, value, noise_sd in [(0.0, 1.0, 0.01), (0.5, 0.0, 3.0), (1.0, 0.9, None)]:
        attributes = {} if noise_sd is None else {"noise_sd": noise_sd}
        study.add_trial(
            optuna.create_trial(
                params={"x": x},
                distributions={"x": FloatDistribution(0.0, 1.0)},
                value=value,
                user_attrs=attributes,
            )
        )
    told = optimizer_of(study, noise_sd=0.1).trials
    assert [trial["noise_sds"] for trial in told] == [[0.01], [3.0], [None]]


def test_a_noise_attribute_that_is_no_number_is_named_with_its_trial():
    study = added([({"x": 0.1}, 1.0)])
    study.add_trial(
        optuna.create_trial(
            params={"x": 0.2},
            distributions={"x": FloatDistribution(0.0, 1.0)},
            value=1.0,
            user_attrs={"noise_sd": "high"},
        )
    )
    with pytest.raises(TypeError, match=r"trial 1: noise_sd is 'high'"):
        recommend(study)


def test_answers_use_the_noise_that_the_sampler_was_given():
    values = [({"x": x}, math.sin(8 * x)) for x in np.linspace(0, 1, 6)]
    study = added(values, sampler=RMESSampler(seed=0, noise_sd=2.0))
    assert recommend(study) == recommend(added(values), noise_sd=2.0)
    assert recommend(study).sd > 2 * recommend(study, noise_sd=0.01).sd


def test_noise_may_be_a_function_of_the_parameters():
    def noise_sd(params):
        return 0.01 + params["x"]

    study = optuna.create_study(sampler=RMESSampler(seed=0, noise_sd=noise_sd, n_startup_trials=3))
    study.optimize(line, n_trials=6)
    assert len(study.trials) == 6


def test_running_trials_of_others_are_pending():
    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=2))
    space = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
    for _ in range(4):
        trial = study.ask(space)
        study.tell(trial, trial.params["x"] + trial.params["y"])
    lazy = study.ask()
    lazy.suggest_float("x", 0.0, 1.0)  # y comes hours later
    pending = [t for t in optimizer_of(study).trials if t["state"] == "pending"]
    assert len(pending) == 1
    assert pending[0]["params"]["y"] == lazy.suggest_float("y", 0.0, 1.0)
    assert study.ask(space).params != pending[0]["params"]


def test_a_batch_spreads_over_the_space():
    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=2))
    space = {"x": IntDistribution(0, 20)}
    for _ in range(3):
        trial = study.ask(space)
        study.tell(trial, (trial.params["x"] - 7) ** 2)
    batch = [study.ask(space).params["x"] for _ in range(6)]
    assert len(set(batch)) == 6


def test_failed_trials_are_failures_of_their_points():
    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=0, noise_sd=0.0))
    study.optimize(lambda trial: line(trial), n_trials=2)
    study.optimize(lambda trial: math.nan * line(trial), n_trials=2)
    told = optimizer_of(study).trials
    assert [t["state"] for t in told] == ["measured", "measured", "failed", "failed"]
    points = [trial.params["x"] for trial in study.trials]
    assert len(set(points)) == 4
    assert [t["params"]["x"] for t in told] == points


@pytest.mark.parametrize("stray", [2.0, math.nan, "a", True, None])
def test_trials_outside_the_space_are_left_out(stray):
    study = added([({"x": 0.2}, 1.0), ({"x": 0.6}, 0.5)])
    own = {"x": CategoricalDistribution([stray])}
    study.add_trial(optuna.create_trial(params={"x": stray}, distributions=own, value=0.0))
    told = optimizer_of(study, search_space=UNIT).trials
    assert [t["values"] for t in told] == [[1.0], [0.5]]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_values_are_failures(value):
    study = added([({"x": 0.2}, 1.0), ({"x": 0.4}, value), ({"x": 0.6}, 0.5)])
    assert [t["state"] for t in optimizer_of(study).trials] == ["measured", "measured", "failed"]


def test_trials_that_violate_a_constraint_are_failures():
    study = optuna.create_study(sampler=RMESSampler(seed=0))
    for x in (0.1, 0.5, 0.9):
        trial = study.ask({"x": FloatDistribution(x, x)})
        trial.set_constraint("c", x - 0.5)
        study.tell(trial, x)
    states = [t["state"] for t in optimizer_of(study, search_space=UNIT).trials]
    assert states == ["measured", "measured", "failed"]


def curve(trial, pruned_at=None):
    """Falls by one at each of four steps."""
    x = trial.suggest_float("x", 0.0, 1.0)
    for step in range(4):
        trial.report(x - step, step)
        if step == pruned_at:
            raise optuna.TrialPruned
    return x - 3


def test_pruned_trials_count_as_what_they_would_have_given():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(curve, n_trials=5)
    study.optimize(lambda trial: curve(trial, pruned_at=1), n_trials=1)
    told = optimizer_of(study).trials
    assert len(told) == 6
    assert told[5]["values"] == [pytest.approx(study.trials[5].params["x"] - 3)]
    assert told[5]["noise_sds"] == [pytest.approx(0.0, abs=1e-9)]


def test_pruned_trials_that_nothing_can_be_compared_with_are_left_out():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(curve, n_trials=4)
    study.optimize(lambda trial: curve(trial, pruned_at=1), n_trials=3)
    assert len(optimizer_of(study).trials) == 4


def test_a_study_with_a_pruner_of_brackets_works():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4)

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(4):
            trial.report(x - step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=2), pruner=pruner)
    study.optimize(objective, n_trials=12)
    assert {t.state for t in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}


def test_conditional_parameters_are_drawn_independently_and_said_so(caplog):
    def objective(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return trial.suggest_float("a", 0.0, 1.0)
        return 1 + trial.suggest_int("b", 0, 3)

    study = optuna.create_study(sampler=RMESSampler(seed=0, n_startup_trials=2))
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study.optimize(objective, n_trials=12)
    finally:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        optuna.logging.disable_propagation()
    assert "drawn independently" in caplog.text
    assert list(space_of(study).parameters) == ["kind"]
    assert recommend(study).params == {"kind": "a"}


def test_independent_draws_are_even_over_their_levels():
    study = optuna.create_study(sampler=RMESSampler(seed=0))
    draws = [study.ask({"n": IntDistribution(0, 2)}).params["n"] for _ in range(300)]
    assert min(draws.count(level) for level in range(3)) > 75


def test_an_independent_sampler_is_asked_and_told():
    calls = []

    class Own(optuna.samplers.RandomSampler):
        def before_trial(self, study, trial):
            calls.append("before")

        def after_trial(self, study, trial, state, values):
            calls.append("after")

        def sample_independent(self, study, trial, param_name, param_distribution):
            return 0.25

    study = optuna.create_study(sampler=RMESSampler(seed=0, independent_sampler=Own()))
    study.optimize(line, n_trials=1)
    assert study.trials[0].params == {"x": 0.25}
    assert calls == ["before", "after"]


# ---------------------------------------------------------------------- what is left for others


def test_reasons_stay_and_points_only_while_they_are_measured():
    study = optuna.create_study(sampler=RMESSampler(seed=0, search_space=UNIT))
    waited = study.ask()
    waited.suggest_int("other", 0, 9)  # x comes later than 40 other trials
    point = board.read(study).point(0)
    for _ in range(40):
        study.tell(study.ask(UNIT), 0.0)
    assert all(reason_of(study, trial) for trial in study.trials)
    kept = board.read(study)
    assert point == kept.point(0) == {"x": waited.suggest_float("x", 0.0, 1.0)}
    assert len([n for n in range(41) if kept.point(n)]) <= 17
    assert len(study.user_attrs) <= 18


def test_a_trial_by_others_has_no_reason():
    study = added([({"x": 0.1}, 1.0)])
    assert reason_of(study, study.trials[0]) is None


def test_a_pruner_of_brackets_hides_no_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4)
    study = optuna.create_study(sampler=RMESSampler(seed=0, search_space=UNIT), pruner=pruner)
    study.ask(UNIT)
    assert reason_of(study, study.trials[0]) == "space-filling point 1"


def test_the_reason_of_a_trial_that_died_is_that_of_its_successor():
    study = optuna.create_study(sampler=RMESSampler(seed=0, search_space=UNIT))
    asked = study.ask(UNIT)
    assert retry_running(study) == [0]
    assert study.ask(UNIT).params == asked.params
    assert [reason_of(study, trial) for trial in study.trials] == ["space-filling point 1"] * 2


def test_only_the_first_suggestion_learns_from_scratch_whoever_makes_the_next(monkeypatch):
    calls = []
    cold = rmes.fit._cold
    monkeypatch.setattr(rmes.fit, "_cold", lambda *given: calls.append(1) or cold(*given))
    study = optuna.create_study()
    for _ in range(7):
        study.sampler = RMESSampler(seed=0, n_startup_trials=2)
        study.optimize(line, n_trials=1)
    assert len(calls) == 1


def random_fit(width, seed=0):
    draws = np.random.default_rng(seed)
    half = draws.random((width, width))
    return Fit(draws.random(width), half + half.T, draws.random((4, width)), 9)


def test_what_was_learnt_is_read_as_it_was_written():
    study, space = optuna.create_study(), rmes.space.Space({"x": (0, 1)})
    learned = random_fit(12)
    board.leave_fit(study, 5, learned, space, None)
    read = board.read(study).fit(space, before=6)
    for name in ("best", "covariance", "samples", "size"):
        np.testing.assert_array_equal(getattr(read, name), getattr(learned, name))
    assert board.read(study).fit(rmes.space.Space({"x": (0, 2)}), before=6) is None


def test_a_suggestion_made_again_begins_with_the_same():
    study, space = optuna.create_study(), rmes.space.Space({"x": (0, 1)})
    for index in (3, 4, 5, 5, 5):  # the process died twice
        now = board.read(study)
        if index == 5:
            np.testing.assert_array_equal(now.fit(space, index).best, random_fit(3, seed=4).best)
        begun = now.fit_key(space, index)
        board.leave_fit(study, index, random_fit(3, seed=index), space, begun)
    np.testing.assert_array_equal(board.read(study).fit(space, 6).best, random_fit(3, seed=5).best)
    assert board.read(study).fit(space, 4) is None


def test_a_fit_too_long_for_a_database_is_not_left():
    study, space = optuna.create_study(), rmes.space.Space({"x": (0, 1)})
    board.leave_fit(study, 0, random_fit(110), space, None)
    assert study.user_attrs == {}


# ---------------------------------------------------------------------- imports


def test_without_optuna_the_error_names_what_to_install():
    code = "import sys; sys.modules['optuna'] = None; import rmes; import rmes.optuna"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'ImportError: rmes.optuna needs Optuna: pip install "rmes[optuna]"' in done.stderr
