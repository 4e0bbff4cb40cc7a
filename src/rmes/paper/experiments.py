"""One run of an experiment: a problem, a noise, a method and a seed, measured at each iteration."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rmes
from rmes.answer import best_anywhere
from rmes.domain import Domain
from rmes.fit import Fit
from rmes.kernels import SQUARED_EXPONENTIAL
from rmes.paper.choices import compare
from rmes.paper.likelihood import MODEL, likeliest
from rmes.paper.problems import PAPER, Problem, problem
from rmes.settings import Settings, Situation
from rmes.suggest import choose, posterior_given, small_work

Array = NDArray[np.float64]

METHODS = ("ei", "ucb", "pes", "mes", "rmes")
"""The paper's five."""
EXTRAS = ("noisy-mes", "noiseless-rmes", "log-ei", "rmes-adam")
"""The other cells of the 2 × 2, a better expected improvement, and the paper's estimator."""

ITERATIONS = 100
INITIAL = 2
MAXIMA = 5
# The eggholder has length-scales of 0.03: with 256 points to start from, one draw in four of its
# maximum was more than 0.8 standard deviations too low.
CANDIDATES = 1024
SETTINGS = {
    "initial_points": INITIAL,
    "maxima": MAXIMA,
    "kernel": SQUARED_EXPONENTIAL.name,
    "mean": "zero",
    "hyperparameters": "maximum likelihood",
    "noise": "known",
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """What determines a run.

    Attributes
    ----------
    problem : str
        One of `rmes.paper.problems.NAMES`.
    noise : float
        Standard deviation that the method is told.
    method : str
        One of `METHODS` or `EXTRAS`.
    seed : int
        Of the initial points, of the noise and of the suggestions; the same for all methods.
    iterations : int
    """

    problem: str
    noise: float
    method: str
    seed: int
    iterations: int = ITERATIONS

    def __post_init__(self) -> None:
        known = (*METHODS, *EXTRAS)
        if self.method not in known:
            raise ValueError(f"method is {self.method!r}; expected one of {', '.join(known)}")
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}; expected at least 1")


def experiments(
    names: tuple[str, ...] = PAPER,
    methods: tuple[str, ...] = METHODS,
    seeds: int | None = None,
    iterations: int = ITERATIONS,
) -> list[Experiment]:
    """All runs of some problems, seed by seed: stopped early, it leaves a balanced part.

    `seeds` None takes the paper's number, 15 for synthetic problems and 10 for real ones.
    """
    found = [
        Experiment(name, noise, method, seed, iterations)
        for name in names
        for noise in problem(name).noises
        for method in methods
        for seed in range(problem(name).repeats if seeds is None else seeds)
    ]
    return sorted(found, key=lambda e: e.seed)


def run(experiment: Experiment) -> dict[str, Any]:
    """Run it; return what is known of it as plain numbers.

    The lists `simple_regret`, `inference_regret` have one entry before the first iteration and
    one after each; `x` (the queries, initial points first), `distance` and `y` one for each
    measurement; `seconds` (of the choice of a point) and `fit_seconds` (of the
    hyperparameters before it) one for each iteration. `same_posterior` tells what other
    methods would have chosen: see `rmes.paper.choices`.
    """
    what = problem(experiment.problem)
    # No measured point is preferred to a new one nearby: the paper's methods know no repeats.
    settings = Settings(
        acquisition=experiment.method,
        samples=0,
        maxima=MAXIMA,
        candidates=CANDIDATES,
        repeats=False,
        model=MODEL,
    )
    nobody, plain = np.empty((0, 2)), Situation.plain(2)
    x = _generator(experiment, 0, 0).random((INITIAL, 2))
    y = np.array([_measure(what, experiment, row, i) for i, row in enumerate(x)])
    theta: Array | None = None
    inference: list[float] = []
    seconds: list[float] = []
    fit_seconds: list[float] = []
    same: list[dict[str, Any]] = []
    for t in range(experiment.iterations + 1):
        data = what.told(x, y, experiment.noise)
        began = time.perf_counter()
        with small_work(data.size):
            theta = likeliest(MODEL, data, theta, len(y))
            learned = Fit(theta, np.eye(3), np.empty((0, 3)), data.size)
            posterior = posterior_given(data, nobody, MODEL, learned.settings)
            fitted = time.perf_counter()
            rng = _generator(experiment, 2, t)
            found = choose(data, posterior, nobody, plain, settings, rng, learned)
        ended = time.perf_counter()
        best = best_anywhere(found.posterior, Domain(2), _generator(experiment, 1, t))
        inference.append(float(what.regret(best.x[None])[0]))
        if t == experiment.iterations:
            break
        fit_seconds.append(fitted - began)
        seconds.append(ended - fitted)
        if experiment.method == "rmes" and t in COMPARED:
            fresh = partial(_generator, experiment, 2, t)
            same.append({"iteration": t, **compare(data, found, settings, fresh)})
        x = np.vstack([x, found.x])
        y = np.append(y, _measure(what, experiment, found.x, len(y)))
    regret = np.minimum.accumulate(what.regret(x))[INITIAL - 1 :]
    return {
        **asdict(experiment),
        "data": what.name,
        "version": rmes.__version__,
        "settings": SETTINGS,
        "simple_regret": _rounded(regret),
        "inference_regret": _rounded(inference),
        "x": [[round(float(u), 5) for u in row] for row in x],
        "y": _rounded(y),
        "distance": _rounded(what.distance(x)),
        "seconds": _rounded(seconds, 3),
        "fit_seconds": _rounded(fit_seconds, 3),
        "theta": [] if theta is None else [round(float(v), 3) for v in theta],
        "same_posterior": same,
    }


COMPARED = (3, 8, 18, 38, 78)
"""The iterations at which a run of "rmes" tells what others would choose: 5 to 80 measurements."""


def _measure(what: Problem, experiment: Experiment, x: Array, index: int) -> float:
    return what.measure(x, experiment.noise, _generator(experiment, 3, index))


def _generator(experiment: Experiment, purpose: int, index: int) -> np.random.Generator:
    """A stream that depends on the problem and the seed, not on the method: runs are paired."""
    name = int.from_bytes(experiment.problem.encode(), "little")
    return np.random.default_rng([name, experiment.seed, purpose, index])


def _rounded(values: Any, digits: int = 4) -> list[float]:
    """Numbers with that many significant digits."""
    return [float(f"{float(value):.{digits}g}") for value in values]


def cells(names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """The pairs of problem and noise."""
    for name in names:
        for noise in problem(name).noises:
            yield name, noise
