import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import oracles
from rmes import information, integral, quadrature
from rmes.information import Gain, log_rmes, mes, noiseless_rmes, noisy_mes, rmes, rmes_sampled

CASES = json.loads((Path(__file__).parent / "data" / "rmes_values.json").read_text())["cases"]
NOISY = [rmes, log_rmes, noisy_mes]
EXACT = [mes, noiseless_rmes]


@pytest.fixture(autouse=True)
def _numbers_must_not_misbehave():
    with np.errstate(all="raise", under="ignore"):
        yield


def triple(gain: Gain) -> np.ndarray:
    return np.array([gain.value, gain.by_mean, gain.by_variance])


def errors(gain: Gain, exact) -> tuple[float, float]:
    """Relative error of the value, and of the derivatives against the largest of the three."""
    got, exact = triple(gain)[:, 0], np.array([float(e) for e in exact])
    difference = np.abs(got - exact)
    scale = np.where(np.abs(exact[1:]) < 1e-6 * np.abs(exact).max(), np.abs(exact).max(), exact[1:])
    return difference[0] / abs(exact[0]), (difference[1:] / np.abs(scale)).max()


def call(function, mean, variance, noise_variance, maxima) -> Gain:
    if function in EXACT:
        return function(mean, variance, maxima)
    return function(mean, variance, noise_variance, maxima)


def noise_for(c, variance=1.0):
    return variance * c * c / ((1 - c) * (1 + c))


def random_moments(seed, points=40, size=5, low=-2.0, high=4.0):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=points), rng.uniform(0.1, 3.0, points)
    noise = variance * 10.0 ** rng.uniform(-4, 2, points)
    gamma = rng.uniform(low, high, points) + 0.5 * rng.exponential(size=(size, points))
    return mean, variance, noise, mean + gamma * np.sqrt(variance)


# ------------------------------------------------------------------ against 50 digits


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_stored_cases(case):
    moments = case["mean"], case["variance"]
    value, slope = errors(rmes(*moments, case["noise_variance"], case["maxima"]), case["rmes"])
    assert value < 1e-11
    assert slope < 2e-9
    value, slope = errors(mes(*moments, case["maxima"]), case["mes"])
    assert max(value, slope) < 1e-12


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("function", [rmes, noisy_mes])
def test_fresh_cases_against_the_oracle(seed, function):
    rng = np.random.default_rng(seed)
    c = [0.9999, 0.99, 0.7, 0.4, 0.26, 0.2, 0.05, 1e-2, 1e-4, 1e-6][seed]
    gamma = rng.uniform(-6, 9) + 10.0 ** rng.uniform(-3, 0) * rng.random(2 + seed % 2)
    mean, variance = rng.normal(), 10.0 ** rng.uniform(-2, 2)
    noise = noise_for(c, variance)
    maxima = mean + gamma * np.sqrt(variance)
    reference = "mixture" if function is rmes else "gaussian"
    exact = oracles.rmes_integral(
        mean, variance, noise, maxima, digits=40, degree=16, reference=reference
    )
    value, slope = errors(function(mean, variance, noise, maxima), exact)
    assert value < 1e-10
    assert slope < 1e-8


@pytest.mark.parametrize(
    ("c", "gamma"),
    [
        (0.2833, [-0.68, -0.52, -0.47, -0.41, 0.61]),
        (0.1898, [-0.46, -0.44, -0.39, -0.38, -0.32, -0.26, 0.3]),
        (0.4047, [0.2, 0.21, 1.94]),
        (0.0445, [3.15, 3.1501]),
        (0.99, [-21.54, -21.42, -18.88, -4.02]),
    ],
)
def test_hard_sets_of_maxima(c, gamma):
    """One apart from many, two almost alike, and all far below the mean under much noise.

    The hardest of thousands of random cases: rules for milder ones were wrong there by 1e-9 to
    1e-6.
    """
    exact = oracles.rmes_integral(0.0, 1.0, noise_for(c), gamma, digits=40, degree=24)
    value, slope = errors(rmes(0.0, 1.0, noise_for(c), gamma), exact)
    assert value < 1e-10
    assert slope < 1e-8


# ------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("function", NOISY + EXACT)
@pytest.mark.parametrize("seed", range(3))
def test_central_differences(function, seed):
    mean, variance, noise, maxima = random_moments(seed, low=[-6.0, -2.0, 2.0][seed])
    gain = call(function, mean, variance, noise, maxima)
    sharpness = np.minimum(1.0, np.sqrt(noise / variance)) if function in NOISY else 1.0
    step = np.finfo(float).eps ** (1 / 3) * np.sqrt(variance) * sharpness
    up, down = (call(function, mean + s, variance, noise, maxima) for s in (step, -step))
    slope = (up.value - down.value) / (2 * step)
    scale = np.abs(gain.by_mean) + np.abs(gain.value) / np.sqrt(variance)
    assert (np.abs(slope - gain.by_mean) / scale).max() < 2e-6
    step = step * np.sqrt(variance)
    up, down = (call(function, mean, variance + s, noise, maxima) for s in (step, -step))
    slope = (up.value - down.value) / (2 * step)
    scale = np.abs(gain.by_variance) + np.abs(gain.value) / variance
    assert (np.abs(slope - gain.by_variance) / scale).max() < 2e-6


def test_central_differences_of_the_sampled_estimator():
    mean, variance, noise, maxima = random_moments(0)
    noise = noise + 0.1 * variance
    nu = np.random.default_rng(1).standard_normal(64)
    gain = rmes_sampled(mean, variance, noise, maxima, nu)
    step = 1e-5
    up, down = (rmes_sampled(mean + s, variance, noise, maxima, nu).value for s in (step, -step))
    np.testing.assert_allclose((up - down) / (2 * step), gain.by_mean, rtol=1e-6, atol=1e-8)
    up, down = (rmes_sampled(mean, variance + s, noise, maxima, nu).value for s in (step, -step))
    np.testing.assert_allclose((up - down) / (2 * step), gain.by_variance, rtol=1e-6, atol=1e-8)


def test_samples_agree_with_the_integral_within_their_error():
    mean, variance, noise, maxima = random_moments(2, low=-1.0, high=2.0)
    noise = noise + 0.2 * variance
    rng = np.random.default_rng(3)
    exact = rmes(mean, variance, noise, maxima)
    repeats = np.array(
        [
            triple(rmes_sampled(mean, variance, noise, maxima, rng.standard_normal(200)))
            for _ in range(30)
        ]
    )
    error = repeats.mean(axis=0) - triple(exact)
    deviation = repeats.std(axis=0, ddof=1) / np.sqrt(30)
    assert (np.abs(error) < 5 * deviation + 1e-12).all()


# ------------------------------------------------------------------ limits and invariances


def test_bounds_and_order_of_the_four_gains():
    mean, variance, noise, maxima = random_moments(4, points=300, size=6, low=-6, high=6)
    value = rmes(mean, variance, noise, maxima).value
    assert (value > 0).all()
    assert (value < np.log(6)).all()
    limit = noiseless_rmes(mean, variance, maxima).value
    assert (limit >= value).all()
    assert (limit <= np.log(6)).all()
    # a mixture of bounds above the mean is no wider than the Gaussian, so of lower entropy
    above = (maxima > mean).all(axis=0)
    assert above.sum() > 100
    assert (noisy_mes(mean, variance, noise, maxima).value >= value)[above].all()
    assert (mes(mean, variance, maxima).value >= limit)[above].all()


@pytest.mark.parametrize("c", [0.0, 1e-8, 0.1, 0.5, 0.9999999])
@pytest.mark.parametrize("maxima", [[0.3], [0.3] * 3, [-30.0] * 7, [30.0] * 2])
def test_one_maximum_tells_nothing_by_itself(c, maxima):
    zero = triple(rmes([0.0, 1.0], [1.0, 0.1], noise_for(c), maxima))
    assert (zero == 0).all()
    logarithm = log_rmes([0.0, 1.0], [1.0, 0.1], noise_for(c), maxima)
    assert (logarithm.value == -np.inf).all()
    assert (logarithm.by_mean == 0).all()
    assert (logarithm.by_variance == 0).all()


@pytest.mark.parametrize("function", [rmes, log_rmes, noisy_mes, mes, noiseless_rmes])
def test_order_shift_and_scale(function):
    mean, variance, noise, maxima = random_moments(5)
    gain = call(function, mean, variance, noise, maxima)
    shuffled = call(function, mean, variance, noise, maxima[[3, 1, 4, 0, 2]])
    np.testing.assert_allclose(triple(shuffled), triple(gain), rtol=1e-10)
    moved = call(function, mean + 3.0, variance, noise, maxima + 3.0)
    np.testing.assert_allclose(moved.value, gain.value, rtol=1e-10)
    factor = 1e7
    scaled = call(function, factor * mean, factor**2 * variance, factor**2 * noise, factor * maxima)
    np.testing.assert_allclose(scaled.value, gain.value, rtol=1e-10)
    np.testing.assert_allclose(factor * scaled.by_mean, gain.by_mean, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(
        factor**2 * scaled.by_variance, gain.by_variance, rtol=1e-8, atol=1e-15
    )


@pytest.mark.parametrize("function", NOISY)
def test_rows_do_not_interact(function):
    mean, variance, noise, maxima = random_moments(6, low=-30, high=30)
    whole = triple(function(mean, variance, noise, maxima))
    for i in range(mean.size):
        alone = triple(function(mean[i], variance[i], noise[i], maxima[:, i]))
        tolerance = 1e-12 * np.abs(alone).max()
        np.testing.assert_allclose(whole[:, i], alone[:, 0], rtol=0.0, atol=tolerance)


def test_shared_maxima_are_own_maxima_repeated():
    mean, variance, noise, maxima = random_moments(7)
    shared = rmes(mean, variance, noise, maxima[:, 0])
    own = rmes(mean, variance, noise, np.repeat(maxima[:, :1], mean.size, axis=1))
    assert (triple(shared) == triple(own)).all()


@pytest.mark.parametrize("function", [rmes, noisy_mes])
@pytest.mark.parametrize("gamma", [-20.0, -3.0, 0.0, 3.0, 8.0, 20.0])
def test_falls_with_noise(function, gamma):
    noise = noise_for(np.concatenate([np.logspace(-9, -1, 80), np.linspace(0.1, 0.999, 300)]))
    size = noise.size
    maxima = gamma + np.array([0.0, 0.2, 0.9])
    value = function(np.zeros(size), np.ones(size), noise, maxima).value
    assert (np.diff(value) <= 1e-12 * value[:-1]).all()


@pytest.mark.parametrize("gamma", [-20.0, -3.0, 0.0, 3.0, 8.0, 20.0])
def test_vanishing_noise_joins_the_noiseless_formulas(gamma):
    maxima = gamma + np.array([0.0, 0.2, 0.9])
    for pair in ((rmes, noiseless_rmes), (noisy_mes, mes)):
        limit = triple(pair[1](0.0, 1.0, maxima))
        near = triple(pair[0](0.0, 1.0, 1e-18, maxima))
        np.testing.assert_allclose(near, limit, rtol=1e-6)
        np.testing.assert_allclose(near[0], limit[0], rtol=1e-7)
        assert (triple(pair[0](0.0, 1.0, 0.0, maxima)) == limit).all()


def test_far_maxima_and_vanishing_variance_give_nothing():
    far = np.array([1e3, 1e4, 1e8, 1e30])
    for function in (rmes, noisy_mes):
        assert (
            triple(function(np.zeros(4), 1.0 + 0 * far, 0.5, np.stack([far, 2 * far]))) == 0
        ).all()
        for variance in (0.0, 1e-30, 1e-12):
            assert (triple(function(0.0, variance, 0.5, [0.1, 0.2])) == 0).all()
    for variance in (0.0, 1e-30):
        assert (triple(mes(0.0, variance, [0.1, 0.2])) == 0).all()
        assert (triple(noiseless_rmes(0.0, variance, [0.1, 0.2])) == 0).all()


def test_vanishing_variance_above_the_maxima_leaves_noisy_copies_of_them():
    """f is then at its bound f*, so y is one of the Gaussians N(f*_k, τ²)."""
    gain = rmes(0.0, [0.0], 0.25, [-1.0, -2.0])
    nu, weight = np.polynomial.hermite_e.hermegauss(80)
    p = np.exp(-0.5 * ((nu / 2 + np.array([[0.0], [1.0]])) / 0.5) ** 2)
    expected = np.sum(weight * np.log(2 / (1 + p[1] / p[0]))) / np.sqrt(2 * np.pi)
    assert gain.value[0] == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(triple(gain)).all()


def test_mes_with_one_maximum_ranks_points_as_probability_of_improvement():
    rng = np.random.default_rng(8)
    mean, variance = rng.normal(size=500), rng.uniform(0.01, 4.0, 500)
    improvement = (mean - 2.0) / np.sqrt(variance)
    assert (np.argsort(mes(mean, variance, [2.0]).value) == np.argsort(improvement)).all()


# ------------------------------------------------------------------ stress

NOISE = [1 - 1e-12, 1 - 1e-6, 0.999, 0.5, 0.24, 0.1, 1e-2, 1e-4, 1e-8, 1e-12, 1e-15, 0.0]


@pytest.mark.parametrize("c", NOISE)
@pytest.mark.parametrize("size", [2, 7])
def test_finite_and_bounded_everywhere(size, c):
    rng = np.random.default_rng(size)
    centre = np.linspace(-40, 40, 17)
    for spread, variance in product([1e-7, 1e-2, 1.0, 30.0], [1e-30, 1.0, 1e30]):
        gamma = centre + spread * rng.uniform(-1, 1, (size, centre.size))
        moments = (np.zeros(17), np.full(17, variance), noise_for(c, variance))
        maxima = gamma * np.sqrt(variance)
        gain, logarithm = rmes(*moments, maxima), log_rmes(*moments, maxima)
        assert np.isfinite(triple(gain)).all()
        assert np.isfinite(triple(logarithm)).all()
        assert (gain.value >= 0).all()
        assert (gain.value <= np.log(size) * (1 + 1e-12)).all()
        with np.errstate(under="ignore"):
            np.testing.assert_allclose(np.exp(logarithm.value), gain.value, rtol=1e-9, atol=1e-300)
        assert np.isfinite(triple(noisy_mes(*moments, maxima))).all()


@pytest.mark.parametrize("c", [1 - 1e-12, 0.6, 0.01, 0.0])
def test_many_maxima(c):
    gamma = np.linspace(-1, 3, 64)
    gain = rmes([0.0, 0.5], [1.0, 1.0], noise_for(c), gamma)
    assert np.isfinite(triple(gain)).all()
    assert (gain.value > 0).all()
    assert (gain.value < np.log(64)).all()


def panels_below(gamma):
    """The c/ρ at which three maxima 0.3 and 0.7 apart from `gamma` on come to have panels."""

    def needs_panels(ratio):
        rho = np.array([1.0 / np.hypot(1.0, ratio)])
        c, low, high = ratio * rho, np.array([gamma]), np.array([gamma + 1.0])
        start, stop = quadrature.support(low, high, rho, c)
        left, _ = quadrature.window(start, stop, low, high, rho, c)
        step = quadrature.equal_steps(rho, c, quadrature.strip(low, high, rho, c))
        return (stop - left)[0] > 3 * 2 * quadrature.LEGENDRE_NODES * step[0]

    yes, no = 1e-4, 0.5
    assert needs_panels(yes)
    assert not needs_panels(no)
    while no - yes > 1e-15:
        middle = 0.5 * (yes + no)
        yes, no = (middle, no) if needs_panels(middle) else (yes, middle)
    return yes


def switches():
    """Pairs of moments on the two sides of every place where the rule changes."""
    tiny = 1e-9
    for gamma in (-24.0, -3.0, 0.5, 6.0, 24.0):
        ratio = panels_below(gamma)  # c/ρ
        for side in (ratio * (1 - tiny), ratio * (1 + tiny)):
            yield "sharp", gamma, side**2
        for side in (1 - tiny, 1 + tiny):
            rho = integral._FAINT * side  # the maxima below are 1 apart
            yield "faint", gamma, 1 / rho**2 - 1
    for edge, noise in product((0.0, -25.0, 25.0), (1e-6, 0.01, 1.0, 100.0)):
        for side in (edge - tiny, edge + tiny):
            yield "regime", side, noise


def test_continuous_where_the_rule_changes():
    sides = list(switches())
    for (name, gamma, noise), (_, other, other_noise) in zip(sides[::2], sides[1::2], strict=True):
        steps = np.array([0.0, 0.3, 1.0]) * np.sign(gamma if gamma else 1.0)
        for function in NOISY:
            one = triple(function(0.0, 1.0, noise, gamma + np.abs(steps)))
            two = triple(function(0.0, 1.0, other_noise, other + np.abs(steps)))
            scale = np.abs(one).max()
            assert (np.abs(one - two) < 1e-7 * scale).all(), (name, gamma, noise, function)
            assert two[0, 0] == pytest.approx(one[0, 0], rel=1e-6 if gamma > 20 else 2e-7)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], [1.0], 0.1, [1.0]), r"mean has shape \(2,\)"),
        (([0.0], [-1.0], 0.1, [1.0]), "variance holds a negative"),
        (([np.nan], [1.0], 0.1, [1.0]), "mean holds a value that is not finite"),
        (([0.0], [np.inf], 0.1, [1.0]), "variance holds a negative or non-finite"),
        (([0.0], [1.0], -0.1, [1.0]), "noise_variance holds a negative"),
        (([0.0], [1.0], [0.1, 0.2], [1.0]), r"noise_variance has shape \(2,\)"),
        (([0.0], [1.0], 0.1, []), r"maxima has shape \(0,\)"),
        (([0.0], [1.0], 0.1, [np.inf]), "maxima holds a value that is not finite"),
        (([0.0], [1.0], 0.1, [[1.0, 2.0]]), r"maxima has shape \(1, 2\)"),
        (([[0.0]], [[1.0]], 0.1, [1.0]), r"mean has shape \(1, 1\)"),
    ],
)
def test_bad_input_is_named(arguments, message):
    for function in NOISY:
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_the_sampled_estimator_needs_samples_and_noise():
    with pytest.raises(ValueError, match="nu has shape"):
        rmes_sampled(0.0, 1.0, 0.1, [1.0], [])
    with pytest.raises(ValueError, match="positive noise"):
        rmes_sampled(0.0, 1.0, 0.0, [1.0], [0.1])


def test_exact_measurements_far_below_every_maximum_keep_a_logarithm():
    """All γ > 25 and no noise at all: what a converged exact run asks for."""
    with np.errstate(all="raise", under="ignore"):
        gain = information.log_rmes(np.zeros(3), np.ones(3), 0.0, np.array([30.0, 31.0, 33.0]))
    assert np.all(np.isfinite(gain.value))
    assert np.all(gain.by_mean > 0)
