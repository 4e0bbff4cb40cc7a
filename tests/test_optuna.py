"""The sampler for Optuna, and answers for its studies."""

import math

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import rmes
from rmes.optuna import (
    RMESSampler,
    distributions_of,
    optimizer_of,
    outlook,
    reason_of,
    recommend,
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
    reasons = [reason_of(trial) for trial in study.trials]
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
    assert [reason_of(t) for t in study.trials] == [f"space-filling point {i}" for i in (1, 2, 3)]
    assert len({t.params["x"] for t in first}) == 3


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
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(mixed, n_trials=12)
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
