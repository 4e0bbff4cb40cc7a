import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from gradients import STEP, assert_gradient
from rmes.gp import posterior
from rmes.knowledge import expected_rise, knowledge
from rmes.measurements import merge
from rmes.model import Model
from test_acquisition import log_h

# ------------------------------------------------------------------ the highest of several lines


def by_quadrature(level, slope):
    """E[max_l (level_l + slope_l Z)] − max_l level_l, piece by piece between the crossings."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (level[:, None] - level) / (slope - slope[:, None])
    inner = np.unique(crossings[np.isfinite(crossings) & (np.abs(crossings) < 9.0)])
    edges = [-9.0, *inner, 9.0]
    top = level.max()

    def part(z):
        return (np.max(level + slope * z) - top) * norm.pdf(z)

    return sum(quad(part, *piece, epsabs=1e-13)[0] for piece in itertools.pairwise(edges))


@pytest.mark.parametrize("lines", [2, 3, 12])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_the_rise_is_the_integral_of_its_definition(rng, lines, spread):
    level, slope = rng.normal(size=(20, lines)), spread * rng.normal(size=(20, lines))
    exact = [by_quadrature(a, b) for a, b in zip(level, slope, strict=True)]
    np.testing.assert_allclose(expected_rise(level, slope).value, exact, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("apart", [0.0, 1.0, 8.0, 35.0])
def test_the_rise_of_two_lines_keeps_its_digits_in_the_tail(apart):
    rise = expected_rise(np.array([[0.0, -0.5 * apart]]), np.array([[0.1, 0.6]]))
    assert rise.value[0] == pytest.approx(0.5 * np.exp(log_h(-apart)), rel=1e-11)


def test_lines_that_are_never_the_highest_do_not_count(rng):
    level, slope = rng.normal(size=(8, 5)), rng.normal(size=(8, 5))
    known = expected_rise(level, slope)
    order = [3, 0, 4, 2, 1]
    shuffled = expected_rise(level[:, order] + 7.0, slope[:, order])
    np.testing.assert_allclose(shuffled.value, known.value, rtol=1e-12)
    np.testing.assert_allclose(shuffled.by_slope, known.by_slope[:, order], atol=1e-12)
    lower = expected_rise(np.hstack([level, level - 0.1]), np.hstack([slope, slope]))  # parallel
    np.testing.assert_allclose(lower.value, known.value, rtol=1e-12)
    twice = expected_rise(np.hstack([level, level]), np.hstack([slope, slope]))
    np.testing.assert_allclose(twice.value, known.value, rtol=1e-12)


@pytest.mark.parametrize("lines", [1, 4])
def test_parallel_lines_do_not_rise(rng, lines):
    rise = expected_rise(rng.normal(size=(3, lines)), np.full((3, lines), 0.7))
    np.testing.assert_array_equal(rise.value, 0.0)
    np.testing.assert_allclose(rise.by_level, 0.0, atol=1e-15)


def test_derivatives_of_the_rise_are_those_of_its_value(rng):
    level, slope = rng.normal(size=(6, 7)), rng.normal(size=(6, 7))
    rise = expected_rise(level, slope)
    for line in range(7):
        shift = STEP * np.eye(7)[line]
        for given, derivative in (
            ((shift, 0.0), rise.by_level[:, line]),
            ((0.0, shift), rise.by_slope[:, line]),
        ):
            above = expected_rise(level + given[0], slope + given[1]).value
            below = expected_rise(level - given[0], slope - given[1]).value
            np.testing.assert_allclose((above - below) / (2 * STEP), derivative, atol=1e-8)


# ------------------------------------------------------------------ as a function of x


@pytest.fixture
def known(problem):
    """A posterior of two settings, the noise of each, and places for an answer."""
    x, y = problem
    theta = np.log([[0.5, 0.7, 1.0, 1.0, 0.02], [0.3, 1.0, 0.8, 0.5, 0.05]])
    model = posterior(Model(), merge(x, (y - y.mean()) / y.std()), theta)
    places = np.random.default_rng(3).random((200, 3))
    places = places[np.argsort(-model.predict(places)[0].mean(axis=0))[:9]]
    return model, lambda x: np.repeat(model.noise_variance[:, None], len(x), axis=1), places


def test_what_is_gained_is_what_measurements_would_bring(problem, rng):
    """Measurements are drawn and the model is conditioned on them: no formula of the module."""
    x, y = problem
    model = posterior(
        Model(), merge(x, (y - y.mean()) / y.std()), np.log([[0.5, 0.7, 1.0, 1.0, 0.02]])
    )
    places, here = rng.random((9, 3)), rng.random((4, 3))
    noise = float(model.noise_variance[0])
    value, _ = knowledge(model, lambda x: np.full((1, len(x)), noise), places)(here)
    nodes = norm.ppf((np.arange(200_000) + 0.5) / 200_000)  # of equal weight
    for point, gain in zip(here, np.exp(value), strict=True):
        answers = np.vstack([places, point])
        mean, variance = model.predict(point[None])
        measured = mean[0, 0] + np.sqrt(variance[0, 0] + noise) * nodes
        # the means move in proportion to what was measured: two measurements tell all of them
        at = [
            model.condition(point[None], np.array([value]), np.array([noise])).predict(answers)[0]
            for value in measured[[0, -1]]
        ]
        share = (measured - measured[0]) / (measured[-1] - measured[0])
        best = np.max(at[0][0] + share[:, None] * (at[1] - at[0])[0], axis=1)
        rise = best.mean() - model.predict(answers)[0].max()
        assert gain == pytest.approx(rise, rel=1e-3)


def test_the_gradient_in_x_is_that_of_the_value(known, rng):
    model, noise, places = known
    assert_gradient(knowledge(model, noise, places), 0.05 + 0.9 * rng.random((8, 3)))


def test_a_look_ranks_points_as_the_function_does(known):
    model, noise, places = known
    function = knowledge(model, noise, places)
    x = np.random.default_rng(5).random((300, 3))
    value, looked = function(x)[0], function.screen(x, model.screen(x))
    best = np.argsort(-value)[:20]
    assert np.max(np.abs(looked[best] - value[best])) < 0.5
    assert value[np.argmax(looked)] > value.max() - 0.3


def test_where_everything_is_known_nothing_is_gained(known):
    model, noise, places = known
    exact = model.condition(places, model.predict(places)[0], np.zeros(len(places)))
    gain = knowledge(exact, noise, places)(places)[0]
    assert np.all(gain < np.log(1e-3))


# ------------------------------------------------------------------ where points have grain


@pytest.fixture
def rippled(grainy):
    """A posterior with grain, what a new point differs from it by, and places for an answer."""
    places = np.random.default_rng(3).random((200, 3))
    places = places[np.argsort(-grainy.predict(places)[0].mean(axis=0))[:9]]
    new = (grainy.noise_variance + grainy.grain)[:, None]
    return grainy, lambda x: np.repeat(new, len(x), axis=1), places


def test_a_new_point_may_be_a_better_answer_than_its_neighbourhood(problem, rng):
    """Joint draws of all values and of the measurement, and the best answer given each."""
    x, y = problem
    data = replace(merge(x, (y - y.mean()) / y.std()), grainy=True)
    model = posterior(Model(), data, np.log([[0.5, 0.7, 1.0, 1.0, 0.05, 0.3]]))
    noise, grain = float(model.noise_variance[0]), float(model.grain[0])
    places, here = rng.random((9, 3)), rng.random((4, 3))
    new = noise + grain
    value, _ = knowledge(model, lambda x: np.full((1, len(x)), new), places)(here)
    measured = model.values_at_data()[0].max()
    nodes = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    for point, gain in zip(here, np.exp(value), strict=True):
        mean, covariance = (moment[0] for moment in model.joint(np.vstack([places, point])))
        slope = covariance[-1].copy()
        slope[-1] += grain  # what is behind the noise here, less what is expected of it
        slope /= np.sqrt(covariance[-1, -1] + new)
        lines = np.max(mean + slope * nodes[:, None], axis=1)
        rise = np.maximum(lines, measured).mean() - max(measured, mean.max())
        assert gain == pytest.approx(rise, rel=1e-3, abs=1e-6)


def test_another_measurement_of_a_row_tells_how_good_it_is(rippled, rng):
    """The model is conditioned on draws of that measurement."""
    model, noise, places = rippled
    level = model.noise_variance[:, None] * np.ones(len(model.x))
    gain = np.exp(knowledge(model, noise, places).repeated(level))
    means, variances = model.values_at_data()
    elsewhere = model.predict(places)[0].mean(axis=0).max()
    z = norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
    for row in np.argsort(-gain)[:5]:
        weight = variances[:, row] / (variances[:, row] + model.noise_variance)
        spread = np.sqrt(variances[:, row] + model.noise_variance)
        after = np.mean(means[:, row] + weight * spread * z, axis=1)
        others = max(elsewhere, np.delete(means.mean(axis=0), row).max())
        before = max(others, means[:, row].mean())
        assert gain[row] == pytest.approx(np.mean(np.maximum(after, others)) - before, rel=2e-3)


def test_with_grain_the_gradient_is_that_of_the_value(rippled, rng):
    assert_gradient(knowledge(*rippled), 0.05 + 0.9 * rng.random((8, 3)))


def test_with_grain_a_look_ranks_points_as_the_function_does(rippled):
    model, _, _ = rippled
    function = knowledge(*rippled)
    x = np.random.default_rng(5).random((300, 3))
    value, looked = function(x)[0], function.screen(x, model.screen(x))
    best = np.argsort(-value)[:20]
    assert np.max(np.abs(looked[best] - value[best])) < 0.5
    assert value[np.argmax(looked)] > value.max() - 0.3
