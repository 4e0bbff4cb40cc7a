"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = {path.stem for path in Path(rmes.__file__).parent.glob("*.py")} - {"__init__"}


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


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([\w./-]+)\)", README))))
def test_links_lead_to_files(path):
    assert (ROOT / path).is_file()


def test_demo_prints_the_truth_and_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "branin.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "45 measurements; recommended" in done.stdout
    assert "True optimum     1.05" in done.stdout
    assert (tmp_path / "demo.png").stat().st_size > 50_000
