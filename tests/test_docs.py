"""What the pages show is what happens, and their links lead somewhere."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from pages import PAGES, ROOT, blocks, name, run_commands, run_python

# README.md is run by tests/test_readme.py, where what it prints is compared, too; BoTorch's page by
# tests/botorch, as it needs torch.
ELSEWHERE = ("README.md", "docs/recipes/botorch.md")
EXAMPLES = {  # arguments that make it quick, and what it says in the end
    "assay.py": (["3"], "Use dilution="),
    "branin.py": (["--problem", "forrester", "--budget", "7"], "The picture is in demo.png."),
    "cross_validation.py": (["9"], "Use svc__C="),
    "dask_cluster.py": ([], "Use temperature="),
    "external_program.sh": (["8"], "Use force_kN="),
    "optuna_study.py": (["9"], "TPESampler"),
    "simulator.py": (["14"], "Simulated once more"),
}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and name(p) not in ELSEWHERE], ids=name
)
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(page)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=name)
def test_shell_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for script in blocks(page, "sh"):
        run_commands(script, tmp_path)
    assert "the expected value is" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_to_files(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = link.partition("#")[0]
        if target and not re.match(r"[a-z]+:", target):
            assert (page.parent / target).is_file(), link


def test_names_in_the_table_of_symbols_are_those_of_the_code():
    text = (ROOT / "docs" / "how.md").read_text(encoding="utf-8")
    rows = text.partition("| paper | code |")[2].splitlines()[2:]
    cells = [row.split("|")[2] for row in rows if row.startswith("|")]
    named = {
        part for cell in cells for code in re.findall("`(.+?)`", cell) for part in code.split(".")
    }
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src/rmes").glob("*.py")
    )
    missing = {each for each in named if not re.search(rf"\b{each}\b", source)}
    assert len(named) > 15
    assert missing <= {"adam", "information"}  # modules


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != ROOT], ids=name)
def test_every_page_is_in_the_navigation(page):
    path = str(page.relative_to(ROOT / "docs"))
    assert f": {path}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_example_is_run():
    kept = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")}
    assert kept == set(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example, tmp_path):
    path, (arguments, said) = ROOT / "examples" / example, EXAMPLES[example]
    shim = tmp_path / "bin" / "rmes"  # `rmes` is this one
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rmes "$@"\n')
    shim.chmod(0o755)
    program = shutil.which("bash") if path.suffix == ".sh" else sys.executable
    done = subprocess.run(
        [program, str(path), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
