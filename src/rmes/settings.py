"""What a suggestion depends on beside the measurements: how to choose, and among what."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rmes.criteria import ACQUISITIONS
from rmes.domain import Domain
from rmes.model import Model

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a point is chosen. The defaults are meant for everybody.

    Attributes
    ----------
    acquisition : str
        One of `ACQUISITIONS`.
    samples : int
        Settings of the hyperparameters that are carried along, of which suggestions take one each,
        in turn (where some have failed, all); 0 takes the best one alone.
    maxima : int
        Draws of the maximum.
    candidates : int
        Space-filling points that are looked at before the climbs, at most: 64, and as many for
        each coordinate, if that is less.
    climbs : int
        How many of them are climbed from.
    repeats : bool
        Whether to measure a point again that is worth as much as a new one, within 1 %; and, with
        `settle`, the best one where much of all values may be noise, to tell ripples from it.
    settle : bool
        Whether "rmes" leaves such a choice to the knowledge gradient: where more information about
        the maximum is to be had only by measuring a point again, the point is measured that is
        expected to improve the answer most. Information alone would measure one place again and
        again, and learn the value there rather than the way to a better one.
    model : Model
        Predictive entropy search, "pes", has no main effects, whatever the model says.
    """

    acquisition: str = "rmes"
    samples: int = 4
    maxima: int = 5
    candidates: int = 256
    climbs: int = 8
    repeats: bool = True
    settle: bool = True
    model: Model = Model()

    def __post_init__(self) -> None:
        if self.acquisition not in ACQUISITIONS:
            raise ValueError(
                f"acquisition is {self.acquisition!r}; expected one of {', '.join(ACQUISITIONS)}"
            )
        for name, least in (("samples", 0), ("maxima", 1), ("candidates", 1), ("climbs", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")
        if self.acquisition == "pes" and self.model.main_effects:
            object.__setattr__(self, "model", replace(self.model, main_effects=None))


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything beside the measurements that a suggestion depends on.

    Attributes
    ----------
    domain : Domain
        The feasible points.
    failed : (f, d) array
        Points whose measurement failed; their neighbourhood is avoided.
    exact : bool
        Whether measurements have no noise, so that no point is worth repeating.
    noise_at : callable or None
        (m, d) points -> noise variances (m,) of a new measurement there. None: the inferred
        noise variance, or the mean of the known ones where all are known.
    """

    domain: Domain
    failed: Array
    exact: bool = False
    noise_at: Callable[[Array], Array] | None = None

    @staticmethod
    def plain(dimensions: int) -> "Situation":
        """The whole unit cube, nothing failed."""
        return Situation(Domain(dimensions), np.empty((0, dimensions)))
