"""Values as they were told become data as the model sees them: standardised, plain or pressed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rmes.measurements import Data, merge
from rmes.trials import NoiseAt, Record, call_noise_sd
from rmes.units import Units

Array = NDArray[np.float64]


def view(
    records: Sequence[Record], noise_sd: float | NoiseAt | None, direction: str, pressed: bool
) -> tuple[Data, Units]:
    """All values told, standardised to be maximised, and the units to say them in.

    Parameters
    ----------
    records : sequence of Record
        Some of them have values.
    noise_sd : None, number or callable
        What is assumed of the noise of values that were told without it.
    direction : "minimize" or "maximize"
    pressed : bool
        Whether values are pressed together (`rmes.units`).
    """
    told = [record for record in records if record.values]
    values = np.array([value for record in told for value in record.values])
    x = np.array([record.x for record in told for _ in record.values])
    if not x.size:  # all parameters are fixed; the model wants a column
        x = np.zeros((len(values), 1))
    noise = np.array([sd for record in told for sd in _noise_sds(record, noise_sd)])
    known = noise[np.isfinite(noise)]
    least = float(np.median(known)) if len(known) else 0.0
    units = Units.of(values, 1.0 if direction == "maximize" else -1.0, least)
    if pressed:
        units = units.pressed(values)
    z = units.forward(values)
    data = merge(x, z, (noise / units.stretch(z)) ** 2)
    if pressed:  # what is known of the noise is asked for where values are good
        level = float(np.mean((known / units.unit) ** 2)) if len(known) else 0.0
        constant = data.constant + units.log_slope(z)
        data = replace(data, constant=constant, level=level, pressed=True)
    return data, units


def _noise_sds(record: Record, noise_sd: float | NoiseAt | None) -> list[float]:
    """Of each value of a record; NaN where it is to be inferred."""
    default = call_noise_sd(noise_sd, record.trial.params) if callable(noise_sd) else noise_sd
    sds = (default if sd is None else sd for sd in record.noise_sds)
    return [np.nan if sd is None else sd for sd in sds]
