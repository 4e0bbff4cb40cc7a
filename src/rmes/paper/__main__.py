"""`python -m rmes.paper`: run the paper's experiments and report on them."""

import argparse
import sys
from pathlib import Path

from rmes.paper.experiments import EXTRAS, METHODS
from rmes.paper.problems import PAPER
from rmes.paper.reproduce import listing, reproduce


def main(arguments: list[str] | None = None, command: str = "python -m rmes.paper") -> int:
    """Read the arguments of the command, run, print where the results are."""
    parser = argparse.ArgumentParser(
        prog=command,
        description="Run the paper's experiments, or what is left of them, and report on them.",
        epilog=f"Next: {command} --quick, which ends with a report to open in a browser",
    )
    parser.add_argument("experiments", nargs="*", help="problems; all of the paper by default")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    parser.add_argument("--methods", nargs="+", default=[*METHODS], help="by default the paper's")
    parser.add_argument("--extras", action="store_true", help=f"also {', '.join(EXTRAS)}")
    parser.add_argument("--seeds", type=int, help="by default 15, or 10 for real problems")
    parser.add_argument("--iterations", type=int, help="by default 100")
    parser.add_argument("--quick", action="store_true", help="a small version, in minutes")
    parser.add_argument("--workers", default="1", help="processes, or a Dask scheduler's address")
    parser.add_argument("--results", type=Path, default=Path("results.jsonl"), metavar="FILE")
    parser.add_argument(
        "--report", type=Path, nargs="?", const=Path("report"), metavar="DIR", help="write a page"
    )
    given = parser.parse_args(arguments)
    if given.list:
        print(listing())
        return 0
    try:
        made, pages = reproduce(
            tuple(given.experiments) or PAPER,
            (*given.methods, *(EXTRAS if given.extras else ())),
            seeds=given.seeds,
            iterations=given.iterations,
            quick=given.quick,
            workers=int(given.workers) if given.workers.lstrip("-").isdigit() else given.workers,
            results=given.results,
            report=given.report or (Path("report") if given.quick else None),
        )
    except (ValueError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{made} runs made; results in {given.results}")
    for page in pages:
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
