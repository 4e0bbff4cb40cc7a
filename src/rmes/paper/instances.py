"""Posteriors on which MES and RMES disagree, found by a search over seeds: figures 3 and 4."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rmes import gp, information, maxima
from rmes.domain import Domain
from rmes.kernels import SQUARED_EXPONENTIAL, squared_distances
from rmes.measurements import merge
from rmes.model import Model

Array = NDArray[np.float64]

MODEL = Model.paper(SQUARED_EXPONENTIAL)
DATA = 5  # measurements
MAXIMA = 5
SEEDS = 100  # looked at


@dataclass(frozen=True, slots=True)
class Instance:
    """A posterior on [0, 1] and what the two acquisitions make of it.

    Attributes
    ----------
    seed : int
    noise_sd : float
    grid : (m,) array
    x, y : (n,) arrays
        The measurements.
    mean, sd : (m,) arrays
        Of f on the grid.
    drawn : (K,) array
        The draws of the maximum.
    mes, rmes : (m,) arrays
    """

    seed: int
    noise_sd: float
    grid: Array
    x: Array
    y: Array
    mean: Array
    sd: Array
    drawn: Array
    mes: Array
    rmes: Array

    @property
    def choices(self) -> tuple[int, int]:
        """Where on the grid MES and RMES are largest."""
        return int(np.argmax(self.mes)), int(np.argmax(self.rmes))


@dataclass(frozen=True, slots=True)
class Found:
    """The first instance of a kind, and how common the kind and its opposite are."""

    instance: Instance
    share: float
    opposite: float


def instance(seed: int, length_scale: float, noise_sd: float) -> Instance:
    """Measure a draw from the prior at random points; compare the two on its posterior."""
    rng = np.random.default_rng(seed)
    x = rng.random((DATA, 1))
    covariance = SQUARED_EXPONENTIAL.value(squared_distances(x / length_scale, x / length_scale))
    factor = np.linalg.cholesky(covariance + 1e-10 * np.eye(DATA))
    y = factor @ rng.standard_normal(DATA) + noise_sd * rng.standard_normal(DATA)
    data = merge(x, y, noise_sd**2)
    posterior = gp.posterior(MODEL, data, np.log([[length_scale, 1.0]]))
    grid = np.linspace(0.0, 1.0, 251)
    drawn = maxima.from_paths(posterior, MAXIMA, grid[:, None], Domain(1), rng).value[0]
    mean, variance = (moment[0] for moment in posterior.predict(grid[:, None]))
    return Instance(
        seed,
        noise_sd,
        grid,
        x[:, 0],
        y,
        mean,
        np.sqrt(variance),
        drawn,
        information.mes(mean, variance, drawn).value,
        information.rmes(mean, variance, noise_sd**2, drawn).value,
    )


@cache
def over_explores() -> Found:
    """Little noise: MES goes where f is more uncertain and lower than where RMES goes."""
    return _search(0.1, 0.01, 1.0)


@cache
def over_exploits() -> Found:
    """Much noise, a longer scale: MES goes where f is less uncertain and higher."""
    return _search(0.3, 0.5, -1.0)


def _search(length_scale: float, noise_sd: float, sign: float) -> Found:
    """The seed whose choices differ most in the direction of `sign`, and shares of all seeds."""
    all_of_them = [instance(seed, length_scale, noise_sd) for seed in range(SEEDS)]
    kinds = np.array([sign * _kind(one) for one in all_of_them])
    first = all_of_them[int(np.argmax(kinds > 0.0))]
    if not np.any(kinds > 0.0):
        raise RuntimeError(f"none of {SEEDS} seeds shows a difference of this kind")
    return Found(first, float(np.mean(kinds > 0.0)), float(np.mean(kinds < 0.0)))


def _kind(one: Instance) -> float:
    """1 where MES explores more than RMES, clearly, -1 where it exploits more, else 0."""
    theirs, ours = one.choices
    ratio = np.log(one.sd[theirs] / one.sd[ours])
    drop = one.mean[ours] - one.mean[theirs]
    if abs(one.grid[theirs] - one.grid[ours]) > 0.02 and ratio * drop > 0.0 and abs(ratio) > 0.2:
        return float(np.sign(ratio))
    return 0.0
