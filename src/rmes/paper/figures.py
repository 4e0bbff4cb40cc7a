"""The fifteen figures of the paper from our own runs, and their versions with medians."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.paper import illustrations, instances
from rmes.paper.illustrations import COLOURS, DASHES
from rmes.paper.problems import Problem, grid, problem
from rmes.paper.results import FLOOR, LEVEL, MEASURES, Results

Array = NDArray[np.float64]

FIVE = ("ei", "ucb", "pes", "mes", "rmes")


def draw(results: Results, directory: Path) -> dict[str, str]:
    """Write all figures as SVG and PNG; return the caption of each by the stem of its file."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('the figures need matplotlib: pip install "rmes[plot]"') from error
    directory.mkdir(parents=True, exist_ok=True)
    captions: dict[str, str] = {}
    style: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "rmes",
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(style):
        for stem, (make, caption) in _figures(results).items():
            figure = make(pyplot)
            for suffix in ("svg", "png"):
                # No date in the file: the same runs give the same bytes.
                metadata = {"Date": None} if suffix == "svg" else {"Software": None}
                figure.savefig(directory / f"{stem}.{suffix}", dpi=110, metadata=metadata)
                figure.set_layout_engine("none")  # once is enough, and takes half of the time
            pyplot.close(figure)
            captions[stem] = caption
    return captions


Maker = Callable[[Any], Any]


def _figures(results: Results) -> dict[str, tuple[Maker, str]]:
    explores, exploits = instances.over_explores(), instances.over_exploits()

    def regrets(name: str) -> list[tuple[str, Maker, str]]:
        data = results.data_of(name)
        what = problem(name)
        title = what.title
        cells = [noise for d, noise in results.cells if d == data]
        if data is None:
            return [("", lambda p: _empty(p, f"{title}: no runs yet"), f"{title}: no runs yet.")]
        count = {n: len(results.seeds(data, n, _present(results, data, n))) for n in cells}
        seeds = ", ".join(f"{count[n]} seeds at σ = {n:g}" for n in cells)
        text = f"{title}: log10 of the mean regret against iterations; shaded: {LEVEL:.0%} "
        text += f"bootstrap intervals of the mean over seeds ({seeds})."
        median = f"{title}: the median regret, shaded between the quartiles ({seeds})."
        return [
            ("", lambda p: _regrets(p, results, data, title, cells, median=False), text),
            ("-median", lambda p: _regrets(p, results, data, title, cells, median=True), median),
        ]

    def distances(name: str) -> tuple[Maker, str]:
        what = problem(name)
        text = (
            f"{what.title}: distance of queries to the nearest maximiser, RMES and MES; lines at "
        )
        text += "the means."
        return lambda p: _distances(p, results, name, what), text

    def maps(*names: str) -> tuple[Maker, str]:
        titles = " and ".join(problem(name).title for name in names)
        return lambda p: _maps(p, names), f"{titles}; squares mark the maximisers."

    found: dict[str, tuple[Maker, str]] = {
        "figure-01": (
            illustrations.noise_matters,
            "Left: f and its measurement y before the maximum is known; right: given f* = 0.5. f ~ "
            "N(0, 4), noise N(0, 1). MES takes the entropy of f for that of y.",
        ),
        "figure-02": (
            illustrations.mixture,
            "N(0, 1) and the average of the five normals truncated at 0.7, 0.9, 1, 1.5 and 3: MES "
            "takes the first entropy with the maxima unknown, the second with them drawn.",
        ),
        "figure-03": (
            lambda p: illustrations.disagreement(p, explores.instance),
            illustrations.tell(explores, "explores"),
        ),
        "figure-04": (
            lambda p: illustrations.disagreement(p, exploits.instance),
            illustrations.tell(exploits, "exploits"),
        ),
        "figure-05": maps("branin", "eggholder"),
        "figure-07": distances("branin"),
        "figure-11": maps("gp", "ph"),
        "figure-13": distances("gp"),
        "figure-15": distances("michalewicz"),
    }
    numbers = {"branin": 6, "eggholder": 8, "ph": 9, "svm": 10, "gp": 12, "michalewicz": 14}
    for name, number in numbers.items():
        for suffix, make, caption in regrets(name):
            found[f"figure-{number:02d}{suffix}"] = make, caption
    return dict(sorted(found.items()))


def _empty(pyplot: Any, text: str) -> Any:
    figure, axis = pyplot.subplots(figsize=(4.0, 2.0))
    axis.text(0.5, 0.5, text, ha="center", va="center")
    axis.axis("off")
    return figure


def _maps(pyplot: Any, names: tuple[str, ...]) -> Any:
    figure, axes = pyplot.subplots(1, len(names), figsize=(7.2, 3.1), layout="constrained")
    side = 151
    for axis, name in zip(axes, names, strict=True):
        what = problem(name)
        values = what.truth(grid(side)).reshape(side, side).T
        (first, *x), (second, *y) = what.axes
        image = axis.imshow(values, origin="lower", extent=(*x, *y), aspect="auto", cmap="viridis")
        places = x[0] + what.maximisers[:, 0] * (x[1] - x[0])
        heights = y[0] + what.maximisers[:, 1] * (y[1] - y[0])
        axis.plot(places, heights, "s", mfc="yellow", mec="black", ms=7, clip_on=False)
        axis.set_xlabel(first)
        axis.set_ylabel(second)
        axis.set_title(what.title, fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.9)
    return figure


def _present(results: Results, data: str, noise: float) -> list[str]:
    return [method for method in FIVE if (data, noise, method) in results.runs]


def _regrets(
    pyplot: Any, results: Results, data: str, title: str, cells: list[float], *, median: bool
) -> Any:
    rows = len(cells)
    figure, axes = pyplot.subplots(
        rows, 2, figsize=(7.2, 0.5 + 2.5 * rows), sharex=True, squeeze=False, layout="constrained"
    )
    for row, noise in zip(axes, cells, strict=True):
        methods = _present(results, data, noise)
        seeds = results.seeds(data, noise, methods)
        for axis, (measure, name) in zip(row, MEASURES.items(), strict=True):
            for method in methods:
                curves = results.curves(data, noise, method, measure, seeds)
                if len(curves):
                    _curve(axis, np.maximum(curves, FLOOR), method, median=median)
            axis.set_title(f"{title}, σ = {noise:g}: {name}", fontsize=8.5)
            axis.grid(alpha=0.25, lw=0.5)
            axis.set_ylabel(f"log10 {'median' if median else 'mean'} regret")
        row[0].margins(x=0.01)
    for axis in axes[-1]:
        axis.set_xlabel("iteration")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=5, frameon=False, loc="outside upper center")
    return figure


def _curve(axis: Any, curves: Array, method: str, *, median: bool) -> None:
    steps = np.arange(curves.shape[1])
    if median:
        low, middle, high = np.percentile(curves, [25, 50, 75], axis=0)
    else:
        middle = curves.mean(axis=0)
        rows = np.random.default_rng(0).integers(len(curves), size=(400, len(curves)))
        tail = 50.0 * (1.0 - LEVEL)
        low, high = np.percentile(curves[rows].mean(axis=1), [tail, 100.0 - tail], axis=0)
    colour = COLOURS[method]
    width = 2.0 if method in ("rmes", "mes") else 1.3
    axis.plot(
        steps, np.log10(middle), ls=DASHES[method], color=colour, lw=width, label=method.upper()
    )
    axis.fill_between(steps, np.log10(low), np.log10(high), color=colour, alpha=0.1, lw=0)


def _distances(pyplot: Any, results: Results, name: str, what: Problem) -> Any:
    data = results.data_of(name)
    noises = what.noises
    width = 3.6 * len(noises)
    figure, axes = pyplot.subplots(
        1, len(noises), figsize=(width, 2.7), squeeze=False, layout="constrained"
    )
    for axis, noise in zip(axes[0], noises, strict=True):
        seeds = results.seeds(data, noise, ("rmes", "mes")) if data else []
        axis.set_title(f"{what.title}, σ = {noise:g} ({len(seeds)} seeds)", fontsize=8.5)
        axis.set_xlabel("distance to the nearest maximiser (unit square)")
        axis.set_ylabel("share of queries")
        if not seeds or data is None:
            continue
        both = {m: results.curves(data, noise, m, "distance", seeds) for m in ("rmes", "mes")}
        edges = np.linspace(0.0, max(float(d.max()) for d in both.values()), 21)
        for method, all_of_them in both.items():
            values = all_of_them[:, 2:].ravel()  # without the initial points
            weights = np.full(len(values), 1.0 / len(values))
            axis.hist(
                values,
                edges,
                weights=weights,
                histtype="step",
                lw=1.8,
                ls=DASHES[method],
                color=COLOURS[method],
                label=method.upper(),
            )
            axis.axvline(values.mean(), color=COLOURS[method], lw=1.0, ls=DASHES[method])
        axis.legend(frameon=False)
    return figure
