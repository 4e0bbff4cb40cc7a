"""What the page on BoTorch shows is what happens."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "botorch.md"


def test_python_of_the_page_runs():
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(code, PAGE.name, "exec"), {})
