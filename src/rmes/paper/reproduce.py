"""Run the paper's experiments, or what is left of them, and report on what they show."""

from pathlib import Path

from rmes.paper.experiments import EXTRAS, ITERATIONS, METHODS, Experiment, experiments
from rmes.paper.problems import NAMES, PAPER, problem
from rmes.paper.report import write
from rmes.paper.runs import read, sweep

QUICK_SEEDS, QUICK_ITERATIONS = 2, 12


def reproduce(
    names: tuple[str, ...] = PAPER,
    methods: tuple[str, ...] = METHODS,
    *,
    seeds: int | None = None,
    iterations: int | None = None,
    quick: bool = False,
    workers: int | str = 1,
    results: Path = Path("results.jsonl"),
    report: Path | None = None,
) -> tuple[int, list[Path]]:
    """Run what the results do not hold yet, then write the report if a directory is given.

    Parameters
    ----------
    names : tuple of str
        Problems.
    methods : tuple of str
        The paper's five, or any of them and of the extras.
    seeds, iterations : int, optional
        By default the paper's seeds, 15 for synthetic problems and 10 for real ones, and 100.
    quick : bool
        Two seeds and a dozen iterations, for whatever of the two is not given.
    workers : int or str
        Processes, or the address of a Dask scheduler.
    results : Path
        A file of JSON lines that is added to; one that ends in .gz is only reported on.
    report : Path, optional
        Where the figures and `index.html` go; a Markdown page goes beside it.

    Returns
    -------
    tuple of (int, list of Path)
        How many runs were made, and the pages that were written.
    """
    if quick:
        seeds = QUICK_SEEDS if seeds is None else seeds
        iterations = QUICK_ITERATIONS if iterations is None else iterations
    made = 0
    if results.suffix != ".gz":
        wanted = plan(names, methods, seeds, ITERATIONS if iterations is None else iterations)
        made = sweep(wanted, results, workers)
    return made, ([] if report is None else write(read(results), report))


def plan(
    names: tuple[str, ...], methods: tuple[str, ...], seeds: int | None, iterations: int
) -> list[Experiment]:
    """The runs of a call, in their order."""
    for kind, given, known in (
        ("experiment", names, NAMES),
        ("method", methods, (*METHODS, *EXTRAS)),
    ):
        for name in given:
            if name not in known:
                raise ValueError(f"{kind} is {name!r}; expected one of {', '.join(known)}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected at least 1")
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}; expected at least 1")
    return experiments(names, methods, seeds, iterations)


def listing() -> str:
    """The experiments, one line each."""
    lines = []
    for name in NAMES:
        what = problem(name)
        noises = ", ".join(f"{noise:g}" for noise in what.noises)
        lines.append(f"{name:15} {what.title:24} σ = {noises:13} {what.repeats} seeds")
    return "\n".join([*lines, f"methods: {', '.join(METHODS)}", f"extras: {', '.join(EXTRAS)}"])
