"""The package for OptunaHub is complete and loads."""

import re
import subprocess
import sys
from pathlib import Path

import optunahub
import pytest

import rmes.optuna

ROOT = Path(__file__).parent.parent / "optunahub"
FOLDER = ROOT / "package" / "samplers" / "rmes"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def module():
    return optunahub.load_local_module("samplers/rmes", registry_root=str(ROOT / "package"))


def test_it_hands_out_the_classes_of_the_library(module):
    assert module.RMESSampler is rmes.optuna.RMESSampler
    assert module.recommend is rmes.optuna.recommend
    assert module.outlook is rmes.optuna.outlook


def test_the_front_matter_has_what_the_registry_asks_for():
    head = re.match(r"---\n(.*?)\n---\n", README, re.DOTALL)
    assert head is not None
    fields = dict(line.split(": ", 1) for line in head[1].splitlines())
    wanted = {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert set(fields) == wanted
    assert "sampler" in fields["tags"].strip("[]").split(", ")
    assert fields["license"] == "MIT License"
    assert "<" not in README  # no HTML


def test_the_sections_are_those_of_the_registry():
    sections = re.findall(r"^## (.*)", README, re.MULTILINE)
    assert sections == ["Abstract", "APIs", "Installation", "Example", "Others"]


def test_files_of_the_package_are_all_there():
    names = {path.name for path in FOLDER.iterdir()} - {"__pycache__"}
    assert names == {"LICENSE", "README.md", "__init__.py", "example.py", "requirements.txt"}


@pytest.mark.parametrize("source", ["README.md", "example.py"])
def test_examples_run(source, module, tmp_path):
    text = (FOLDER / source).read_text(encoding="utf-8")
    if source == "README.md":
        (text,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    local = f'load_local_module("samplers/rmes", registry_root={str(ROOT / "package")!r})'
    text = text.replace('load_module("samplers/rmes")', local)
    text = text.replace("n_trials=30", "n_trials=8")
    (tmp_path / "example.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "example.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Use x=" in done.stdout
    assert "The true optimum is between" in done.stdout
