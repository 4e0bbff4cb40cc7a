import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmes.units import Units

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def made(values, sign, pressed):
    units = Units.of(values, sign)
    return units.pressed(values) if pressed else units


@given(VALUES, st.sampled_from([1.0, -1.0]), st.booleans())
@example([0.0, 1e-250, 1e-250, -1.0, 1e-250], 1.0, False)  # whose squares are 0
@example([0.0, 1e-250, 1e-250, -1.0, 1e-250], 1.0, True)
@example([0.0, 0.0, 1.0, 1e-308, -14.0], 1.0, False)  # by which one cannot divide
@example([0.0, 0.0, 1.0, 1e-308, -14.0], 1.0, True)
def test_backward_undoes_forward(values, sign, pressed):
    values = np.array(values)
    units = made(values, sign, pressed)
    z = units.forward(values)
    assert np.all(np.isfinite(z))
    np.testing.assert_allclose(
        units.backward(z), values, rtol=1e-7, atol=1e-7 * np.ptp(values) + 1e-9
    )


@given(VALUES, st.sampled_from([1.0, -1.0]), st.booleans())
def test_the_order_is_kept_and_the_sign_applied(values, sign, pressed):
    values = np.sort(np.array(values))
    z = made(values, sign, pressed).forward(values)
    assert np.all(sign * np.diff(z) >= -1e-9)


@pytest.mark.parametrize("pressed", [False, True])
def test_ordinary_values_are_standardised(rng, pressed):
    values = rng.normal(5.0, 3.0, 50)
    z = made(values, 1.0, pressed).forward(values)
    assert z.mean() == pytest.approx(0.0, abs=1e-12)
    assert z.std() == pytest.approx(1.0)


def test_an_outlier_does_not_take_the_scale_for_itself(rng):
    values = np.append(rng.normal(size=30), -1e6)
    z = Units.of(values, 1.0).forward(values)
    assert z[:-1].std() > 0.5
    assert z[-1] < z[:-1].min() - 1.0


@pytest.mark.parametrize("pressed", [False, True])
def test_stretch_is_the_derivative_of_backward(rng, pressed):
    values = np.append(rng.normal(size=30), [-1e3, 500.0])
    units = made(values, -1.0, pressed)
    z = units.forward(values)
    step = 1e-6
    slope = np.abs(units.backward(z + step) - units.backward(z - step)) / (2 * step)
    np.testing.assert_allclose(units.stretch(z), slope, rtol=1e-5)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0, 2.0], [0.0, 0.0], [1e-320, 1e-320]])
def test_values_without_spread_get_some_scale(values):
    units = Units.of(np.array(values), 1.0)
    assert units.scale > 0
    assert np.all(np.isfinite(units.forward(np.array(values))))


def test_a_bad_outlier_leaves_the_good_side_linear(rng):
    """What is believed beyond all good values is said without being blown up."""
    units = Units.of(np.append(rng.normal(size=30), -1e6), 1.0)
    assert units.high == np.inf
    assert units.backward(np.array(8.0)) < units.center + 9.0 * units.scale


def test_pressing_leaves_the_best_quarter_linear_and_brings_the_others_closer(rng):
    values = np.sort(np.exp(2.0 * rng.normal(size=40)))  # to be minimised
    plain, pressed = (made(values, -1.0, how) for how in (False, True))
    steps = -np.diff(pressed.forward(values)) / -np.diff(plain.forward(values))
    np.testing.assert_allclose(steps[:9], plain.scale / pressed.unit)
    assert np.all(np.diff(steps[9:]) < 0.0)


def test_the_slope_of_pressing_is_that_of_its_map(rng):
    values = rng.normal(size=20)
    plain, pressed = (made(values, 1.0, how) for how in (False, True))
    step = 1e-6
    slope = pressed.forward(values + step) - pressed.forward(values - step)
    slope /= plain.forward(values + step) - plain.forward(values - step)
    assert pressed.log_slope(pressed.forward(values)) == pytest.approx(np.sum(np.log(slope)))
    assert plain.log_slope(plain.forward(values)) == 0.0
