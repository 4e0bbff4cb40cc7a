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
    noise = np.array(_noise_sds(told, noise_sd), dtype=float)  # NaN for None: to be inferred
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


def _noise_sds(records: Sequence[Record], noise_sd: float | NoiseAt | None) -> list[float | None]:
    """Of each value of the records; None where it is to be inferred."""
    if callable(noise_sd):
        defaults = [call_noise_sd(noise_sd, record.trial.params) for record in records]
        pairs = zip(records, defaults, strict=True)
        return [
            default if sd is None else sd for record, default in pairs for sd in record.noise_sds
        ]
    return [noise_sd if sd is None else sd for record in records for sd in record.noise_sds]
