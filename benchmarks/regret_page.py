"""docs/benchmarks.md and its pictures from the rows of `regret.py`.

python benchmarks/regret_page.py
python benchmarks/regret_page.py --rows other.jsonl --tables      # print the tables only
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peers import TOOLS
from problems import CLASSIC, FRESH, OTHERS, TABLE, Function, all_names, dimensions_of
from ranking import (
    SEEDS,
    Array,
    Cell,
    Row,
    area,
    at,
    blocks,
    bootstrap,
    lead,
    longest,
    mean_ranks,
    ratio,
)
from regret import BUDGETS, INITIAL, ROWS, read_rows
from speed import table

DOCS = Path(__file__).parent.parent / "docs"
OURS = "rmes"
# Okabe and Ito's colours, told apart by all eyes; tools of one family share a colour.
COLOURS = {
    "rmes": "#D55E00",
    "optuna-gp": "#0072B2",
    "optuna-tpe": "#56B4E9",
    "botorch-lognei": "#009E73",
    "bayes-opt": "#CC79A7",
    "skopt": "#E69F00",
    "random": "#777777",
}
DASHES = {"optuna-tpe": (4, 1.5), "bayes-opt": (1, 1), "random": (6, 2, 1, 2), "skopt": (2, 2)}
MEASURE_TITLES = {
    "answer": "The answer each tool's documentation tells a user to take",
    "believed": "The optimum of the tool's posterior mean where it gives one, else its answer",
    "referee": "The same answer for all: our model's, from each tool's measurements",
    "sampled": "The truly best point among those measured, which nobody knows",
}


def tools_in(rows: list[Row]) -> list[str]:
    return [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]


ALL = "all"  # noises of a problem that has too few seeds at each


def noise_text(noise: float | str) -> str:
    if noise == TABLE:
        return "real"
    if noise == ALL:
        return "5 to 50 %"
    return "exact" if noise == 0 else f"{100 * float(noise):g} %"


def in_order(cells: set[Cell]) -> list[Cell]:
    order = all_names()
    return sorted(cells, key=lambda cell: (order.index(cell[0]), str(cell[1])))


def cells_in(rows: list[Row]) -> list[Cell]:
    return in_order({(row["problem"], row["noise"]) for row in rows})


def noisy(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["noise"] != 0]


def exact(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["noise"] == 0]


# Functions that are ranked apart, and what is to be known of them.
APART: dict[str, tuple[dict[str, Function], str]] = {
    "Functions added later": (
        OTHERS,
        "They were added when nearly all defaults had been chosen: fourteen before three of them, "
        "eleven (from Himmelblau's function on) before the last. Those three, the prior that takes "
        "length-scales to be alike, main effects, and values that are pressed together, were "
        "judged on many functions with other seeds, these or near relatives of them included; "
        "that we had lost on some of the fourteen, which are sums over their coordinates, is why "
        "main effects were tried. Grain, too, came after them.",
    ),
    "Functions written down last": (
        FRESH,
        "They were written down when all defaults but one had been chosen, and run once by the "
        "peers. Grain, which tells ripples from noise, came later: that we lost on functions with "
        "many ripples, here on Langermann's and Shubert's, is why it was tried. It was judged on "
        "all functions of this page, with other seeds.",
    ),
}


def usual(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["problem"] not in OTHERS | FRESH]


def apart(rows: list[Row], title: str) -> list[Row]:
    return [row for row in rows if row["problem"] in APART[title][0]]


def interval(mean: float, low: float, high: float, digits: int = 2) -> str:
    text = f"{mean:.{digits}f}"
    if not np.isnan(low):
        text += f" ({low:.{digits}f} to {high:.{digits}f})"
    return text.replace("-", "−")


def comparisons(rows: list[Row], budget: int) -> list[list[str]]:
    """Sets of tools to rank together, the first on most blocks, each next one larger on fewer.

    A tool that ran on nearly all of the blocks that another set has does not cost it a set.
    """
    rows = [row for row in rows if row["budget"] >= budget]
    tools = tools_in(rows)
    ran = {
        tool: {(r["problem"], r["noise"], r["seed"]) for r in rows if r["tool"] == tool}
        for tool in tools
    }
    sets: list[list[str]] = []
    left, shared = {tool for tool in tools if tool != OURS}, ran[OURS]
    while left:
        most = max(len(shared & ran[tool]) for tool in left)
        near = {tool for tool in left if len(shared & ran[tool]) >= 0.9 * most}
        left -= near
        shared = shared.intersection(*(ran[tool] for tool in near))
        sets.append([tool for tool in tools if tool not in left])
    return sets


def rank_tables(rows: list[Row], budget: int) -> list[str]:
    parts = []
    for tools in comparisons(rows, budget):
        if len(tools) < 2:
            continue
        columns = {}
        for measure in MEASURE_TITLES:
            scores = blocks(rows, tools, partial(at, measure=measure, budget=budget))
            if scores:
                columns[measure] = mean_ranks(scores)
        areas = blocks(rows, tools, partial(area, budget=budget))
        if "answer" not in columns:
            continue
        areas = {cell: values for cell, values in areas.items() if np.isfinite(values).all()}
        mean_area = bootstrap(list(areas.values())) if areas else None
        answers = blocks(rows, tools, partial(at, measure="answer", budget=budget))
        seeds = sum(map(len, answers.values()))
        lines = [["tool", *columns, "area"]]
        order = np.argsort(columns["answer"][0])
        for i in order:
            line = [interval(*(part[i] for part in column)) for column in columns.values()]
            shown = interval(*(part[i] for part in mean_area)) if mean_area else "–"
            lines.append([tools[i], *line, shown])
        parts += [
            f"{len(tools)} tools on the {seeds} blocks (problem, noise, seed) that all ran:",
            table(lines),
        ]
        distance = lead(answers, *order[:2])
        if not np.isnan(distance[1]):
            first, second = (tools[i] for i in order[:2])
            parts.append(
                f"Answer of {first} less that of {second}, with whole problems drawn instead of "
                f"seeds: {interval(*distance)}."
            )
    return parts


def noise_tables(rows: list[Row], budget: int) -> list[str]:
    """Mean ranks of the documented answers, one column for each noise."""
    tools = comparisons(rows, budget)[0]
    noises = sorted({row["noise"] for row in rows}, key=str)
    columns = {}
    for noise in noises:
        some = [row for row in rows if row["noise"] == noise]
        scores = blocks(some, tools, partial(at, measure="answer", budget=budget))
        if scores:
            columns[noise_text(noise)] = mean_ranks(scores)
    lines = [["tool", *columns]]
    for i, tool in enumerate(tools):
        lines.append([tool, *(interval(*(p[i] for p in column)) for column in columns.values())])
    return [table(lines)] if columns else []


def against_best(rows: list[Row], budget: int, measure: str) -> list[tuple]:
    """(cell, best peer, ratio, low, high, seeds) of ours over the peer best in that cell.

    Cells of a problem with too few seeds are taken together. They share those seeds, and random
    search its points, so that there is no interval.
    """
    tools = comparisons(rows, budget)[0]
    peers = [tool for tool in tools if not tool.startswith(OURS)]
    found = []
    for cell, values in enough(
        blocks(noisy(rows), [OURS, *peers], partial(at, measure=measure, budget=budget))
    ).items():
        best = int(np.argmin(np.log(values[:, 1:]).mean(axis=0)))
        mean, low, high = ratio(values[:, 0], values[:, 1 + best])
        if cell[1] == ALL:
            low = high = np.nan
        found.append((cell, peers[best], mean, low, high, len(values)))
    return found


def enough(scores: dict[Cell, Array]) -> dict[Cell, Array]:
    """The scores, those of a problem's cells with few seeds as one cell."""
    kept = {cell: values for cell, values in scores.items() if len(values) >= SEEDS}
    for cell, values in scores.items():
        if len(values) < SEEDS:
            joint = cell[0], cell[1] if cell[1] == TABLE else ALL
            kept[joint] = np.concatenate([kept[joint], values]) if joint in kept else values
    return kept


def loss_table(rows: list[Row], budget: int, measure: str) -> list[str]:
    compared = against_best(rows, budget, measure)
    lost = sorted((c for c in compared if c[2] > 1.0), key=lambda c: -c[2])
    sure = sum(c[3] > 1.0 for c in lost)
    text = (
        f"Of {len(compared)} cells (problem and noise, or all noises of a problem with fewer than "
        f"{SEEDS} seeds at each), ours is worse than the best peer of the cell in {len(lost)}, in "
        f"{sure} of them beyond the interval. The peer is chosen after the fact, which favours it."
    )
    if not lost:
        return [text]
    lines = [["problem", "noise", "best peer", "ours / theirs", "runs"]]
    for (name, noise), peer, *numbers, seeds in lost:
        lines.append([name, noise_text(noise), peer, interval(*numbers), str(seeds)])
    return [text, table(lines)]


def cost_table(rows: list[Row]) -> str:
    """Runs, failures, memory and repeats of each tool."""
    lines = [["tool", "runs", "failed", "peak MB", "repeats"]]
    for tool in tools_in(rows):
        mine = [row for row in rows if row["tool"] == tool]
        good = [row for row in mine if "error" not in row]
        rest = ["–", "–"]
        if good:
            rest = [
                f"{np.median([row['peak_mb'] for row in good]):.0f}",
                f"{np.mean([row['repeats'] for row in good]):.1f}",
            ]
        lines.append([tool, str(len(mine)), str(len(mine) - len(good)), *rest])
    return table(lines)


def time_table(rows: list[Row]) -> str:
    """CPU time of a suggestion over ours, for pairs of runs from one checkout on one processor."""
    good = [row for row in rows if "error" not in row]
    ours = {timed_as(row): row["cpu_seconds"][0] for row in good if row["tool"] == OURS}
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for row in good:
        mine = ours.get(timed_as(row))
        if mine is not None:
            size = row["budget"], dimensions_of(row["problem"])
            times = found.setdefault(size, {}).setdefault(row["tool"], [])
            times.append(1e3 * mine if row["tool"] == OURS else row["cpu_seconds"][0] / mine)
    peers = [tool for tool in tools_in(rows) if any(tool in each for each in found.values())]
    peers = [tool for tool in peers if not tool.startswith(OURS) and tool != "random"]
    lines = [["measurements", "d", "rmes, ms", *peers]]
    for (budget, d), times in sorted(found.items()):
        if any(tool in times for tool in peers):
            line = [str(budget), str(d), f"{np.median(times[OURS]):.1f}"]
            for tool in peers:
                ratios = times.get(tool)
                line.append(f"×{np.median(ratios):.1f} ({len(ratios)})" if ratios else "–")
            lines.append(line)
    return table(lines)


def timed_as(row: Row) -> tuple:
    """What two runs have in common whose times may be compared."""
    run = row["commit"], row["cpu_model"]  # on another day the machine is another one
    return row["problem"], row["noise"], row["seed"], row["budget"], *run


def regret_table(rows: list[Row], budget: int) -> str:
    """Median regret of the documented answer in each cell, in units of the spread."""
    tools = tools_in(rows)
    lines = [["problem", "noise", *tools]]
    for name, noise in cells_in(rows):
        line = []
        for tool in tools:
            some = [
                at(row, "answer", budget)
                for row in rows
                if (row["tool"], row["problem"], row["noise"]) == (tool, name, noise)
            ]
            known = [value for value in some if value is not None]
            line.append(f"{np.median(known):.2g} ({len(known)})" if known else "–")
        lines.append([name, noise_text(noise), *line])
    return table(lines)


def tables(rows: list[Row]) -> str:
    """All tables, as Markdown."""
    every = longest(rows)
    rows = usual(every)
    parts = []
    for budget in BUDGETS:
        if not any(row["budget"] >= budget and row["tool"] == OURS for row in rows):
            continue
        parts += [f"## After {budget} measurements", "### Mean ranks on noisy problems"]
        parts += rank_tables(noisy(rows), budget)
        parts += ["Columns, and the regret they rank:"]
        parts += [
            "\n".join(f"- `{key}`: {text}." for key, text in MEASURE_TITLES.items())
            + "\n- `area`: mean over the run of log10(regret of the answer / spread)."
        ]
        if any(row["budget"] >= budget and row["tool"] == OURS for row in exact(rows)):
            parts += ["### Mean ranks without noise", *rank_tables(exact(rows), budget)]
        parts += ["### Mean ranks of the documented answers, by noise"]
        parts += noise_tables(noisy(rows), budget)
        parts += ["### Where we lose: documented answers", *loss_table(rows, budget, "answer")]
        if against_best(rows, budget, "believed") != against_best(rows, budget, "answer"):
            parts += ["### Where we lose: posterior means", *loss_table(rows, budget, "believed")]
        parts += [
            "### Where we lose: the same answer for all",
            *loss_table(rows, budget, "referee"),
        ]
        parts += [
            "### Median regret of the documented answer, in units of the function's spread",
            "In brackets the number of seeds.",
            regret_table(rows, budget),
        ]
    budget = BUDGETS[0]
    for title, (_, text) in APART.items():
        rows = apart(every, title)
        if any(row["tool"] == OURS for row in rows):
            parts += [
                f"## {title}, {budget} measurements",
                text,
                *rank_tables(noisy(rows), budget),
                *loss_table(rows, budget, "answer"),
                regret_table(rows, budget),
            ]
    parts += [
        "## Time, memory, failures",
        cost_table(every),
        "CPU time of a suggestion over ours: the median over pairs of runs of the same problem, "
        "noise, seed and budget, made on the same kind of processor from the same commit, in "
        "brackets how many; and ours.",
        time_table(every),
    ]
    return "\n\n".join(parts)


# Pictures.


def style(tool: str) -> dict[str, Any]:
    kind = {"color": COLOURS.get(tool, "#000000"), "linewidth": 2.2 if tool == OURS else 1.4}
    return kind | ({"dashes": DASHES[tool]} if tool in DASHES else {})


def plain_logarithmic(axis: Any, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """A logarithmic axis with 1, 2, 5, 10 on it, or with other multiples of powers of 10."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def draw_ranks(rows: list[Row], path: Path) -> None:
    """For each budget the two sets of tools with most blocks; then those on other functions.

    Full marks for documented answers, hollow ones for the referee's.
    """
    import matplotlib.pyplot as plt

    groups = [(usual(noisy(rows)), 2, "")]
    groups += [(apart(noisy(rows), title), 1, title.lower()) for title in APART]
    panels = [
        (some, title, budget, tools)
        for some, sets, title in groups
        for budget in BUDGETS
        if any(row["budget"] >= budget and row["tool"] == OURS for row in some)
        for tools in comparisons(some, budget)[:sets]
    ]
    lines = -(-len(panels) // 3)
    size = (11.0, lines * (0.4 * max(len(tools) for *_, tools in panels) + 1.6))
    figure, axes = plt.subplots(lines, 3, figsize=size, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (some, title, budget, tools) in zip(axes.flat, panels, strict=False):
        for measure, face, shift in (("answer", None, -0.12), ("referee", "white", 0.12)):
            scores = blocks(some, tools, partial(at, measure=measure, budget=budget))
            mean, low, high = mean_ranks(scores)
            for i, tool in enumerate(tools):
                colour, place = COLOURS.get(tool, "black"), i + shift
                axis.plot([low[i], high[i]], [place, place], color=colour, linewidth=2)
                axis.plot(mean[i], place, "o", color=colour, markerfacecolor=face or colour)
        count = sum(map(len, scores.values()))
        name = title or f"{len(tools)} tools"
        axis.set_title(f"{name}\n{budget} measurements, {count} runs each", fontsize=11)
        axis.set_xlim(1, len(tools))
        axis.set_yticks(range(len(tools)), tools)
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
        axis.set_xlabel("mean rank (1 is best)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_curves(rows: list[Row], budget: int, path: Path) -> None:
    import matplotlib.pyplot as plt

    cells = [cell for cell in cells_in(rows) if cell[0] in CLASSIC and cell[1] not in (0, TABLE)]
    names = [name for name in CLASSIC if name in {cell[0] for cell in cells}]
    noises = sorted({cell[1] for cell in cells})
    tools = comparisons(noisy(rows), budget)[0]  # those with most runs: more lines say less
    shape = (len(names), len(noises))
    size = (3.4 * shape[1] + 0.5, 2.1 * shape[0] + 0.8)
    figure, axes = plt.subplots(*shape, figsize=size, sharex=True, sharey="row", squeeze=False)
    drawn = {}
    for i, name in enumerate(names):
        for j, noise in enumerate(noises):
            axis = axes[i, j]
            for tool in tools:
                some = [
                    row
                    for row in rows
                    if (row["tool"], row["problem"], row["noise"]) == (tool, name, noise)
                    and row["budget"] >= budget
                    and "error" not in row
                ]
                if some:
                    n = [n for n in some[0]["n"] if n <= budget]
                    values = [[at(row, "answer", look) for look in n] for row in some]
                    (drawn[tool],) = axis.plot(n, np.median(values, axis=0), **style(tool))
            axis.set_yscale("log")
            plain_logarithmic(axis.yaxis)
            axis.grid(alpha=0.25)
            if i == 0:
                axis.set_title(f"noise {noise_text(noise)} of the spread", fontsize=11)
            if j == 0:
                axis.set_ylabel(name, fontsize=11)
            if i == len(names) - 1:
                axis.set_xlabel("measurements")
    figure.legend(drawn.values(), drawn.keys(), loc="upper center", ncols=min(len(drawn), 6))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / size[1]))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_ratios(rows: list[Row], budget: int, path: Path) -> None:
    import matplotlib.pyplot as plt

    panels = {
        "documented answers": against_best(rows, budget, "answer"),
        "same answer for all": against_best(rows, budget, "referee"),
    }
    cells = in_order({cell for found in panels.values() for cell, *_ in found})
    size = (10, 0.3 * len(cells) + 1.4)
    figure, axes = plt.subplots(1, 2, figsize=size, sharey=True, sharex=True)
    for axis, (title, found) in zip(axes, panels.items(), strict=True):
        for cell, _, mean, low, high, _ in found:
            i = cells.index(cell)
            colour = "#D55E00" if low > 1 else "#0072B2" if high < 1 else "#777777"
            axis.plot([low, high], [i, i], color=colour, linewidth=2)
            face = "white" if np.isnan(low) else colour
            axis.plot(mean, i, "o", color=colour, markersize=5, markerfacecolor=face)
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_xscale("log")
        plain_logarithmic(axis.xaxis, (1.0,))
        axis.grid(axis="x", alpha=0.3)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("our regret / best peer's\n← we win          we lose →")
    axes[0].set_yticks(range(len(cells)), [f"{name}, {noise_text(s)}" for name, s in cells])
    axes[0].set_ylim(len(cells) - 0.3, -0.7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


# The page.


def what_was_run(rows: list[Row]) -> str:
    lines = [["tool", "problems", "noises", "seeds", "budget", "runs"]]
    for tool in tools_in(rows):
        mine = [row for row in rows if row["tool"] == tool]
        noises = sorted({row["noise"] for row in mine}, key=str)
        seeds = sorted({row["seed"] for row in mine})
        span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]}"
        budgets = sorted({row["budget"] for row in mine})
        lines.append(
            [
                tool,
                str(len({row["problem"] for row in mine})),
                ", ".join(map(noise_text, noises)),
                span,
                ", ".join(map(str, budgets)),
                str(len(mine)),
            ]
        )
    return table(lines)


def not_run(rows: list[Row]) -> str:
    names = [name for name in all_names() if name not in {row["problem"] for row in rows}]
    tools = [tool for tool in TOOLS if tool not in tools_in(rows)]
    budgets = [b for b in BUDGETS if not any(row["budget"] >= b for row in rows)]
    parts = [
        f"problems {', '.join(names)}" if names else "",
        f"tools {', '.join(tools)}" if tools else "",
        f"{budgets[0]} measurements" if budgets else "",
    ]
    said = "; ".join(part for part in parts if part)
    return f"In the harness but not in these results: {said}." if said else ""


def page(rows: list[Row]) -> str:
    rows = longest(rows)
    budget = BUDGETS[0]
    versions = sorted({f"{k} {v}" for row in rows for k, v in row["versions"].items()})
    machines = sorted({f"{row['cpu_model']}, {row['cores']} logical cores" for row in rows})
    commits = sorted({row["commit"] for row in rows})
    dates = sorted(row["date"][:10] for row in rows)
    loads = [row["load"] for row in rows]
    head = f"""# Benchmarks

True regret beside other tools; time is on [another page](speed.md).

Every tool meets the same problems with the same seeds: it is told the same first {INITIAL} points
(scrambled Sobol), then suggests one point at a time, and the i-th measurement of a run has the
same random number whoever suggested it. Regret is measured without noise. Noise is given as a share
of the function's standard deviation over the box (its spread); regrets are in that unit too, and
those below 1e-5 count as equal. Intervals are 90 %, by bootstrap over the seeds within each cell
(problem and noise): they say how much the seeds matter on these problems, not how other problems
would turn out. Where a cell has fewer than three seeds, the cells are drawn too. Cells count alike.
A failed run ranks last.

![Mean ranks](benchmarks/ranks.png)

Full marks: the answer each tool's documentation tells a user to take. Hollow marks: the same answer
for all, our model's from each tool's measurements, which judges the choice of points alone. A block
is a problem, a noise and a seed; a panel compares tools on the blocks that all of them ran. Only
noisy problems are ranked here. Our defaults were chosen on functions of the same suites with other
seeds; what is to be known of the functions in the last two panels is said below.

![Our regret over that of the best peer in each cell](benchmarks/ratios.png)

Our regret over that of the peer that is best in the cell, chosen after the fact: orange where we
lose beyond the interval, blue where we win beyond it, grey where the seeds do not decide.
Hollow, if any: one or two seeds at each of three noises, and no interval.

![Median regret of the documented answer](benchmarks/curves.png)

Median regret of the documented answer, in units of the spread, over the seeds that a tool ran, for
the tools with most runs.

## What was run

{what_was_run(rows)}

{not_run(rows)}

Each tool with its defaults, as in `benchmarks/peers.py`. Not in the harness: OptunaHub's `gp_mes`,
which is loaded from a repository and not from a package; HEBO, whose requirements (NumPy below
1.25) exclude those of the others.

Rows of {dates[0]} to {dates[-1]}, commit {", ".join(commits)}; {"; ".join(machines)}; one BLAS
thread for each run; load of the machine {min(loads):.1f} to {max(loads):.1f} (median
{np.median(loads):.1f}), so that seconds are indications, and `make bench` is where speed is
measured. {", ".join(versions)}.
"""
    again = """## Again

    make bench-peers                                   # minutes: two problems, tables on the screen
    .bench/venv/bin/python benchmarks/regret.py        # classic functions, 40 measurements, 5 seeds
    .bench/venv/bin/python benchmarks/regret.py --problems others    # those added later
    .bench/venv/bin/python benchmarks/regret.py --problems all --tools all \\
        --noises 0 0.05 0.2 0.5 table --budget 160 --seeds 20      # the whole grid: days
    .bench/venv/bin/python benchmarks/regret_page.py   # this page and its pictures from the rows

Rows are appended to `benchmarks/results/regret.jsonl`; a run that is there is not made again. Each
row holds versions, commit and machine. A tool joins by an adapter in `benchmarks/peers.py`, a
problem by a line in `benchmarks/problems.py`.
"""
    pictures = DOCS / "benchmarks"
    pictures.mkdir(exist_ok=True, parents=True)
    draw_ranks(rows, pictures / "ranks.png")
    draw_ratios(usual(rows), budget, pictures / "ratios.png")
    draw_curves(usual(rows), budget, pictures / "curves.png")
    return f"{head}\n{tables(rows)}\n\n{again}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--tables", action="store_true", help="print the tables, write nothing")
    options = parser.parse_args()
    rows = read_rows(options.rows)
    if options.tables:
        print(tables(rows))
    else:
        (DOCS / "benchmarks.md").write_text(page(rows))


if __name__ == "__main__":
    main()
