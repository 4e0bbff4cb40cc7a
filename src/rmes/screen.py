"""What the command line shows: tables and hints for people, JSON for programs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from rmes.report import Outlook, Recommendation

if TYPE_CHECKING:  # Optuna takes a second to import: only commands that need it do
    from rmes.ledger import Entry, Ledger

_COLOURS = {"measured": "green", "failed": "red", "pending": "yellow", "skipped": "bright_black"}

out = Console(highlight=False)
if not out.is_terminal:
    out.width = 200  # of lines for other programs


# ---------------------------------------------------------------------- for programs


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print it at once, whoever reads."""
    print(json.dumps(value, indent=indent), flush=True)


def described(ledger: "Ledger") -> dict[str, Any]:
    """A study, in plain types."""
    file = ledger.file
    return {
        "study": file.name,
        "direction": file.direction,
        "noise_sd": file.noise_sd,
        "parameters": file.space.to_json(),
    }


def answered(answer: Recommendation, outlook: Outlook) -> dict[str, Any]:
    """An answer and what is left to gain, in plain types."""
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


# ---------------------------------------------------------------------- for people


def show(text: str) -> None:
    """Print a sentence."""
    out.print(escape(text))


def hint(command: str, why: str = "") -> None:
    """Print what to do next."""
    said = f"[dim]Next:[/dim]  [bold]{escape(command)}[/bold]"
    out.print(f"{said}  [dim]{escape(why)}[/dim]" if why else said, soft_wrap=True)


def _said(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def show_answer(answer: Recommendation, outlook: Outlook) -> None:
    """Print the parameters to use, how sure that is, and what is left to gain."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, setting in answer.params.items():
        table.add_row(escape(name), f"[bold]{escape(_said(setting))}[/bold]")
    out.print(table)
    show(str(answer))
    show(str(outlook))


def show_counts(name: str, counts: Mapping[str, int]) -> None:
    """Print how many trials of a study are in which state."""
    said = ", ".join(_coloured(state, f"{n} {state}") for state, n in counts.items() if n)
    out.print(f"[bold]{escape(name)}[/bold]: {said or 'no trials yet'}")


def show_parameters(ledger: "Ledger") -> None:
    """Print what a study varies, and which way is better."""
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
    out.print(table)


def show_trials(entries: "Sequence[Entry]", ledger: "Ledger", asked: bool = False) -> None:
    """Print trials as rows; those just asked for with the reason, others with what came of them."""
    names = list(ledger.file.space.parameters)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trial", justify="right", no_wrap=True)
    shown = [] if asked else [("state", [_coloured(each.state, each.state) for each in entries])]
    for name in names:
        shown.append((name, [escape(_said(each.params.get(name, ""))) for each in entries]))
    if asked:
        shown.append(("why", [escape(each.reason) for each in entries]))
    else:
        for title, key in (("value", "value"), ("noise sd", "noise_sd"), ("note", "note")):
            cells = [getattr(each, key) for each in entries]
            if any(cell not in (None, "") for cell in cells):
                texts = ["" if cell is None else escape(_said(cell)) for cell in cells]
                shown.append((title, texts))
    for title, _ in shown:
        words = title in ("why", "note")
        table.add_column(escape(title), no_wrap=not words, style="dim" if words else None)
    for each, *row in zip(entries, *(cells for _, cells in shown), strict=True):
        table.add_row(f"[bold]{each.trial}[/bold]", *row)
    out.print(table)


def _coloured(state: str, text: str) -> str:
    return f"[{_COLOURS.get(state, 'white')}]{text}[/]"


@contextmanager
def progress(total: int) -> Iterator[Callable[["Entry"], None]]:
    """A function to call with each run that has ended: a bar on a terminal, or a line for each."""
    if not out.is_terminal:
        yield lambda entry: out.print(escape(_line(entry)), soft_wrap=True)
        return
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("", total=total)

        def advance(entry: "Entry") -> None:
            if entry.state == "failed":
                bar.console.print(f"[red]{escape(_line(entry))}[/red]")
            bar.update(task, advance=1, description=escape(_line(entry)))

        yield advance


def _line(entry: "Entry") -> str:
    if entry.value is None:
        return f"trial {entry.trial} failed: {entry.note}"
    params = ", ".join(f"{name}={_said(value)}" for name, value in entry.params.items())
    return f"trial {entry.trial}: {_said(entry.value)} at {params}"
