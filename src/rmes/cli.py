"""The command line: a study by hand or by script, on an Optuna storage."""

import csv
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table
except ImportError as error:
    raise ImportError('the command line needs typer and rich: pip install "rmes[cli]"') from error

from rmes import studyfile
from rmes.programs import Outcome, Programs, arguments, check_template
from rmes.report import Outlook, Recommendation

if TYPE_CHECKING:  # Optuna takes a second to import: only commands that need it do
    from rmes.ledger import Entry, Ledger

_HOPELESS = 5  # failures without a single measurement after which `run` stops
_SHOWN = 15  # trials that `status` shows
_COLOURS = {"measured": "green", "failed": "red", "pending": "yellow", "skipped": "bright_black"}
_PLOTS = ("overview", "posterior", "information", "convergence", "optimum", "trials")

app = typer.Typer(
    name="rmes",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console(highlight=False)
if not out.is_terminal:
    out.width = 200  # of lines for other programs

StudyOption = Annotated[
    Path,
    typer.Option("--study", "-s", envvar="RMES_STUDY", metavar="FILE", help="The study file."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
_STUDY = Path("study.toml")


@app.callback()
def _about() -> None:
    """Find the best settings of something that is expensive and noisy to measure.

    Start with **rmes init**: it writes study.toml, which you change. Then **rmes init** again makes
    the study; **rmes ask** says what to measure, **rmes tell 0 VALUE** records it, and so on;
    **rmes recommend** says what to use. If a program does the measuring, **rmes run** does all of
    that. **rmes demo** shows what to expect.
    """


# ---------------------------------------------------------------------- commands


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study file.")] = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Write an example of a study file, or make the study that a file describes.

    The first time there is no file: an example is written for you to change. The second time the
    study is made, in a file study.db or wherever "storage" says. Doing it again changes nothing.

    Next: **rmes ask**
    """
    if not file.exists():
        studyfile.write_example(file)
        if as_json:
            return _print_json({"written": str(file)})
        out.print(f"An example is in [bold]{escape(str(file))}[/bold]: change it to your study.")
        return _hint(f"rmes init {file}", "makes the study it describes")
    made = _ledgers().create(studyfile.read(file))
    if as_json:
        return _print_json(_described(made))
    out.print(f"The study [bold]{escape(made.file.name)}[/bold] is ready.")
    out.print(_parameters(made))
    option = "" if file == _STUDY else f" --study {file}"
    return _hint(f"rmes ask{option}", "says what to measure first")


@app.command()
def ask(
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="How many to measure at once.")
    ] = None,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Say what to measure next.

    Trials that were asked for before, by anybody, are taken into account until they are told.

    Next:  measure, then **rmes tell NUMBER VALUE**
    """
    ledger = _load(study)
    asked: list[Entry] = []
    try:
        for _ in range(count or 1):
            asked.append(ledger.ask())
    finally:  # those made before an error are pending, so they are shown
        if as_json:
            told = [each.to_json() for each in asked]
            _print_json(told if count else told[0] if told else [])
        elif asked:
            out.print(_trials(asked, ledger, asked=True))
    if not as_json:
        _hint(f"rmes tell {asked[0].trial} VALUE", f"when trial {asked[0].trial} is measured")


@app.command(context_settings={"ignore_unknown_options": True})
def tell(
    trial: Annotated[
        str,
        typer.Argument(metavar="TRIAL", help="Its number; or name=value,... of your own point."),
    ],
    value: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="What was measured; several are replicates."),
    ] = None,
    noise_sd: Annotated[
        float | None, typer.Option(help="Standard deviation of the noise of each value, if known.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="It gave no value; such points will be avoided.")
    ] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="It will not be measured, for some other reason.")
    ] = False,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Record what a measurement gave.

    **rmes tell 3 0.71** or, with replicates, **rmes tell 3 0.71 0.68**

    **rmes tell 4 --failed** or **rmes tell "x=0.3,y=5" 0.64**

    Telling the same twice changes nothing. Next: **rmes ask** or
    **rmes recommend**
    """
    from rmes.ledger import parse_params, read_number

    texts = value or []
    if failed + skipped + bool(texts) != 1:
        raise ValueError("expected one of: a VALUE (or several), --failed, --skipped")
    values = [read_number("the value", text) for text in texts]
    ledger = _load(study)
    number = _trial_number(trial)
    if number is None:
        if skipped:
            raise ValueError("a point of your own cannot be skipped; do not tell it at all")
        params = parse_params(trial, ledger.file.space)
        before = len(ledger.entries())
        for one in values if values else (None,):
            ledger.add(params, one, noise_sd, source="your own point")
        told = ledger.entries()[before:]
    elif failed:
        told = [ledger.fail(number)]
    elif skipped:
        told = [ledger.skip(number)]
    else:
        told = ledger.tell(number, values, noise_sd)
    if as_json:
        return _print_json([each.to_json() for each in told])
    out.print(_trials(told, ledger))
    return None


@app.command()
def recommend(
    measured: Annotated[
        bool, typer.Option("--measured", help="Only points that have been measured.")
    ] = False,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Say which parameters to use, how sure that is, and what is left to gain.

    The answer comes from a model of all measurements, not from the luckiest one.

    Next: **rmes ask** if what is left to gain is worth a measurement
    """
    ledger = _load(study)
    optimizer = ledger.optimizer()
    answer = optimizer.recommend("measured" if measured else "anywhere")
    outlook = optimizer.outlook()
    if as_json:
        return _print_json(_answer(answer, outlook))
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, setting in answer.params.items():
        table.add_row(escape(name), f"[bold]{escape(_said(setting))}[/bold]")
    out.print(table)
    out.print(escape(str(answer)))
    out.print(escape(str(outlook)))
    return None


@app.command()
def status(
    everything: Annotated[bool, typer.Option("--all", help="Show all trials.")] = False,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Show the study, its trials and what is being waited for.

    Next: **rmes tell NUMBER VALUE** for a trial that is pending, or **rmes ask**
    """
    ledger = _load(study)
    entries = ledger.entries()
    counts = {state: 0 for state in _COLOURS}
    for each in entries:
        counts[each.state] = counts.get(each.state, 0) + 1
    if as_json:
        told = _described(ledger) | {"counts": counts}
        return _print_json(told | {"trials": [each.to_json() for each in entries]})
    said = ", ".join(f"[{_COLOURS.get(s, 'white')}]{n} {s}[/]" for s, n in counts.items() if n)
    out.print(f"[bold]{escape(ledger.file.name)}[/bold]: {said or 'no trials yet'}")
    out.print(_parameters(ledger))
    shown = entries if everything else entries[-_SHOWN:]
    if shown:
        out.print(_trials(shown, ledger))
    if len(shown) < len(entries):
        out.print(f"[dim]{len(entries) - len(shown)} earlier ones: rmes status --all[/dim]")
    pending = [each.trial for each in entries if each.state == "pending"]
    if pending:
        return _hint(f"rmes tell {pending[0]} VALUE", "or --failed, or --skipped to forget it")
    return _hint("rmes recommend" if counts["measured"] else "rmes ask")


@app.command()
def plot(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=f"One of {', '.join(_PLOTS)}.")
    ] = "overview",
    parameters: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARAMETER", help="For posterior one, information one or two."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .png, .pdf or .svg file.")
    ] = None,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Draw the study into a picture file.

    **rmes plot** draws all; **rmes plot posterior temperature** one slice.

    Next: look at the picture, then **rmes recommend** or **rmes ask**
    """
    names = parameters or []
    least, most = {"posterior": (1, 1), "information": (1, 2)}.get(kind, (0, 0))
    if kind not in _PLOTS:
        raise ValueError(f"{kind!r} is no kind of plot; expected one of {', '.join(_PLOTS)}")
    if not least <= len(names) <= most:
        wanted = {0: "no parameter", 1: "one parameter", 2: "one or two parameters"}[most]
        raise ValueError(f"plot {kind} takes {wanted}; {len(names)} were given")
    path = output or Path(f"{study.stem}-{kind}.png")
    ledger = _load(study)
    import matplotlib

    matplotlib.use("Agg")
    from rmes import plots

    drawn = getattr(plots, kind)(ledger.optimizer(), *names)
    figure = (drawn[0] if kind == "overview" else drawn).get_figure(root=True)
    figure.savefig(path, dpi=200)
    if as_json:
        return _print_json({"written": str(path)})
    out.print(f"The picture is in [bold]{escape(str(path))}[/bold].")
    return None


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="CSV", help="Its first line names the columns.")],
    column: Annotated[str, typer.Option("--value", help="Name of the column of values.")] = "value",
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Add old measurements from a CSV file.

    Columns: every parameter, the value (empty if it failed), and if known noise_sd. Others are
    ignored. All rows are checked before the first is added; importing twice changes nothing.

    Next: **rmes recommend** or **rmes ask**
    """
    added, before = _load(study).read_table(file, column)
    if as_json:
        return _print_json({"added": added, "already_there": before})
    already = f"; {before} were there already" if before else ""
    out.print(f"[bold]{added}[/bold] measurements added{already}.")
    return _hint("rmes recommend")


@app.command()
def export(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; by default the terminal.")
    ] = None,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Write all trials as CSV, or as JSON, with all digits.

    Next: open it in a spreadsheet; **rmes import** reads it into another study
    """
    ledger = _load(study)
    text = io.StringIO()
    if as_json:
        json.dump([each.to_json() for each in ledger.entries()], text, indent=2)
        text.write("\n")
    else:
        ledger.write_table(text)
    if output is None:
        sys.stdout.write(text.getvalue())
    else:
        output.write_text(text.getvalue(), encoding="utf-8")


@app.command()
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM", help="With {name} for each parameter."),
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many runs.")] = 20,
    parallel: Annotated[int, typer.Option("--parallel", "-p", min=1, help="Runs at once.")] = 1,
    limit: Annotated[
        float | None, typer.Option("--limit", min=0.001, help="Seconds that a run may take.")
    ] = None,
    study: StudyOption = _STUDY,
    as_json: JsonOption = False,
) -> None:
    """Let a program do the measuring.

    **rmes run -n 30 -- ./experiment --x={x} --y={y}**

    Its last line of JSON, like {"value": 0.7, "noise_sd": 0.1}, is the measurement, or else the
    last number it prints. An exit code other than 0, no number, or too much time: a failed trial,
    whose neighbourhood will be avoided. {params} stands for all parameters as JSON, {trial} for
    the number. No shell is involved. Ctrl-C ends it; the same command goes on.

    Next: **rmes recommend**
    """
    ledger = _load(study)
    check_template(command, list(ledger.file.space.parameters))
    measured = 0
    runs = _runs(ledger, command, count, parallel, limit)
    with closing(runs), _progress(count, not as_json and out.is_terminal) as advance:
        for entry in runs:
            measured += entry.state == "measured"
            if as_json:
                _print_json(entry.to_json(), indent=None)
            else:
                advance(entry)
    if not measured:
        raise ValueError("no run gave a value; 'rmes status' shows why")
    if not as_json:
        out.print(escape(str(ledger.optimizer().recommend())))
        _hint("rmes recommend", "says what is left to gain")


@app.command()
def demo(
    problem: Annotated[
        str, typer.Option(help="branin, forrester (one variable) or hartmann6 (six).")
    ] = "branin",
    noise_sd: Annotated[
        float | None, typer.Option(min=0.0, help="Standard deviation of the noise.")
    ] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="How many measurements.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise and the suggestions.")] = 6,
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .png, .pdf or .svg file.")
    ] = "demo.png",
) -> None:
    """Find the top of a noisy function whose truth is known; compare and draw.

    Takes about ten seconds.

    Next: **rmes init** for a study of your own
    """
    from rmes import demo as packaged

    packaged.main(seed, problem=problem, noise_sd=noise_sd, budget=budget, output=output)


@app.command(
    add_help_option=False,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def reproduce(context: typer.Context) -> None:
    """Run the paper's experiments anew and report on them.

    **rmes reproduce --help** says more; **rmes reproduce --quick** takes minutes.
    """
    from rmes.paper.__main__ import main as paper

    raise typer.Exit(paper(context.args, "rmes reproduce"))


# ---------------------------------------------------------------------- running programs


def _runs(
    ledger: "Ledger", command: Sequence[str], count: int, parallel: int, limit: float | None
) -> Generator["Entry", None, None]:
    """Ask, measure and tell `count` times, several at once; what came of each.

    Only this thread speaks with the storage. Whatever ends the loop, no program is left running
    and no trial pending.
    """
    programs = Programs()
    running: dict[Future[Outcome], Entry] = {}
    asked = measured = failed = 0
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while asked < count or running:
                while asked < count and len(running) < parallel:
                    entry = ledger.ask()
                    asked += 1
                    line = arguments(command, entry.params, entry.trial)
                    running[pool.submit(programs.measure, line, limit)] = entry
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    outcome, number = future.result(), running[future].trial
                    if outcome.error:
                        failed += 1
                        told = ledger.fail(number, outcome.error)
                    else:
                        measured += 1
                        told = ledger.tell(number, outcome.values, outcome.noise_sd)[0]
                    del running[future]
                    yield told
                if failed >= _HOPELESS and not measured:
                    raise ValueError(
                        f"the first {failed} runs failed, the last one so: {outcome.error}"
                    )
        finally:
            programs.end()
            for entry in running.values():
                if ledger.entry(entry.trial).state == "pending":
                    ledger.skip(entry.trial)


@contextmanager
def _progress(total: int, bar: bool) -> Iterator[Any]:
    """A function to call with each run that has ended: a bar, or a line for each."""
    if not bar:
        yield lambda entry: out.print(escape(_line(entry)), soft_wrap=True)
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=out) as progress:
        task = progress.add_task("", total=total)

        def advance(entry: "Entry") -> None:
            if entry.state == "failed":
                progress.console.print(f"[red]{escape(_line(entry))}[/red]")
            progress.update(task, advance=1, description=escape(_line(entry)))

        yield advance


def _line(entry: "Entry") -> str:
    if entry.value is None:
        return f"trial {entry.trial} failed: {entry.note}"
    params = ", ".join(f"{name}={_said(value)}" for name, value in entry.params.items())
    return f"trial {entry.trial}: {_said(entry.value)} at {params}"


# ---------------------------------------------------------------------- in and out


def _load(path: Path) -> "Ledger":
    file = studyfile.read(path)
    loaded: Ledger = _ledgers().load(file)
    return loaded


def _ledgers() -> ModuleType:
    """The module that speaks with Optuna, which is told to be quiet."""
    from optuna import logging

    from rmes import ledger

    logging.set_verbosity(logging.ERROR)
    return ledger


def _trial_number(text: str) -> int | None:
    """The number of a trial; None where the text has parameters instead."""
    if "=" in text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no trial; expected its number, or name=value,...")
    return int(text)


def _print_json(value: Any, indent: int | None = 2) -> None:
    print(json.dumps(value, indent=indent), flush=True)


def _hint(command: str, why: str = "") -> None:
    said = f"[dim]Next:[/dim]  [bold]{escape(command)}[/bold]"
    out.print(f"{said}  [dim]{escape(why)}[/dim]" if why else said, soft_wrap=True)


def _said(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _described(ledger: "Ledger") -> dict[str, Any]:
    file = ledger.file
    return {
        "study": file.name,
        "direction": file.direction,
        "noise_sd": file.noise_sd,
        "parameters": file.space.to_json(),
    }


def _answer(answer: Recommendation, outlook: Outlook) -> dict[str, Any]:
    return {
        "params": answer.params,
        "mean": answer.mean,
        "sd": answer.sd,
        "interval": list(answer.interval),
        "measurements": answer.measurements,
        "observed_params": answer.observed_params,
        "observed_value": answer.observed_value,
        "reason": answer.reason,
        "outlook": {
            "optimum_interval": list(outlook.optimum_interval),
            "expected_gap": outlook.expected_gap,
            "information": outlook.information,
        },
    }


def _parameters(ledger: "Ledger") -> Table:
    file = ledger.file
    table = Table(box=None, pad_edge=False, header_style="dim")
    noise = "inferred" if file.noise_sd is None else f"{file.noise_sd:g}"
    table.add_column(file.direction, no_wrap=True)
    table.add_column(f"noise sd: {noise}", overflow="fold")
    for name, fields in file.space.to_json().items():
        if fields["type"] == "categorical":
            said = "one of " + ", ".join(str(choice) for choice in fields["choices"])
        else:
            whole = "whole number " if fields["type"] == "integer" else ""
            scale = ", logarithmic" if fields["log"] else ""
            said = f"{whole}from {fields['low']:g} to {fields['high']:g}{scale}"
        table.add_row(escape(name), escape(said))
    return table


def _trials(entries: "Sequence[Entry]", ledger: "Ledger", asked: bool = False) -> Table:
    """Trials as rows; those just asked for with the reason, others with what came of them."""
    names = list(ledger.file.space.parameters)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trial", justify="right", no_wrap=True)
    shown = [("state", [_state(each) for each in entries])] if not asked else []
    for name in names:
        shown.append((name, [escape(_said(each.params.get(name, ""))) for each in entries]))
    if asked:
        shown.append(("why", [escape(each.reason) for each in entries]))
    else:
        for title, key in (("value", "value"), ("noise sd", "noise_sd"), ("note", "note")):
            cells = [getattr(each, key) for each in entries]
            if any(cell not in (None, "") for cell in cells):
                said = ["" if cell is None else escape(_said(cell)) for cell in cells]
                shown.append((title, said))
    for title, _ in shown:
        words = title in ("why", "note")
        table.add_column(escape(title), no_wrap=not words, style="dim" if words else None)
    for each, *row in zip(entries, *(cells for _, cells in shown), strict=True):
        table.add_row(f"[bold]{each.trial}[/bold]", *row)
    return table


def _state(entry: "Entry") -> str:
    return f"[{_COLOURS.get(entry.state, 'white')}]{entry.state}[/]"


# ---------------------------------------------------------------------- errors


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line: what goes wrong is said in one line; the exit code."""
    given = sys.argv[1:] if args is None else list(args)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = app(args=given, prog_name="rmes", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0) if code != 130 else _interrupted()
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except BrokenPipeError:  # whoever reads has seen enough
        _silence()
        return 1
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        if not message:  # the help has been shown
            return 2
        return _fail(message, 2 if hasattr(error, "format_message") else 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupted() -> int:
    return _fail("interrupted; what was told is kept, the same command goes on", 130)


def _fail(message: str, code: int) -> int:
    _silence()
    print(f"rmes: {message}", file=sys.stderr)
    return code


def _silence() -> None:
    """Let nothing be written at exit to an output that does not take it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> str | None:
    """What went wrong, in one line; None for what should not happen."""
    if hasattr(error, "format_message"):  # of the arguments
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "rmes"
        said = error.format_message().rstrip(".")
        return f"{said}; see {path} --help" if said else ""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, OSError | ValueError | TypeError | ImportError | csv.Error):
        return " ".join(str(error).split())
    if type(error).__module__.partition(".")[0] in ("sqlalchemy", "optuna"):
        inner = error.__cause__ or error
        original = getattr(inner, "orig", None) or inner
        said = " ".join(str(original).split())
        return f"the storage does not work: {said}; what was told before is kept"
    return None
