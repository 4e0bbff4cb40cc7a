"""How well a setting of the hyperparameters explains the data: its evidence, with gradient."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs

from rmes.measurements import LOG_TWO_PI, Data
from rmes.model import (
    NOISE_FLOOR,
    Model,
    covariances,
    distances,
    grouped,
    length_scales,
    levels_of,
    noisy,
)

Array = NDArray[np.float64]


def log_evidence(model: Model, data: Data, theta: Array) -> Array:
    """Log marginal likelihood (m,) at log hyperparameters (m, p); -inf where K is singular."""
    fits, pivots = np.empty(len(theta)), np.ones((len(theta), data.size))
    for row, matrix in covariances(model, data, theta):
        factor, info = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        fits[row] = _misfit(data, factor, pivots[row], info)
    return _log_likelihood(model, data, theta, fits, pivots)


def log_evidence_and_gradient(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    """`log_evidence` (m,) and its gradient (m, p) (Rasmussen & Williams 2006, eq. 5.9).

    Where K is singular the gradient is 0.
    """
    value, gradient = np.empty(len(theta)), np.empty_like(theta)
    for some in grouped(len(theta), 4 * data.size**2):  # as many arrays are at work
        value[some], gradient[some] = _evidence_and_gradient(model, data, theta[some])
    return value, gradient


def _misfit(data: Data, factor: Array, pivots: Array, info: int) -> float:
    """y'K⁻¹y for the lower factor of K, whose diagonal is written; infinite where there is none."""
    if info:
        return np.inf
    pivots[:] = factor.diagonal()
    white, _ = dtrtrs(factor, data.y, lower=1)
    return float(white @ white)


def _log_likelihood(model: Model, data: Data, theta: Array, fits: Array, pivots: Array) -> Array:
    """Log marginal likelihood (m,) from what `_misfit` says of each setting: (m,), (m, n)."""
    roots = np.add.reduce(np.log(pivots), axis=1)
    value = data.constant - 0.5 * data.size * LOG_TWO_PI - 0.5 * fits - roots
    if data.repeats:  # what merged repeats say about the noise
        log_noise = theta[:, length_scales(model, data) + 1]
        value -= 0.5 * (data.repeats * log_noise + data.scatter * np.exp(-log_noise))
    return np.asarray(value)


def _evidence_and_gradient(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    """All settings at once; the gradient is ½ Σ_ij W_ij dK_ij/dθ, with the W of `_weigh`."""
    d, levels = length_scales(model, data), levels_of(model, data, theta)
    correlation, slope = model.kernel.value_and_slope(distances(model, data, theta))
    if levels.main is not None:
        share = levels.main.share[:, 0, 0]
        excess, falls = np.zeros_like(correlation), []
        for single in levels.main.singles(model.kernel, data.x, data.x):
            excess += single.value
            single.slope[:] *= single.distance
            falls.append(single.slope)
        excess /= len(falls)
        excess -= correlation
        correlation += levels.main.share * excess
        slope *= 1.0 - levels.main.share
    covariance = noisy(data, levels, model.mean_variance, correlation)
    fits, pivots, weight = _weigh(data, covariance)
    value, gradient = _log_likelihood(model, data, theta, fits, pivots), np.empty_like(theta)
    # dK_ij/dlog ℓ = -2 v κ'_ij (z_i - z_j)²: one product instead of d
    scales = model.scales(data.x.shape[1])
    z = data.x / np.exp(theta[:, None, scales])
    slope *= weight
    by_column = np.matmul(np.add.reduce(slope, axis=2)[:, None], z * z)[:, 0]
    by_column -= np.einsum("mid,mid->md", z, np.matmul(slope, z))
    by_column *= -2.0 * levels.signal[:, None]
    if model.groups:
        by_column = np.stack([np.bincount(scales, row, d) for row in by_column])
    gradient[:, :d] = by_column
    if levels.main is not None:
        for g, fall in enumerate(falls):  # dK_ij = -2 v (a / G) κ' s, of that group alone
            by_scale = np.einsum("mij,mij->m", fall, weight)
            gradient[:, g] -= levels.signal * share / len(falls) * by_scale
        by_share = 0.5 * levels.signal * np.einsum("mij,mij->m", excess, weight)
        gradient[:, -1] = share * (1.0 - share) * by_share
    diagonal = np.einsum("mii->mi", weight)
    least = NOISE_FLOOR * levels.signal[:, None]
    floor = data.known + levels.grain[:, None] < least
    if data.grainy:
        own = np.where(floor, 0.0, levels.grain[:, None])
        gradient[:, d + 1 + data.infers_noise] = 0.5 * np.vecdot(diagonal, own)
    if data.infers_noise:
        noise = levels.noise[:, None] * data.share
        floor = floor & (noise < least)
        gradient[:, d + 1] = 0.5 * np.vecdot(diagonal, np.where(floor, 0.0, noise))
        gradient[:, d + 1] += 0.5 * (data.scatter / levels.noise - data.repeats)
    by_signal = np.einsum("mij,mij->m", correlation, weight)
    if floor.any():
        by_signal += NOISE_FLOOR * np.vecdot(diagonal, floor)
    gradient[:, d] = 0.5 * levels.signal * by_signal
    gradient[np.isinf(value)] = 0.0
    return value, gradient


def _weigh(data: Data, covariance: Array) -> tuple[Array, Array, Array]:
    """What `_misfit` says, and W = αα' - K⁻¹ (m, n, n); K (m, n, n) is used up."""
    fits, alpha = np.empty(len(covariance)), np.zeros((len(covariance), data.size))
    pivots = np.ones_like(alpha)
    for row, matrix in enumerate(covariance):
        factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
        fits[row] = _misfit(data, factor, pivots[row], info)
        if info:
            matrix[:] = 0.0
            continue
        alpha[row], _ = dpotrs(factor, data.y, lower=1)
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)  # lower triangle; the upper stays 0
        matrix[:] = inverse.T
    weight = alpha[:, :, None] * alpha[:, None, :]
    weight -= covariance
    np.einsum("mii->mi", covariance)[:] = 0.0  # the diagonal has been taken off
    weight -= np.swapaxes(covariance, 1, 2)
    return fits, pivots, weight
