"""Exact Gaussian-process regression: posterior and moments, with gradients.

Notation (n rows of data, d coordinates, S settings of the hyperparameters):

    ℓ, v, τ²   length-scales (S, d), signal variance (S,), inferred noise variance (S,)
    ρ          variance of grain (S,)
    K          covariance of the data (S, n, n), of `rmes.model`
    L          Cholesky factor of K;  L⁻¹ is kept, since moments then cost matrix products only
    α          K⁻¹ y, (S, n)

Every posterior carries S settings, one of them or several to average over: settings first, points
next, coordinates last.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from rmes.kernels import Correlation, MainEffects, correlate, squared_distances
from rmes.measurements import Data
from rmes.model import NOISE_FLOOR, Model, covariances, grouped, levels_of, row_noise_of

Array = NDArray[np.float64]
Single = NDArray[np.float32]


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
    grain : (S,) array
        Variance of what each point deviates from the process, whenever it is measured; mostly 0.
    row_noise : (S, n) array
        Noise variance of each row of y, grain with it.
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
    grain: Array
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
        for some in grouped(settings, 5 * len(x) * n):  # as many arrays are at work
            correlation[some] = k = self.screen_correlation(x, self.x, some)
            covariance = k * self.signal_variance[some, None, None].astype(single)
            covariance += single(self.model.mean_variance)
            mean[some] = np.matmul(covariance, self.alpha[some, :, None].astype(single))[..., 0]
            whiten = np.swapaxes(self.inverse_factor[some], 1, 2).astype(single)
            half = np.matmul(covariance, whiten)
            variance[some] = np.vecdot(half, half)
        prior = self.prior_variance[:, None]
        return Screened(correlation, mean, np.maximum(prior - variance, 1e-6 * prior))

    def screen_correlation(self, x: Array, points: Array, settings: slice = slice(None)) -> Single:
        """`correlation` (S, m, k) in single precision, of some settings."""
        single: Any = np.float32
        a, b = ((p / self.length_scales[settings, None, :]).astype(single) for p in (x, points))
        k = self.model.kernel.value(squared_distances(a, b))
        if self.main is not None:
            main = self.main.of(settings, single)
            main.blend(self.model.kernel, k, x.astype(single), points.astype(single))
        return np.asarray(k, dtype=single)

    def mean_at_data(self) -> Array:
        """Mean (S, n) of the process at its own data: y less the noise that α takes out."""
        return np.asarray(self.y - self.row_noise * self.alpha)

    def variance_at_data(self, rows: NDArray[np.intp]) -> Array:
        """Variance (S, m) of the process at m rows of its data: r - r² (K⁻¹)_ii, r their noise."""
        return self._variance_behind(self.row_noise[:, rows], rows)

    @property
    def grainy(self) -> bool:
        """Whether measured points differ from the process by more than noise."""
        return bool(self.grain.any())

    def values_at_data(self) -> tuple[Array, Array]:
        """Mean and variance (S, n) of what is behind the noise of each row: process and grain."""
        noise = self.row_noise - self.grain[:, None]
        every = np.arange(len(self.x))
        return self.y - noise * self.alpha, self._variance_behind(noise, every)

    def _variance_behind(self, noise: Array, rows: NDArray[np.intp]) -> Array:
        factor = self.inverse_factor[:, :, rows]
        return np.asarray(noise * (1.0 - noise * np.einsum("sji,sji->si", factor, factor)))

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
            (self.length_scales, self.signal_variance, self.noise_variance, self.grain),
            np.concatenate([self.row_noise, noise], axis=1),
            inverse,
            self.main,
        )

    def _distances(self, x: Array) -> Array:
        return squared_distances(x / self.length_scales[:, None, :], self.scaled, self.norms)

    def _variance(self, half: Array) -> Array:
        prior = self.prior_variance[:, None]
        variance = prior - np.vecdot(half, half)
        # Rounding leaves an error of about 1e-16 times the prior variance; a variance is positive.
        return np.asarray(np.maximum(variance, 1e-14 * prior))


def posterior(model: Model, data: Data, theta: Array) -> Posterior:
    """Condition the process on data, for each of the log hyperparameters theta (S, p)."""
    levels = levels_of(model, data, theta)
    row_noise = row_noise_of(data, levels)
    inverse = np.empty((len(theta), data.size, data.size))
    for row, matrix in covariances(model, data, theta):
        factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
        if info:
            raise np.linalg.LinAlgError(_singular(levels.signal[row], row_noise[row].min()))
        inverse[row], _ = dtrtri(factor, lower=1, overwrite_c=1)
    scales = np.ascontiguousarray(np.exp(theta[:, model.scales(data.x.shape[1])]))
    hyperparameters = (scales, levels.signal, levels.noise, levels.grain)
    y = np.repeat(data.y[None], len(theta), axis=0)
    return _assemble(model, data.x, y, hyperparameters, row_noise, inverse, levels.main)


def _assemble(
    model: Model,
    x: Array,
    y: Array,
    hyperparameters: tuple[Array, Array, Array, Array],
    row_noise: Array,
    inverse: Array,
    main: MainEffects | None,
) -> Posterior:
    white = np.matmul(inverse, y[:, :, None])
    alpha = np.matmul(np.swapaxes(inverse, 1, 2), white)[..., 0]
    # Laid out one way, however they came about: BLAS rounds by the layout, and a posterior that was
    # saved and read again must give the same numbers.
    scaled = np.ascontiguousarray(x / hyperparameters[0][:, None, :])
    norms = np.vecdot(scaled, scaled)
    return Posterior(model, x, y, *hyperparameters, row_noise, inverse, alpha, scaled, norms, main)


def _singular(signal: float, noise: float) -> str:
    return (
        f"the covariance of the data is not positive definite (signal variance {signal:.3g}, "
        f"least noise variance {noise:.3g}): points that nearly coincide need noise above "
        f"{1e-12 * signal:.1g}"
    )
