import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from gradients import STEP, assert_gradient
from rmes import acquisition, criteria, information, maxima
from rmes.acquisition import expected_improvement, log_expected_improvement, upper_confidence_bound
from rmes.domain import Domain
from rmes.information import rmes, rmes_matched, rmes_rough

# ------------------------------------------------------------------ formulas on moments


def log_h(z):
    """Log of φ(z) + z Φ(z), by 60 digits and as many as the cancellation takes."""
    with mp.workdps(60 + int(2 * mp.log10(1 + abs(z)))):
        z = mp.mpf(z)
        if z < -200:  # the integral of Φ by the asymptotic series: 1/z² - 3/z⁴ + 15/z⁶ - ...
            terms = mp.fsum((-1) ** k * mp.fac2(2 * k + 1) / z ** (2 * k + 2) for k in range(8))
            return float(-z * z / 2 - mp.log(2 * mp.pi) / 2 + mp.log(terms))
        mp.mp.dps += int(z * z / 4)
        return float(mp.log(mp.npdf(z) + z * mp.ncdf(z)))


Z = np.array([-30.0, -8.0, -5.001, -4.999, -2.0, -1.001, -0.999, 0.0, 0.3, 2.0, 7.0, 30.0])


@pytest.mark.parametrize("sd", [1e-3, 1.0, 50.0])
def test_expected_improvement_is_the_exact_one(sd):
    exact = sd * np.exp([log_h(z) for z in Z])
    gain = expected_improvement(1.0 + sd * Z, np.full(len(Z), sd**2), 1.0)
    z = (1.0 + sd * Z - 1.0) / sd  # rounded as the function sees it
    tolerance = 1e-11 + np.abs(z - Z) * (1.0 + np.abs(Z))  # d log h / dz ≈ |z|
    assert np.all(np.abs(gain.value / exact - 1.0) < 10.0 * tolerance)
    logged = log_expected_improvement(1.0 + sd * Z, np.full(len(Z), sd**2), 1.0)
    assert np.all(np.abs(logged.value - np.log(exact)) < 10.0 * tolerance)


def test_expected_improvement_is_the_integral_of_its_definition():
    mean, sd, best = 0.4, 1.3, 1.1
    exact = quad(lambda f: (f - best) * norm.pdf(f, mean, sd), best, best + 15.0)[0]
    gain = expected_improvement(np.array([mean]), np.array([sd**2]), best)
    assert gain.value[0] == pytest.approx(exact, rel=1e-8)


def test_log_expected_improvement_is_finite_and_rising_from_minus_to_plus_1e8():
    far = np.logspace(8, -3, 400)
    z = np.concatenate([-far, [0.0], far[::-1]])
    gain = log_expected_improvement(z, np.ones(len(z)), 0.0)
    for part in (gain.value, gain.by_mean, gain.by_variance):
        assert np.all(np.isfinite(part))
    assert np.all(np.diff(gain.value) > 0.0)
    assert np.all(gain.by_mean > 0.0)
    assert np.all(np.diff(gain.by_mean) <= 1e-12 * gain.by_mean[:-1])  # log-concave
    some = np.array([-1e8, -1e4, -300.0, -41.0, -39.0, -1.0])
    exact = np.array([log_h(z) for z in some])
    value = log_expected_improvement(some, np.ones(len(some)), 0.0).value
    np.testing.assert_allclose(value, exact, rtol=1e-11)


def test_the_upper_confidence_bound_is_mean_plus_deviations():
    gain = upper_confidence_bound(np.array([0.5, -1.0]), np.array([4.0, 0.25]), 9.0)
    np.testing.assert_allclose(gain.value, [6.5, 0.5], rtol=1e-15)


def test_the_confidence_schedule_rises_slowly():
    betas = [acquisition.confidence_schedule(n, 2) for n in (0, 1, 10, 100, 1000)]
    assert np.all(np.diff(betas) > 0.0)
    # Srinivas et al. with δ = 0.1, over 5: t = 1, d = 2
    assert betas[0] == pytest.approx(2.0 * np.log(2.0 * np.pi**2 / 0.6) / 5.0)
    assert betas[-1] < 8.0


FORMULAS = {
    "ei": lambda m, v: expected_improvement(m, v, 0.4),
    "log-ei": lambda m, v: log_expected_improvement(m, v, 0.4),
    "ucb": lambda m, v: upper_confidence_bound(m, v, 3.0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_partial_derivatives_of_formulas_are_those_of_their_values(name, rng):
    formula = FORMULAS[name]
    mean, variance = rng.normal(size=40), rng.uniform(0.2, 3.0, 40)
    gain = formula(mean, variance)
    by_mean = (formula(mean + STEP, variance).value - formula(mean - STEP, variance).value) / 2
    by_variance = (formula(mean, variance + STEP).value - formula(mean, variance - STEP).value) / 2
    np.testing.assert_allclose(gain.by_mean, by_mean / STEP, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gain.by_variance, by_variance / STEP, rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------ the stand-in


def matched_by_definition(mean, variance, noise, tops):
    """Entropies of normals with the moments of p(y | f*_k), by quadrature, and of the mixture."""
    sd, total = np.sqrt(variance), np.sqrt(variance + noise)
    first, second = [], []
    for top in tops:
        share = ndtr((top - mean) / sd)

        def density(y, top=top, share=share):
            # f | y has the mean and sd below; p(y | f <= top) ∝ p(y) P(f <= top | y)
            center = mean + variance / total**2 * (y - mean)
            width = sd * np.sqrt(noise) / total
            return norm.pdf(y, mean, total) * ndtr((top - center) / width) / share

        low, high = mean - 12.0 * total, mean + 12.0 * total
        points = np.linspace(low, high, 13)
        first.append(quad(lambda y: y * density(y), low, high, points=points, limit=200)[0])
        second.append(quad(lambda y: y * y * density(y), low, high, points=points, limit=200)[0])
    first, second = np.array(first), np.array(second)
    within = np.log(second - first**2)
    return 0.5 * (np.log(second.mean() - first.mean() ** 2) - within.mean())


@pytest.mark.parametrize("noise", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("mean", [-1.0, 0.5, 1.5])
def test_the_stand_in_is_the_information_of_normals_with_matched_moments(mean, noise):
    tops = np.array([0.4, 1.0, 2.2])
    value = rmes_matched(*np.array([[mean], [0.8], [noise]]), tops[:, None])[0]
    assert value == pytest.approx(matched_by_definition(mean, 0.8, noise, tops), rel=1e-6)


def test_the_stand_in_tends_to_rmes_as_noise_grows(rng):
    mean, tops = rng.normal(size=30), np.array([1.0, 1.8, 2.5, 3.0])
    variance = rng.uniform(0.3, 2.0, 30)
    errors = []
    for noise in (1.0, 10.0, 100.0, 1000.0):
        exact = rmes(mean, variance, noise, tops).value
        rough = rmes_matched(mean, variance, np.array(noise), tops[:, None])
        errors.append(np.max(np.abs(rough / exact - 1)))
    assert np.all(np.diff(errors) < 0.0)
    assert errors[-1] < 0.02


def test_the_stand_in_ranks_points_as_rmes_does(rng):
    mean, variance = rng.normal(size=300), rng.uniform(0.1, 2.0, 300)
    tops = np.array([2.0, 2.3, 2.8, 3.5, 2.1])
    exact = rmes(mean, variance, 0.1, tops).value
    rough = rmes_matched(mean, variance, np.array(0.1), tops[:, None])
    ranks = [np.argsort(np.argsort(v)) for v in (exact, rough)]
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    assert np.all(rough > -1e-15)  # a difference of logarithms near 1


def test_one_maximum_carries_no_information_for_the_stand_in():
    gain = rmes_matched(np.linspace(-2, 2, 9), np.ones(9), np.array(0.5), np.array([[1.5]]))
    np.testing.assert_allclose(gain, 0.0, atol=1e-15)


# ------------------------------------------------------------------ to three digits


@pytest.mark.parametrize("noise", [1e-12, 1e-4, 1e-2, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("count", [2, 5, 16])
def test_rough_rmes_has_three_digits_and_its_derivatives_two(noise, count, rng):
    mean, variance = rng.normal(size=200), np.exp(rng.uniform(-3.0, 1.0, 200))
    tops = rng.uniform(0.5, 3.0, (count, 1)) + rng.normal(0.0, 0.3, (count, 200))
    exact = rmes(mean, variance, noise, tops)
    some = exact.value > 1e-8
    assert some.sum() > 50
    for at in (some, np.flatnonzero(some)[:1]):  # many points, or one, whose rule is its own
        given = mean[at], variance[at], np.full(len(mean[at]), noise), tops[:, at]
        rough = rmes_rough(*given)
        np.testing.assert_allclose(rough.value, exact.value[at], rtol=2e-3)
        value, deviation = exact.value[at], np.sqrt(variance[at])
        error = rough.by_mean - exact.by_mean[at]
        assert np.all(np.abs(error) < 0.02 * (np.abs(exact.by_mean[at]) + value / deviation))
        error = rough.by_variance - exact.by_variance[at]
        assert np.all(np.abs(error) < 0.02 * (np.abs(exact.by_variance[at]) + value / variance[at]))


@pytest.mark.parametrize("noise", [0.0, 1e-20, 0.1])
@pytest.mark.parametrize("above", [-60.0, 0.0, 60.0])
def test_rough_rmes_is_exact_or_nothing_at_the_extremes(noise, above, rng):
    tops = above + rng.normal(size=(4, 6))
    given = np.zeros(6), np.ones(6), np.full(6, noise), tops
    value, exact = rmes_rough(*given).value, rmes(*given).value
    np.testing.assert_allclose(value, exact, rtol=2e-3, atol=1e-10)
    same = rmes_rough(*given[:3], np.repeat(tops[:1], 4, axis=0))
    np.testing.assert_allclose([same.value, same.by_mean, same.by_variance], 0.0, atol=1e-12)


# ------------------------------------------------------------------ composed with a posterior


@pytest.fixture
def drawn(posterior, rng):
    return maxima.from_paths(posterior, 4, rng.random((200, 3)), Domain(3), rng)


def level(posterior):
    return lambda x: np.broadcast_to(
        posterior.noise_variance[:, None], (posterior.settings, len(x))
    )


def composed(name, posterior, drawn):
    if name == "rough":
        return criteria.roughly(posterior, level(posterior), drawn)
    if name == "pes" and posterior.main is not None:
        with pytest.raises(ValueError, match="knows no main effects"):
            criteria.acquire(name, posterior, level(posterior), drawn, 28)
        pytest.skip("predictive entropy search has no main effects, and says so")
    return criteria.acquire(name, posterior, level(posterior), drawn, 28)


# "rmes-adam" has only random estimates: it is no function.
EVERY = [name for name in criteria.ACQUISITIONS if name != "rmes-adam"]


@pytest.mark.parametrize("name", EVERY)
def test_gradients_of_acquisitions_are_those_of_their_values(name, posterior, drawn, rng):
    function = composed(name, posterior, drawn)
    points = rng.uniform(0.05, 0.95, (8, 3))
    # "pes" is an expectation propagation to a fixed point: its values carry that tolerance.
    rtol, atol = (1e-3, 1e-4) if name == "pes" else (2e-5, 1e-7)
    assert_gradient(function, points, rtol, atol)


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_a_batch_do_not_interact(name, posterior, drawn, rng):
    function = composed(name, posterior, drawn)
    points = rng.random((7, 3))
    values, gradients = function(points)
    for i in (0, 3, 6):
        value, gradient = function(points[[i]])
        np.testing.assert_allclose(value[0], values[i], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(gradient[0], gradients[i], rtol=1e-6, atol=1e-9)


def test_what_a_search_climbs_is_rmes_to_three_digits(posterior, drawn, rng):
    points = rng.uniform(0.05, 0.95, (80, 3))
    value, gradient = composed("rmes", posterior, drawn)(points)
    some = value > np.log(1e-8)
    assert some.sum() > 6
    rough, slope = composed("rough", posterior, drawn)(points[some])
    np.testing.assert_allclose(rough, value[some], atol=2e-3)
    size = np.linalg.norm(gradient[some], axis=1, keepdims=True)
    assert np.all(np.abs(slope - gradient[some]) < 0.02 * size)


@pytest.mark.parametrize("name", ["rmes", "mes", "log-ei", "ucb", "pes"])
def test_avoiding_failures_lowers_the_value_there_and_keeps_the_gradient(
    name, posterior, drawn, rng
):
    plain = composed(name, posterior, drawn)
    failed = rng.random((2, 3))
    scale = np.full(3, 0.3)
    success = criteria.log_success(posterior.model.kernel, scale, posterior.x, failed)
    function = criteria.avoiding(plain, name, success)
    points = rng.uniform(0.05, 0.95, (6, 3))
    rtol, atol = (1e-3, 1e-4) if name == "pes" else (2e-5, 1e-7)
    assert_gradient(function, points, rtol, atol)
    assert np.all(function(failed)[0] < plain(failed)[0])
    far = posterior.x[
        [np.argmax(np.min(np.linalg.norm(posterior.x[:, None] - failed, axis=2), axis=1))]
    ]
    assert np.all(success(failed)[0] < success(far)[0])


def test_a_point_next_to_a_measured_one_is_not_new(rng):
    measured, reach = rng.random((6, 3)), np.array([0.1, 0.2, 0.05])
    novelty = criteria.log_novelty(reach, measured)
    assert_gradient(novelty, rng.random((40, 3)), 1e-5, 1e-7)
    there, gradient = novelty(measured)
    assert np.all(there < -20.0)
    assert np.isfinite(there).all()
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(novelty(np.full((1, 3), 9.0))[0], 0.0, atol=1e-15)
    one = novelty(measured[:1] + np.array([[0.0, 0.1, 0.0]]))[0]
    assert one[0] <= np.log(-np.expm1(-0.25)) + 1e-12


def test_without_failures_nothing_is_avoided(posterior, drawn):
    plain = composed("rmes", posterior, drawn)
    assert criteria.avoiding(plain, "rmes", None) is plain


def test_screening_averages_the_stand_in_over_the_settings(posterior, drawn, rng):
    points = rng.random((40, 3))
    mean, variance = posterior.predict(points)
    noise = level(posterior)(points)
    looked = criteria.screened(mean, variance, noise, drawn)
    each = [
        rmes_matched(m, v, n, top[:, None])
        for m, v, n, top in zip(mean, variance, noise, drawn.value, strict=True)
    ]
    np.testing.assert_allclose(np.exp(looked), np.mean(each, axis=0), rtol=1e-6, atol=1e-15)


def test_averages_are_over_the_settings_and_logs_are_logs_of_averages(posterior, rng):
    points = rng.random((5, 3))
    mean, variance = posterior.predict(points)
    best = np.max(posterior.mean_at_data(), axis=1)
    by_hand = np.mean(
        [expected_improvement(m, v, b).value for m, v, b in zip(mean, variance, best, strict=True)],
        axis=0,
    )
    ei = criteria.acquire("ei", posterior, level(posterior), None, 28)(points)[0]
    log_ei = criteria.acquire("log-ei", posterior, level(posterior), None, 28)(points)[0]
    np.testing.assert_allclose(ei, by_hand, rtol=1e-10)
    np.testing.assert_allclose(np.exp(log_ei), by_hand, rtol=1e-9)


def test_the_logarithm_of_an_average_survives_what_underflows(posterior):
    def formula(m, v):
        return information.Gain(np.full(m.shape, -1e6) + m, np.ones_like(m), np.zeros_like(v))

    value, gradient = acquisition.log_average(formula, posterior)(np.full((1, 3), 0.4))
    assert -1e6 - 10 < value[0] < -1e6 + 10
    assert np.all(np.isfinite(gradient))


def test_mes_with_one_maximum_picks_what_probability_of_improvement_picks(rng):
    """Wang & Jegelka 2017, section 3.2: both are monotone in γ = (f* - μ)/σ."""
    mean, variance = rng.normal(size=500), rng.uniform(0.1, 2.0, 500)
    top = 2.5
    improvement = ndtr((mean - top) / np.sqrt(variance))
    value = information.mes(mean, variance, np.array([top])).value
    np.testing.assert_array_equal(np.argsort(value), np.argsort(improvement))


def test_an_acquisition_that_needs_maxima_says_so(posterior):
    with pytest.raises(ValueError, match="mes needs draws of the maximum"):
        criteria.acquire("mes", posterior, level(posterior), None, 28)
