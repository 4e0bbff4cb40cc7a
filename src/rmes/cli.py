"""The command line: a study by hand or by script, on an Optuna storage."""

import io
import json
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.markup import escape
except ImportError as error:
    raise ImportError('the command line needs typer and rich: pip install "rmes[cli]"') from error

from rmes import screen, studyfile
from rmes.endings import ending
from rmes.programs import check_template
from rmes.screen import hint, out, print_json

if TYPE_CHECKING:  # Optuna takes a second to import: only commands that need it do
    from rmes.ledger import Entry, Ledger

_SHOWN = 15  # trials that `status` shows
_STATES = ("measured", "failed", "pending", "skipped")
_PLOTS = ("overview", "posterior", "information", "convergence", "optimum", "trials")

app = typer.Typer(
    name="rmes",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

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
            return print_json({"written": str(file)})
        out.print(f"An example is in [bold]{escape(str(file))}[/bold]: change it to your study.")
        return hint(f"rmes init {file}", "makes the study it describes")
    made = _ledgers().create(studyfile.read(file))
    if as_json:
        return print_json(screen.described(made))
    out.print(f"The study [bold]{escape(made.file.name)}[/bold] is ready.")
    screen.show_parameters(made)
    option = "" if file == _STUDY else f" --study {file}"
    return hint(f"rmes ask{option}", "says what to measure first")


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
            print_json(told if count else told[0] if told else [])
        elif asked:
            screen.show_trials(asked, ledger, asked=True)
    if not as_json:
        hint(f"rmes tell {asked[0].trial} VALUE", f"when trial {asked[0].trial} is measured")


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
        return print_json([each.to_json() for each in told])
    screen.show_trials(told, ledger)
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
        return print_json(screen.answered(answer, outlook))
    return screen.show_answer(answer, outlook)


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
    counts = dict.fromkeys(_STATES, 0)
    for each in entries:
        counts[each.state] = counts.get(each.state, 0) + 1
    if as_json:
        told = screen.described(ledger) | {"counts": counts}
        return print_json(told | {"trials": [each.to_json() for each in entries]})
    screen.show_counts(ledger.file.name, counts)
    screen.show_parameters(ledger)
    shown = entries if everything else entries[-_SHOWN:]
    if shown:
        screen.show_trials(shown, ledger)
    if len(shown) < len(entries):
        out.print(f"[dim]{len(entries) - len(shown)} earlier ones: rmes status --all[/dim]")
    pending = [each.trial for each in entries if each.state == "pending"]
    if pending:
        return hint(f"rmes tell {pending[0]} VALUE", "or --failed, or --skipped to forget it")
    return hint("rmes recommend" if counts["measured"] else "rmes ask")


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
        return print_json({"written": str(path)})
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
        return print_json({"added": added, "already_there": before})
    already = f"; {before} were there already" if before else ""
    out.print(f"[bold]{added}[/bold] measurements added{already}.")
    return hint("rmes recommend")


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
    from rmes import runs

    check_template(command, list(ledger.file.space.parameters))
    measured = 0
    ended = runs.measure(ledger, command, count, parallel, limit)
    with closing(ended), nullcontext() if as_json else screen.progress(count) as advance:
        for entry in ended:
            measured += entry.state == "measured"
            if advance is None:
                print_json(entry.to_json(), indent=None)
            else:
                advance(entry)
    if not measured:
        raise ValueError("no run gave a value; 'rmes status' shows why")
    if not as_json:
        screen.show(str(ledger.optimizer().recommend()))
        hint("rmes recommend", "says what is left to gain")


@app.command()
def demo(
    problem: Annotated[
        str, typer.Option(help="branin, forrester (one variable) or hartmann6 (six).")
    ] = "branin",
    noise_sd: Annotated[
        float | None, typer.Option(min=0.0, help="Standard deviation of the noise.")
    ] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="How many measurements.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise and the suggestions.")] = 2,
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


# ---------------------------------------------------------------------- studies


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


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = sys.argv[1:] if args is None else list(args)
    return ending(lambda: app(args=given, prog_name="rmes", standalone_mode=False))
