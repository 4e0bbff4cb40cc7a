from dataclasses import replace

import numpy as np
import pytest

from rmes import gp
from rmes.answer import Prospects, believe, best_anywhere, best_measured, prospects
from rmes.domain import Choice, Domain
from rmes.measurements import merge
from rmes.model import Model
from rmes.report import Outlook, Recommendation


def test_a_belief_has_the_moments_of_the_mixture_over_settings(posterior, rng):
    points = rng.random((4, 3))
    means, variances = posterior.predict(points)
    for k, belief in enumerate(believe(posterior, points)):
        draws = rng.normal(means[:, k], np.sqrt(variances[:, k]), (200_000, posterior.settings))
        assert belief.mean == pytest.approx(draws.mean(), abs=0.01)
        assert belief.sd == pytest.approx(draws.std(), abs=0.01)


def test_the_best_point_anywhere_beats_a_fine_grid(posterior, rng):
    best = best_anywhere(posterior, Domain(3), rng)
    points = rng.random((20_000, 3))
    assert best.mean >= posterior.predict(points)[0].mean(axis=0).max() - 1e-9
    assert best.mean >= best_measured(posterior).mean


def test_the_best_measured_point_is_a_row_of_the_data(posterior):
    best = best_measured(posterior)
    assert np.any(np.all(posterior.x == best.x, axis=1))
    assert best.mean == pytest.approx(posterior.predict(posterior.x)[0].mean(axis=0).max())


def test_the_best_point_of_a_finite_domain_is_one_of_its_points(rng):
    levels = np.linspace(0.0, 1.0, 6)[:, None]
    domain = Domain(1, (Choice((0,), levels),))
    data = merge([[0.0], [0.4], [0.6], [1.0]], [0.0, 1.0, 0.9, 0.0])
    posterior = gp.posterior(Model(), data, np.array([[-1.0, 0.0, -4.0]]))
    assert best_anywhere(posterior, domain, rng).x[0] in levels


def test_prospects_are_joint_draws_of_the_maximum_and_of_f(posterior, rng):
    x = best_anywhere(posterior, Domain(3), rng).x
    drawn = prospects(posterior, x, Domain(3), 400, rng)
    assert np.all(drawn.maximum >= drawn.here)
    belief = believe(posterior, x[None])[0]
    # 400 draws: the mean to sd/20, the sd to 4 %, and the bias of the Fourier features
    assert drawn.here.mean() == pytest.approx(belief.mean, abs=0.25 * belief.sd)
    assert drawn.here.std() == pytest.approx(belief.sd, rel=0.2)


def test_the_optimum_is_sought_from_the_least_that_the_answer_gives():
    here, above = np.linspace(0.0, 1.0, 201), np.linspace(2.0, 4.0, 201)
    np.testing.assert_allclose(Prospects(here + above, here).interval, [0.05, 4.85])


SURE = {
    "params": {"x": 0.25, "solvent": "THF", "cycles": 3},
    "mean": 1.2345,
    "sd": 0.01,
    "interval": (1.218, 1.251),
    "near": 5,
    "measurements": 20,
    "observed_params": {"x": 0.5, "solvent": "DMF", "cycles": 1},
    "observed_value": 1.3,
    "observed_mean": 1.1,
    "direction": "maximize",
}


def test_a_recommendation_reads_as_a_sentence():
    assert str(Recommendation(**SURE)) == (
        "Use x=0.25, solvent=THF, cycles=3: the expected value is 1.234 (90 % sure it is between "
        "1.218 and 1.251), judged from 20 measurements, 5 of them close by. The best single "
        "measurement, 1.3 at x=0.5, solvent=DMF, cycles=1, was probably lucky: it looks 0.2 too "
        "high."
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"measurements": 1, "near": 1}, "judged from one measurement."),
        ({"near": 0}, "20 measurements, none of them close by."),
        ({"near": 20}, "20 measurements, all of them close by."),
        ({"observed_mean": 1.3}, "The best single measurement was 1.3 at x=0.5"),
        (
            {"direction": "minimize", "observed_value": 0.9, "observed_mean": 1.1},
            "looks 0.2 too low",
        ),
    ],
)
def test_the_sentence_follows_the_facts(changed, said):
    assert said in str(Recommendation(**SURE | changed))


def test_the_best_single_measurement_is_not_mentioned_twice():
    same = {"observed_params": SURE["params"], "observed_value": 1.23, "observed_mean": 1.2345}
    assert "best single" not in str(Recommendation(**SURE | same))


def test_probability_within_counts_the_draws():
    outlook = Outlook((0.0, 1.0), 0.2, 0.01, np.array([0.0, 0.1, 0.2, 0.5]), np.zeros(4))
    assert [outlook.probability_within(e) for e in (0.0, 0.15, 0.2, 9.0)] == [0.25, 0.5, 0.75, 1.0]
    for bad in (-1.0, np.nan):
        with pytest.raises(ValueError, match="expected 0 or more"):
            outlook.probability_within(bad)
    assert str(outlook) == (
        "The true optimum is between 0 and 1 (90 % sure); the recommendation is expected to be "
        "0.2 away from it. The next measurement can tell 0.01 nats about the best value."
    )


def test_a_belief_of_a_measured_point_knows_its_grain(grainy, rng):
    new = rng.random((3, 3))
    means, variances = grainy.predict(new)
    for k, belief in enumerate(believe(grainy, new)):
        variance = (variances[:, k] + grainy.grain).mean() + means[:, k].var()
        assert belief.mean == pytest.approx(means[:, k].mean())
        assert belief.sd == pytest.approx(np.sqrt(variance))
    means, variances = grainy.values_at_data()
    for k, belief in enumerate(believe(grainy, grainy.x)):
        assert belief.mean == pytest.approx(means[:, k].mean())
        assert belief.sd == pytest.approx(np.sqrt(variances[:, k].mean() + means[:, k].var()))


def test_the_best_measured_point_is_the_best_with_its_grain(grainy):
    best = best_measured(grainy)
    means = grainy.values_at_data()[0].mean(axis=0)
    np.testing.assert_array_equal(best.x, grainy.x[np.argmax(means)])
    assert best.mean == pytest.approx(means.max())


def test_prospects_with_grain_are_draws_of_what_is_behind_the_noise(grainy, rng):
    for x in (grainy.x[7], np.array([0.3, 0.6, 0.2])):  # measured, and not
        drawn = prospects(grainy, x, Domain(3), 4000, rng)
        belief = believe(grainy, x[None])[0]
        assert drawn.here.mean() == pytest.approx(belief.mean, abs=0.1 * belief.sd)
        assert drawn.here.std() == pytest.approx(belief.sd, rel=0.1)
        assert np.all(drawn.maximum >= drawn.here)
    smooth = replace(grainy, grain=np.zeros(2))
    assert drawn.maximum.mean() > prospects(smooth, x, Domain(3), 400, rng).maximum.mean() + 0.5
