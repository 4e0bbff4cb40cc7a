import numpy as np
import pytest
from scipy.optimize import minimize

from rmes.domain import Choice, Domain
from rmes.multistart import climb, search, space_filling, spread


def bowl(center, matrix):
    def function(x, _rows):
        offset = x - center
        return -0.5 * np.einsum("mi,ij,mj->m", offset, matrix, offset), -offset @ matrix

    return function


def valley(x, _rows):
    """Rosenbrock's function, its top at (0.75, 0.75)."""
    a, b = 2 * x[:, 0] - 0.5, 2 * x[:, 1] - 0.5
    value = -((1 - a) ** 2) - 100 * (b - a * a) ** 2
    gradient = np.stack([2 * (1 - a) + 400 * a * (b - a * a), -200 * (b - a * a)], axis=1)
    return value, 2 * gradient


def test_space_filling_points_are_spread_and_seeded(rng):
    points = space_filling(256, 3, rng)
    assert points.shape == (256, 3)
    assert np.all((points >= 0) & (points < 1))
    # every one of 64 boxes gets its 4 points, give or take; random points leave some empty
    counts = np.histogramdd(points, bins=(4, 4, 4), range=[(0, 1)] * 3)[0]
    assert counts.min() >= 1
    again = space_filling(256, 3, np.random.default_rng(20261115))
    np.testing.assert_array_equal(points, again)


def test_climbing_finds_the_end_of_a_curved_valley(rng):
    found = climb(valley, rng.random((20, 2)), np.full(2, 0.3), 1e-12)
    np.testing.assert_allclose(found.x, 0.75, atol=1e-4)


def test_climbing_stops_at_bounds_where_l_bfgs_b_does(rng):
    root = rng.normal(size=(6, 6))
    center = np.array([-0.2, 1.3, 1.1, 0.2, 0.5, 0.8])
    function = bowl(center, root @ root.T + np.eye(6))
    found = climb(function, rng.random((10, 6)), np.full(6, 0.3), 1e-14)
    peer = minimize(
        lambda x: -function(x[None], None)[0][0],
        np.full(6, 0.5),
        jac=lambda x: -function(x[None], None)[1][0],
        bounds=[(0, 1)] * 6,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    np.testing.assert_allclose(found.value, -peer.fun, rtol=1e-8)
    np.testing.assert_allclose(found.x, np.tile(peer.x, (10, 1)), atol=1e-5)


def test_the_curvature_of_a_bowl_is_found(rng):
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    found = climb(bowl(np.array([0.4, 0.6]), matrix), rng.random((4, 2)), np.full(2, 0.3), 1e-14)
    np.testing.assert_allclose(found.curvature, np.tile(np.linalg.inv(matrix), (4, 1, 1)), rtol=0.1)


def test_differences_of_gradients_reach_the_top_of_a_bowl_in_one_step(rng):
    center, matrix = np.array([0.4, 0.6, 0.5]), np.diag([3.0, 8.0, 20.0]) + 1.0
    starts = center + 0.2 * (rng.random((5, 3)) - 0.5)
    found = climb(bowl(center, matrix), starts, np.full(3, 0.3), 1e-14, rounds=1, differences=True)
    np.testing.assert_allclose(found.x, np.tile(center, (5, 1)), atol=1e-9)
    np.testing.assert_allclose(found.curvature[0], np.linalg.inv(matrix), rtol=1e-6)


@pytest.mark.parametrize("rounds", [2, 60])
def test_differences_of_gradients_lead_away_from_a_saddle_and_into_a_valley(rng, rounds):
    saddle = bowl(np.full(2, 0.5), np.diag([5.0, -5.0]))
    starts = np.array([[0.4, 0.51], [0.6, 0.49]])
    found = climb(saddle, starts, np.full(2, 0.3), 1e-12, rounds=rounds, differences=True)
    assert (found.value > saddle(starts, None)[0] + (0.02 if rounds == 2 else 0.5)).all()
    starts = rng.random((20, 2))
    found = climb(valley, starts, np.full(2, 0.3), 1e-12, rounds=rounds, differences=True)
    assert (found.value >= valley(starts, None)[0]).all()
    if rounds == 60:
        np.testing.assert_allclose(found.x, 0.75, atol=1e-4)


def test_in_a_race_only_those_who_may_win_go_on(rng):
    def hills(x, rows):  # tops of 1 at 0.2 and of 0.5 at 0.8
        left, right = np.exp(-50 * (x - 0.2) ** 2), 0.5 * np.exp(-50 * (x - 0.8) ** 2)
        asked.append(len(x))
        return (left + right)[:, 0], -100 * ((x - 0.2) * left + (x - 0.8) * right)

    starts, scale = np.array([[0.15], [0.75]]), np.array([0.1])
    asked = []
    alone = climb(hills, starts[:1], scale, 1e-12)
    asked = []
    raced = climb(hills, starts, scale, 1e-12, race=True)
    assert asked[0] == 2
    assert set(asked[1:]) == {1}
    np.testing.assert_array_equal(raced.x[0], alone.x[0])
    np.testing.assert_array_equal(raced.x[1], starts[1])


def test_nothing_ends_below_its_start(rng):
    def jagged(x, _rows):  # a gradient that lies
        return np.sin(50 * x[:, 0]) + np.cos(30 * x[:, 1]), rng.normal(size=x.shape)

    starts = rng.random((30, 2))
    found = climb(jagged, starts, np.full(2, 0.3), 1e-9)
    assert np.all(found.value >= jagged(starts, None)[0])
    np.testing.assert_array_equal(found.value, jagged(found.x, None)[0])


def test_starts_do_not_interact(rng):
    starts = rng.random((8, 2))
    together = climb(valley, starts, np.full(2, 0.3), 1e-9)
    alone = climb(valley, starts[[3]], np.full(2, 0.3), 1e-9)
    np.testing.assert_allclose(together.x[3], alone.x[0], rtol=1e-12)


def test_values_that_are_not_finite_are_survived(rng):
    def holed(x, _rows):
        value, gradient = bowl(np.array([0.5, 0.5]), np.eye(2))(x, None)
        return np.where(x[:, 0] < 0.3, np.nan, value), gradient

    starts = np.array([[0.1, 0.5], [0.9, 0.9]])
    found = climb(holed, starts, np.full(2, 0.3), 1e-9)
    assert found.value[0] == -np.inf
    np.testing.assert_allclose(found.x[1], 0.5, atol=1e-3)


def test_spread_takes_the_best_of_each_neighbourhood():
    points = np.array([[0.0], [0.1], [3.0], [3.1], [9.0]])
    values = np.array([5.0, 4.9, 4.0, 4.1, 1.0])
    np.testing.assert_array_equal(spread(values, points, 3), [0, 3, 4])
    np.testing.assert_array_equal(np.sort(spread(values, points, 5)), np.arange(5))


def test_spread_ignores_values_that_are_not_finite():
    values = np.array([np.nan, 1.0, -np.inf, 2.0])
    np.testing.assert_array_equal(spread(values, np.arange(4.0)[:, None], 3), [3, 1])


@pytest.fixture
def mixed():
    """One continuous coordinate, an integer of 5 levels, one of 40, and a category of 3."""
    five, forty = np.linspace(0, 1, 5)[:, None], np.linspace(0, 1, 40)[:, None]
    category = np.eye(3) * np.sqrt(0.5)
    return Domain(6, (Choice((1,), five), Choice((2,), forty), Choice((3, 4, 5), category)))


@pytest.mark.parametrize(
    "how", [{}, {"differences": True}, {"curvature": 0.1 * np.stack([np.eye(6)] * 8)}]
)
@pytest.mark.parametrize("race", [False, True])
def test_a_mixed_search_finds_the_best_feasible_point(mixed, rng, how, race):
    """The relaxed optimum rounds to the wrong levels; the search must not round."""
    root = rng.normal(size=(6, 6))
    function = bowl(rng.random(6), root @ root.T + 0.5 * np.eye(6))
    grid = np.linspace(0, 1, 2001)
    best = -np.inf
    for five in mixed.choices[0].table[:, 0]:
        for forty in mixed.choices[1].table[:, 0]:
            for category in mixed.choices[2].table:
                x = np.empty((2001, 6))
                x[:, 0], x[:, 1], x[:, 2], x[:, 3:] = grid, five, forty, category
                best = max(best, function(x, None)[0].max())
    starts = mixed.snap(rng.random((8, 6)))
    found = search(function, starts, np.full(6, 0.5), 1e-10, mixed, race=race, **how)
    np.testing.assert_array_equal(found.x, mixed.snap(found.x))
    np.testing.assert_allclose(found.value, function(found.x, None)[0])
    assert found.value.max() >= best - 1e-6
    assert np.all(found.value >= function(starts, None)[0])


def test_snapping_is_idempotent_and_feasible(mixed, rng):
    snapped = mixed.snap(rng.random((50, 6)))
    np.testing.assert_array_equal(mixed.snap(snapped), snapped)
    assert set(np.unique(snapped[:, 1])) <= set(np.linspace(0, 1, 5))
    np.testing.assert_array_equal(np.sum(snapped[:, 3:] > 0, axis=1), 1)


def test_a_finite_domain_can_be_enumerated():
    domain = Domain(2, (Choice((0,), np.array([[0.0], [1.0]])), Choice((1,), np.eye(3)[:, :1])))
    assert domain.size == 6
    assert domain.enumerate().shape == (6, 2)
    assert Domain(2).size == np.inf


def test_slopes_beyond_all_measure_are_survived():
    def cliff(x, _rows):
        return -1e200 * x[:, 0], np.stack([np.full(len(x), -1e200), np.zeros(len(x))], axis=1)

    found = climb(cliff, np.array([[0.4, 0.5]]), np.full(2, 0.3), 1e-9)
    np.testing.assert_allclose(found.x, [[0.0, 0.5]])


def test_the_curvature_of_a_plain_is_a_guess_for_a_cliff():
    """A stand-in may be flat where the function itself is as steep as a double can tell."""

    def plain(x, _rows):
        return np.zeros(len(x)), np.zeros_like(x)

    def cliff(x, _rows):
        return 1e120 * x[:, 0], np.tile([1e120, 0.0], (len(x), 1))

    starts, scale = np.array([[0.2, 0.5], [0.4, 0.1]]), np.array([0.3, 5e-3])
    flat = climb(plain, starts, scale, 1e-6, differences=True)
    found = climb(cliff, flat.x, scale, 1e-6, flat.curvature, 20)
    np.testing.assert_array_equal(found.x[:, 0], 1.0)
