"""Pictures of a run: what is believed, where there is more to learn, and how it came about.

Every function takes an `rmes.Optimizer` and draws on the axes given, or on new ones, which it
returns. Colours are told apart by colour-blind eyes and lines are labelled where they are, so that
the pictures also work in grey.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.optimizer import Optimizer
from rmes.report import Recommendation
from rmes.space import Categorical, Integer, Parameter

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.ticker import LogLocator, MaxNLocator
except ImportError as error:
    raise ImportError('rmes.plots needs matplotlib: pip install "rmes[plot]"') from error

Array = NDArray[np.float64]

BLUE, ORANGE, PURPLE, GREY = "#0072B2", "#D55E00", "#AA3377", "#666666"
_GRID = 161  # points along a slice
_PLANE = 35  # points along each side of a plane
_FEW = 12  # levels that are drawn one by one
_STEPS = 32  # recommendations of a convergence: each costs a fit of the model
_DOTS: dict[str, Any] = {"facecolors": "white", "edgecolors": "black", "linewidths": 0.9}
_MARK: dict[str, Any] = {"edgecolors": "white", "linewidths": 1.2, "zorder": 5, "clip_on": False}
_HALO: dict[str, Any] = {
    "boxstyle": "square,pad=0.15",
    "facecolor": "white",
    "edgecolor": "none",
    "alpha": 0.75,
}
_UNITS = {
    **{unit: unit for unit in ("ms", "ns", "sec", "min", "hours", "days", "mg", "kg", "ml", "mM")},
    **{unit: unit for unit in ("nM", "nm", "mm", "cm", "Hz", "kHz", "MHz", "GHz", "mV", "kV")},
    **{unit: unit for unit in ("mA", "kW", "kPa", "MPa", "bar", "rpm", "ppm", "ppb", "dB", "eV")},
    "degC": "°C",
    "celsius": "°C",
    "kelvin": "K",
    "percent": "%",
    "us": "µs",
    "um": "µm",
    "uM": "µM",
    "ul": "µl",
}


def posterior(
    opt: Optimizer, name: str, *, at: dict[str, Any] | None = None, ax: Axes | None = None
) -> Axes:
    """The objective along one parameter, as believed: mean, 90 % band, and the data.

    Parameters
    ----------
    opt : Optimizer
    name : str
        The parameter that moves.
    at : dictionary, optional
        Where the others stay; by default at the recommendation.
    ax : matplotlib Axes, optional

    The bars of the measurements are one standard deviation of their noise, known or inferred.
    Measurements that lie far from the slice in the other parameters are pale.
    """
    parameter = _moving(opt, name)
    answer = opt.recommend()
    at = answer.params if at is None else at
    values = _values(parameter, _GRID)
    mean, sd = opt.predict([{**at, name: value} for value in values])
    ax = _axes(ax)
    place = _places(parameter, values)
    low, high = mean - 1.645 * sd, mean + 1.645 * sd
    if _listed(parameter):
        bars = np.array([mean - low, high - mean])
        ax.errorbar(place, mean, bars, fmt="none", ecolor=BLUE, elinewidth=9, alpha=0.25)
        ax.scatter(place, mean, marker="_", s=240, color=BLUE, linewidths=2.2)
    else:
        ax.fill_between(place, low, high, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(place, mean, color=BLUE, linewidth=2)
    _measured(opt, name, at, ax)
    if at == answer.params:
        _mark(ax, _places(parameter, [at[name]])[0], answer.mean)
    _scale(ax, "x", name, parameter)
    ax.set_ylabel("value")
    _title(ax, opt, at, {name}, "band: believed, 90 %; dots: measured ± noise")
    return _clean(ax)


def _measured(opt: Optimizer, name: str, at: dict[str, Any], ax: Axes) -> None:
    """The measurements beside a slice: with their noise, paler the farther away they are."""
    parameter = opt.space.parameters[name]
    told = [trial for trial in opt.trials if trial["values"]]
    for trial, assumed in zip(told, _assumed_noise(opt, told), strict=True):
        there = opt.space.encode({**trial["params"], name: at[name]})
        distance = float(np.linalg.norm(there - opt.space.encode(at)))
        closeness = float(np.exp(-((distance / 0.25) ** 2)))
        place = _places(parameter, [trial["params"][name]])[0]
        for value, sd in zip(trial["values"], trial["noise_sds"], strict=True):
            ax.errorbar(
                place,
                value,
                assumed if sd is None else sd,
                fmt="o",
                markersize=4.5,
                markerfacecolor="white",
                color="black",
                elinewidth=0.9,
                alpha=0.12 + 0.88 * closeness,
                zorder=3,
            )


def _assumed_noise(opt: Optimizer, told: list[dict[str, Any]]) -> list[float]:
    """Noise of the trials whose measurements came without one: the run's own, or inferred."""
    places = [trial["params"] for trial in told]
    if opt.noise_sd is None:
        return [float(sd) for sd in opt.predict_noise(places)]
    return [opt.noise_sd(p) if callable(opt.noise_sd) else opt.noise_sd for p in places]


def information(
    opt: Optimizer,
    x: str,
    y: str | None = None,
    *,
    at: dict[str, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What a new measurement would tell about the best value: RMES along a slice or on a plane.

    Parameters
    ----------
    opt : Optimizer
    x, y : str
        The parameters that move; without y, a slice along x.
    at : dictionary, optional
        Where the others stay; by default at the recommendation.
    ax : matplotlib Axes, optional
    """
    first = _moving(opt, x)
    answer = opt.recommend()
    at = answer.params if at is None else at
    if y is None:
        values = _values(first, _GRID)
        nats = opt.information([{**at, x: value} for value in values])
        ax = _axes(ax)
        place = _places(first, values)
        if _listed(first):
            ax.bar(place, nats, width=0.6 * _spacing(place), color=ORANGE)
        else:
            ax.fill_between(place, 0.0, nats, color=ORANGE, alpha=0.3, linewidth=0)
            ax.plot(place, nats, color=ORANGE, linewidth=2)
        ax.set_ylim(0.0, None)
        ax.set_ylabel("information of one measurement (nats)")
    else:
        second = _moving(opt, y)
        if x == y:
            raise ValueError(f"x and y are both {x!r}; expected two parameters")
        across, up = _values(first, _PLANE), _values(second, _PLANE)
        nats = opt.information([{**at, x: one, y: other} for other in up for one in across])
        ax = _axes(ax)
        shown = ax.pcolormesh(
            _places(first, across),
            _places(second, up),
            nats.reshape(len(up), len(across)),
            cmap="cividis",
            vmin=0.0,
            shading="nearest" if _listed(first) or _listed(second) else "gouraud",
            rasterized=True,
        )
        ax.figure.colorbar(shown, ax=ax, label="information of one measurement (nats)")
        told = [trial["params"] for trial in opt.trials if trial["values"]]
        right = _places(first, [params[x] for params in told])
        height = _places(second, [params[y] for params in told])
        ax.scatter(right, height, s=16, zorder=3, clip_on=False, **_DOTS)
        if at == answer.params:
            _mark(ax, _places(first, [at[x]])[0], _places(second, [at[y]])[0])
        _scale(ax, "y", y, second)
    _scale(ax, "x", x, first)
    _title(ax, opt, at, {x, y})
    return _clean(ax) if y is None else ax


def convergence(opt: Optimizer, *, ax: Axes | None = None) -> Axes:
    """The recommendation as it became known, with its 90 % interval, above the measurements.

    Trials count in the order of their numbers. The model is learnt anew after each of them (of
    many, after some), by telling the same values to another optimizer.
    """
    numbers, answers = _history(opt)
    ax = _axes(ax)
    low, high = np.array([answer.interval for answer in answers]).T
    mean = [answer.mean for answer in answers]
    ax.fill_between(numbers, low, high, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(numbers, mean, color=BLUE, linewidth=2)
    told = [value for trial in opt.trials for value in trial["values"]]
    best = np.maximum.accumulate if opt.direction == "maximize" else np.minimum.accumulate
    count = np.arange(1, len(told) + 1)
    ax.step(count, best(told), where="post", color=PURPLE, linewidth=1.5, linestyle="--")
    ax.scatter(count, told, s=16, zorder=3, **_DOTS)
    ax.set_xlabel("measurements")
    ax.set_ylabel("value")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = [("believed of the\nrecommendation,\n± 90 %", mean[-1], BLUE)]
    lines.append(("best single\nmeasurement", float(best(told)[-1]), PURPLE))
    _beside(ax, lines)
    return _clean(ax)


def _history(opt: Optimizer) -> tuple[NDArray[np.intp], list[Recommendation]]:
    """Numbers of values told, and what was recommended after them."""
    again = Optimizer(
        opt.space, opt.direction, opt.noise_sd, opt.seed, initial=0, settings=opt.settings
    )
    trials = [trial for trial in opt.trials if trial["values"]]
    if not trials:
        raise ValueError("nothing has been measured yet: tell a value first")
    chosen = set(np.unique(np.linspace(0, len(trials) - 1, _STEPS).round()).astype(int).tolist())
    numbers, answers, told = [], [], 0
    for number, trial in enumerate(trials):
        again.tell(trial["params"], trial["values"], noise_sd=trial["noise_sds"][0])
        told += len(trial["values"])
        if number in chosen:
            numbers.append(told)
            answers.append(again.recommend())
    return np.array(numbers), answers


def optimum(opt: Optimizer, *, ax: Axes | None = None) -> Axes:
    """The best value the objective takes anywhere, as a distribution, beside the recommendation.

    The farther the two lie apart, the more there is still to gain.
    """
    answer, outlook = opt.recommend(), opt.outlook()
    ax = _axes(ax)
    # A few draws may lie so far out that all the others would stand in one bar.
    most = np.quantile(outlook.optima, [0.01, 0.99])
    shown = outlook.optima[(outlook.optima >= most[0]) & (outlook.optima <= most[1])]
    ax.hist(shown, bins="auto", density=True, color=ORANGE, alpha=0.35)
    top = ax.get_ylim()[1]
    low, high = outlook.optimum_interval
    for level, (start, end), middle, colour, text in (
        (1.06, (low, high), float(np.median(outlook.optima)), ORANGE, "true optimum, 90 %"),
        (1.20, answer.interval, answer.mean, BLUE, "value of the recommendation, 90 %"),
    ):
        ax.plot([start, end], [level * top] * 2, color=colour, linewidth=2.5, solid_capstyle="butt")
        ax.scatter([middle], [level * top], color=colour, s=36, zorder=4)
        left, right = ax.get_xlim()
        leftish = start + end < left + right
        ax.annotate(
            text, (start if leftish else end, level * top), (0, 4), textcoords="offset points",
            ha="left" if leftish else "right", color=colour, fontsize="small",
        )  # fmt: skip
    ax.set_ylim(0.0, 1.38 * top)
    ax.set_xlabel("value (of the draws the central 98 %)")
    ax.set_yticks([])
    ax.set_ylabel("probability density")
    _clean(ax).spines["left"].set_visible(False)
    return ax


def trials(opt: Optimizer, *, ax: Axes | None = None) -> Axes:
    """All trials as lines across the parameters, the last column the value.

    Good ones are dark and drawn last; failed trials are dashed, pending ones dotted, and both end
    before the value. The recommendation is blue.
    """
    ax = _axes(ax)
    names = list(opt.space.parameters)
    columns = np.arange(len(names) + 1)
    told = [trial for trial in opt.trials if trial["values"]]
    values = np.array([np.mean(trial["values"]) for trial in told])
    sign = 1.0 if opt.direction == "maximize" else -1.0
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    reach = (high - low) or 1.0
    shade = Normalize(min(sign * low, sign * high), max(sign * low, sign * high))
    colours = plt.get_cmap("viridis_r")
    for trial in opt.trials:
        if not trial["values"]:
            style = (0, (4, 2)) if trial["state"] == "failed" else (0, (1, 1.5))
            heights = _heights(opt, trial["params"])
            ax.plot(columns[:-1], heights, color=GREY, linewidth=1.2, linestyle=style)
    for value, trial in sorted(zip(sign * values, told, strict=True), key=lambda pair: pair[0]):
        heights = [*_heights(opt, trial["params"]), (sign * value - low) / reach]
        colour = colours(0.18 + 0.82 * float(shade(value)))
        ax.plot(columns, heights, color=colour, linewidth=1.3, alpha=0.85)
    if told:
        answer = opt.recommend()
        heights = [*_heights(opt, answer.params), (answer.mean - low) / reach]
        ax.plot(columns, heights, color=BLUE, linewidth=2.6, marker="D", markersize=5, zorder=4)
        ax.annotate(
            "recommended", (columns[-1], heights[-1]), (6, 0), textcoords="offset points",
            color=BLUE, va="center", annotation_clip=False, bbox=_HALO,
        )  # fmt: skip
    for column, name in enumerate(names):
        _ruler(ax, column, opt.space.parameters[name])
    if told:
        for tick in MaxNLocator(5).tick_values(low, high):
            if low - 1e-9 * reach <= tick <= high + 1e-9 * reach:
                _tick(ax, len(names), (tick - low) / reach, f"{tick:.6g}")
    ax.vlines(columns, 0.0, 1.0, color="black", linewidth=0.8, zorder=0)
    ax.set_xticks(columns, [*(label(name) for name in names), "value"])
    ax.set_yticks([])
    ax.set_xlim(-0.15, len(names) + 0.35)
    ax.set_ylim(-0.05, 1.05)
    ax.tick_params(axis="x", length=0)
    ax.spines[:].set_visible(False)
    states = [trial["state"] for trial in opt.trials]
    said = [f"{states.count('measured')} measured (darker: better)"]
    said += [f"{states.count('failed')} failed (dashed)"] * ("failed" in states)
    said += [f"{states.count('pending')} pending (dotted)"] * ("pending" in states)
    ax.set_title(", ".join(said), loc="left", fontsize="small")
    return ax


def overview(opt: Optimizer) -> list[Axes]:
    """All of it on one figure: slices, information, convergence, optimum and trials."""
    names = [name for name in opt.space.parameters if _moves(opt, name)]
    if not names:
        raise ValueError("every parameter has a single value: there is nothing to draw")
    opt.recommend()  # raises where nothing has been measured, before there is a figure
    wide = min(len(names), 4)
    rows = -(-len(names) // wide)
    figure = plt.figure(figsize=(11, 3.0 * rows + 6.6), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=[3.0 * rows, 3.3, 3.3])
    slices = list(np.atleast_1d(parts[0].subplots(rows, wide, sharey=True)).ravel())
    for spare in slices[len(names) :]:
        spare.set_visible(False)
    drawn = [posterior(opt, name, ax=ax) for name, ax in zip(names, slices, strict=False)]
    for number, ax in enumerate(drawn):
        ax.set_title("", loc="left")
        if number % wide:
            ax.set_ylabel("")
    said = "What the model believes (90 %) through the recommendation; dots: measured ± noise"
    parts[0].suptitle(said, x=0.01, ha="left")
    left, middle, right = parts[1].subplots(1, 3, width_ratios=[1.1, 1.1, 1.0])
    drawn.append(information(opt, *names[:2], ax=left))
    drawn.append(convergence(opt, ax=middle))
    drawn.append(optimum(opt, ax=right))
    for ax, title in zip(
        (left, middle, right),
        ("Where there is more to learn", "The answer as it became known", "What is left to gain"),
        strict=True,
    ):
        ax.set_title(title, loc="left", fontsize="medium")
    drawn.append(trials(opt, ax=parts[2].subplots()))
    return drawn


# ---------------------------------------------------------------------- axes


def label(name: str) -> str:
    """How a parameter is written at its axis: a unit at the end of its name goes in brackets.

    >>> label("temperature_degC"), label("dose [mg]"), label("learning_rate")
    ('temperature (°C)', 'dose [mg]', 'learning rate')
    """
    stem, _, unit = name.rpartition("_")
    text = f"{stem} ({_UNITS[unit]})" if stem and unit in _UNITS else name
    return text.replace("_", " ").replace("$", r"\$")


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=(6, 4), layout="constrained")[1] if ax is None else ax


def _clean(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _moving(opt: Optimizer, name: str) -> Parameter:
    known = ", ".join(opt.space.parameters)
    if name not in opt.space.parameters:
        raise ValueError(f"unknown parameter {name!r} (the parameters are {known})")
    if not _moves(opt, name):
        raise ValueError(f"{name!r} has a single value: there is nothing to draw along it")
    return opt.space.parameters[name]


def _moves(opt: Optimizer, name: str) -> bool:
    parameter = opt.space.parameters[name]
    if isinstance(parameter, Categorical):
        return len(parameter.choices) > 1
    return parameter.low < parameter.high


def _listed(parameter: Parameter) -> bool:
    """Whether the levels are few enough to be drawn one by one."""
    if isinstance(parameter, Categorical):
        return True
    step = parameter.step
    return step is not None and (parameter.high - parameter.low) / step < _FEW


def _values(parameter: Parameter, count: int) -> list[Any]:
    """Values from one end of the parameter to the other: all of them, or `count`."""
    if isinstance(parameter, Categorical):
        return list(parameter.choices)
    low, high = parameter.low, parameter.high
    if _listed(parameter):
        levels = int((high - low) / (parameter.step or 1.0) * (1 + 1e-12)) + 1
        grid = low + np.arange(levels) * (parameter.step or 1.0)
    elif parameter.log:
        grid = np.clip(np.geomspace(low, high, count), low, high)
    else:
        grid = np.linspace(low, high, count)
    if isinstance(parameter, Integer):
        steps = {round((x - low) / parameter.step) for x in grid}
        return [int(low + parameter.step * n) for n in sorted(steps)]
    return [float(x) for x in grid]


def _places(parameter: Parameter, values: Sequence[Any]) -> Array:
    """Where values are on an axis: numbers are themselves, categories have a number."""
    if isinstance(parameter, Categorical):
        return np.array([float(parameter.choices.index(value)) for value in values])
    return np.array(values, dtype=float)


def _spacing(place: Array) -> float:
    return float(np.min(np.diff(place))) if len(place) > 1 else 1.0


def _scale(ax: Axes, side: str, name: str, parameter: Parameter) -> None:
    """Label, scale and ticks of the x or the y axis."""
    axis = ax.xaxis if side == "x" else ax.yaxis
    axis.set_label_text(label(name))
    if isinstance(parameter, Categorical):
        count = len(parameter.choices)
        axis.set_ticks(range(count), [str(choice) for choice in parameter.choices])
        ax.set(**{f"{side}lim": (-0.5, count - 0.5)})
    elif parameter.log:
        ax.set(**{f"{side}scale": "log"})
    elif isinstance(parameter, Integer):
        axis.set_major_locator(MaxNLocator(integer=True))


def _mark(ax: Axes, x: float, y: float) -> None:
    """The recommendation, named where it is."""
    ax.scatter([x], [y], marker="D", s=60, color=BLUE, **_MARK)
    ax.annotate(
        "recommended", (x, y), (0, 9), textcoords="offset points", ha="center", va="bottom",
        color=BLUE, fontsize="small", bbox=_HALO, zorder=6,
    )  # fmt: skip


def _title(
    ax: Axes, opt: Optimizer, at: dict[str, Any], drawn: set[str | None], note: str = ""
) -> None:
    """Where the parameters that are not drawn stay, and a note."""
    others = {key: value for key, value in at.items() if key not in drawn and _moves(opt, key)}
    lines = textwrap.wrap(f"at {_said(others)}", 72)[:2] if others else []
    ax.set_title("\n".join([*lines, note]).strip(), loc="left", fontsize="small")


def _beside(ax: Axes, lines: list[tuple[str, float, str]]) -> None:
    """Two labels at the right ends of lines, pushed apart where they would overlap."""
    low, high = ax.get_ylim()
    (below, first, dark), (above, second, light) = sorted(lines, key=lambda line: line[1])
    reach = high - low
    first = max(min(first, second - 0.25 * reach, low + 0.65 * reach), low + 0.08 * reach)
    second = min(max(second, first + 0.25 * reach), low + 0.95 * reach)
    for text, height, colour in ((below, first, dark), (above, second, light)):
        ax.annotate(
            text, (1, height), (6, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", color=colour, fontsize="small",
        )  # fmt: skip


def _height(parameter: Parameter, value: Any) -> float:
    """Where a value is on its ruler, from 0 to 1."""
    if isinstance(parameter, Categorical):
        last = len(parameter.choices) - 1
        return parameter.choices.index(value) / last if last else 0.5
    low, high = float(parameter.low), float(parameter.high)
    if low == high:
        return 0.5
    if parameter.log:
        low, high, value = np.log(low), np.log(high), np.log(value)
    return float((value - low) / (high - low))


def _heights(opt: Optimizer, params: dict[str, Any]) -> list[float]:
    return [_height(opt.space.parameters[name], value) for name, value in params.items()]


def _ruler(ax: Axes, column: int, parameter: Parameter) -> None:
    """Ticks of one parameter beside its column."""
    if isinstance(parameter, Categorical):
        shown: list[Any] = list(parameter.choices)
    elif parameter.log:
        ticks = LogLocator(numticks=6).tick_values(parameter.low, parameter.high)
        shown = [tick for tick in ticks if parameter.low <= tick <= parameter.high]
        shown = shown if len(shown) > 1 else [parameter.low, parameter.high]
    else:
        linear = MaxNLocator(5, integer=isinstance(parameter, Integer))
        ticks = linear.tick_values(parameter.low, parameter.high)
        shown = [tick for tick in ticks if parameter.low <= tick <= parameter.high]
    for value in shown:
        said = f"{value:.6g}" if isinstance(value, float) else str(value)
        _tick(ax, column, _height(parameter, value), said)


def _tick(ax: Axes, column: int, height: float, text: str) -> None:
    ax.plot([column - 0.015, column + 0.015], [height] * 2, color="black", linewidth=0.8)
    ax.annotate(
        text, (column, height), (-5, 0), textcoords="offset points", ha="right", va="center",
        fontsize="x-small", bbox=_HALO,
    )  # fmt: skip


def _said(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{label(name)} = {value:.3g}" if isinstance(value, float) else f"{label(name)} = {value}"
        for name, value in params.items()
    )
