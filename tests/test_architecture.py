"""Imports point down: a module imports only from layers below its own."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rmes

SOURCE = Path(rmes.__file__).parent
LAYERS = [
    {"normal", "kernels", "domain", "measurements", "units", "report", "trials"},
    {"gp", "quadrature", "multistart", "space", "programs"},
    {"integral", "fit", "paths", "pes", "studyfile"},
    {"information"},
    {"acquisition", "botorch"},
    {"maxima"},
    {"criteria", "answer"},
    {"adam"},
    {"suggest"},
    {"optimizer"},
    {"workers", "optuna", "plots", "sklearn"},
    {"minimize", "demo", "ledger"},
    {"paper"},
    {"cli"},
]
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}


def files(module):
    """The file of a module, or all files of a package."""
    package = SOURCE / module
    return sorted(package.glob("*.py")) if package.is_dir() else [SOURCE / f"{module}.py"]


def imported(module):
    trees = [ast.parse(path.read_text()) for path in files(module)]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "rmes":
            yield from (f"rmes.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_every_module_has_a_layer():
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert modules | packages == set(RANK)


@pytest.mark.parametrize("module", sorted(RANK))
def test_imports_point_down(module):
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == "rmes" and parts[1:2] not in ([], [module]):  # of a package: its own files
            assert RANK[parts[1]] < RANK[module], f"{module} imports {name}"


@pytest.mark.parametrize("module", sorted(RANK))
def test_every_module_says_what_it_is_for(module):
    for path in files(module):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring
        assert docstring.splitlines()[0].endswith((".", ":"))


def test_importing_loads_no_optional_dependency():
    code = "import rmes, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "torch",
        "botorch",
        "optuna",
        "matplotlib",
        "sklearn",
        "pandas",
        "dask",
        "scipy.stats",
        "scipy.optimize",
        "tqdm",
    }
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize(("module", "hidden"), [("botorch", "torch"), ("sklearn", "sklearn")])
def test_a_missing_host_names_the_extra_to_install(module, hidden):
    code = f"import sys; sys.modules[{hidden!r}] = None; import rmes.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"ImportError: rmes.{module} needs" in done.stderr
    assert f'pip install "rmes[{module}]"' in done.stderr
