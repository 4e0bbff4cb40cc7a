"""The pH field of Broom's Barn farm, or a simulated one: the posterior mean of a fitted process.

The survey (Webster & Oliver 2007) has 435 topsoil samples on a 40 m grid. It is the property of the
Lawes Agricultural Trust and no part of this package: whoever has the file names it in the
environment variable `RMES_BROOMSBARN`. Without it, a field with the published variogram is drawn.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from rmes import gp
from rmes.evidence import log_evidence_and_gradient
from rmes.kernels import SQUARED_EXPONENTIAL
from rmes.measurements import merge
from rmes.model import Model, bounds

Array = NDArray[np.float64]

VARIABLE = "RMES_BROOMSBARN"
SHA256 = "d265001173a5c10f345c91f2628659e6f53ccf2448b986328ba4e66218bb6744"
SHAPE = (18, 31)  # nodes to the east and to the north
SPACING = 40.0  # metres

# What a correct fit to the survey shows: length-scales, signal and noise variance, mean pH, and the
# logarithm of the likelihood.
KNOWN: dict[str, float | tuple[float, ...]] = {
    "length_scales": (0.07497, 0.05685),
    "signal_variance": 0.294442,
    "noise_variance": 0.064765,
    "mean": 7.722299,
    "log_likelihood": -197.56507,
}

_SILL, _RANGE, _MEAN = (
    0.3820,
    90.53,
    7.72,
)  # Webster & Oliver 2007, table 8.2: exponential, no nugget
_DRAW = 1996  # seed of the simulated field


@dataclass(frozen=True, slots=True)
class Field:
    """A fitted field on the unit square, less its mean.

    Attributes
    ----------
    simulated : bool
    mean : float
        The mean pH that was taken off.
    log_likelihood : float
    posterior : Posterior
    """

    simulated: bool
    mean: float
    log_likelihood: float
    posterior: gp.Posterior

    def value(self, x: Array) -> Array:
        """The pH less its mean (m,) at points x (m, 2) of the unit square: east, north."""
        return np.asarray(self.posterior.predict(x)[0][0])


def survey_file() -> Path | None:
    """The user's copy of the survey, if the environment names one."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None


def surveyed(path: Path) -> Field:
    """The field fitted to the survey in `path`; the file and the fit must be the known ones."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(
            f"{path} is not the survey of Broom's Barn: its SHA-256 is {found}; expected {SHA256}"
        )
    rows = np.array([line.split(",") for line in content.decode().split("\n") if line.strip()])
    east, north, ph = rows[:, [0, 1, 4]].astype(float).T
    kept = ph != -9.0
    field = _fitted(_unit(east[kept] - 1.0, north[kept] - 1.0), ph[kept], simulated=False)
    _check(field)
    return field


def simulated() -> Field:
    """A field drawn on the survey's grid with the published variogram, then fitted alike."""
    east, north = (axis.ravel() for axis in np.indices(SHAPE).astype(float))
    place = SPACING * np.column_stack([east, north])
    distance = np.sqrt(np.sum((place[:, None] - place) ** 2, axis=2))
    factor = np.linalg.cholesky(_SILL * np.exp(-distance / _RANGE))
    ph = _MEAN + factor @ np.random.default_rng(_DRAW).standard_normal(len(place))
    return _fitted(_unit(east, north), ph, simulated=True)


def _unit(east: Array, north: Array) -> Array:
    return np.column_stack([east / (SHAPE[0] - 1), north / (SHAPE[1] - 1)])


def _fitted(x: Array, ph: Array, *, simulated: bool) -> Field:
    """Maximum likelihood with inferred noise, climbed from scales of a tenth of the farm."""
    model = Model.paper(SQUARED_EXPONENTIAL)
    mean = float(np.mean(ph))
    data = merge(x, ph - mean)
    variance = float(np.var(ph))
    start = np.log([0.1, 0.1, 0.7 * variance, 0.3 * variance])

    def descent(theta: Array) -> tuple[float, Array]:
        value, gradient = log_evidence_and_gradient(model, data, theta[None])
        return -float(value[0]), -gradient[0]

    box = list(zip(*bounds(model, data), strict=True))
    found = minimize(descent, start, jac=True, method="L-BFGS-B", bounds=box)
    posterior = gp.posterior(model, data, found.x[None])
    return Field(simulated, mean, -float(found.fun), posterior)


def _check(field: Field) -> None:
    shown: dict[str, float | tuple[float, ...]] = {
        "length_scales": tuple(field.posterior.length_scales[0]),
        "signal_variance": field.posterior.signal_variance[0],
        "noise_variance": field.posterior.noise_variance[0],
        "mean": field.mean,
        "log_likelihood": field.log_likelihood,
    }
    for name, expected in KNOWN.items():
        if not np.allclose(shown[name], expected, rtol=2e-4):
            raise ValueError(
                f"the fit to the survey has {name} {shown[name]}; expected {expected}, "
                "so the fit has gone wrong"
            )
