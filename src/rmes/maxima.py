"""Draws of the maximum value and of its place: the F of the paper."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.domain import Domain
from rmes.gp import Posterior
from rmes.kernels import squared_distances
from rmes.multistart import search
from rmes.paths import Paths, draw

Array = NDArray[np.float64]

# 256 frequencies in 2 coordinates leave a bias of the maximum below 0.02 posterior sd.
FEATURES = 256


@dataclass(frozen=True, slots=True)
class Maxima:
    """P draws for each of S settings: values (S, P), places (S, P, d), and the drawn paths."""

    value: Array
    place: Array
    paths: Paths


def from_paths(
    posterior: Posterior,
    count: int,
    candidates: Array,
    domain: Domain,
    rng: np.random.Generator,
    climbs: int = 2,
    features: int = FEATURES,
) -> Maxima:
    """Maximise `count` posterior paths for each setting, with gradients.

    Parameters
    ----------
    posterior : Posterior
    count : int
    candidates : (m, d) array
        Where the climbs may start: space-filling points, and places known to be good.
    domain : Domain
        Where the maximum is sought; the candidates lie in it.
    rng : numpy Generator
    climbs : int
        Starts for each path.
    features : int
        Frequencies of the prior draw.
    """
    drawn = draw(posterior, count, features, rng)
    screened = drawn.screen(candidates).reshape(posterior.settings * count, -1)
    scale = np.minimum(posterior.length_scales, 1.0)
    starts, owner = _starts(screened, candidates, scale, count, climbs)
    deviation = float(np.sqrt(np.max(posterior.signal_variance)))
    found = search(
        lambda x, live: drawn.along(x, owner[live]),
        candidates[starts],
        scale[owner // count],
        _TOLERANCE * deviation,
        domain,
    )
    order = np.lexsort((-found.value, owner))
    best = order[np.searchsorted(owner[order], np.arange(len(screened)))]
    shape = (posterior.settings, count)
    place = found.x[best].reshape(*shape, -1)
    return Maxima(found.value[best].reshape(shape), place, drawn)


_TOLERANCE = 1e-6  # of the signal's standard deviation: what a further step would add


def _starts(
    screened: NDArray[np.float32], candidates: Array, scale: Array, count: int, climbs: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The best candidates of each path, half a length-scale apart: their numbers and the path's.

    All paths at once: after each pick, what lies close to it is struck out.
    """
    values = screened.copy()
    paths_count = len(values)
    picks = []
    for left in range(climbs, 0, -1):
        pick = np.argmax(values, axis=1)
        picks.append(pick)
        if left == 1:
            break
        for s, unit in enumerate(scale):
            rows = slice(s * count, (s + 1) * count)
            scaled = candidates / unit
            near = squared_distances(scaled[pick[rows]], scaled) < 0.25
            values[rows][near] = -np.inf
    return np.concatenate(picks), np.tile(np.arange(paths_count), climbs)
