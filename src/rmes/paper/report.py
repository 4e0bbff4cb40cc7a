"""One page with figures, tables and verdicts: HTML for a browser, Markdown for a site."""

import base64
import html
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.paper.claims import judge
from rmes.paper.differences import DIFFERENCES
from rmes.paper.extras import ablation, adam, bounds, costs, learned
from rmes.paper.figures import draw
from rmes.paper.problems import GP_LENGTH_SCALE
from rmes.paper.results import LEVEL, MEASURES, Results
from rmes.paper.verdicts import FAILS, HOLDS, UNKNOWN, Claim

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""


def write(records: list[dict[str, Any]], directory: Path) -> list[Path]:
    """Draw the figures into a directory; return the two pages about them.

    `index.html` is beside the figures and holds them; a Markdown page that links them is beside
    the directory and has its name.
    """
    results = Results.of(records)
    captions = draw(results, directory)
    claims = judge(results)
    tables = _tables(results, claims)
    note = _note(records)
    page = directory / "index.html"
    page.write_text(_html(claims, tables, captions, note, directory), encoding="utf-8")
    text = directory.parent / f"{directory.name}.md"
    text.write_text(_markdown(claims, tables, captions, note, directory.name), encoding="utf-8")
    return [page, text]


def _note(records: list[dict[str, Any]]) -> str:
    versions = ", ".join(sorted({record["version"] for record in records})) or "none"
    fields = sorted({r["data"] for r in records if r["data"].startswith("ph-")})
    words = {"ph-simulated": "simulated", "ph-broomsbarn": "the survey of Broom's Barn"}
    field = " and ".join(words[name] for name in fields) or "not run"
    return (
        f"{len(records)} finished runs, rmes {versions}. pH field: {field}. Intervals are "
        f"{LEVEL:.0%} bootstrap intervals over seeds, paired between methods and widened for few "
        "seeds. The paper has 15 seeds, or 10 for real problems: the tables say how many are "
        "finished here. Differences of "
        "regret are in log10 of the mean regret over the last tenth of the iterations: -1 is ten "
        "times smaller."
    )


def _tables(results: Results, claims: list[Claim]) -> dict[str, Table]:
    return {
        "Claims": _claims_table(claims),
        "Final regrets": _finals(results),
        "What each correction brings": _ablation_table(results),
        "Length-scales of the GP sample": _learned_table(results),
        "Exact RMES and Adam": _adam_table(results),
        "Is MES never below RMES?": _bounds_table(results),
        "Seconds per suggestion": _cost_table(results),
        "What differs from the paper, and why": (
            ["what", "how and why"],
            [[what, why] for what, why in DIFFERENCES.items()],
        ),
    }


REMARKS = {
    "Claims": "A part holds or does not where its interval says so. A claim holds if all its parts "
    "do; it does not if a part does not at the level of 5 % divided by the number of parts. Parts "
    "with fewer than 5 seeds cannot tell.",
    "Final regrets": "log10 of the mean over seeds.",
    "What each correction brings": "How much smaller the regret of RMES is than that of MES "
    "(log10; positive is better), split into the part that comes from measuring y instead of f and "
    "that from using the drawn maxima in both entropies. Each part is the mean over the two orders "
    "of the changes. Intervals need 5 seeds.",
    "Length-scales of the GP sample": "Median simple regret (log10) of the runs whose maximum "
    "likelihood ended near the true length-scales, and of the others. A method that measures one "
    "place again and again learns little of them there, and with wrong ones goes on to do so. The "
    "last column tells bad luck from a bad search: above 0, what was learnt is likelier than the "
    "truth, and no better search would have found the truth.",
    "Exact RMES and Adam": "The paper's sampled estimate, climbed by Adam, against the exact "
    "integral, on the same posteriors with the same draws of the maximum.",
    "Is MES never below RMES?": "Shares of points of the square. The inequalities are no theorems "
    "where a drawn maximum lies below the posterior mean.",
    "Seconds per suggestion": "Medians over all iterations. A machine that is busy with other work "
    "makes them longer: compare them with one another.",
}


def _claims_table(claims: list[Claim]) -> Table:
    rows = [
        [
            claim.letter,
            claim.text,
            claim.verdict,
            f"{claim.count(HOLDS)} hold, {claim.count(FAILS)} do not, "
            f"{claim.count(UNKNOWN)} cannot tell",
        ]
        for claim in claims
    ]
    return ["claim", "in words", "verdict", "parts"], rows


def _parts_table(claim: Claim) -> Table:
    rows = []
    for part in claim.parts:
        seeds = str(part.interval.seeds) if part.interval else "too few"
        rows.append([part.text, str(part.interval or ""), seeds, part.verdict])
    return ["part", "interval", "runs", "verdict"], rows


def _finals(results: Results) -> Table:
    methods = [
        "ei",
        "ucb",
        "pes",
        "mes",
        "rmes",
        "noisy-mes",
        "noiseless-rmes",
        "log-ei",
        "rmes-adam",
    ]
    rows = []
    for data, noise in results.cells:
        for measure, name in MEASURES.items():
            row = [f"{data}, σ = {noise:g}", name]
            for method in methods:
                seeds = results.seeds(data, noise, [method])
                row.append("")
                if seeds:
                    value = results.final(data, noise, method, measure, seeds).mean()
                    row[-1] = f"{np.log10(value):.2f} ({len(seeds)})"
            rows.append(row)
    return ["problem", "regret", *(f"{method} (seeds)" for method in methods)], rows


def _ablation_table(results: Results) -> Table:
    rows = [
        [
            f"{one.data}, σ = {one.noise:g}",
            MEASURES[measure],
            str(one.total),
            str(one.by_noise),
            str(one.by_entropy),
            str(one.total.seeds),
        ]
        for measure in MEASURES
        for one in ablation(results, measure)
    ]
    header = ["problem", "regret", "MES to RMES", "of it the noise", "of it the entropy", "seeds"]
    return header, rows


def _learned_table(results: Results) -> Table:
    def median(values: NDArray[np.float64]) -> str:
        return f"{np.log10(np.median(values)):.2f} ({len(values)})" if len(values) else "none"

    def least(values: NDArray[np.float64]) -> str:
        return f"{np.median(values):.1f} ({values.min():.1f})" if len(values) else "none"

    rows = [
        [f"σ = {one.noise:g}", one.method, median(one.near), median(one.far), least(one.likelier)]
        for one in learned(results, GP_LENGTH_SCALE)
    ]
    header = ["noise", "method", "within 40 % of the truth (runs)", "others (runs)"]
    return [*header, "others' log-likelihood above the truth's, median (least)"], rows


def _adam_table(results: Results) -> Table:
    found = adam(results)
    if found is None:
        return ["what", "value"], []
    rows = [
        ["posteriors compared", str(found.states)],
        ["median distance of the two points", f"{found.apart:.4f}"],
        ["share of posteriors where they are within 0.01", f"{found.alike:.0%}"],
        [
            "RMES at Adam's point over RMES at ours",
            f"{found.share.value:.3f} [{found.share.low:.3f}, {found.share.high:.3f}]",
        ],
        ["share of posteriors where Adam's point has less than 95 % of it", f"{found.worse:.0%}"],
        ["times longer to choose a point (median)", f"{found.slower:.1f}"],
    ]
    for (data, noise, measure), interval in found.regret.items():
        what = f"{MEASURES[measure]}, Adam over exact: {data}, σ = {noise:g}"
        rows.append([what, f"{interval} ({interval.seeds} seeds)"])
    return ["what", "value"], rows


def _bounds_table(results: Results) -> Table:
    rows = [
        [
            f"{one.data}, σ = {one.noise:g}",
            f"{one.mes_below_rmes:.2%}",
            f"{one.noisy_mes_below_rmes:.2%}",
            f"{one.mes_below_noiseless_rmes:.2%}",
            f"{one.maximum_below_mean:.2%}",
        ]
        for one in bounds(results)
    ]
    header = [
        "problem",
        "MES below RMES",
        "noisy MES below RMES",
        "MES below noiseless RMES",
        "a drawn maximum below the mean",
    ]
    return header, rows


def _cost_table(results: Results) -> Table:
    rows = [
        [one.method, f"{1e3 * one.choice:.0f}", f"{1e3 * one.fit:.0f}", str(one.runs)]
        for one in costs(results)
    ]
    return ["method", "choice of a point (ms)", "hyperparameters (ms)", "runs"], rows


_MARKS = {HOLDS: "#009E73", FAILS: "#D55E00", UNKNOWN: "#666666"}

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: left; }
figure { margin: 2rem 0; } img { max-width: 100%; } figcaption { color: #444; font-size: 0.9rem; }
"""


def _html(
    claims: list[Claim],
    tables: dict[str, Table],
    captions: dict[str, str],
    note: str,
    directory: Path,
) -> str:
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<title>Rectified Max-Value Entropy Search: a reproduction</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Rectified Max-Value Entropy Search: a reproduction</h1>",
        f"<p>{html.escape(note)}</p>",
    ]
    for title, (header, rows) in tables.items():
        out.append(f"<h2>{html.escape(title)}</h2>")
        if title in REMARKS:
            out.append(f"<p>{html.escape(REMARKS[title])}</p>")
        out.append(_html_table(header, rows))
        if title == "Claims":
            for claim in claims:
                out.append(f"<details><summary>Claim {claim.letter}, part by part</summary>")
                parts = [
                    [p.text, str(p.interval or "too few runs"), p.verdict] for p in claim.parts
                ]
                out += [_html_table(["part", "interval", "verdict"], parts), "</details>"]
    out.append("<h2>Figures</h2>")
    for stem, caption in captions.items():
        data = base64.b64encode((directory / f"{stem}.png").read_bytes()).decode()
        name = _name(stem)
        out.append(
            f'<figure><img alt="{name}" src="data:image/png;base64,{data}">'
            f"<figcaption><b>{name}.</b> {html.escape(caption)}</figcaption></figure>"
        )
    return "\n".join([*out, "</body></html>\n"])


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    def cell(text: str) -> str:
        colour = _MARKS.get(text)
        shown = html.escape(text)
        return (
            f'<td style="color:{colour};font-weight:bold">{shown}</td>'
            if colour
            else (f"<td>{shown}</td>")
        )

    head = "".join(f"<th>{html.escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _markdown(
    claims: list[Claim], tables: dict[str, Table], captions: dict[str, str], note: str, folder: str
) -> str:
    out = ["# Rectified Max-Value Entropy Search: a reproduction", "", note, ""]
    out += [
        "Made by `rmes reproduce --report` or `python -m rmes.paper --report`, not by hand. "
        "A small version, `--quick`, takes minutes; `--list` says what there is, and "
        "`--workers` takes a number of processes or the address of a Dask scheduler. "
        f"`--results FILE` names the runs; those of this page are in `{folder}`, if they are "
        "kept with it. Unpacked and named, they are added to: what is missing is run, and "
        "nothing runs twice.",
        "",
    ]
    for title, (header, rows) in tables.items():
        out += [f"## {title}", ""]
        if title in REMARKS:
            out += [REMARKS[title], ""]
        out += [*_markdown_table(header, rows), ""]
    out += ["## Claims, part by part", ""]
    for claim in claims:
        out += [f"### {claim.letter}. {claim.text}", "", f"**{claim.verdict}**", ""]
        out += [*_markdown_table(*_parts_table(claim)), ""]
    out += ["## Figures", ""]
    for stem, caption in captions.items():
        out += [f"![{_name(stem)}]({folder}/{stem}.png)", "", f"**{_name(stem)}.** {caption}", ""]
    return "\n".join(out)


def _markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"

    return [line(header), line(["---"] * len(header)), *(line(row) for row in rows)]


def _name(stem: str) -> str:
    """The name of a figure: "figure-06-median" is "Figure 6, medians"."""
    _, number, *rest = stem.split("-")
    return f"Figure {int(number)}" + (", medians" if rest else "")
