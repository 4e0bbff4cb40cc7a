"""The code that pages show, and how it is run."""

import re
import shlex
from pathlib import Path

import matplotlib as mpl

from rmes import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def name(page):
    """How a page is called in the name of a test."""
    return str(page.relative_to(ROOT))


def blocks(page, language):
    """The code of all blocks of a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_python(page):
    """Run the blocks of a page one after another, as a reader would."""
    mpl.use("Agg")
    shared = {"__name__": "page"}
    for code in blocks(page, "python"):
        exec(compile(code, name(page), "exec"), shared)


def run_commands(script, folder):
    """Run the lines of a block of shell in a folder: files are written, `rmes` runs right here.

    A process for each would spend most of its time importing.
    """
    for text, path, content, command in _LINE.findall(script):
        if path:
            (folder / path).write_text(content, encoding="utf-8")
        else:
            assert command.startswith("rmes "), f"{text!r}: expected a file or rmes"
            assert cli.main(shlex.split(command, comments=True)[1:]) == 0, command


# cat > PATH <<'END' ... END, or a line
_LINE = re.compile(r"^(cat > (\S+) <<'END'\n(.*?)^END$|(\S[^\n]*))$", re.DOTALL | re.MULTILINE)
