"""Find the top of a noisy function, and see why the luckiest measurement is not the answer.

The function is Branin's, turned over and standardised: its three equal tops are 1.05 high, and
from place to place it varies with a standard deviation of 1. Every measurement of it carries
noise of standard deviation 0.3, which the optimizer is not told.

The run prints the recommendation beside the truth and draws it in demo.png.

Run: rmes demo   (needs pip install "rmes[cli]")   or   python -m rmes.demo [seed]
"""

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from rmes.optimizer import Optimizer
from rmes.report import Recommendation

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise ImportError('the demo draws with matplotlib: pip install "rmes[plot]"') from error

Array = NDArray[np.float64]

BUDGET = 45
NOISE_SD = 0.3
SPACE = {"x1": (-5.0, 10.0), "x2": (0.0, 15.0)}
TOPS = np.array([[-np.pi, 12.275], [np.pi, 2.275], [3 * np.pi, 2.475]])


def truth(x1: Any, x2: Any) -> Any:
    """Branin's function, negated and standardised over its square."""
    valley = (x2 - 5.1 / (4 * np.pi**2) * x1**2 + 5 / np.pi * x1 - 6) ** 2
    branin = valley + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x1) + 10
    return (54.31 - branin) / 51.25


OPTIMUM = truth(*TOPS[1])


def run(seed: int) -> tuple[Optimizer, list[Recommendation]]:
    """Measure BUDGET times; return the optimizer and the recommendation after each time."""
    rng = np.random.default_rng([seed, 1])
    opt = Optimizer(SPACE, direction="maximize", seed=seed)
    recommendations = []
    seconds = []
    shape = "{n_fmt}/{total_fmt} measured |{bar:12}| {desc}"
    bar = tqdm(range(BUDGET), bar_format=shape, disable=None)  # on a terminal only
    for number in bar:
        begin = time.perf_counter()
        trial = opt.ask()
        seconds.append(time.perf_counter() - begin)
        opt.tell(trial, truth(**trial.params) + NOISE_SD * rng.standard_normal())
        answer = opt.recommend()
        recommendations.append(answer)
        state = f"recommended: {answer.mean:.2f} ± {answer.sd:.2f}"
        if number >= opt.initial:  # the first points fill the space and cost nothing
            state += f", {1000 * np.median(seconds[opt.initial :]):.0f} ms a suggestion"
        bar.set_description_str(state)
        if bar.disable and (number + 1) % 5 == 0:
            print(f"{number + 1:3d} measurements; {state}", flush=True)
    return opt, recommendations


def summary(opt: Optimizer, answer: Recommendation) -> str:
    """What came out beside what is true, in plain words."""
    here = truth(**answer.params)
    lucky = truth(**answer.observed_params)
    low, high = answer.interval
    point = "x1 = {x1:.2f}, x2 = {x2:.2f}".format
    distinct = len({tuple(trial["params"].values()) for trial in opt.trials})
    return f"""
Recommendation   {point(**answer.params)}
                 believed {answer.mean:.2f} (90 %: {low:.2f} to {high:.2f}); in truth {here:.2f}
Luckiest draw    {point(**answer.observed_params)}
                 measured {answer.observed_value:.2f}; in truth {lucky:.2f}
True optimum     {OPTIMUM:.2f}, at three places; no point can give more
Measurements     {len(opt.trials)} at {distinct} points, noise of standard deviation {NOISE_SD}

What the optimizer says, without knowing the truth:
{answer}
{opt.outlook()}
"""


# ---------------------------------------------------------------------- the picture

GRID = 121
ORANGE, BLUE, PURPLE = "#D55E00", "#0072B2", "#AA3377"  # told apart by colour-blind eyes too
RECOMMENDED: dict[str, Any] = {"marker": "D", "color": BLUE, "s": 75}
LUCKIEST: dict[str, Any] = {"marker": "X", "color": PURPLE, "s": 95}
TOP: dict[str, Any] = {"marker": "*", "color": ORANGE, "s": 190}
NEXT: dict[str, Any] = {"marker": "s", "color": "black", "s": 60}
EDGE: dict[str, Any] = {"edgecolors": "white", "linewidths": 1.2, "zorder": 4, "clip_on": False}


def maps(opt: Optimizer) -> tuple[Array, Array, dict[str, Any]]:
    """Posterior mean and information (nats) on the grid, and where to measure next."""
    x1, x2 = (np.linspace(*ends, GRID) for ends in SPACE.values())
    grid = [{"x1": float(one), "x2": float(other)} for other in x2 for one in x1]
    mean, _ = opt.predict(grid)
    information = opt.information(grid)
    following = grid[int(np.argmax(information))]
    return mean.reshape(GRID, GRID), information.reshape(GRID, GRID), following


def draw(opt: Optimizer, recommendations: list[Recommendation], path: str) -> None:
    """Truth, belief and information as maps; below them, the answer as it became known."""
    plt.rcParams.update({"font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left"})
    figure = plt.figure(figsize=(9, 7), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.32, 1])
    above, below = parts
    draw_maps(above, opt, recommendations[-1])
    draw_answers(below.subplots(), opt, recommendations)
    figure.savefig(path, dpi=200)


def draw_maps(figure: Any, opt: Optimizer, answer: Recommendation) -> None:
    """Truth and measurements, belief, information."""
    mean, information, following = maps(opt)
    x1, x2 = (np.linspace(*SPACE[name], GRID) for name in SPACE)
    axes = left, middle, right = figure.subplots(1, 3, sharex=True, sharey=True)
    colours = {"levels": np.arange(-1.6, 1.3, 0.2), "cmap": "viridis", "extend": "both"}
    heights = left.contourf(x1, x2, truth(*np.meshgrid(x1, x2)), **colours)
    middle.contourf(x1, x2, mean, **colours)
    nats = right.contourf(x1, x2, 1000 * information, levels=12, cmap="cividis")

    places, counts = np.unique(
        [tuple(trial["params"].values()) for trial in opt.trials], axis=0, return_counts=True
    )
    measured = {"s": 14 * counts, "facecolors": "white", "edgecolors": "black", "linewidths": 0.8}
    measured |= {"zorder": 3, "clip_on": False}
    left.scatter(*places.T, label="measured (larger: repeated)", **measured)
    left.scatter(*TOPS.T, label="true optimum", **TOP, **EDGE)
    middle.scatter(*TOPS.T, **TOP, **EDGE)
    middle.scatter(*answer.observed_params.values(), label="luckiest draw", **LUCKIEST, **EDGE)
    middle.scatter(*answer.params.values(), label="recommended", **RECOMMENDED, **EDGE)
    right.scatter(*following.values(), label="measure here next", **NEXT, **EDGE)

    left.set_title("Truth and measurements")
    middle.set_title("What the model believes")
    right.set_title("Where there is more to learn")
    for axis in axes:
        axis.set(xlabel="x1", xticks=[-5, 0, 5, 10], yticks=[0, 5, 10, 15], aspect="equal")
    left.set_ylabel("x2")
    for where, shown, aspect, label in (
        ([left, middle], heights, 40, "value, in standard deviations of the function"),
        (right, nats, 18, "information (RMES), 0.001 nat"),
    ):
        bar = figure.colorbar(shown, ax=where, location="bottom", aspect=aspect, pad=0.02)
        bar.set_label(label)
        low, high = shown.get_clim()
        ticks = MaxNLocator(6).tick_values(low, high)
        bar.set_ticks(ticks[(low <= ticks) & (ticks <= high)])
    handles = [handle for axis in axes for handle in axis.get_legend_handles_labels()[0]]
    style = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.2}
    figure.legend(handles=handles, loc="outside upper center", ncols=5, **style)


def draw_answers(axis: Any, opt: Optimizer, recommendations: list[Recommendation]) -> None:
    """The recommendation after each measurement, beside the truth."""
    number = np.arange(1, BUDGET + 1)
    low, high = np.array([answer.interval for answer in recommendations]).T
    axis.axhline(OPTIMUM, color=ORANGE, linewidth=2)
    axis.fill_between(number, low, high, color=BLUE, alpha=0.2, linewidth=0)
    axis.plot(number, [answer.mean for answer in recommendations], color=BLUE, linewidth=2)
    in_truth = [truth(**answer.params) for answer in recommendations]
    axis.plot(number, in_truth, color=BLUE, linewidth=1.5, linestyle=(0, (2, 1.5)))
    lucky = [answer.observed_value for answer in recommendations]
    axis.step(number, lucky, where="post", color=PURPLE, linewidth=2)
    values = [trial["values"][0] for trial in opt.trials]
    dots = {"facecolors": "white", "edgecolors": "black", "linewidths": 0.8}
    axis.scatter(number, values, s=16, zorder=3, **dots)
    axis.set(xlim=(0.5, BUDGET + 0.5), ylim=(-0.5, None), xlabel="measurements", ylabel="value")
    axis.set_title("The answer as it became known (some measurements lie below)")
    axis.spines[["top", "right"]].set_visible(False)
    beside = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    for text, height, colour in (
        ("luckiest draw", lucky[-1], PURPLE),
        ("true optimum", OPTIMUM + 0.05, ORANGE),
        ("recommended:\n— believed, ± 90 %\n··· in truth", 0.55, BLUE),
    ):
        axis.annotate(text, (1, height), (8, 0), color=colour, **beside)


def main(seed: int = 5) -> None:
    """Run, print and draw."""
    opt, recommendations = run(seed)
    print(summary(opt, recommendations[-1]))
    draw(opt, recommendations, "demo.png")
    print("The picture is in demo.png.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
