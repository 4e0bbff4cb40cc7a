import copy
from dataclasses import replace

import numpy as np
import pytest

from rmes import choice, criteria
from rmes.choice import new_noise
from rmes.domain import Choice, Domain
from rmes.fit import fit
from rmes.measurements import merge
from rmes.multistart import climb
from rmes.settings import Settings, Situation
from rmes.suggest import choose, in_turn, posterior_given, suggest

QUICK = Settings(samples=2, maxima=3, candidates=64, climbs=2)


def problem(seed, n, d, noise=0.1):
    """Measurements of a function with a few bumps, standardised."""
    rng = np.random.default_rng([seed, n, d])
    centres, heights = rng.random((6, d)), rng.normal(size=6)
    x = rng.random((n, d))
    bumps = np.exp(-np.sum((x[:, None] - centres) ** 2, axis=2) / (0.1 * d)) @ heights
    y = bumps + noise * rng.standard_normal(n)
    return merge(x, (y - y.mean()) / (y.std() or 1.0))


def none(d):
    return np.empty((0, d))


def start(seed=0):
    return np.random.default_rng(seed)


# ------------------------------------------------------------------ the search


def height(suggestion, data, name):
    """The acquisition at the suggestion, and the best of 50 climbs from random points."""
    noise = new_noise(data, suggestion.posterior, None)
    function = criteria.acquire(name, suggestion.posterior, noise, suggestion.maxima, data.size)
    starts = np.random.default_rng(1).random((50, data.x.shape[1]))
    scale = np.minimum(np.median(suggestion.posterior.length_scales, axis=0), 1.0)
    best = climb(lambda x, _rows: function(x), starts, scale, 1e-5).value.max()
    return suggestion.value, float(best)


@pytest.mark.parametrize("name", ["rmes", "log-ei"])
def test_the_suggestion_is_as_good_as_the_best_of_fifty_restarts(name):
    cases = [(n, d) for n in (5, 12, 30) for d in (1, 2, 3, 5)] * 2
    missed = []
    for seed, (n, d) in enumerate(cases):
        data = problem(seed, n, d)
        # What settles is chosen for another reason.
        found = suggest(data, none(d), Settings(acquisition=name, settle=False), start(seed))
        here, best = height(found, data, name)
        if here < best - 1e-3:  # logarithms: a relative 1e-3
            missed.append((n, d, here - best))
    assert len(missed) <= 0.05 * len(cases) + 1, missed


def test_the_value_is_the_acquisition_at_the_point():
    data = problem(3, 15, 2)
    settings = Settings()
    situation = Situation(Domain(2), none(2), exact=True)  # so that no point is repeated
    found = suggest(data, none(2), settings, start(), situation)
    noise = new_noise(data, found.posterior, None)
    function = criteria.acquire("rmes", found.posterior, noise, found.maxima, data.size)
    assert found.repeats is None
    exact = function(found.x[None])[0][0]
    assert np.exp(found.value) == pytest.approx(np.exp(exact), rel=2e-3)  # as the search sees it


def test_suggest_is_fit_posterior_and_choice():
    data = problem(4, 12, 2)
    settings, situation = Settings(), Situation.plain(2)
    pending = np.array([[0.2, 0.7]])
    whole = suggest(data, pending, settings, start(5), situation)
    rng = start(5)
    learned = fit(settings.model, data, rng, settings.samples)
    theta = learned.turn(data.size + len(pending))
    posterior = posterior_given(data, pending, settings.model, theta)
    parts = choose(data, posterior, pending, situation, settings, rng, learned)
    np.testing.assert_array_equal(whole.x, parts.x)
    assert whole.value == parts.value


# ------------------------------------------------------------------ a pure function


def test_the_same_generator_gives_the_same_point_and_another_another():
    data = problem(0, 10, 3)
    points = [suggest(data, none(3), QUICK, start(seed)).x for seed in (1, 1, 2)]
    np.testing.assert_array_equal(points[0], points[1])
    assert np.any(points[0] != points[2])


def test_what_goes_in_stays_as_it_was():
    data, pending = problem(0, 10, 2), np.array([[0.5, 0.5]])
    situation = Situation(Domain(2), np.array([[0.1, 0.1]]))
    warm = suggest(data, none(2), QUICK, start()).fit
    inputs = copy.deepcopy((data, pending, situation.failed, warm))
    suggest(data, pending, QUICK, start(), situation, warm)
    for before, after in zip(inputs, (data, pending, situation.failed, warm), strict=True):
        for field in getattr(after, "__slots__", ()):
            np.testing.assert_array_equal(getattr(after, field), getattr(before, field))
        if isinstance(after, np.ndarray):
            np.testing.assert_array_equal(after, before)


def test_a_warm_start_is_a_start_only():
    data = problem(6, 20, 2)
    cold = suggest(data, none(2), Settings(samples=0), start())
    warm = suggest(data, none(2), Settings(samples=0), start(), warm=cold.fit)
    np.testing.assert_allclose(warm.fit.best, cold.fit.best, atol=0.1)


# ------------------------------------------------------------------ any name, any data


@pytest.mark.parametrize("name", criteria.ACQUISITIONS)
@pytest.mark.parametrize("d", [1, 10])
def test_every_acquisition_suggests_a_point_of_the_cube(name, d):
    settings = Settings(name, samples=2, maxima=3, candidates=64, climbs=2)
    data = problem(1, 8, d)
    situation = Situation(Domain(d), np.full((1, d), 0.25))
    found = suggest(data, np.full((1, d), 0.75), settings, start(), situation)
    assert found.x.shape == (d,)
    assert np.all((found.x >= 0.0) & (found.x <= 1.0))
    assert np.isfinite(found.value)


@pytest.mark.parametrize("name", criteria.ACQUISITIONS)
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([[0.5, 0.5]], [0.0]),
        ([[0.5, 0.5]], [3.0]),
        ([[0.2, 0.5], [0.8, 0.1]], [-1.0, 1.0]),
        (np.linspace(0, 1, 12).reshape(6, 2), np.zeros(6)),
        (np.full((20, 2), 0.5), np.linspace(-1, 1, 20)),
        ([[0.5, 0.5], [0.5, 0.5 + 1e-15], [0.1, 0.9]], [0.0, 1.0, -1.0]),
    ],
    ids=["one", "one-off-zero", "two", "constant", "repeats", "neighbours"],
)
@pytest.mark.parametrize("noise", [None, 0.0])
def test_scarce_and_odd_data_are_no_trouble(name, x, y, noise):
    settings = Settings(name, samples=2, maxima=2, candidates=32, climbs=2)
    situation = Situation(Domain(2), none(2), exact=noise == 0.0)
    found = suggest(merge(x, y, noise), none(2), settings, start(), situation)
    assert np.all((found.x >= 0.0) & (found.x <= 1.0))
    assert not np.isnan(found.value)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_known_noise_of_any_size_is_no_trouble(scale):
    data = problem(2, 10, 2)
    data = merge(data.x, data.y, scale)
    assert np.isfinite(suggest(data, none(2), QUICK, start()).value)


# ------------------------------------------------------------------ pending, failed, exact, finite


def test_a_pending_point_is_not_suggested_again_and_its_neighbourhood_tells_less():
    data = problem(7, 10, 2)
    first = suggest(data, none(2), Settings(), start(3))
    pending = first.x[None]
    again = suggest(data, pending, Settings(), start(3))
    assert np.any(again.x != first.x)
    before, after = (s.posterior.predict(pending)[1].mean() for s in (first, again))
    assert after < 0.9 * before


def test_pending_points_leave_the_mean_where_it_was():
    data = problem(8, 10, 2)
    learned = fit(Settings().model, data, start(), 3)
    alone = posterior_given(data, none(2), Settings().model, learned.settings)
    joined = posterior_given(
        data, np.array([[0.3, 0.3], [0.9, 0.2]]), Settings().model, learned.settings
    )
    points = np.random.default_rng(0).random((20, 2))
    np.testing.assert_allclose(joined.predict(points)[0], alone.predict(points)[0], atol=1e-9)
    assert np.all(joined.predict(points)[1] <= alone.predict(points)[1] + 1e-12)


def test_a_point_that_failed_is_not_suggested_again():
    data = problem(9, 10, 2)
    first = suggest(data, none(2), Settings(), start(3))
    situation = Situation(Domain(2), np.repeat(first.x[None], 3, axis=0))
    again = suggest(data, none(2), Settings(), start(3), situation)
    assert np.linalg.norm(again.x - first.x) > 0.02


def test_exact_data_are_never_repeated_and_noisy_ones_may_be():
    levels = np.linspace(0.0, 1.0, 4)[:, None]
    domain = Domain(1, (Choice((0,), levels),))
    y = [0.0, 0.9, 1.0]
    exact = Situation(domain, none(1), exact=True)
    found = suggest(merge(levels[:3], y, 0.0), none(1), QUICK, start(), exact)
    assert found.x[0] == 1.0
    assert found.repeats is None
    noisy = Situation(domain, none(1))
    found = suggest(merge(levels, [0.0, 0.9, 1.0, 0.1], 1.0), none(1), QUICK, start(), noisy)
    assert found.repeats is not None
    np.testing.assert_array_equal(found.x, levels[found.repeats])


@pytest.fixture(scope="module")
def repeating():
    """A noisy bowl, measured until RMES would measure a point again."""
    rng = np.random.default_rng(4)
    x = rng.random((8, 2))
    y = np.empty(0)
    for _ in range(80):
        more = x[len(y) :]
        noise = 0.3 * rng.standard_normal(len(more))
        y = np.append(y, 1.0 - 6.0 * np.sum((more - [0.5, 0.6]) ** 2, axis=1) + noise)
        data = merge(x, y, 0.09)
        found = suggest(data, none(2), Settings(settle=False), start(2))
        if found.repeats is not None:
            return data
        x = np.vstack([x, found.x])
    raise AssertionError("no point was repeated")


def test_where_information_would_repeat_a_point_the_answer_is_improved_instead(repeating):
    data = repeating
    alone = suggest(data, none(2), Settings(settle=False), start(2))
    assert alone.repeats is not None
    assert alone.acquisition == "rmes"
    found = suggest(data, none(2), Settings(), start(2))
    assert found.acquisition == "knowledge-gradient"
    noise = new_noise(data, found.posterior, None)
    gain = criteria.acquire("knowledge-gradient", found.posterior, noise, found.maxima, data.size)
    here, there = gain(np.stack([found.x, alone.x]))[0]
    assert here > there
    if found.repeats is None:
        assert here == pytest.approx(found.value, abs=1e-9)


def test_new_points_that_tell_most_are_left_to_information():
    found = [suggest(problem(seed, 12, 2), none(2), Settings(), start(seed)) for seed in range(6)]
    assert {one.acquisition for one in found if one.repeats is None} == {"rmes"}


def test_an_answer_is_not_sought_where_measurements_fail(repeating):
    data = repeating
    sought = suggest(data, none(2), Settings(), start(2))
    assert sought.acquisition == "knowledge-gradient"
    around = sought.x + 0.02 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1]])
    situation = Situation(Domain(2), np.clip(around, 0.0, 1.0))
    found = suggest(data, none(2), Settings(), start(2), situation)
    assert np.max(np.abs(found.x - sought.x)) > 0.05


def test_suggestions_are_feasible_points():
    corners = np.eye(3) * np.sqrt(0.5)
    domain = Domain(5, (Choice((1,), np.linspace(0, 1, 5)[:, None]), Choice((2, 3, 4), corners)))
    rng = np.random.default_rng(0)
    x = domain.snap(rng.random((12, 5)))
    for seed in range(3):
        data = merge(x, rng.standard_normal(12))
        found = suggest(data, none(5), QUICK, start(seed), Situation(domain, none(5)))
        np.testing.assert_array_equal(domain.snap(found.x[None])[0], found.x)


def test_the_noise_of_a_new_measurement_follows_the_documented_rule():
    x, y = np.random.default_rng(0).random((6, 2)), np.arange(6.0) - 2.5
    points = np.zeros((3, 2))
    for noise, expected in ((None, None), (0.4, 0.4), (np.arange(6.0), 2.5)):
        data = merge(x, y, noise)
        learned = fit(Settings().model, data, start(), 2)
        posterior = posterior_given(data, none(2), Settings().model, learned.settings)
        level = new_noise(data, posterior, None)(points)
        assert level.shape == (posterior.settings, 3)
        np.testing.assert_allclose(level[:, 0], expected or posterior.noise_variance, rtol=1e-12)
    given = new_noise(data, posterior, lambda x: 1.0 + x[:, 0])(points + 0.5)
    np.testing.assert_allclose(given, 1.5)


def test_settings_take_turns_where_points_are_only_measured_again():
    x, y = np.random.default_rng(0).random((6, 2)), np.arange(6.0) - 2.5
    model, situation, thetas = Settings().model, Situation.plain(2), []
    learned = fit(model, merge(x, y), start(), 4)
    for repeats in range(4):
        again = np.repeat(x[:1], repeats, axis=0)
        data = merge(np.vstack([x, again]), np.append(y, np.full(repeats, -2.0)))
        thetas.append(in_turn(data, none(2), situation, learned))
    np.testing.assert_array_equal(
        np.sort(np.concatenate(thetas)[:, 0]), np.sort(learned.samples[:, 0])
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"acquisition": "best"}, "acquisition is 'best'; expected one of rmes"),
        ({"samples": -1}, "samples is -1; expected at least 0"),
        ({"maxima": 0}, "maxima is 0"),
        ({"candidates": 0}, "candidates is 0"),
        ({"climbs": 0}, "climbs is 0"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Settings(**settings)


def test_in_few_coordinates_a_glance_tells_what_a_climb_would(monkeypatch):
    """Whether RMES would repeat a point, and so leaves the choice to the knowledge gradient."""
    settled = []
    for run in range(3):
        rng = np.random.default_rng(run)
        x = rng.random((8, 2))
        y = bowl(x, rng)
        for seed in range(60):
            data = merge(x, (y - y.mean()) / y.std())
            found = []
            for dense in (3, 0):
                monkeypatch.setattr(choice, "_DENSE", dense)
                found.append(suggest(data, none(2), Settings(), start(seed)))
            settled.append([each.acquisition == "knowledge-gradient" for each in found])
            x = np.vstack([x, found[0].x])
            y = np.append(y, bowl(found[0].x[None], rng))
    glanced, climbed = np.transpose(settled)
    assert 0.2 < climbed.mean() < 0.9
    assert np.mean(glanced == climbed) > 0.78  # 0.85 in 720 suggestions


def bowl(x, rng):
    """Measurements of a function with its top at (0.6, 0.3)."""
    return -np.sum((x - [0.6, 0.3]) ** 2, axis=1) + 0.05 * rng.standard_normal(len(x))


def rippled(rows, noise, rng, wave=1e4):
    """A bowl whose ripples no 40 points resolve, seen with little noise of its own."""
    x = rng.random((rows, 2))
    f = -3.0 * np.sum((x - 0.4) ** 2, axis=1) + 0.6 * np.sin(wave * x[:, 0])
    y = f + noise * rng.standard_normal(rows)
    return x, (y - y.mean()) / y.std()


def test_the_best_value_is_measured_once_more_where_much_may_be_noise():
    rng = np.random.default_rng(1)
    x, y = rippled(25, 0.05, rng)
    best = int(np.argmax(y))

    def chosen(data, pending=None, settings=QUICK):
        pending = none(2) if pending is None else pending
        return suggest(data, pending, settings, start()).acquisition

    found = suggest(merge(x, y), none(2), QUICK, start())
    assert found.acquisition == "check"
    assert found.repeats == best
    np.testing.assert_array_equal(found.x, x[best])
    assert chosen(merge(x, y), pending=x[[best]]) != "check"  # it is being measured
    assert chosen(merge(x[:15], y[:15])) != "check"  # too early
    twice = np.vstack([x, x[[best]]])
    assert chosen(merge(twice, np.append(y, y[best] - 0.8))) != "check"  # it is noise
    again = suggest(merge(twice, np.append(y, y[best] - 0.25)), none(2), QUICK, start())
    assert again.acquisition == "check"  # they agree: by chance?
    assert again.repeats == np.argsort(-y)[1]
    often = np.vstack([x, x[:3]])
    assert chosen(merge(often, np.append(y, y[:3]))) != "check"  # asked often enough
    assert chosen(merge(x, y, 0.05)) != "check"  # the noise is known
    for other in ({"repeats": False}, {"settle": False}):
        assert chosen(merge(x, y), settings=replace(QUICK, **other)) != "check"
    smooth = -3.0 * np.sum((x - 0.4) ** 2, axis=1)
    assert chosen(merge(x, smooth)) != "check"


def test_ripples_are_searched_for_better_ones_at_new_points():
    """One place is not measured again and again, though its neighbourhood looks best."""
    rng = np.random.default_rng(2)
    x, y = rippled(30, 0.02, rng)
    x, y = np.vstack([x, x[:4]]), np.append(y, y[:4])
    warm, repeats = None, 0
    for _ in range(10):
        data = merge(x, y)
        found = suggest(data, none(2), Settings(), start(len(y)), warm=warm)
        assert found.posterior.grainy
        warm, repeats = found.fit, repeats + (found.repeats is not None)
        gap = np.min(np.linalg.norm((x - found.x) / found.posterior.length_scales[0], axis=1))
        assert gap == 0.0 or gap > 0.005
        f = -3.0 * np.sum((found.x - 0.4) ** 2) + 0.6 * np.sin(1e4 * found.x[0])
        x, y = np.vstack([x, found.x]), np.append(y, (f + 0.5) / 0.7)
    assert repeats <= 3
