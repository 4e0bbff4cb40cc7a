"""Exact Gaussian-process regression: evidence, posterior, moments, all with gradients.

Notation (n rows of data, d coordinates, S settings of the hyperparameters):

    ℓ, v, τ²   length-scales (S, d), signal variance (S,), inferred noise variance (S,)
    a          share of main effects in the signal variance (S,), where there are any
    K          v κ(X, X) + b² + diag(noise), (S, n, n); b² is the prior variance of the mean
    L          Cholesky factor of K;  L⁻¹ is kept, since moments then cost matrix products only
    α          K⁻¹ y, (S, n)

A constant mean with prior N(0, b²) is integrated out exactly by adding b² to the kernel; b = 0 is
the zero mean of the paper. Every posterior carries S settings, one of them or several to
average over: settings first, points next, coordinates last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri, dtrtrs
from scipy.special import expit

from rmes.kernels import MATERN52, Correlation, Kernel, MainEffects, correlate, squared_distances
from rmes.measurements import LOG_TWO_PI, Data

Array = NDArray[np.float64]
Single = NDArray[np.float32]

# The least noise variance in units of the signal variance. Below it the factor of K is rounding
# error: the smallest eigenvalues of a smooth kernel on n = 1000 points are about n ε ≈ 2e-13.
NOISE_FLOOR = 1e-9


class LogNormal(NamedTuple):
    """A log-normal prior: median and standard deviation of the logarithm (inf: flat)."""

    median: float
    spread: float


@dataclass(frozen=True, slots=True)
class Model:
    """What is assumed before any measurement.

    The defaults suit standardised y on the unit cube. `paper` gives the paper's protocol.

    Attributes
    ----------
    kernel : Kernel
    mean_variance : float
        Prior variance b² of the constant mean; 0 is a zero mean.
    length_scale, signal_variance, noise_variance : LogNormal
        Priors. The median of the length-scales grows with √d, as distances do, up to d = 4. They
        are not independent: see `prior`.
    main_effects : LogNormal or None
        Prior of the odds a / (1 - a) of main effects, the part of the function that is a sum of
        functions of one parameter each. The fit decides whether there is any; None: there is not.
    groups : tuple of int
        The length-scale that each column of x uses, numbered from 0; () gives each its own. The
        columns of a category share one.
    """

    kernel: Kernel = MATERN52
    mean_variance: float = 1.0
    length_scale: LogNormal = LogNormal(0.4, 1.0)
    signal_variance: LogNormal = LogNormal(1.0, 1.0)
    noise_variance: LogNormal = LogNormal(0.03, 2.0)
    main_effects: LogNormal | None = LogNormal(1.0, 1.5)
    groups: tuple[int, ...] = ()

    def scales(self, columns: int) -> NDArray[np.intp]:
        """Which length-scale each of the columns of x uses."""
        return np.array(self.groups) if self.groups else np.arange(columns)

    @staticmethod
    def paper(kernel: Kernel) -> "Model":
        """Zero mean and flat priors: fitting is maximum likelihood within the bounds."""
        flat = LogNormal(1.0, np.inf)
        return Model(kernel, 0.0, flat, flat, flat, main_effects=None)


@cache
def _alone(model: Model, columns: int) -> tuple[tuple[int, ...], ...]:
    """The columns of x that have a main effect together: those of one length-scale."""
    scales = model.scales(columns)
    return tuple(tuple(np.flatnonzero(scales == g).tolist()) for g in range(scales.max() + 1))


# The box of log hyperparameters: length-scales, signal variance, noise variance, odds of main
# effects. Beyond it the model is white noise or a constant, or has only main effects or none, and a
# factor more changes nothing that can be measured.
_BOUNDS = np.log([[5e-3, 2e2], [1e-4, 1e4], [1e-8, 1e2], [3e-3, 3e2]])


def bounds(model: Model, data: Data, main: bool = False) -> tuple[Array, Array]:
    """Bounds (p,), (p,) of the log hyperparameters.

    In this order: length-scales, signal variance, noise variance if it is inferred, odds of main
    effects if there are any.
    """
    kinds = [0] * length_scales(model, data) + [1] + [2] * data.infers_noise + [3] * main
    return _BOUNDS[kinds, 0], _BOUNDS[kinds, 1]


def length_scales(model: Model, data: Data) -> int:
    """Number of length-scales."""
    return max(model.groups) + 1 if model.groups else data.x.shape[1]


def _has_main(model: Model, data: Data, theta: Array) -> bool:
    """Whether the last of the log hyperparameters (m, p) is the odds of main effects."""
    return bool(theta.shape[1] > length_scales(model, data) + 1 + data.infers_noise)


class _Levels(NamedTuple):
    """All but the length-scales of m settings: variances (m,) of signal and noise, main effects."""

    signal: Array
    noise: Array
    main: MainEffects | None


def _levels(model: Model, data: Data, theta: Array) -> _Levels:
    """What log hyperparameters (m, p) stand for."""
    d = length_scales(model, data)
    noise = np.exp(theta[:, d + 1]) if data.infers_noise else np.zeros(len(theta))
    main = None
    if _has_main(model, data, theta):
        columns = data.x.shape[1]
        precision = np.exp(-2.0 * theta[:, None, model.scales(columns)])
        main = MainEffects(expit(theta[:, -1])[:, None, None], precision, _alone(model, columns))
    return _Levels(np.exp(theta[:, d]), noise, main)


# Length-scales of one function are alike: so much of the prior variance of their logarithms is
# common to all of them. What is left is each one's own, and few data cannot tell more than _FREE of
# them apart. After 40 measurements independent ones left 1.14 times the regret (1,062 pairs of runs
# on 65 functions, ± 0.05): 1.3 times in 10 coordinates (± 0.09), 0.85 times where most coordinates
# do nothing (± 0.14).
_ALIKE = 0.64
_FREE = 4


@cache
def prior(model: Model, scales: int, infers_noise: bool, main: bool = False) -> tuple[Array, Array]:
    """Mean (p,) and precision (p, p) of the normal prior of the log hyperparameters.

    `scales` is the number of length-scales. With a the share that is common to them and b = (1 - a)
    min(1, 4 / d) each one's own, their covariance is proportional to b I + a 11', whose inverse is
    (I - a 11' / (b + a d)) / b.
    """
    priors = [model.length_scale] * scales + [model.signal_variance]
    priors += [model.noise_variance] * infers_noise
    if main and model.main_effects is not None:
        priors.append(model.main_effects)
    mean = np.log([each.median for each in priors])
    mean[:scales] += 0.5 * np.log(min(scales, _FREE))
    precision = np.diag(np.array([each.spread for each in priors]) ** -2.0)
    own = (1.0 - _ALIKE) * min(1.0, _FREE / scales)
    alike = np.eye(scales) - _ALIKE / (own + _ALIKE * scales)
    precision[:scales, :scales] = model.length_scale.spread**-2.0 * alike / own
    mean.flags.writeable = precision.flags.writeable = False  # they are cached
    return mean, precision


def log_prior(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    """Log prior density of log hyperparameters (m, p), up to a constant, and its gradient."""
    scales, main = length_scales(model, data), _has_main(model, data, theta)
    mean, precision = prior(model, scales, data.infers_noise, main)
    offset = theta - mean
    pull = offset @ precision
    return -0.5 * np.einsum("ij,ij->i", offset, pull), -pull


def log_evidence(model: Model, data: Data, theta: Array) -> Array:
    """Log marginal likelihood (m,) at log hyperparameters (m, p); -inf where K is singular."""
    fits, roots = np.empty(len(theta)), np.empty(len(theta))
    for some, matrices in _covariances(model, data, theta):
        for row, matrix in zip(range(some.start, some.stop), matrices, strict=True):
            factor, info = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
            fits[row], roots[row] = _fit_and_root(data, factor, info)
    return _log_likelihood(model, data, theta, fits, roots)


def log_evidence_and_gradient(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    """`log_evidence` (m,) and its gradient (m, p) (Rasmussen & Williams 2006, eq. 5.9).

    Where K is singular the gradient is 0.
    """
    value, gradient = np.empty(len(theta)), np.empty_like(theta)
    for some in _some(len(theta), 4 * data.size**2):
        value[some], gradient[some] = _evidence_and_gradient(model, data, theta[some])
    return value, gradient


def _evidence_and_gradient(model: Model, data: Data, theta: Array) -> tuple[Array, Array]:
    d, levels = length_scales(model, data), _levels(model, data, theta)
    correlation, slope = model.kernel.value_and_slope(_distances(model, data, theta))
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
    covariance = _noisy(data, levels, model.mean_variance, correlation)
    weight = np.empty_like(covariance)  # αα' - K⁻¹
    fits, roots = np.empty(len(theta)), np.empty(len(theta))
    for row, matrix in enumerate(covariance):
        factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
        fits[row], roots[row] = _fit_and_root(data, factor, info)
        if info:
            weight[row] = 0.0
            continue
        alpha, _ = dpotrs(factor, data.y, lower=1)
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)  # lower triangle; the upper stays 0
        np.multiply.outer(alpha, alpha, out=weight[row])
        weight[row] -= inverse.T
        np.einsum("ii->i", inverse)[:] = 0.0  # the diagonal has been taken off
        weight[row] -= inverse
    value = _log_likelihood(model, data, theta, fits, roots)
    diagonal = np.einsum("mii->mi", weight)
    gradient = np.empty_like(theta)
    # ½ Σ_ij W_ij dK_ij/dlog ℓ, dK_ij = -2 v κ'_ij (z_i - z_j)²: one product instead of d
    scales = model.scales(data.x.shape[1])
    z = data.x / np.exp(theta[:, None, scales])
    slope *= weight
    by_column = np.matmul(np.einsum("mij->mi", slope)[:, None], z * z)[:, 0]
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
    least = NOISE_FLOOR * levels.signal[:, None]
    floor = data.known < least
    if data.infers_noise:
        noise = levels.noise[:, None] * data.share
        floor = floor & (noise < least)
        gradient[:, d + 1] = 0.5 * np.einsum("mi,mi->m", diagonal, np.where(floor, 0.0, noise))
        gradient[:, d + 1] += 0.5 * (data.scatter / levels.noise - data.repeats)
    by_signal = np.einsum("mij,mij->m", correlation, weight)
    if floor.any():
        by_signal += NOISE_FLOOR * np.einsum("mi,mi->m", diagonal, floor)
    gradient[:, d] = 0.5 * levels.signal * by_signal
    gradient[np.isinf(value)] = 0.0
    return value, gradient


def _distances(model: Model, data: Data, theta: Array) -> Array:
    """Scaled squared distances (m, n, n) of the data."""
    z = data.x / np.exp(theta[:, model.scales(data.x.shape[1])])[:, None, :]
    s = squared_distances(z, z)
    np.einsum("mii->mi", s)[:] = 0.0
    return s


def _noisy(data: Data, levels: _Levels, mean_variance: float, correlation: Array) -> Array:
    """K (m, n, n) for correlations (m, n, n)."""
    covariance = levels.signal[:, None, None] * correlation
    if mean_variance:
        covariance += mean_variance
    np.einsum("mii->mi", covariance)[:] += _row_noise(data, levels)
    return covariance


def _some(count: int, size: int) -> Iterator[slice]:
    """Slices of `count` settings, for work on that many numbers each.

    Several small matrices at once cost little more than one; large ones stay in the cache if they
    are made one by one.
    """
    together = max(1, _TOGETHER // size)
    for first in range(0, count, together):
        yield slice(first, min(first + together, count))


_TOGETHER = 40_000  # numbers: 320 kB


def _covariances(model: Model, data: Data, theta: Array) -> Iterator[tuple[slice, Array]]:
    """Some of the settings, and their K (m, n, n)."""
    for some in _some(len(theta), data.size**2):
        levels = _levels(model, data, theta[some])
        correlation = model.kernel.value(_distances(model, data, theta[some]))
        if levels.main is not None:
            levels.main.blend(model.kernel, correlation, data.x, data.x)
        yield some, _noisy(data, levels, model.mean_variance, correlation)


def _row_noise(data: Data, levels: _Levels) -> Array:
    """Noise variance (m, n) of each row, at least NOISE_FLOOR of the signal variance."""
    given = data.known + levels.noise[:, None] * data.share
    return np.asarray(np.maximum(given, NOISE_FLOOR * levels.signal[:, None]))


def _fit_and_root(data: Data, factor: Array, info: int) -> tuple[float, float]:
    """y'K⁻¹y and √|K|'s logarithm for the lower factor of K; infinite where there is none."""
    if info:
        return np.inf, np.inf
    white, _ = dtrtrs(factor, data.y, lower=1)
    return white @ white, np.add.reduce(np.log(factor.diagonal()))


def _log_likelihood(model: Model, data: Data, theta: Array, fits: Array, roots: Array) -> Array:
    """Log marginal likelihood (m,) from what `_fit_and_root` says of each setting."""
    value = data.constant - 0.5 * data.size * LOG_TWO_PI - 0.5 * fits - roots
    if data.repeats:  # what merged repeats say about the noise
        log_noise = theta[:, length_scales(model, data) + 1]
        value -= 0.5 * (data.repeats * log_noise + data.scatter * np.exp(-log_noise))
    return np.asarray(value)


class Moments(NamedTuple):
    """What the model says at m points: mean and variance (S, m), their gradients (S, m, d)."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


class Screened(NamedTuple):
    """What is roughly known of m points.

    Attributes
    ----------
    correlation : (S, m, n) array
        With the data.
    mean, variance : (S, m) arrays
    """

    correlation: Single
    mean: Array
    variance: Array

    def at(self, points: NDArray[np.intp]) -> "Screened":
        """What is known of some of the points."""
        return Screened(self.correlation[:, points], self.mean[:, points], self.variance[:, points])

    def then(self, others: "Screened") -> "Screened":
        """What is known of these points and of others."""
        return Screened(
            np.concatenate([self.correlation, others.correlation], axis=1),
            np.concatenate([self.mean, others.mean], axis=1),
            np.concatenate([self.variance, others.variance], axis=1),
        )


@dataclass(frozen=True, slots=True)
class Posterior:
    """Gaussian processes given data, one for each of S settings. Made by `posterior`.

    Attributes
    ----------
    model : Model
    x : (n, d) array
    y : (S, n) array
    length_scales : (S, d) array
    signal_variance : (S,) array
    noise_variance : (S,) array
        Inferred noise variance of a single measurement; 0 where all noise is known.
    row_noise : (S, n) array
        Noise variance of each row of y.
    inverse_factor : (S, n, n) array
        L⁻¹, lower triangular.
    alpha : (S, n) array
    scaled : (S, n, d) array
        x in units of the length-scales.
    norms : (S, n) array
        Squared lengths of its rows.
    main : MainEffects or None
    """

    model: Model
    x: Array
    y: Array
    length_scales: Array
    signal_variance: Array
    noise_variance: Array
    row_noise: Array
    inverse_factor: Array
    alpha: Array
    scaled: Array
    norms: Array
    main: MainEffects | None

    @property
    def settings(self) -> int:
        """S."""
        return len(self.signal_variance)

    @property
    def prior_variance(self) -> Array:
        """Variance (S,) of the process before any data."""
        return self.signal_variance + self.model.mean_variance

    def correlation_with_data(self, x: Array) -> Array:
        """The correlation (S, m, n) of the process at x (m, d) with the process at the data."""
        return self._correlation(self._distances(x), x, self.x)

    def correlation(self, x: Array, points: Array) -> Array:
        """The same (S, m, k) with the process at other points (k, d)."""
        scale = self.length_scales[:, None, :]
        return self._correlation(squared_distances(x / scale, points / scale), x, points)

    def alike(self, x: Array) -> Correlation:
        """`correlation_with_data`, with what its gradients in x need."""
        return correlate(self.model.kernel, self._distances(x), x, self.x, self.main)

    def _correlation(self, distances: Array, x: Array, points: Array) -> Array:
        together = self.model.kernel.value(distances)
        if self.main is not None:
            self.main.blend(self.model.kernel, together, x, points)
        return together

    def covariance_with_data(self, x: Array) -> Array:
        """Prior covariance (S, m, n) of the process at x (m, d) with the process at the data."""
        k = self.correlation_with_data(x)
        k *= self.signal_variance[:, None, None]
        k += self.model.mean_variance
        return k

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance (S, m) of the process at x (m, d) (paper, eq. 1)."""
        k = self.covariance_with_data(x)
        mean = np.matmul(k, self.alpha[:, :, None])[..., 0]
        return mean, self._variance(np.matmul(k, np.swapaxes(self.inverse_factor, 1, 2)))

    def screen(self, x: Array) -> Screened:
        """Correlation with the data, mean and variance at x (m, d), in single precision.

        Good enough to rank hundreds of points, at half the price and in half the memory.
        """
        settings, n, single = self.settings, len(self.x), np.float32
        correlation = np.empty((settings, len(x), n), dtype=single)
        mean, variance = np.empty((2, settings, len(x)))
        for some in _some(settings, 5 * len(x) * n):
            scaled = x / self.length_scales[some, None, :]
            distances = squared_distances(scaled.astype(single), self.scaled[some].astype(single))
            k = correlation[some] = self.model.kernel.value(distances)
            if self.main is not None:
                main = self.main.of(some, single)
                main.blend(self.model.kernel, k, x.astype(single), self.x.astype(single))
                correlation[some] = k
            covariance = k * self.signal_variance[some, None, None].astype(single)
            covariance += single(self.model.mean_variance)
            mean[some] = np.matmul(covariance, self.alpha[some, :, None].astype(single))[..., 0]
            whiten = np.swapaxes(self.inverse_factor[some], 1, 2).astype(single)
            half = np.matmul(covariance, whiten)
            variance[some] = np.einsum("smn,smn->sm", half, half)
        prior = self.prior_variance[:, None]
        return Screened(correlation, mean, np.maximum(prior - variance, 1e-6 * prior))

    def mean_at_data(self) -> Array:
        """Mean (S, n) of the process at its own data: y less the noise that α takes out."""
        return np.asarray(self.y - self.row_noise * self.alpha)

    def moments(self, x: Array) -> Moments:
        """Mean and variance of the process at x (m, d) with their gradients in x."""
        alike = self.alike(x)
        signal = self.signal_variance[:, None, None]
        k = signal * alike.value
        k += self.model.mean_variance
        mean = np.matmul(k, self.alpha[:, :, None])[..., 0]
        half = np.matmul(k, np.swapaxes(self.inverse_factor, 1, 2))  # (L⁻¹k)'
        variance = self._variance(half)
        # What dκ/dx weighs in the gradients of the mean and of the variance, times ½ ℓ².
        weights = np.empty((2, *k.shape))
        weights[0] = (2.0 * signal) * self.alpha[:, None, :]
        np.matmul(half, self.inverse_factor, out=weights[1])  # (K⁻¹k)'
        weights[1] *= -4.0 * signal
        pulled = alike.pull(weights, x, self.x)
        pulled /= np.square(self.length_scales)[:, None, :]
        return Moments(mean, variance, pulled[0], pulled[1])

    def joint(self, x: Array) -> tuple[Array, Array]:
        """Mean (S, m) and full covariance (S, m, m) of the process at x (m, d)."""
        k = self.covariance_with_data(x)
        half = np.matmul(k, np.swapaxes(self.inverse_factor, 1, 2))
        prior = self.signal_variance[:, None, None] * self.correlation(x, x)
        covariance = prior + self.model.mean_variance - half @ np.swapaxes(half, 1, 2)
        return np.matmul(k, self.alpha[:, :, None])[..., 0], covariance

    def condition(self, x: Array, y: Array, noise_variance: Array) -> "Posterior":
        """Return the posterior after q more measurements, by appending to the factors.

        Parameters
        ----------
        x : (q, d) array
        y, noise_variance : (q,) or (S, q) array
        """
        n, q, s = len(self.x), len(x), self.settings
        y = np.broadcast_to(y, (s, q))
        noise = np.maximum(
            np.broadcast_to(noise_variance, (s, q)), NOISE_FLOOR * self.signal_variance[:, None]
        )
        k = self.covariance_with_data(x)
        half = np.matmul(k, np.swapaxes(self.inverse_factor, 1, 2))  # (S, q, n)
        corner = self.signal_variance[:, None, None] * self.correlation(x, x)
        corner += self.model.mean_variance - half @ np.swapaxes(half, 1, 2)
        corner[:, np.arange(q), np.arange(q)] += noise
        inverse = np.zeros((s, n + q, n + q))
        inverse[:, :n, :n] = self.inverse_factor
        for row in range(s):  # [[L, 0], [B, C]]⁻¹ = [[L⁻¹, 0], [-C⁻¹ B L⁻¹, C⁻¹]]
            below, info = dpotrf(corner[row].T, lower=1, clean=1)
            if info:
                raise np.linalg.LinAlgError(_singular(self.signal_variance[row], noise[row].min()))
            below_inverse, _ = dtrtri(below, lower=1)
            inverse[row, n:, n:] = below_inverse
            inverse[row, n:, :n] = -below_inverse @ half[row] @ self.inverse_factor[row]
        return _assemble(
            self.model,
            np.concatenate([self.x, x]),
            np.concatenate([self.y, y], axis=1),
            (self.length_scales, self.signal_variance, self.noise_variance),
            np.concatenate([self.row_noise, noise], axis=1),
            inverse,
            self.main,
        )

    def _distances(self, x: Array) -> Array:
        return squared_distances(x / self.length_scales[:, None, :], self.scaled, self.norms)

    def _variance(self, half: Array) -> Array:
        prior = self.prior_variance[:, None]
        variance = prior - np.einsum("...n,...n->...", half, half)
        # Rounding leaves an error of about 1e-16 times the prior variance; a variance is positive.
        return np.asarray(np.maximum(variance, 1e-14 * prior))


def posterior(model: Model, data: Data, theta: Array) -> Posterior:
    """Condition the process on data, for each of the log hyperparameters theta (S, p)."""
    levels = _levels(model, data, theta)
    row_noise = _row_noise(data, levels)
    inverse = np.empty((len(theta), data.size, data.size))
    for some, matrices in _covariances(model, data, theta):
        for row, matrix in zip(range(some.start, some.stop), matrices, strict=True):
            factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
            if info:
                raise np.linalg.LinAlgError(_singular(levels.signal[row], row_noise[row].min()))
            inverse[row], _ = dtrtri(factor, lower=1, overwrite_c=1)
    scales = np.ascontiguousarray(np.exp(theta[:, model.scales(data.x.shape[1])]))
    hyperparameters = (scales, levels.signal, levels.noise)
    y = np.repeat(data.y[None], len(theta), axis=0)
    return _assemble(model, data.x, y, hyperparameters, row_noise, inverse, levels.main)


def _assemble(
    model: Model,
    x: Array,
    y: Array,
    hyperparameters: tuple[Array, Array, Array],
    row_noise: Array,
    inverse: Array,
    main: MainEffects | None,
) -> Posterior:
    white = np.matmul(inverse, y[:, :, None])
    alpha = np.matmul(np.swapaxes(inverse, 1, 2), white)[..., 0]
    # Laid out one way, however they came about: BLAS rounds by the layout, and a posterior that was
    # saved and read again must give the same numbers.
    scaled = np.ascontiguousarray(x / hyperparameters[0][:, None, :])
    norms = np.einsum("...i,...i->...", scaled, scaled)
    return Posterior(model, x, y, *hyperparameters, row_noise, inverse, alpha, scaled, norms, main)


def _singular(signal: float, noise: float) -> str:
    return (
        f"the covariance of the data is not positive definite (signal variance {signal:.3g}, "
        f"least noise variance {noise:.3g}): points that nearly coincide need noise above "
        f"{1e-12 * signal:.1g}"
    )
