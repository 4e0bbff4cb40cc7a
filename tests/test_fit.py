import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from rmes import gp
from rmes.evidence import log_evidence, log_evidence_and_gradient
from rmes.fit import Fit, fit
from rmes.kernels import MATERN52, SQUARED_EXPONENTIAL, squared_distances
from rmes.measurements import merge
from rmes.model import Model, log_prior
from rmes.units import Units


def random_problem(seed):
    """A draw from a process with random length-scales and noise: n from 5 to 200, d from 1 to 8."""
    rng = np.random.default_rng(seed)
    n, d = int(np.exp(rng.uniform(np.log(5), np.log(200)))), int(rng.integers(1, 9))
    kernel = (MATERN52, SQUARED_EXPONENTIAL)[seed % 2]
    x = rng.random((n, d))
    z = x / np.exp(rng.uniform(np.log(0.1), np.log(3), d))
    covariance = kernel.value(squared_distances(z, z)) + 1e-10 * np.eye(n)
    noise = np.exp(rng.uniform(np.log(0.01), 0.0))
    y = np.linalg.cholesky(covariance) @ rng.standard_normal(n) + noise * rng.standard_normal(n)
    return kernel, x, y, rng


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(20))
def test_maximum_likelihood_is_no_worse_than_scikit_learn_with_ten_restarts(seed):
    kernel, x, y, rng = random_problem(seed)
    d = x.shape[1]
    scales = (5e-3, 2e2)
    shape = Matern(np.ones(d), scales, nu=2.5) if kernel is MATERN52 else RBF(np.ones(d), scales)
    full = ConstantKernel(1.0, (1e-4, 1e4)) * shape + WhiteKernel(0.1, (1e-8, 1e2))
    peer = GaussianProcessRegressor(full, alpha=0.0, n_restarts_optimizer=10, random_state=0)
    peer.fit(x, y)
    model, data = Model.paper(kernel), merge(x, y)
    found = fit(model, data, rng)
    ours = log_evidence(model, data, found.best[None])[0]
    assert ours >= peer.log_marginal_likelihood_value_ - 1e-3


def test_both_modes_of_the_likelihood_are_found():
    """Noise around a slow wave, or a fast wave: the data decide, not the start."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.random((40, 1)), axis=0)
    model = Model.paper(SQUARED_EXPONENTIAL)
    noisy = np.sin(3 * x[:, 0]) + 0.5 * rng.standard_normal(40)
    smooth = np.sin(40 * x[:, 0])
    slow = fit(model, merge(x, noisy), rng).best
    fast = fit(model, merge(x, smooth), rng).best
    assert slow[0] > np.log(0.2)
    assert slow[2] > np.log(0.1)
    assert fast[0] < np.log(0.1)
    assert fast[2] < np.log(1e-3)


def test_a_warm_fit_reaches_what_a_cold_one_does():
    kernel, x, y, rng = random_problem(0)
    model = Model(kernel)
    y = (y - y.mean()) / y.std()
    before = fit(model, merge(x[:-1], y[:-1]), rng)
    data = merge(x, y)

    def density(theta):
        return log_evidence(model, data, theta[None])[0] + log_prior(model, data, theta[None])[0][0]

    cold, warm = fit(model, data, rng), fit(model, data, rng, warm=before)
    assert density(warm.best) == pytest.approx(density(cold.best), abs=0.01)


@pytest.mark.slow
def test_samples_follow_the_posterior_of_the_hyperparameters():
    """Carried along for many steps on one data set, against a fine grid in two parameters."""
    rng = np.random.default_rng(5)
    x = rng.random((15, 1))
    y = np.sin(5 * x[:, 0]) + 0.1 * rng.standard_normal(15)
    y = (y - y.mean()) / y.std()
    data, model = merge(x, y, 0.02), Model()
    axis = np.linspace(np.log(0.02), np.log(20), 120), np.linspace(np.log(0.02), np.log(50), 100)
    grid = np.stack(np.meshgrid(*axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = log_evidence(model, data, grid) + log_prior(model, data, grid)[0]
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    state, draws = fit(model, data, rng, 4), []
    for _ in range(600):
        state = fit(model, data, rng, 4, state)
        draws.append(state.samples)
    draws = np.concatenate(draws[50:])
    # The chains have about 300 independent draws among their 2,200.
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4 * sd.max() / np.sqrt(300))
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.2)


def test_the_same_generator_gives_the_same_fit():
    kernel, x, y, _ = random_problem(2)
    one = fit(Model(kernel), merge(x, y), np.random.default_rng(1), 4)
    two = fit(Model(kernel), merge(x, y), np.random.default_rng(1), 4)
    np.testing.assert_array_equal(one.best, two.best)
    np.testing.assert_array_equal(one.samples, two.samples)


@pytest.mark.parametrize(
    "y", [np.zeros(5), np.full(5, 1e-300), np.array([0, 0, 0, 0, 1e6]), np.ones(5)]
)
def test_odd_values_are_fitted_without_a_crash(y, rng):
    x = rng.random((5, 2))
    found = fit(Model(), merge(x, y), rng, 4)
    assert np.all(np.isfinite(found.best))
    assert np.all(np.isfinite(found.samples))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_points_are_enough(n, rng):
    found = fit(Model(), merge(rng.random((n, 2)), rng.normal(size=n)), rng, 4)
    assert found.samples.shape == (4, 4)
    assert np.ptp(found.samples[:, 0]) > 0


def test_many_rows_are_fitted_by_way_of_a_subset_that_keeps_what_is_inferred():
    """Only one of 200 rows says anything about the noise, and a subset must not lose it."""
    rng = np.random.default_rng(8)
    x = rng.random((200, 2))
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    noise = np.full(200, 0.01)
    noise[77] = np.nan
    model, data = Model(), merge(x, y, noise)
    found = fit(model, data, rng, 4)
    assert found.best.shape == (4,)
    slope = log_evidence_and_gradient(model, data, found.best[None])[1][0]
    slope += log_prior(model, data, found.best[None])[1][0]
    assert slope @ found.covariance @ slope < 0.01  # nats still to be climbed, twice over


def two_structures(n, seed):
    """Points, a sum of functions of one coordinate each, and one that has no main effects."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    noise = 0.1 * rng.standard_normal(n)
    added = np.sin(9 * x[:, 0]) + np.cos(7 * x[:, 1]) + np.sin(8 * x[:, 2])
    z = 2 * x - 1
    multiplied = 4 * z[:, 0] * z[:, 1] * np.cos(2 * z[:, 2])
    return x, (added + noise) / added.std(), (multiplied + noise) / multiplied.std()


def has_main_effects(found):
    assert found.samples.shape[1] == len(found.best) == 3 + 2 + found.main
    return found.main


@pytest.mark.parametrize("seed", range(3))
def test_main_effects_are_found_where_they_are(seed):
    x, added, multiplied = two_structures(50, seed)
    rng = np.random.default_rng(seed)
    found = fit(Model(), merge(x, added), rng, 4)
    assert has_main_effects(found)
    assert found.samples.shape == (4, 6)
    assert found.best[-1] > np.log(3.0)  # odds: at least three quarters of the variance
    assert not has_main_effects(fit(Model(), merge(x, multiplied), rng, 4))
    none = Model(main_effects=None)
    assert not has_main_effects(fit(none, merge(x, added), rng, 4))


def test_main_effects_predict_what_few_data_say():
    x, added, _ = two_structures(50, 0)
    new, truth, _ = two_structures(400, 9)
    rng, errors = np.random.default_rng(0), []
    for model in (Model(), Model(main_effects=None)):
        data = merge(x, added)
        posterior = gp.posterior(model, data, fit(model, data, rng, 4).samples)
        errors.append(np.std(posterior.predict(new)[0].mean(axis=0) - truth))
    assert errors[0] < 0.6 * errors[1]


def test_a_warm_fit_changes_its_mind_about_main_effects():
    """Whatever the structure of the fit it starts from, and the samples follow it."""
    x, added, multiplied = two_structures(50, 0)
    rng, model = np.random.default_rng(0), Model()
    for first, second in ((multiplied, added), (added, multiplied)):
        early = fit(model, merge(x[:20], first[:20]), rng, 4)
        late = fit(model, merge(x, second), rng, 4, early)
        assert has_main_effects(late) == (second is added)
        assert late.samples.shape == (4, len(late.best))
        again = fit(model, merge(x, second), rng, 4, late)  # nothing new: it stays
        assert len(again.best) == len(late.best)


def two_views(x, values):
    """Measurements as they are, and pressed together; to be maximised."""
    plain = Units.of(values, 1.0)
    pressed = plain.pressed(values)
    z = pressed.forward(values)
    data = merge(x, z)
    return (
        merge(x, plain.forward(values)),
        replace(data, constant=data.constant + pressed.log_slope(z), pressed=True),
    )


def steep_or_not(seed, noise):
    """A smooth function at 40 points, and a power of it: the worse, the steeper."""
    rng = np.random.default_rng(seed)
    x = rng.random((40, 2))
    smooth = -np.sum((x - 0.4) ** 2, axis=1) + 0.1 * np.sin(7.0 * x[:, 0])
    steep = -np.exp(-6.0 * smooth)
    return x, *(f + noise * f.std() * rng.standard_normal(40) for f in (smooth, steep))


@pytest.mark.parametrize("seed", range(3))
def test_steep_values_are_pressed_and_others_are_not(seed):
    x, smooth, steep = steep_or_not(seed, 0.01)
    rng = np.random.default_rng(seed)
    for values, expected in ((smooth, False), (steep, True)):
        plain, pressed = two_views(x, values)
        found = fit(Model(), plain, rng, 4, None, lambda view=pressed: view)
        assert found.pressed == expected
        # and starting from the other view of them
        found = fit(Model(), pressed, rng, 4, None, lambda view=plain: view)
        assert found.pressed == expected


def test_values_are_not_pressed_where_they_are_noisy(rng):
    x, _, steep = steep_or_not(0, 0.5)
    plain, pressed = two_views(x, steep)
    for first, second in ((plain, pressed), (pressed, plain)):
        assert not fit(Model(), first, rng, 4, None, lambda view=second: view).pressed


def test_evidence_of_pressed_values_is_a_density_of_the_values():
    """As a density of one value given the others it integrates to 1, pressed or not."""
    rng = np.random.default_rng(0)
    x, values = rng.random((6, 2)), rng.normal(size=6)
    units = Units.of(values, 1.0).pressed(values)
    theta = np.log([[0.5, 0.5, 1.0, 0.1]])

    def log_density(last):
        z = units.forward(np.append(values[:5], last))
        data = merge(x, z)
        data = replace(data, constant=data.constant + units.log_slope(z))
        return log_evidence(Model(), data, theta)[0]

    first = merge(x[:5], units.forward(values[:5]))
    first = replace(first, constant=units.log_slope(first.y))
    before = log_evidence(Model(), first, theta)[0]
    total, _ = quad(
        lambda v: np.exp(log_density(v) - before), -200.0, 20.0, points=[-2, 0, 2], limit=500
    )
    assert total / units.scale == pytest.approx(1.0, rel=1e-4)


def test_a_fit_is_no_start_for_values_seen_otherwise():
    x, _, steep = steep_or_not(0, 0.01)
    plain, pressed = two_views(x, steep)
    learned = fit(Model(), pressed, np.random.default_rng(0), 4)
    assert learned.pressed
    after = fit(Model(), plain, np.random.default_rng(1), 4, learned)
    cold = fit(Model(), plain, np.random.default_rng(1), 4)
    np.testing.assert_array_equal(after.samples, cold.samples)


def test_repeats_are_learnt_from_as_new_points_are(rng):
    """Rows do not grow where points are only measured again; the noise becomes known even so."""
    places = np.linspace(0.0, 1.0, 6)[:, None]
    x, noise = np.tile(places, (40, 1)), rng.standard_normal(240)
    y = np.sin(3.0 * x[:, 0]) + noise
    learned = fit(Model(), merge(x[:6], y[:6]), rng, 4)
    for count in range(7, 241):
        learned = fit(Model(), merge(x[:count], y[:count]), rng, 4, learned)
    assert learned.size > 200
    assert np.exp(0.5 * learned.best[2]) == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(np.exp(0.5 * learned.samples[:, 2]), 1.0, atol=0.25)


def test_a_single_coordinate_has_no_main_effects(rng):
    x = rng.random((30, 1))
    found = fit(Model(), merge(x, np.sin(9 * x[:, 0])), rng, 4)
    assert len(found.best) == 3


def test_a_fit_with_main_effects_is_no_start_for_a_model_without():
    x, added, _ = two_structures(50, 0)
    rng, data = np.random.default_rng(0), merge(x, added)
    learned = fit(Model(), data, rng, 4)
    assert not has_main_effects(fit(Model(main_effects=None), data, rng, 4, learned))


def test_a_fit_is_no_start_where_another_hyperparameter_has_come_or_gone():
    """The odds of main effects must not be taken for a noise, of which there are as many."""
    x, added, _ = two_structures(50, 0)
    rng = np.random.default_rng(0)
    known = fit(Model(), merge(x, added, 0.01), rng, 4)
    assert known.main
    data = merge(x, added)
    after = fit(Model(), data, np.random.default_rng(1), 4, known)
    cold = fit(Model(), data, np.random.default_rng(1), 4)
    np.testing.assert_array_equal(after.samples, cold.samples)


def test_a_saved_fit_is_the_same():
    x, added, _ = two_structures(50, 0)
    found = fit(Model(), merge(x, added), np.random.default_rng(0), 4)
    again = Fit.from_json(json.loads(json.dumps(found.to_json())))
    assert (again.size, again.main, again.pressed) == (found.size, True, False)
    assert Fit.from_json(replace(found, pressed=True).to_json()).pressed
    for name in ("best", "covariance", "samples"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    new = ("main", "pressed", "grainy")
    before = {key: value for key, value in found.to_json().items() if key not in new}
    read = Fit.from_json(before)  # as older versions wrote it
    assert not read.main
    assert not read.pressed
    assert not read.grainy


def rippled(seed, ripple, noise, repeats=4):
    """A saddle with ripples too short to be resolved, at 30 points, some of them measured twice."""
    rng = np.random.default_rng(seed)
    x = rng.random((30, 2))
    f = 4.0 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5) + ripple * np.sin(1e4 * x[:, 0])
    f, x = np.append(f, f[:repeats]), np.vstack([x, x[:repeats]])
    y = f + noise * rng.standard_normal(len(f))
    return x, (y - y.mean()) / y.std()


@pytest.mark.parametrize("seed", range(4))
def test_ripples_are_told_from_noise_by_repeats(seed):
    rng, model = np.random.default_rng(seed), Model()
    x, y = rippled(seed, 0.5, 0.02)
    found = fit(model, merge(x, y), rng, 4)
    assert found.grainy
    assert found.samples.shape == (4, 5)
    noise, grain = np.exp(found.best[3:])
    assert grain > 10 * noise
    assert not fit(model, merge(x[:30], y[:30]), rng, 4).grainy  # nothing is measured twice
    assert not fit(replace(model, grain=None), merge(x, y), rng, 4).grainy
    assert not fit(model, merge(x, y, 0.1), rng, 4).grainy  # all noise is known
    x, y = rippled(seed, 0.02, 0.4)
    assert not fit(model, merge(x, y), rng, 4).grainy


def test_a_warm_fit_changes_its_mind_about_grain():
    rng, model = np.random.default_rng(0), Model()
    ripples, noise = rippled(0, 0.5, 0.02, 12), rippled(0, 0.02, 0.4, 12)
    for first, second in ((ripples, noise), (noise, ripples)):
        early = fit(model, merge(first[0][:34], first[1][:34]), rng, 4)
        assert early.grainy == (first is ripples)
        late = fit(model, merge(*second), rng, 4, early)
        assert late.grainy == (second is ripples)
        assert late.samples.shape == (4, len(late.best))
        again = fit(model, merge(*second), rng, 4, late)  # nothing new: it stays
        assert again.grainy == late.grainy


def test_what_is_no_noise_may_be_a_shorter_wave():
    """A wave that passed for noise is seen when two points that are measured again agree."""
    rng = np.random.default_rng(1)
    x = rng.random((40, 1))
    y = np.sqrt(2.0) * np.sin(30.0 * x[:, 0])
    data = merge(np.vstack([x, x[:2]]), np.append(y, y[:2]))
    noise = np.log([2.0, 0.5, 0.9])
    blurred = Fit(noise, 0.1 * np.eye(3), np.tile(noise, (4, 1)), 30)
    found = fit(Model(), data, rng, 4, blurred)
    assert not found.grainy
    for theta in (found.best, *found.samples):
        assert theta[0] < np.log(0.3)
        assert theta[2] < np.log(0.01)


def test_a_fit_with_grain_is_no_start_for_a_model_without():
    x, y = rippled(0, 0.5, 0.02)
    learned = fit(Model(), merge(x, y), np.random.default_rng(0), 4)
    for model, data in (
        (Model(grain=None), merge(x, y)),
        (Model(), merge(x, y, 0.1)),
    ):
        after = fit(model, data, np.random.default_rng(1), 4, learned)
        cold = fit(model, data, np.random.default_rng(1), 4)
        np.testing.assert_array_equal(after.samples, cold.samples)
        assert not after.grainy


def test_data_are_seen_as_they_were_learnt_from():
    data = merge(*rippled(0, 0.5, 0.02))
    learned = fit(Model(), data, np.random.default_rng(0), 4)
    assert learned.seen(data).grainy
    assert not data.grainy
    assert learned.seen(learned.seen(data)) is not data
    assert Fit.from_json(learned.to_json()).grainy
