"""Imports point down: a module imports only from layers below its own."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmes

SOURCE = Path(rmes.__file__).parent
LAYERS = [
    {"normal", "kernels", "domain", "measurements", "units", "report", "trials"},
    {"model", "quadrature", "multistart", "space", "views", "programs"},
    {"gp", "evidence", "integral", "studyfile"},
    {"rivals", "paths", "pes", "information"},
    {"fit", "acquisition", "botorch"},
    {"maxima", "knowledge", "saved"},
    {"criteria", "answer"},
    {"adam", "settings"},
    {"choice"},
    {"suggest"},
    {"optimizer"},
    {"workers", "optuna", "plots", "sklearn"},
    {"minimize", "demo", "ledger"},
    {"paper", "screen", "endings", "runs"},
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


def private_of_optuna(code):
    """Names that begin with an underscore, of anything but the module's own objects."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optuna"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if "._" in name)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if re.match(r"optuna\b.*\._", a.name))
        elif isinstance(node, ast.Constant) and str(node.value) in HIDDEN:  # for getattr
            yield node.value


HIDDEN = {"_storage", "_study_id", "_trial_id"}
HUB = SOURCE.parent.parent / "optunahub"
SPEAKS_WITH_OPTUNA = [
    path
    for path in [*SOURCE.rglob("*.py"), *HUB.rglob("*.py")]
    if re.search(r"^\s*(import|from) (rmes\.)?optuna\b", path.read_text(), re.MULTILINE)
]


def test_private_names_are_found():
    code = """
import optuna._gp.gp
from optuna.study._tell import _tell_with_warning
from optuna import _imports
study._storage.set_trial_system_attr(trial._trial_id, self._own, self.trial._params)
getattr(study, "_storage")
"""
    assert sorted(private_of_optuna(code)) == [
        "_storage",
        "optuna._gp.gp",
        "optuna._imports",
        "optuna.study._tell._tell_with_warning",
        "self.trial._params",
        "study._storage",
        "trial._trial_id",
    ]
    assert {path.stem for path in SPEAKS_WITH_OPTUNA} >= {"sampler", "board", "ledger", "example"}


@pytest.mark.parametrize("path", SPEAKS_WITH_OPTUNA, ids=lambda path: path.stem)
def test_only_public_names_of_optuna_are_used(path):
    assert list(private_of_optuna(path.read_text())) == []
