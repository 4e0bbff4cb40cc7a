"""Where to measure next: a pure function from data to a point of the unit cube."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from rmes import gp, maxima
from rmes.choice import candidates, look, pick, unexplained
from rmes.criteria import acquire
from rmes.fit import Fit, fit
from rmes.gp import Posterior
from rmes.maxima import Maxima
from rmes.measurements import Data
from rmes.model import Model
from rmes.multistart import ValueAndGradient
from rmes.settings import Settings, Situation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A point, and what was thought while choosing it.

    Attributes
    ----------
    x : (d,) array
    value : float
        The acquisition there (the logarithm for those in `LOGARITHMS`); RMES to three digits.
    acquisition : str
        The one that chose it; "check" for a value that is measured again to see how noisy it is.
    repeats : int or None
        The row of the data that x repeats, if it does.
    fit : Fit
        The hyperparameters; pass it to the next call for a warm start.
    posterior : Posterior
        The model, given the data and the pending points.
    maxima : Maxima or None
        The draws that the acquisition used.
    """

    x: Array
    value: float
    acquisition: str
    repeats: int | None
    fit: Fit
    posterior: Posterior
    maxima: Maxima | None


def suggest(
    data: Data,
    pending: Array,
    settings: Settings,
    rng: np.random.Generator,
    situation: Situation | None = None,
    warm: Fit | None = None,
) -> Suggestion:
    """Choose where to measure next.

    Parameters
    ----------
    data : Data
        Standardised measurements to maximise, from `rmes.measurements.merge`.
    pending : (q, d) array
        Points that are being measured now. The model is conditioned on them at its own mean, and
        they are not suggested again.
    settings : Settings
    rng : numpy Generator
    situation : Situation, optional
        By default the whole unit cube, nothing failed.
    warm : Fit, optional
        From the last suggestion.
    """
    situation = situation or Situation.plain(data.x.shape[1])
    with small_work(data.size):
        learned = fit(settings.model, data, rng, settings.samples, warm)
        data = learned.seen(data)
        theta = in_turn(data, pending, situation, learned)
        posterior = posterior_given(data, pending, settings.model, theta, situation.noise_at)
        return choose(data, posterior, pending, situation, settings, rng, learned)


def in_turn(data: Data, pending: Array, situation: Situation, learned: Fit) -> Array:
    """Log hyperparameters (S, p) for a suggestion: a sample, in turn; all where some have failed.

    One setting may see nothing left to learn but where measurements fail: on a slope that ends at
    such an edge 4.4 of 8 points failed with one setting, 2.2 with four together (60 runs).
    """
    if len(situation.failed):
        return learned.settings
    return learned.turn(data.count + len(pending))


def posterior_given(
    data: Data,
    pending: Array,
    model: Model,
    theta: Array,
    noise_at: Callable[[Array], Array] | None = None,
) -> Posterior:
    """The posterior for log hyperparameters theta (S, p), conditioned on pending points."""
    posterior = gp.posterior(model, data, theta)
    if len(pending):
        mean, _ = posterior.predict(pending)
        noise = unexplained(data, posterior, noise_at)(pending)
        posterior = posterior.condition(pending, mean, noise)
    return posterior


def choose(
    data: Data,
    posterior: Posterior,
    pending: Array,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
    learned: Fit,
) -> Suggestion:
    """The best feasible point under the acquisition; see `Settings.settle` for the exception."""
    view = look(data, posterior, pending, situation, settings, rng)
    return Suggestion(*pick(view, rng), learned, posterior, view.drawn)


def worth(
    data: Data,
    posterior: Posterior,
    situation: Situation,
    settings: Settings,
    rng: np.random.Generator,
) -> ValueAndGradient:
    """Log RMES of a new measurement, as a function of x: what a map of the information shows."""
    points = candidates(posterior, settings, situation.domain, rng)
    drawn = maxima.from_paths(posterior, settings.maxima, points, situation.domain, rng)
    noise = unexplained(data, posterior, situation.noise_at)
    return acquire("rmes", posterior, noise, drawn, data.size)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def small_work(rows: int) -> AbstractContextManager[object]:
    """One BLAS thread while matrices are small: more of them cost more than they bring.

    Measured on two cores, a suggestion with two threads took 228 ms instead of 100 at 500 rows and
    543 instead of 444 at 1000.
    """
    threads = _threads()
    # Where there is one already, to ask is ten times cheaper than to limit.
    if rows >= 1500 or all(library.num_threads == 1 for library in threads.lib_controllers):
        return nullcontext()
    limited: AbstractContextManager[object] = threads.limit(limits=1)
    return limited
