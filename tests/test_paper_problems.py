"""The paper's objectives have the maxima that are known of them."""

import ast
from pathlib import Path

import numpy as np
import pytest

import rmes.paper
from rmes.evidence import log_evidence
from rmes.fit import fit
from rmes.kernels import SQUARED_EXPONENTIAL
from rmes.measurements import merge
from rmes.model import Model
from rmes.paper import field, svm
from rmes.paper.problems import NAMES, grid, maximise, problem, process_draw

SOURCE = Path(rmes.paper.__file__).parent
LAYERS = [
    {"svm", "field", "choices", "likelihood", "results", "instances", "differences"},
    {"problems", "verdicts", "illustrations"},
    {"experiments", "claims", "figures", "extras"},
    {"runs", "report"},
    {"reproduce"},
]
SURVEY = field.survey_file()
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}


@pytest.fixture(autouse=True)
def without_the_survey(monkeypatch):
    monkeypatch.delenv(field.VARIABLE, raising=False)
    problem.cache_clear()
    yield
    problem.cache_clear()


def test_every_module_of_the_paper_has_a_layer():
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert modules == set(RANK)


@pytest.mark.parametrize("module", sorted(RANK))
def test_imports_inside_the_paper_point_down(module):
    for node in ast.walk(ast.parse((SOURCE / f"{module}.py").read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "rmes.paper":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rmes.paper."):
            names = [node.module.split(".")[2]]
        for name in names:
            assert RANK[name] < RANK[module], f"{module} imports {name}"


@pytest.mark.parametrize(
    ("name", "maximum", "places"),
    [
        ("branin", 1.047394, [(0.12389, 0.81833), (0.54277, 0.15167), (0.96165, 0.165)]),
        ("michalewicz", 1.82104, [(0.68041, 0.5)]),
        ("michalewicz-10", 1.80130, [(0.70121, 0.5)]),
        ("eggholder", 1.0, [(1.0, (0.78952 + 1.0) / 2.0)]),
    ],
)
def test_known_maxima_are_found(name, maximum, places):
    found = problem(name)
    assert found.maximum == pytest.approx(maximum, abs=1e-5)
    places_found = found.maximisers[np.argsort(found.maximisers[:, 0])]
    np.testing.assert_allclose(places_found, places, atol=2e-5)
    np.testing.assert_allclose(found.regret(found.maximisers), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.distance(found.maximisers), 0.0, atol=1e-12)


def test_branin_and_eggholder_have_the_spread_that_makes_noise_what_it_is():
    # Known to three digits: the noise of 0.3 is 0.3 and one whole of it.
    assert problem("branin").truth(grid(401)).std() == pytest.approx(0.988, abs=0.005)
    assert problem("eggholder").truth(grid(401)).std() == pytest.approx(0.297, abs=0.001)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gp"])
def test_nowhere_is_better_than_the_maximum(name):
    found = problem(name)
    points = np.random.default_rng(1).random((5000, 2))
    assert np.all(found.truth(points) <= found.maximum + 1e-9)


def test_draws_of_the_process_have_its_covariance():
    """At distance 0.33 the correlation is exp(-1/2); 400 draws know it to 0.05 sd."""
    points = np.array([[0.2, 0.2], [0.53, 0.2], [0.9, 0.9]])
    draws = np.array([process_draw(seed, features=100)(points) for seed in range(400)])
    expected = np.exp(-0.5 * np.sum((points[:, None] - points) ** 2, axis=2) / 0.33**2)
    np.testing.assert_allclose(draws.T @ draws / 400, expected, atol=4.5 / np.sqrt(400))


def test_an_unknown_problem_is_named_in_the_error():
    with pytest.raises(ValueError, match="problem is 'rosenbrock'; expected one of gp, branin"):
        problem("rosenbrock")


def test_without_the_survey_the_field_is_labelled_simulated():
    found = problem("ph")
    assert found.name == "ph-simulated"
    assert "simulated" in found.title


@pytest.mark.slow
def test_the_simulated_field_is_fitted_as_well_as_a_search_of_the_whole_box_does():
    found = field.simulated()
    data = merge(found.posterior.x, found.posterior.y[0])
    model = Model.paper(SQUARED_EXPONENTIAL)
    best = fit(model, data, np.random.default_rng(0)).best
    assert found.log_likelihood >= log_evidence(model, data, best[None])[0] - 1e-3


def test_another_file_is_no_survey(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("1, 2, 3\n")
    with pytest.raises(ValueError, match="not the survey of Broom's Barn: its SHA-256 is"):
        field.surveyed(other)


def test_the_survey_is_fitted_as_published():
    if SURVEY is None:
        pytest.skip("the survey is not ours to ship: name your copy in RMES_BROOMSBARN")
    found = field.surveyed(SURVEY)
    np.testing.assert_allclose(found.posterior.length_scales[0], (0.07497, 0.05685), rtol=1e-4)
    assert found.posterior.signal_variance[0] == pytest.approx(0.294442, rel=1e-4)
    assert found.posterior.noise_variance[0] == pytest.approx(0.064765, rel=1e-4)
    assert found.log_likelihood == pytest.approx(-197.56507, abs=1e-4)
    maximisers, maximum = maximise(found.value, side=101)
    assert maximum == pytest.approx(0.734256, abs=1e-4)
    np.testing.assert_allclose(maximisers, [[0.186010, 0.178484]], atol=1e-4)


def test_measurements_of_the_svm_are_those_of_the_table():
    table = svm.table()
    node = np.array([3, 7])
    x = node / (svm.NODES - 1)
    uniform = np.random.default_rng(0).random((200, 2))
    seen = {table.measure(x, u) for u in uniform}
    assert seen == set(table.measured[3, 7])
    assert table.value(x[None])[0] == pytest.approx(table.truth[3, 7])


def test_a_measurement_of_the_svm_between_nodes_is_right_on_average():
    table = svm.table()
    x = np.array([0.4321, 0.777])
    uniform = np.random.default_rng(0).random((4000, 2))
    seen = np.array([table.measure(x, u) for u in uniform])
    means = svm.Table(table.measured.mean(axis=2), table.measured)
    tolerance = 4.0 * seen.std() / np.sqrt(len(seen))
    assert seen.mean() == pytest.approx(means.value(x[None])[0], abs=tolerance)
    assert 0.001 < table.noise_sd < 0.004
    assert 0.96 < table.truth.min() < table.truth.max() < 0.985


def test_the_svm_table_is_what_scikit_learn_computes():
    pytest.importorskip("sklearn", reason="computing a row of the table needs scikit-learn")
    row = svm.compute((10, 12))
    table = svm.table()
    # A case may change sides where another LAPACK rounds another way.
    assert row[2] == pytest.approx(table.truth[10, 12] * svm.CASES, abs=1.01)
