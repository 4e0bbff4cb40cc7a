import numpy as np
import pytest

from gradients import assert_gradient
from rmes import adam, gp, information, suggest
from rmes.criteria import acquire
from rmes.domain import Choice, Domain
from rmes.measurements import merge
from rmes.model import Model
from rmes.settings import Settings, Situation


def example(rng, n=20, d=2, noise=0.1):
    """Data whose hyperparameters are known, and their posterior for two settings."""
    x = rng.random((n, d))
    y = np.sin(6.0 * x).sum(axis=1) + noise * rng.standard_normal(n)
    data = merge(x, y)
    best = np.log([*[0.4] * d, 1.0, noise**2])
    theta = np.stack([best, best + 0.2])
    return data, gp.posterior(Model(), data, theta)


def choose(data, posterior, rng, acquisition, situation=None):
    settings = Settings(acquisition=acquisition)
    situation = situation or Situation.plain(data.x.shape[1])
    nobody = np.empty((0, data.x.shape[1]))
    return suggest.choose(data, posterior, nobody, situation, settings, rng, None)


def exact(found, data):
    """Log RMES as a function of x, for the posterior and the draws of a suggestion."""
    noise = suggest.unexplained(data, found.posterior, None)
    return acquire("rmes", found.posterior, noise, found.maxima, data.size)


def test_adam_climbs_a_noisy_bowl_to_its_top(rng):
    top = np.array([0.3, 0.8, 1.4])  # the last coordinate is best at the wall of the cube

    def bowl(x):
        gradient = -2.0 * (x - top)
        return -np.sum((x - top) ** 2, axis=1), gradient + rng.standard_normal(x.shape)

    ends = adam.ascend(bowl, rng.random((8, 3)), steps=1000)
    # Noise of sd 1 swamps the gradient within 0.5 of the top: Adam's steps are then about
    # STEP · gradient noise, whose last hundreds average to a few hundredths as STEP shrinks.
    np.testing.assert_allclose(ends, np.broadcast_to([0.3, 0.8, 1.0], ends.shape), atol=0.1)


def test_adam_does_not_depend_on_the_size_of_the_function(rng):
    top = rng.random(2)
    starts = rng.random((5, 2))
    ends = [
        adam.ascend(lambda x, s=s: (np.zeros(len(x)), -s * (x - top)), starts)
        for s in (1.0, 1e-40, 1e40)
    ]
    np.testing.assert_allclose(ends[0], np.broadcast_to(top, (5, 2)), atol=0.02)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-9)
    np.testing.assert_allclose(ends[2], ends[0], rtol=1e-9)


def test_held_coordinates_stay(rng):
    starts = rng.random((4, 3))
    free = np.array([True, False, True])
    ends = adam.ascend(lambda x: (x.sum(axis=1), np.ones_like(x)), starts, free=free)
    np.testing.assert_array_equal(ends[:, 1], starts[:, 1])
    np.testing.assert_array_equal(ends[:, ::2], 1.0)


def test_the_sampled_estimate_agrees_with_the_exact_value(rng):
    # An average of N independent terms F(ν) misses E[F] by s/√N, s² = E[F²] − E[F]². A call with
    # one ν returns F(ν); the trapezoidal rule on [−9, 9] gives both expectations. Of 40 points and
    # three quantities, 120 nearly normal errors, one exceeds 5 standard errors once in 14,000.
    points, samples = 40, 10_000
    mean, variance = rng.uniform(-1.0, 1.0, points), rng.uniform(0.5, 2.0, points)
    noise, maxima = rng.uniform(0.1, 1.0, points), rng.uniform(-0.5, 1.5, 5)
    truth = information.rmes(mean, variance, noise, maxima)
    nu = rng.standard_normal(samples)
    estimate = information.rmes_sampled(mean, variance, noise, maxima, nu)
    grid = np.linspace(-9.0, 9.0, 601)
    weight = 0.03 * np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi)
    each = [information.rmes_sampled(mean, variance, noise, maxima, [node]) for node in grid]
    for part in ("value", "by_mean", "by_variance"):
        terms = np.stack([getattr(gain, part) for gain in each])  # (grid, points)
        expected = getattr(truth, part)
        np.testing.assert_allclose(weight @ terms, expected, rtol=1e-6, atol=1e-9)
        error = np.sqrt((weight @ terms**2 - expected**2) / samples)
        assert np.all(np.abs(getattr(estimate, part) - expected) < 5.0 * error)


def test_central_differences_of_the_sampled_function(rng):
    data, posterior = example(rng)
    found = choose(data, posterior, rng, "rmes")
    noise = suggest.unexplained(data, posterior, None)

    def fixed(x):  # the same ν at every call
        same = np.random.default_rng(3)
        return adam.sampled(posterior, noise, found.maxima, 1500, same)(x)

    assert_gradient(fixed, rng.random((5, 2)))


@pytest.mark.slow
def test_adam_finds_nearly_what_the_exact_search_finds():
    # Both climb the same function from the same starts: 0.98 leaves room for the choice between
    # tops of nearly the same height, which 10,000 samples tell apart to about a hundredth.
    reached = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        data, posterior = example(
            rng, *[(10, 1), (20, 2), (40, 3)][seed % 3], [0.03, 0.5][seed % 2]
        )
        sampled = choose(data, posterior, np.random.default_rng(seed), "rmes-adam")
        other = choose(data, posterior, np.random.default_rng(seed), "rmes")
        np.testing.assert_array_equal(sampled.maxima.value, other.maxima.value)
        at = exact(other, data)(np.stack([sampled.x, other.x]))[0]
        reached.append(np.exp(at[0] - at[1]))
    assert np.mean(np.array(reached) > 0.98) >= 0.8


def test_a_suggestion_by_adam_is_repeatable_and_worth_what_it_says(rng):
    data, posterior = example(rng)
    first = choose(data, posterior, np.random.default_rng(5), "rmes-adam")
    again = choose(data, posterior, np.random.default_rng(5), "rmes-adam")
    np.testing.assert_array_equal(first.x, again.x)
    assert first.value == again.value
    truth = np.exp(exact(first, data)(first.x[None])[0][0])
    # In nats; ten standard errors, for terms that deviate by up to twice their mean (0.2 to 1.4
    # times is usual), and a hundredth for the repeat of a measured point.
    assert first.value == pytest.approx(truth, rel=10 * 2 / np.sqrt(adam.FINAL_SAMPLES) + 0.01)


def test_adam_keeps_to_the_choices_of_a_domain(rng):
    data, posterior = example(rng)
    levels = Choice((0,), np.linspace(0.0, 1.0, 11)[:, None])
    situation = Situation(Domain(2, (levels,)), np.empty((0, 2)))
    x = choose(data, posterior, rng, "rmes-adam", situation).x
    assert np.any(x[0] == levels.table[:, 0]) or np.any(np.all(x == data.x, axis=1))


def test_adam_avoids_failures(rng):
    data, posterior = example(rng)
    free = choose(data, posterior, np.random.default_rng(5), "rmes-adam")
    failed = np.repeat(free.x[None], 5, axis=0)
    situation = Situation(Domain(2), failed)
    x = choose(data, posterior, np.random.default_rng(5), "rmes-adam", situation).x
    assert np.max(np.abs(x - free.x)) > 1e-3


def test_measurements_without_noise_are_no_obstacle(rng):
    x = rng.random((12, 2))
    data = merge(x, np.sin(6.0 * x).sum(axis=1), 0.0)
    found = suggest.suggest(
        data, np.empty((0, 2)), Settings(acquisition="rmes-adam", samples=0), rng
    )
    assert np.isfinite(found.value)
    assert np.all((found.x >= 0.0) & (found.x <= 1.0))


def test_adam_has_no_function_to_evaluate(rng):
    data, posterior = example(rng)
    noise = suggest.unexplained(data, posterior, None)
    with pytest.raises(ValueError, match="random estimates"):
        acquire("rmes-adam", posterior, noise, None, data.size)
