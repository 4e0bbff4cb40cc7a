"""What several acquisitions choose, and what they say, on one and the same posterior."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes import information
from rmes.choice import new_noise
from rmes.measurements import Data
from rmes.multistart import space_filling
from rmes.settings import Settings, Situation
from rmes.suggest import Suggestion, choose

Array = NDArray[np.float64]

OTHERS = ("mes", "noisy-mes", "noiseless-rmes", "rmes-adam")
_POINTS = 512  # at which values are compared


def compare(
    data: Data,
    found: Suggestion,
    settings: Settings,
    generator: Callable[[], np.random.Generator],
) -> dict[str, Any]:
    """What others choose where RMES chose `found`: same posterior, same draws of the maximum.

    `generator` gives the random generator that the suggestion `found` began with.

    Returns
    -------
    dict
        `chosen`: for each method the point, the posterior mean and standard deviation of f there,
        exact RMES there as a share of the largest found, and the seconds it took.
        `values`: over points that fill the square, mean RMES and mean MES; the shares of points
        where MES < RMES, where noisy MES < RMES, where MES < noiseless RMES and where some drawn
        maximum lies below the posterior mean.
    """
    if found.maxima is None:
        raise ValueError("found has no draws of the maximum; expected a suggestion of RMES")
    drawn = found.maxima.value[0]
    noise = new_noise(data, found.posterior, None)
    dimensions = data.x.shape[1]
    nobody, plain = np.empty((0, dimensions)), Situation.plain(dimensions)
    chosen: dict[str, Any] = {}
    information_at: dict[str, float] = {}
    for name in ("rmes", *OTHERS):
        began = time.perf_counter()
        other = found
        if name != "rmes":
            asked = replace(settings, acquisition=name)
            other = choose(data, found.posterior, nobody, plain, asked, generator(), found.fit)
        seconds = time.perf_counter() - began
        mean, variance = found.posterior.predict(other.x[None])
        level = noise(other.x[None])[0]
        information_at[name] = float(information.rmes(mean[0], variance[0], level, drawn).value[0])
        chosen[name] = {
            "x": [round(float(u), 5) for u in other.x],
            "mean": _short(mean[0, 0]),
            "sd": _short(np.sqrt(variance[0, 0])),
            "seconds": _short(seconds),
        }
    most = max(information_at.values())
    for name, value in information_at.items():
        chosen[name]["share"] = _short(value / most) if most > 0.0 else 1.0
    return {"chosen": chosen, "values": values(found, data)}


def values(found: Suggestion, data: Data) -> dict[str, float]:
    """The four cells of {f, y} × {Gaussian, mixture} on points that fill the square."""
    if found.maxima is None:
        raise ValueError("found has no draws of the maximum; expected a suggestion of RMES")
    drawn = found.maxima.value[0]
    x = space_filling(_POINTS, data.x.shape[1], np.random.default_rng(0))
    mean, variance = (moment[0] for moment in found.posterior.predict(x))
    level = new_noise(data, found.posterior, None)(x)[0]
    exact = information.rmes(mean, variance, level, drawn).value
    plain = information.mes(mean, variance, drawn).value
    noisy = information.noisy_mes(mean, variance, level, drawn).value
    noiseless = information.noiseless_rmes(mean, variance, drawn).value
    return {
        "rmes": _short(np.mean(exact)),
        "mes": _short(np.mean(plain)),
        "mes_below_rmes": _short(np.mean(_below(plain, exact))),
        "noisy_mes_below_rmes": _short(np.mean(_below(noisy, exact))),
        "mes_below_noiseless_rmes": _short(np.mean(_below(plain, noiseless))),
        "maximum_below_mean": _short(np.mean(np.min(drawn) < mean)),
    }


def _below(a: Array, b: Array) -> NDArray[np.bool_]:
    """Where a < b by more than rounding."""
    return np.asarray(a < b - 1e-9 * np.abs(b) - 1e-15)


def _short(value: float | np.floating[Any]) -> float:
    return float(f"{float(value):.4g}")
