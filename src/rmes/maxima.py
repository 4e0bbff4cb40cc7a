"""Draws of the maximum value and of its place: the F of the paper."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.domain import Domain
from rmes.gp import Posterior
from rmes.kernels import squared_distances
from rmes.multistart import ValueAndGradient, search
from rmes.normal import log_cdf
from rmes.paths import Paths, draw

Array = NDArray[np.float64]

# In 2 coordinates 64 frequencies leave a bias of -0.05 to -0.09 posterior sd, 128 of -0.01 to
# -0.04, 256 of 0.01 to -0.03; the time for them grows in proportion.
FEATURES = 192


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
    correlation: NDArray[np.float32] | None = None,
    success: ValueAndGradient | None = None,
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
    correlation : (S, m, n) array, optional
        Of the candidates with the data, from `Posterior.screen`, if it is known already.
    success : ValueAndGradient, optional
        Log probability that a measurement at x succeeds. A maximum that cannot be measured is
        none: where success is unlikely, paths are lowered while their tops are sought.
    climbs : int
        Starts for each path.
    features : int
        Frequencies of the prior draw.
    """
    drawn = draw(posterior, count, features, rng)
    if correlation is None:
        correlation = posterior.screen(candidates).correlation
    screened = drawn.screen(candidates, correlation).reshape(posterior.settings * count, -1)
    deviation = float(np.sqrt(np.max(posterior.signal_variance)))
    if success is not None:
        screened = screened + np.float32(deviation) * success(candidates)[0].astype(np.float32)
    scale = np.minimum(posterior.length_scales, 1.0)
    starts, owner = _starts(screened, candidates, scale, count, climbs)

    def along(x: Array, live: NDArray[np.intp]) -> tuple[Array, Array]:
        value, gradient = drawn.along(x, owner[live])
        if success is None:
            return value, gradient
        log_chance, slope = success(x)
        return value + deviation * log_chance, gradient + deviation * slope

    found = search(
        along,
        candidates[starts],
        scale[owner // count],
        _TOLERANCE * deviation,
        domain,
        2 if domain.moving <= 2 else 3 + domain.moving // 3,  # see _TOLERANCE
    )
    order = np.lexsort((-found.value, owner))
    best = order[np.searchsorted(owner[order], np.arange(len(screened)))]
    shape = (posterior.settings, count)
    value = found.value[best]
    if success is not None:
        value, _ = drawn.along(found.x[best], np.arange(len(best)))
    return Maxima(value.reshape(shape), found.x[best].reshape(*shape, -1), drawn)


# Of the signal's standard deviation: what a further step would add. After 2 rounds in 2
# coordinates paths are 2e-3 below their tops on average at 10 rows and 5e-4 at 50, which is less
# than their features leave; after 4 in 5 coordinates 0.013.
_TOLERANCE = 3e-4


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
        scaled = candidates / scale[:, None, :]
        chosen = np.take_along_axis(scaled, pick.reshape(len(scale), count, 1), axis=1)
        near = squared_distances(chosen, scaled) < 0.25
        values[near.reshape(values.shape)] = -np.inf
    return np.stack(picks, axis=1).ravel(), np.repeat(np.arange(paths_count), climbs)


def from_gumbel(posterior: Posterior, count: int, points: Array, rng: np.random.Generator) -> Array:
    """Draws (S, count) of the maximum by a Gumbel fit (Wang & Jegelka 2017, section 3.1).

    The values at the points (m, d) are taken to be independent, and a Gumbel distribution is
    given the quartiles that their maximum would have. Independence makes the draws too large, the
    more so the more points: a shortcut for comparison, not the default.
    """
    mean, variance = posterior.predict(points)
    deviation = np.sqrt(variance)
    lower = np.max(mean, axis=1) - 5.0 * np.max(deviation, axis=1)
    upper = np.max(mean + 8.0 * deviation, axis=1)
    quartiles = np.array([0.25, 0.75])
    low = np.tile(lower, (2, 1))  # (quartile, S)
    high = np.tile(upper, (2, 1))
    for _ in range(60):  # bisection: log Σ log Φ is monotone
        middle = 0.5 * (low + high)
        z = (middle[:, :, None] - mean) / deviation
        below = np.sum(log_cdf(z), axis=2) < np.log(quartiles)[:, None]
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    first, third = 0.5 * (low + high)
    reduced = -np.log(-np.log(quartiles))
    scale = (third - first) / (reduced[1] - reduced[0])
    location = first - scale * reduced[0]
    uniform = rng.random((posterior.settings, count))
    return np.asarray(location[:, None] - scale[:, None] * np.log(-np.log(uniform)))
