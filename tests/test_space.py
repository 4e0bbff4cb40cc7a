import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmes.space import Categorical, Float, Integer, Space

LAB = {
    "temperature": (20.0, 90.0),
    "ph": Float(4, 9),
    "cycles": Integer(1, 12),
    "dose": Float(1e-3, 1.0, log=True),
    "solvent": Categorical(["DMF", "THF", "water"]),
    "stirred": Categorical([True, False]),
    "volume": Float(0.0, 1.0, step=0.3),
    "site": (3.0, 3.0),
}


@given(st.lists(st.floats(0, 1), min_size=9, max_size=9))
def test_decoding_and_encoding_return_to_the_same_feasible_point(u):
    space = Space(LAB)
    x = space.domain.snap(np.array([u]))[0]
    params = space.decode(x)
    np.testing.assert_allclose(space.encode(params), x, atol=1e-12)
    assert 20 <= params["temperature"] <= 90
    assert isinstance(params["cycles"], int)
    assert params["solvent"] in ("DMF", "THF", "water")
    assert isinstance(params["stirred"], bool)
    assert min(abs(params["volume"] - v) for v in (0, 0.3, 0.6, 0.9)) < 1e-12
    assert params["site"] == 3.0


def test_the_order_of_the_names_does_not_matter():
    backwards = dict(reversed(LAB.items()))
    params = Space(LAB).decode(np.full(9, 0.4))
    np.testing.assert_array_equal(Space(LAB).encode(params), Space(backwards).encode(params))
    assert list(Space(backwards).decode(np.full(9, 0.4))) == list(backwards)


def test_categories_are_equally_far_from_each_other():
    space = Space({"c": Categorical(["a", "b", "c", "d"])})
    points = [space.encode({"c": c}) for c in "abcd"]
    gaps = {round(float(np.sum((p - q) ** 2)), 12) for p in points for q in points if p is not q}
    assert gaps == {1.0}
    assert space.groups == (0, 0, 0, 0)


def test_a_log_scale_puts_the_geometric_mean_in_the_middle():
    assert Space({"x": Float(1e-4, 1.0, log=True)}).decode(np.array([0.5]))["x"] == pytest.approx(
        1e-2
    )
    assert Space({"n": Integer(1, 100, log=True)}).domain.snap(np.array([[0.5]]))[0, 0] == 0.5


def test_all_integers_can_be_reached():
    space = Space({"n": Integer(-3, 4)})
    assert sorted(space.decode(x)["n"] for x in space.domain.enumerate()) == list(range(-3, 5))
    assert Space({"n": Integer(1, 10, step=4)}).domain.size == 3


def test_large_integers_keep_their_digits():
    space = Space({"n": Integer(1, 10**9)})
    x = space.encode({"n": 123_456_789})
    assert space.decode(x)["n"] == 123_456_789


def test_a_space_survives_json():
    assert Space.from_json(Space(LAB).to_json()) == Space({k: v for k, v in LAB.items()})


@pytest.mark.parametrize(
    ("parameter", "error", "said"),
    [
        ((2.0, 1.0), ValueError, "'p'.*low is 2.0 and high is 1.0"),
        ((0.0, np.inf), ValueError, "high is inf"),
        ((0.0, np.nan), ValueError, "high is nan"),
        (("a", 1.0), TypeError, "low is 'a'"),
        ((True, 2), TypeError, "low is True"),
        (5, TypeError, "5 is no parameter"),
        ((1, 2, 3), TypeError, "no parameter"),
    ],
)
def test_bad_parameters_are_refused(parameter, error, said):
    with pytest.raises(error, match=said):
        Space({"p": parameter})


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Float(0, 1, log=True), ValueError, "log scale needs a positive"),
        (lambda: Float(0, 1, step=0), ValueError, "step is 0"),
        (lambda: Integer(1.5, 3), ValueError, "whole number"),
        (lambda: Integer(1, 3, step=0), ValueError, "step is 0"),
        (lambda: Categorical([]), ValueError, "at least one"),
        (lambda: Categorical("abc"), ValueError, "list"),
        (lambda: Categorical(["a", "a"]), ValueError, "twice"),
        (lambda: Categorical([object()]), TypeError, "expected a string"),
        (lambda: Space({}), ValueError, "dictionary"),
        (lambda: Space({1: (0, 1)}), TypeError, "named 1"),
    ],
)
def test_bad_definitions_are_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"ph": 3.0}, ValueError, "ph is 3.0; expected it from 4 to 9"),
        ({"ph": np.nan}, ValueError, "ph is nan"),
        ({"ph": "acid"}, TypeError, "ph is 'acid'"),
        ({"cycles": 2.5}, ValueError, "whole number"),
        ({"solvent": "oil"}, ValueError, "one of 'DMF', 'THF', 'water'"),
        ({"pressure": 1.0}, ValueError, "unknown parameter pressure"),
    ],
)
def test_bad_values_are_refused_with_what_is_expected(change, error, said):
    space = Space(LAB)
    params = space.decode(np.full(9, 0.4))
    with pytest.raises(error, match=said):
        space.encode({**params, **change})


def test_missing_values_are_named():
    with pytest.raises(ValueError, match="no value for ph"):
        Space({"ph": (4, 9), "t": (0, 1)}).encode({"t": 0.5})
