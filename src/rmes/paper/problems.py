"""The objectives of the paper's experiments, each with its noise, its maximum and where that is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from rmes.measurements import Data, merge
from rmes.paper import field, svm

Array = NDArray[np.float64]

Truth = Callable[[Array], Array]
"""Points (m, 2) of the unit square -> values (m,)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A function of the unit square to maximise from noisy measurements.

    Attributes
    ----------
    name, title : str
        In files, and in figures.
    truth : Truth
    measure : callable
        Point (2,), noise sd, random generator -> a measurement.
    noises : tuple of float
        The noise standard deviations of the experiments: what the methods are told.
    maximisers : (k, 2) array
    maximum : float
    shift, scale : float
        The model sees (y - shift) / scale. The shift gives a mean of zero, as in the paper; the
        scale changes nothing but the bounds of the hyperparameters.
    repeats : int
        Seeds in the paper.
    axes : tuple of (str, low, high)
        What the two coordinates are, and between which values they run.
    """

    name: str
    title: str
    truth: Truth
    measure: Callable[[Array, float, np.random.Generator], float]
    noises: tuple[float, ...]
    maximisers: Array
    maximum: float
    shift: float
    scale: float
    repeats: int
    axes: tuple[tuple[str, float, float], tuple[str, float, float]]

    def told(self, x: Array, y: Array, noise: float) -> Data:
        """Measurements y (m,) at x (m, 2) as the model sees them, with their known noise."""
        return merge(x, (y - self.shift) / self.scale, (noise / self.scale) ** 2)

    def regret(self, x: Array) -> Array:
        """Maximum less truth (m,) at points x (m, 2), never negative."""
        return np.asarray(np.maximum(self.maximum - self.truth(x), 0.0))

    def distance(self, x: Array) -> Array:
        """Distance (m,) of points x (m, 2) from the nearest maximiser."""
        gap = x[:, None, :] - self.maximisers
        return np.asarray(np.sqrt(np.min(np.sum(gap**2, axis=2), axis=1)))


def branin(x: Array) -> Array:
    """Branin, negated and scaled to mean 0 and standard deviation 1 (about)."""
    a, b = 15.0 * x[:, 0] - 5.0, 15.0 * x[:, 1]
    bowl = (b - 5.1 * a**2 / (4.0 * np.pi**2) + 5.0 * a / np.pi - 6.0) ** 2
    return np.asarray(-(bowl + (10.0 - 10.0 / (8.0 * np.pi)) * np.cos(a) - 44.81) / 51.95)


def michalewicz(x: Array, steepness: int) -> Array:
    """Σ_i sin(z_i) sin(i z_i² / π)^2m with z = π x; m is the steepness."""
    z = np.pi * x
    order = np.arange(1, x.shape[1] + 1)
    return np.asarray(np.sum(np.sin(z) * np.sin(order * z**2 / np.pi) ** (2 * steepness), axis=1))


def eggholder(x: Array) -> Array:
    """Eggholder, negated and scaled to [-1, 1] by its extremes."""
    a, b = 1024.0 * x[:, 0] - 512.0, 1024.0 * x[:, 1] - 512.0
    first = (b + 47.0) * np.sin(np.sqrt(np.abs(b + 0.5 * a + 47.0)))
    negated = first + a * np.sin(np.sqrt(np.abs(a - b - 47.0)))
    low, high = -1049.13162, 959.64066
    return np.asarray(2.0 * (negated - low) / (high - low) - 1.0)


GP_LENGTH_SCALE = 0.33
"""Of the drawn process, in both coordinates."""


def process_draw(seed: int, length_scale: float = GP_LENGTH_SCALE, features: int = 1000) -> Truth:
    """A draw from a zero-mean process with the squared exponential kernel and variance 1."""
    rng = np.random.default_rng(seed)
    frequencies = rng.standard_normal((features, 2)) / length_scale
    weights = rng.standard_normal((2, features)) / np.sqrt(features)

    def truth(x: Array) -> Array:
        parts = []
        for some in np.array_split(x, 1 + len(x) // 2000):  # in pieces, for the sake of memory
            phase = some @ frequencies.T
            parts.append(np.cos(phase) @ weights[0] + np.sin(phase) @ weights[1])
        return np.concatenate(parts)

    return truth


def grid(side: int) -> Array:
    """Points (side², 2) of a regular grid over the unit square, borders included."""
    axis = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def maximise(truth: Truth, side: int = 201, climbs: int = 20) -> tuple[Array, float]:
    """All maximisers (k, 2) of a function of the unit square, and the maximum.

    The best points of a grid that are no neighbours are climbed from. Ends within 1e-6 of the
    best value are maximisers too (Branin has three).
    """
    points = grid(side)
    values = truth(points)
    starts: list[Array] = []
    for row in np.argsort(-values):
        if all(np.max(np.abs(points[row] - other)) > 0.04 for other in starts):
            starts.append(points[row])
        if len(starts) == climbs:
            break
    ends = []
    for start in starts:
        found = minimize(
            lambda u: -float(truth(u[None])[0]),
            start,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * 2,
            options={"ftol": 1e-15, "gtol": 1e-9},
        )
        ends.append((-float(found.fun), np.asarray(found.x)))
    maximum = max(value for value, _ in ends)
    tops: list[Array] = []
    for value, x in ends:
        if value > maximum - 1e-6 and all(np.max(np.abs(x - top)) > 1e-3 for top in tops):
            tops.append(x)
    return np.array(tops), maximum


PAPER = ("gp", "branin", "michalewicz", "eggholder", "ph", "svm")
"""The six of the paper; `michalewicz-10` is the steeper Michalewicz of the literature."""

NAMES = (*PAPER, "michalewicz-10")

_UNIT = (("$u_1$", 0.0, 1.0), ("$u_2$", 0.0, 1.0))
_DRAW = 6  # seed of the draw from a process


@cache
def problem(name: str) -> Problem:
    """The problem of that name, one of `NAMES`."""
    if name not in NAMES:
        raise ValueError(f"problem is {name!r}; expected one of {', '.join(NAMES)}")
    if name == "svm":
        return _svm()
    if name == "ph":
        return _ph()
    both = (0.01, 0.3)
    if name == "branin":
        axes = (("$x_1$", -5.0, 10.0), ("$x_2$", 0.0, 15.0))
        return _synthetic(name, "Branin", branin, both, 0.0, axes)
    if name == "eggholder":
        axes = (("$x_1$", -512.0, 512.0), ("$x_2$", -512.0, 512.0))
        return _synthetic(name, "Eggholder", eggholder, both, _mean(eggholder), axes)
    if name == "gp":
        return _synthetic(name, "GP sample", process_draw(_DRAW), both, 0.0, _UNIT)
    steepness = 10 if name == "michalewicz-10" else 2
    truth = partial(michalewicz, steepness=steepness)
    axes = (("$x_1$", 0.0, np.pi), ("$x_2$", 0.0, np.pi))
    return _synthetic(name, f"Michalewicz (m = {steepness})", truth, (0.01,), _mean(truth), axes)


def _mean(truth: Truth) -> float:
    return float(np.mean(truth(grid(401))))


def _synthetic(
    name: str,
    title: str,
    truth: Truth,
    noises: tuple[float, ...],
    shift: float,
    axes: tuple[tuple[str, float, float], tuple[str, float, float]],
) -> Problem:
    maximisers, maximum = maximise(truth)
    return Problem(
        name, title, truth, _noisy(truth), noises, maximisers, maximum, shift, 1.0, 15, axes
    )


def _noisy(truth: Truth) -> Callable[[Array, float, np.random.Generator], float]:
    def measure(x: Array, noise_sd: float, rng: np.random.Generator) -> float:
        return float(truth(x[None])[0]) + noise_sd * float(rng.standard_normal())

    return measure


def _ph() -> Problem:
    path = field.survey_file()
    fitted = field.simulated() if path is None else field.surveyed(path)
    kind = "simulated" if fitted.simulated else "Broom's Barn"
    maximisers, maximum = maximise(fitted.value, side=101)
    east, north = (field.SPACING * (nodes - 1) for nodes in field.SHAPE)
    return Problem(
        name="ph-simulated" if fitted.simulated else "ph-broomsbarn",
        title=f"pH field ({kind})",
        truth=fitted.value,
        measure=_noisy(fitted.value),
        noises=(0.25,),
        maximisers=maximisers,
        maximum=maximum,
        shift=0.0,
        scale=1.0,
        repeats=10,
        axes=(("east (m)", 0.0, east), ("north (m)", 0.0, north)),
    )


def _svm() -> Problem:
    table = svm.table()

    def measure(x: Array, _noise_sd: float, rng: np.random.Generator) -> float:
        return table.measure(x, rng.random(2))

    best = np.argwhere(table.truth == table.truth.max())
    return Problem(
        name="svm",
        title="SVM accuracy",
        truth=table.value,
        measure=measure,
        # what the paper states, and what reshuffling does
        noises=(0.02, round(table.noise_sd, 4)),
        maximisers=best / (svm.NODES - 1),
        maximum=float(table.truth.max()),
        shift=float(table.truth.mean()),
        scale=float(table.truth.std()),
        repeats=10,
        axes=(("C", *svm.PENALTY), ("ln γ", *svm.LOG_GAMMA)),
    )
