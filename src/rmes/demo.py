"""A noisy function whose truth is known: watch the search, then compare the answer with the truth.

Run: rmes demo, make demo or python -m rmes.demo --help   (needs pip install "rmes[plot]")
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray
from tqdm import tqdm

from rmes.optimizer import Optimizer
from rmes.plots import BLUE, GREY, ORANGE, PURPLE
from rmes.report import Outlook, Recommendation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """A function to maximise, and how it is measured.

    Attributes
    ----------
    title : str
    space : dict
        Name -> (low, high).
    truth : callable
        (m, d) points -> (m,) values, without noise.
    optima : (o, d) array
        Where it is largest.
    noise_sd : float
        Standard deviation of the noise; the optimizer is not told.
    budget : int
    """

    title: str
    space: dict[str, tuple[float, float]]
    truth: Callable[[Array], Array]
    optima: Array
    noise_sd: float
    budget: int

    @property
    def optimum(self) -> float:
        """The largest value."""
        return float(self.truth(self.optima[:1])[0])

    def at(self, params: dict[str, Any]) -> float:
        """The true value for one value of each parameter."""
        return float(self.truth(np.array([[params[name] for name in self.space]]))[0])


def _branin(x: Array) -> Array:
    """Branin's function, negated and standardised over its square."""
    x1, x2 = x.T
    valley = (x2 - 5.1 / (4 * np.pi**2) * x1**2 + 5 / np.pi * x1 - 6) ** 2
    branin = valley + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x1) + 10
    return np.asarray((54.31 - branin) / 51.25)


def _forrester(x: Array) -> Array:
    """Forrester's function of one variable, negated."""
    return np.asarray(-((6 * x[:, 0] - 2) ** 2) * np.sin(12 * x[:, 0] - 4))


_SCALES = np.array(
    [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: Array) -> Array:
    """Hartmann's function of six variables, negated: four bumps."""
    distance = np.einsum("kd,mkd->mk", _SCALES, (x[:, None, :] - _CENTRES) ** 2)
    return np.asarray(np.exp(-distance) @ np.array([1.0, 1.2, 3.0, 3.2]))


PROBLEMS = {
    "branin": Problem(
        "Branin's function (in units of its own standard deviation)",
        {"x1": (-5.0, 10.0), "x2": (0.0, 15.0)},
        _branin,
        np.array([[np.pi, 2.275], [-np.pi, 12.275], [3 * np.pi, 2.475]]),
        noise_sd=0.3,
        budget=45,
    ),
    "forrester": Problem(
        "Forrester's function of one variable",
        {"x": (0.0, 1.0)},
        _forrester,
        np.array([[0.757249]]),
        noise_sd=2.0,
        budget=25,
    ),
    "hartmann6": Problem(
        "Hartmann's function of six variables",
        {f"x{i}": (0.0, 1.0) for i in range(1, 7)},
        hartmann,
        np.array([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]]),
        noise_sd=0.2,
        budget=70,
    ),
}


# ---------------------------------------------------------------------- the run


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: the optimizer, and what it said after each measurement.

    `seconds` are those of the suggestions that were computed; the first few points fill the space.
    """

    problem: Problem
    optimizer: Optimizer
    answers: list[Recommendation]
    outlook: Outlook
    seconds: list[float]


def run(problem: Problem, seed: int, say: Callable[[str], object] = print) -> Run:
    """Measure until the budget is spent; say every few measurements where things stand."""
    rng = np.random.default_rng([seed, 1])
    optimizer = Optimizer(problem.space, "maximize", seed=seed)
    answers: list[Recommendation] = []
    seconds: list[float] = []
    every = max(problem.budget // 9, 1)
    say(f"{problem.title}, measured with noise of standard deviation {problem.noise_sd:g}.\n")
    say("measured   value of the recommendation   still to gain   time of a suggestion")
    shape = "{n_fmt}/{total_fmt} |{bar:24}| {desc}"
    with tqdm(total=problem.budget, bar_format=shape, disable=None, leave=False) as bar:
        for number in range(1, problem.budget + 1):
            begin = time.perf_counter()
            trial = optimizer.ask()
            if number > optimizer.initial:
                seconds.append(time.perf_counter() - begin)
            value = problem.at(trial.params) + problem.noise_sd * rng.standard_normal()
            optimizer.tell(trial, value)
            answers.append(optimizer.recommend())
            bar.set_description_str(f"measured {value:.2f} at {_point(trial.params)}")
            bar.update()
            if number % every == 0 or number == problem.budget:
                outlook = optimizer.outlook()
                line = _line(number, answers[-1], outlook, seconds)
                bar.write(line) if say is print else say(line)
    return Run(problem, optimizer, answers, outlook, seconds)


def _line(number: int, answer: Recommendation, outlook: Outlook, seconds: list[float]) -> str:
    low, high = answer.interval
    believed = f"{answer.mean:5.2f} (90 %: {low:5.2f} to {high:5.2f})"
    took = f"{1000 * np.median(seconds[-10:]):5.0f} ms" if seconds else "    –"
    return f"{number:8d}   {believed}     {outlook.expected_gap:9.2f}       {took}"


def summary(done: Run) -> str:
    """What came out beside what is true, in plain words."""
    problem, answer = done.problem, done.answers[-1]
    low, high = answer.interval
    here, there = problem.at(answer.params), problem.at(answer.observed_params)
    inside = "inside" if low <= here <= high else "outside"
    distinct = len({tuple(trial["params"].values()) for trial in done.optimizer.trials})
    places = {1: "", 2: " at two places", 3: " at three places"}[len(problem.optima)]
    better = here - there
    if abs(better) < 0.005:
        verdict = "Here both points are equally good"
    else:
        verdict = f"Here the recommendation is {abs(better):.2f} {_than(better)}"
    promised = answer.observed_value - there
    word = "much" if promised >= 0 else "little"
    verdict += f", and the measurement promised {abs(promised):.2f} too {word}."
    return f"""
Recommendation   {_point(answer.params)}
                 believed {answer.mean:.2f} (90 %: {low:.2f} to {high:.2f}); in truth {here:.2f}
Luckiest draw    {_point(answer.observed_params)}
                 measured {answer.observed_value:.2f}; in truth {there:.2f}
True optimum     {problem.optimum:.2f}{places}; no point can give more
Measurements     {len(done.optimizer.trials)} at {distinct} points, with unknown noise of \
{problem.noise_sd:g}

The recommendation gives {problem.optimum - here:.2f} less than the best possible; its true value \
is {inside} the interval.
Most tools would have handed over the luckiest measurement. {verdict}

What the optimizer says, without knowing the truth:
{answer}
{done.outlook}
"""


def _than(better: float) -> str:
    return "better than the luckiest point" if better > 0 else "worse than the luckiest point"


def _point(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value:.2f}" for name, value in params.items())


# ---------------------------------------------------------------------- the picture

_SIDE = 81  # points along a side of a map
_SLICE = 201
_STYLE: dict[Any, Any] = {"font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left"}
_EDGE: dict[str, Any] = {"edgecolors": "white", "linewidths": 1.2, "zorder": 4, "clip_on": False}
_RECOMMENDED: dict[str, Any] = {"marker": "D", "color": BLUE, "s": 75, **_EDGE}
_LUCKIEST: dict[str, Any] = {"marker": "X", "color": PURPLE, "s": 95, **_EDGE}
_TOP: dict[str, Any] = {"marker": "*", "color": ORANGE, "s": 190, **_EDGE}
_NEXT: dict[str, Any] = {"marker": "s", "color": "black", "s": 60, **_EDGE}
_DOTS: dict[str, Any] = {"facecolors": "white", "edgecolors": "black", "linewidths": 0.8}
_PLAIN: dict[str, Any] = {"frameon": False, "handletextpad": 0.2, "columnspacing": 0.9}


def draw(done: Run) -> Figure:
    """Truth, belief and information; below them, the answer as it became known."""
    count = len(done.problem.space)
    rows = 1 if count <= 3 else 2
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 7 if rows == 1 else 9.6), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[1.32 * rows**0.6, 1])
        above, below = parts
        if count == 2:
            _draw_maps(above, done)
        else:
            _draw_slices(above, done, rows)
        _draw_answers(below.subplots(), done)
        figure.draw_without_rendering()  # here, where the style is known
    return figure


def _following(done: Run) -> dict[str, Any]:
    """Where the next measurement would be made, without making it."""
    again = Optimizer.from_json(done.optimizer.to_json())
    return dict(again.ask().params)


def _draw_maps(figure: FigureBase, done: Run) -> None:
    problem, optimizer, answer = done.problem, done.optimizer, done.answers[-1]
    (name, other), (first, second) = problem.space, problem.space.values()
    across, up = np.linspace(*first, _SIDE), np.linspace(*second, _SIDE)
    x = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    points = [dict(zip(problem.space, row, strict=True)) for row in x.tolist()]
    square = (_SIDE, _SIDE)
    true = problem.truth(x).reshape(square)
    believed = optimizer.predict(points)[0].reshape(square)
    nats = optimizer.information(points).reshape(square)

    axes = left, middle, right = figure.subplots(1, 3, sharex=True, sharey=True)
    low = np.quantile(true, 0.08)
    levels = np.linspace(low, problem.optimum, 15)
    colours: dict[str, Any] = {"levels": levels, "cmap": "viridis", "extend": "both"}
    heights = left.contourf(across, up, true, **colours)
    middle.contourf(across, up, believed, **colours)
    most = nats.max()
    scale = LogNorm(most / 300.0, most)
    told = right.pcolormesh(
        across, up, np.maximum(nats, most / 300.0), norm=scale, cmap="cividis", shading="gouraud",
        rasterized=True,
    )  # fmt: skip

    trials = [tuple(trial["params"].values()) for trial in optimizer.trials]
    places, counts = np.unique(trials, axis=0, return_counts=True)
    left.scatter(*places.T, s=14 * counts, zorder=3, clip_on=False, **_DOTS)
    left.scatter(*problem.optima.T, **_TOP)
    middle.scatter(*problem.optima.T, **_TOP)
    middle.scatter(*answer.observed_params.values(), **_LUCKIEST)
    middle.scatter(*answer.params.values(), **_RECOMMENDED)
    right.scatter(*places.T, s=3 * counts, zorder=3, clip_on=False, color="white", alpha=0.7)
    right.scatter(*_following(done).values(), **_NEXT)
    left.set_title("Truth and measurements")
    middle.set_title("What the model believes")
    right.set_title("Where there is more to learn")
    for axis in axes:
        axis.set(xlabel=name)
        axis.set_box_aspect(1.0)
    left.set_ylabel(other)
    bar = figure.colorbar(heights, ax=[left, middle], location="bottom", aspect=40, pad=0.02)
    bar.set_label("value")
    ticks = np.asarray(MaxNLocator(6).tick_values(low, problem.optimum))
    bar.set_ticks(ticks[(low <= ticks) & (ticks <= problem.optimum)])
    bar = figure.colorbar(told, ax=right, location="bottom", aspect=18, pad=0.02, extend="min")
    bar.set_label("information (RMES), nats")
    bar.ax.xaxis.set_minor_locator(LogLocator(subs=()))
    _legend(
        figure,
        ("measured (larger: repeated)", {"marker": "o", "color": "black", "mfc": "white"}),
        ("true optimum", {"marker": "*", "color": ORANGE, "markersize": 13}),
        ("luckiest draw", {"marker": "X", "color": PURPLE, "markersize": 9}),
        ("recommended", {"marker": "D", "color": BLUE}),
        ("measure here next", {"marker": "s", "color": "black"}),
    )


def _draw_slices(figure: FigureBase, done: Run, rows: int) -> None:
    """Along each parameter through the recommendation: value above, information below."""
    problem, optimizer, answer = done.problem, done.optimizer, done.answers[-1]
    count = len(problem.space)
    cells = np.atleast_1d(np.asarray(figure.subfigures(rows, -(-count // rows)))).ravel()
    following = _following(done)
    curves = []
    for name, bounds in problem.space.items():
        values = np.linspace(*bounds, _SLICE)
        points = [{**answer.params, name: value} for value in values.tolist()]
        x = np.array([[point[key] for key in problem.space] for point in points])
        curves.append((values, problem.truth(x), *optimizer.predict(points)))
    nats = [
        optimizer.information([{**answer.params, name: v} for v in values.tolist()])
        for name, (values, *_) in zip(problem.space, curves, strict=True)
    ]
    top = max(each.max() for each in nats)
    low = min(min(true.min(), (mean - 1.7 * sd).min()) for _, true, mean, sd in curves)
    high = max(max(true.max(), (mean + 1.7 * sd).max()) for _, true, mean, sd in curves)
    for number, (name, cell) in enumerate(zip(problem.space, cells, strict=False)):
        values, true, mean, sd = curves[number]
        upper, lower = cell.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.fill_between(
            values, mean - 1.645 * sd, mean + 1.645 * sd, color=BLUE, alpha=0.2, linewidth=0
        )
        upper.plot(values, mean, color=BLUE, linewidth=2)
        upper.plot(values, true, color=ORANGE, linewidth=2, linestyle="--")
        told = [(t["params"][name], value) for t in optimizer.trials for value in t["values"]]
        places, measured = np.array(told).T
        if count == 1:
            upper.scatter(places, measured, s=18, zorder=3, **_DOTS)
            upper.scatter(answer.observed_params[name], answer.observed_value, **_LUCKIEST)
            high = max(high, measured.max())
        else:
            upper.plot(places, np.full(len(places), low), "|", color=GREY, clip_on=False)
        upper.scatter(answer.params[name], answer.mean, **_RECOMMENDED)
        upper.set_ylim(low - 0.03 * (high - low), high + 0.05 * (high - low))
        lower.fill_between(values, 0.0, 1000 * nats[number], color=GREY, alpha=0.5, linewidth=0)
        if count == 1:
            lower.scatter(following[name], 0.0, **_NEXT)
        lower.set(ylim=(0.0, 1050 * top), xlabel=name, xlim=problem.space[name])
        if number % (-(-count // rows)) == 0:
            upper.set_ylabel("value")
            lower.set_ylabel("0.001 nat")
        for axis in (upper, lower):
            axis.spines[["top", "right"]].set_visible(False)
    entries: list[tuple[str, dict[str, Any]]] = [
        ("truth", {"color": ORANGE, "linestyle": "--", "linewidth": 2}),
        ("believed, 90 %", {"color": BLUE, "linestyle": "-", "linewidth": 2}),
        ("recommended", {"marker": "D", "color": BLUE}),
        ("measured", {"marker": "o" if count == 1 else "|", "color": "black", "mfc": "white"}),
        ("information", {"marker": "s", "color": GREY, "alpha": 0.5, "markersize": 11}),
    ]
    if count == 1:
        entries.insert(4, ("luckiest", {"marker": "X", "color": PURPLE, "markersize": 9}))
        entries.append(("measure next", {"marker": "s", "color": "black"}))
    _legend(figure, *entries)


def _legend(figure: FigureBase, *entries: tuple[str, dict[str, Any]]) -> None:
    plain = {"linestyle": "none", "markersize": 7}
    handles = [Line2D([], [], **{**plain, **style, "label": label}) for label, style in entries]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), **_PLAIN)


def _draw_answers(axis: Axes, done: Run) -> None:
    problem, answers = done.problem, done.answers
    number = np.arange(1, len(answers) + 1)
    low, high = np.array([answer.interval for answer in answers]).T
    mean = [answer.mean for answer in answers]
    true = [problem.at(answer.params) for answer in answers]
    lucky = [answer.observed_value for answer in answers]
    measured = [trial["values"][0] for trial in done.optimizer.trials]
    axis.axhline(problem.optimum, color=ORANGE, linewidth=2)
    axis.fill_between(number, low, high, color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(number, mean, color=BLUE, linewidth=2)
    axis.plot(number, true, color=BLUE, linewidth=1.5, linestyle=(0, (2, 1.5)))
    axis.step(number, lucky, where="post", color=PURPLE, linewidth=2)
    axis.scatter(number, measured, s=16, zorder=3, **_DOTS)
    ceiling = max(*lucky, problem.optimum) + 0.1
    floor = min(np.quantile(measured, 0.2), *true[len(true) // 4 :])
    axis.set_ylim(floor - 0.1 * (ceiling - floor), ceiling + 0.15 * (ceiling - floor))
    axis.set(xlim=(0.5, len(answers) + 0.5), xlabel="measurements", ylabel="value")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_title("The answer as it became known (some measurements lie below)")
    axis.spines[["top", "right"]].set_visible(False)
    ends = [(lucky[-1], "luckiest draw", PURPLE), (problem.optimum, "true optimum", ORANGE)]
    answer = (mean[-1], "recommended:\n— believed, ± 90 %\n··· in truth", BLUE)
    height = axis.get_ylim()[1] - axis.get_ylim()[0]
    free = axis.get_ylim()[1]
    for place, text, colour in [*sorted(ends, reverse=True), answer]:
        half = 0.05 * height * (1 + text.count("\n"))
        middle = min(place, free - half)
        free = middle - half
        axis.annotate(
            text, (1, middle), (8, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", color=colour,
        )  # fmt: skip


# ---------------------------------------------------------------------- the command


def main(
    seed: int = 2,
    *,
    problem: str = "branin",
    noise_sd: float | None = None,
    budget: int | None = None,
    output: str = "demo.png",
) -> None:
    """Run the demo: print how it goes, compare with the truth, draw it."""
    if problem not in PROBLEMS:
        raise ValueError(f"problem is {problem!r}; expected one of {', '.join(PROBLEMS)}")
    if noise_sd is not None and not (np.isfinite(noise_sd) and noise_sd >= 0.0):
        raise ValueError(f"noise_sd is {noise_sd}; expected 0 or more")
    if budget is not None and budget < 1:
        raise ValueError(f"budget is {budget}; expected at least 1")
    chosen = PROBLEMS[problem]
    changed = Problem(
        chosen.title,
        chosen.space,
        chosen.truth,
        chosen.optima,
        chosen.noise_sd if noise_sd is None else noise_sd,
        chosen.budget if budget is None else budget,
    )
    done = run(changed, seed)
    print(summary(done))
    draw(done).savefig(output, dpi=200)
    print(f"The picture is in {output}.")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Those of `main`, from the command line."""
    parser = argparse.ArgumentParser("rmes.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seed", nargs="?", type=int, default=2)
    parser.add_argument("--problem", choices=PROBLEMS, default="branin")
    parser.add_argument("--noise-sd", type=float, help="standard deviation of the noise")
    parser.add_argument("--budget", type=int, help="how many measurements")
    parser.add_argument("--output", default="demo.png", help="the picture, .png, .svg or .pdf")
    return parser.parse_args(given)


if __name__ == "__main__":
    main(**vars(arguments()))
