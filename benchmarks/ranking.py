"""From rows of runs to ranks, ratios and areas, with intervals over paired seeds.

A block is one problem, noise and seed: what all tools met alike. A cell is one problem and noise.
Cells count alike; the bootstrap draws seeds within cells, so an interval says how much the seeds
matter on these problems, not how other problems would turn out: that is what `lead` draws problems
for. Where a cell has too few seeds to draw from, the cells are drawn too, which is wider.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.stats import rankdata

Array = NDArray[np.float64]
Row = dict[str, Any]
Cell = tuple[str, float | str]

FLOOR = 1e-5  # of the spread: regrets below are equal for any purpose
MEASURES = ("answer", "believed", "referee", "sampled")
SEEDS = 3  # fewer in a cell say nothing about their spread
_DRAWS = 2000
_LEVEL = (0.05, 0.95)


def longest(rows: list[Row]) -> list[Row]:
    """One row for each run: the one with the largest budget, the newest of those."""
    best: dict[tuple, Row] = {}
    for row in rows:
        key = row["tool"], row["problem"], row["noise"], row["seed"]
        if key not in best or row["budget"] >= best[key]["budget"]:
            best[key] = row
    return list(best.values())


def at(row: Row, measure: str, budget: int) -> float | None:
    """Regret in units of the spread after `budget` measurements, at least `FLOOR`.

    Infinite for a run that failed; None where the tool has no such answer or the run is shorter.
    "believed" is what the tool documents where it has no posterior mean to offer.
    """
    if row["budget"] < budget:
        return None
    if "error" in row:
        return np.inf
    if measure == "referee":
        value = row["referee"].get(str(budget))
    else:
        if budget not in row["n"]:
            return None
        place = row["n"].index(budget)
        value = row[measure][place]
        if measure == "believed" and value is None:
            value = row["answer"][place]
    return None if value is None else max(value / row["spread"], FLOOR)


def area(row: Row, budget: int, measure: str = "answer") -> float | None:
    """Mean over the run of log10 of the regret in units of the spread, by the trapezoid rule."""
    if row["budget"] < budget:
        return None
    if "error" in row:
        return np.inf
    n = [n for n in row["n"] if n <= budget]
    values = [at(row, measure, look) for look in n]
    if n[-1] != budget or None in values:
        return None
    return float(trapezoid(np.log10(np.array(values)), n) / (n[-1] - n[0]))


def blocks(rows: list[Row], tools: list[str], score: Any) -> dict[Cell, Array]:
    """Scores (seeds, tools) in each cell, of the blocks in which every tool has one."""
    found: dict[Cell, dict[int, dict[str, float]]] = {}
    for row in rows:
        value = score(row)
        if row["tool"] in tools and value is not None:
            cell = found.setdefault((row["problem"], row["noise"]), {})
            cell.setdefault(row["seed"], {})[row["tool"]] = value
    whole = {
        cell: [
            [block[tool] for tool in tools]
            for _, block in sorted(seeds.items())
            if len(block) == len(tools)
        ]
        for cell, seeds in found.items()
    }
    return {cell: np.array(values) for cell, values in whole.items() if values}


def ranks(scores: Array) -> Array:
    """Rank of each tool in each block (seeds, tools): 1 is best, ties share their mean."""
    return np.asarray(rankdata(scores, axis=1))


def bootstrap(cells: list[Array], draws: int = _DRAWS) -> tuple[Array, Array, Array]:
    """Mean over cells of the mean over seeds of (seeds, k) arrays; low and high end, 90 %."""
    rng = np.random.default_rng(0)
    mean = np.mean([cell.mean(axis=0) for cell in cells], axis=0)
    drawn = np.stack(  # (cells, draws, k)
        [cell[rng.integers(len(cell), size=(draws, len(cell)))].mean(axis=1) for cell in cells]
    )
    if min(map(len, cells)) < SEEDS:
        if sum(map(len, cells)) < SEEDS:
            return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
        chosen = rng.integers(len(cells), size=(len(cells), draws))
        drawn = drawn[chosen, np.arange(draws)]
    low, high = np.quantile(drawn.mean(axis=0), _LEVEL, axis=0)
    return mean, low, high


def mean_ranks(scores: dict[Cell, Array]) -> tuple[Array, Array, Array]:
    """Mean rank of each tool, low and high end."""
    return bootstrap([ranks(values) for values in scores.values()])


def lead(scores: dict[Cell, Array], first: int, second: int) -> tuple[float, float, float]:
    """Mean rank of one tool less that of another, with whole problems drawn: how others may do."""
    problems: dict[str, list[Array]] = {}
    for (problem, _), values in scores.items():
        rank = ranks(values)
        problems.setdefault(problem, []).append((rank[:, [first]] - rank[:, [second]]).mean(axis=0))
    mean, low, high = bootstrap([np.mean(cells, axis=0)[None] for cells in problems.values()])
    return float(mean[0]), float(low[0]), float(high[0])


def ratio(ours: Array, theirs: Array) -> tuple[float, float, float]:
    """Geometric mean of ours over theirs on paired seeds, low and high end; 1 is equal."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    if not both.any():
        return np.nan, np.nan, np.nan
    logs = np.log(ours[both] / theirs[both])[:, None]
    mean, low, high = (float(np.exp(value[0])) for value in bootstrap([logs]))
    return mean, low, high
