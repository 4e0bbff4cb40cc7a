"""The core needs NumPy, SciPy and threadpoolctl; each extra alone is enough for its modules."""

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
CORE = {"numpy", "scipy", "threadpoolctl"}
HOSTS = {
    *("matplotlib", "optuna", "typer", "rich", "sklearn", "joblib", "pandas", "plotly"),
    *("torch", "botorch", "gpytorch", "linear_operator", "distributed", "dask", "ray"),
}
BELONG = {  # a host, and what it brings along of the others
    "matplotlib": set(),
    "optuna": set(),
    "rich": set(),
    "typer": {"rich"},
    "scikit-learn": {"sklearn", "joblib"},
    "botorch": {"torch", "gpytorch", "linear_operator", "sklearn", "joblib", "pandas"},
}
MODULES = {
    "plot": ["rmes.plots", "rmes.demo"],
    "optuna": ["rmes.optuna"],
    "cli": ["rmes.cli", "rmes.runs", "rmes.ledger", "rmes.plots", "rmes.demo"],
    "sklearn": ["rmes.sklearn"],
    "botorch": ["rmes.botorch"],
}

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if {condition}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def without(hosts, code):
    """Run code in a process where none of the hosts can be imported."""
    condition = f"name.partition('.')[0] in {hosts!r}"
    return python(BLOCK.format(condition=condition) + code)


def with_only(allowed, code):
    """Run code in a process where, of all that is installed, only this can be imported."""
    condition = (
        f"name.partition('.')[0] not in {allowed | {'rmes'}!r} | sys.stdlib_module_names "
        "and not name.startswith('_')"
    )
    return python(BLOCK.format(condition=condition) + code)


def python(code):
    line = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def packages(extra):
    """Names of the packages of an extra."""
    return [re.match(r"[\w-]+", each)[0] for each in PROJECT["optional-dependencies"][extra]]


def importable(package):
    found = find_spec({"scikit-learn": "sklearn"}.get(package, package))
    return found is not None and found.origin is not None  # not a mere directory of that name


def test_the_core_runs_with_nothing_else_installed():
    done = with_only(
        CORE,
        """
import rmes
opt = rmes.Optimizer({"x": (0.0, 1.0), "k": rmes.Categorical(["a", "b"])}, seed=0)
for _ in range(8):
    trial = opt.ask()
    opt.tell(trial, (trial.params["x"] - 0.3) ** 2)
again = rmes.Optimizer.from_json(opt.to_json())
assert again.recommend() == opt.recommend()
print(opt.outlook(), opt.predict([opt.recommend().params]))
print(rmes.minimize(lambda x: (x[0] - 0.3) ** 2, [(0, 1)], budget=8, rng=0).x)
""",
    )
    assert done.returncode == 0, done.stderr


def test_the_core_depends_on_nothing_else():
    names = {re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]}
    assert names == CORE | {"tqdm"}  # tqdm draws the bar of minimize(disp=True), nothing more


@pytest.mark.parametrize("extra", sorted(MODULES))
def test_an_extra_alone_is_enough_for_its_modules(extra):
    missing = [package for package in packages(extra) if not importable(package)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: an environment of its own tests it")
    brought = {other for package in packages(extra) for other in BELONG[package]}
    others = HOSTS - set(packages(extra)) - brought
    done = without(others, f"import {', '.join(MODULES[extra])}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("extra", "module"), [(extra, modules[0]) for extra, modules in sorted(MODULES.items())]
)
def test_a_missing_extra_is_named(extra, module):
    done = without(HOSTS, f"import {module}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f'pip install "rmes[{extra}]"' in last


def test_the_command_without_its_extra_is_one_clear_line():
    done = without(HOSTS, "from rmes.__main__ import main; sys.exit(main())")
    assert (done.returncode, done.stdout) == (1, "")
    said = 'rmes: the command line needs typer and rich: pip install "rmes[cli]"\n'
    assert done.stderr == said


def test_help_needs_no_host_but_that_of_the_command_line():
    if not importable("typer"):
        pytest.skip("typer is not installed")
    done = without(
        HOSTS - {"typer", "rich"}, "from rmes.cli import main; sys.exit(main(['--help']))"
    )
    assert done.returncode == 0, done.stderr
