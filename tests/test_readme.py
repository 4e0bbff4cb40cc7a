"""What the README shows is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest

import rmes
from rmes import demo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCE = Path(rmes.__file__).parent
MODULES = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
MODULES |= {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def beginnings(text):
    return [line.split()[0] for line in text.splitlines()]


def test_python_runs_and_prints_what_is_shown(capsys):
    shared = {}
    printed = ""
    for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(code, "README.md", "exec"), shared)
        printed += capsys.readouterr().out
    # Digits may differ from one machine to another; lines and their beginnings may not.
    paragraphs = re.findall(r"^> (.*(?:\n> .*)*)", README, re.MULTILINE)
    quoted = "\n".join(paragraph.replace("\n> ", " ") for paragraph in paragraphs)
    plain = "".join(re.findall(r"```text\n(.*?)```", README, re.DOTALL))
    assert beginnings(printed) == beginnings(quoted) + beginnings(plain)


def test_recommendation_shown_is_near_the_truth():
    values = re.search(r"Use temperature=([\d.]+), ph=([\d.]+)", README)
    assert values is not None
    assert float(values[1]) == pytest.approx(65.0, abs=5.0)
    assert float(values[2]) == pytest.approx(5.5, abs=0.5)


def test_every_module_is_in_the_table_once():
    table = "\n".join(re.findall(r"^\| (`.*?) \|", README, re.MULTILINE))
    named = re.findall(r"`(\w+)`", table)
    assert sorted(named) == sorted(MODULES), "the table 'Where things are' names other modules"


@pytest.mark.parametrize(
    ("problem", "optimum"), [("branin", "1.05"), ("forrester", "6.02"), ("hartmann6", "3.32")]
)
def test_demo_prints_the_truth_and_draws(tmp_path, capsys, problem, optimum):
    picture = tmp_path / "demo.png"
    demo.main(problem=problem, budget=12, output=str(picture))
    said = capsys.readouterr().out
    assert f"True optimum     {optimum}" in said
    assert "      12   " in said
    assert picture.stat().st_size > 50_000


def test_true_optima_of_the_demo_are_the_largest_values():
    for problem in demo.PROBLEMS.values():
        low, high = np.array(list(problem.space.values())).T
        points = np.random.default_rng(0).uniform(low, high, (20_000, len(low)))
        assert problem.truth(problem.optima) == pytest.approx(problem.optimum, abs=1e-4)
        near = np.clip(problem.optima + 1e-3 * (high - low), low, high)
        assert max(problem.truth(points).max(), problem.truth(near).max()) < problem.optimum


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"problem": "rosenbrock"}, "expected one of branin"),
        ({"noise_sd": -1.0}, "expected 0 or more"),
        ({"budget": 0}, "expected at least 1"),
    ],
)
def test_demo_refuses_what_it_cannot_do(wrong, said):
    with pytest.raises(ValueError, match=said):
        demo.main(**wrong)
