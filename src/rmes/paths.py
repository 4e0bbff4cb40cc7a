"""Draws from a posterior as differentiable functions (Matheron's rule).

    path(x)  =      g(x)        +  k(x, X) K⁻¹ (y - g(X) - ε)
                prior draw           exact correction for the data

The prior draw g is a sum of random Fourier features; the correction uses the exact kernel, so a
path passes through the data as the posterior does, whatever the number of features
(Wilson et al. 2020, eq. 13). Cosine and sine share a frequency, which makes the variance of g
exact everywhere.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmes.gp import Posterior
from rmes.multistart import space_filling

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Paths:
    """P draws for each of the S settings of a posterior.

    Attributes
    ----------
    posterior : Posterior
    frequencies : (S, F, d) array
        In turns (not radians) per unit of x.
    weights : (S, P, 2F) array
        Of the F cosines, then of the F sines.
    offset : (S, P) array
        The drawn constant means.
    correction : (S, P, n) array
        K⁻¹ (y - g(X) - ε).
    """

    posterior: Posterior
    frequencies: Array
    weights: Array
    offset: Array
    correction: Array

    @property
    def count(self) -> int:
        """P, the number of paths for each setting."""
        return int(self.offset.shape[1])

    def values(self, x: Array) -> Array:
        """All paths at the points x (m, d): (S, P, m)."""
        prior = np.matmul(self.weights, np.swapaxes(_features(self.frequencies, x), 1, 2))
        prior += self.offset[:, :, None]
        k = self.posterior.covariance_with_data(x)
        return np.asarray(prior + np.matmul(self.correction, np.swapaxes(k, 1, 2)))

    def screen(self, x: Array) -> NDArray[np.float32]:
        """`values` with the features in single precision: ten times cheaper, good to 1e-4."""
        k = self.posterior.covariance_with_data(x)
        values = np.matmul(self.correction, np.swapaxes(k, 1, 2)).astype(np.float32)
        values += self.offset[:, :, None]
        single = x.astype(np.float32)
        turned = np.asarray(2.0 * np.pi * self.frequencies, dtype=np.float32)
        weights = self.weights.astype(np.float32)
        count = turned.shape[1]
        phase = np.empty((len(x), count), dtype=np.float32)
        features = np.empty((len(x), 2 * count), dtype=np.float32)
        for s in range(len(turned)):  # one setting at a time: the buffers stay in the cache
            np.matmul(single, turned[s].T, out=phase)
            np.cos(phase, out=features[:, :count])
            np.sin(phase, out=features[:, count:])
            values[s] += weights[s] @ features.T
        return np.asarray(values)

    def along(self, x: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """Value (m,) and gradient (m, d) of path rows[i] at x[i]; path s P + p is (s, p)."""
        s, p = np.divmod(rows, self.count)
        gp = self.posterior
        frequencies = self.frequencies[s]  # (m, F, d)
        cosine, sine = _cosine_and_sine(np.einsum("mfd,md->mf", frequencies, x))
        weights = self.weights[s, p]
        a, b = weights[:, : cosine.shape[1]], weights[:, cosine.shape[1] :]
        value = np.einsum("mf,mf->m", a, cosine) + np.einsum("mf,mf->m", b, sine)
        turn = b * cosine
        turn -= a * sine
        gradient = 2.0 * np.pi * np.einsum("mf,mfd->md", turn, frequencies)

        scale = gp.length_scales[s]  # (m, d)
        offset = (x[:, None, :] - gp.x) / scale[:, None, :]  # (m, n, d)
        kernel, slope = gp.model.kernel.value_and_slope(np.einsum("mnd,mnd->mn", offset, offset))
        weight = self.correction[s, p]
        signal = gp.signal_variance[s]
        value += signal * np.einsum("mn,mn->m", kernel, weight)
        value += self.offset[s, p] + gp.model.mean_variance * np.sum(weight, axis=1)
        slope *= weight
        slope *= 2.0 * signal[:, None]
        gradient += np.einsum("mn,mnd->md", slope, offset) / scale
        return value, gradient


def draw(posterior: Posterior, count: int, features: int, rng: np.random.Generator) -> Paths:
    """Draw `count` paths for each setting, with `features` frequencies."""
    gp = posterior
    settings, n, d = gp.settings, len(gp.x), gp.x.shape[1]
    # Well-spread frequencies halve the error of the kernel that independent ones would leave.
    uniform = space_filling(features * settings, d + 3, rng).reshape(features, settings, d + 3)
    standard = np.stack([gp.model.kernel.frequencies(uniform[:, s]) for s in range(settings)])
    frequencies = standard / (2.0 * np.pi * gp.length_scales[:, None, :])
    amplitude = np.sqrt(gp.signal_variance / features)[:, None, None]
    weights = amplitude * rng.standard_normal((settings, count, 2 * features))
    offset = np.sqrt(gp.model.mean_variance) * rng.standard_normal((settings, count))
    noise = np.sqrt(gp.row_noise)[:, None, :] * rng.standard_normal((settings, count, n))

    prior = np.matmul(weights, np.swapaxes(_features(frequencies, gp.x), 1, 2))
    residual = gp.y[:, None, :] - prior - offset[:, :, None] - noise
    white = np.matmul(residual, np.swapaxes(gp.inverse_factor, 1, 2))
    correction = np.matmul(white, gp.inverse_factor)
    return Paths(posterior, frequencies, weights, offset, correction)


def _features(frequencies: Array, x: Array) -> Array:
    """Cosines and sines (S, m, 2F) at x (m, d)."""
    return np.concatenate(_cosine_and_sine(np.matmul(x, np.swapaxes(frequencies, 1, 2))), axis=2)


def _cosine_and_sine(turns: Array) -> tuple[Array, Array]:
    """Cos and sin of 2π turns, both from the tangent of the half angle.

    NumPy vectorises tan in double precision but neither cos nor sin: this is six times faster
    than calling the two, and as accurate once whole turns are taken off.
    """
    tangent = np.tan(np.pi * (turns - np.rint(turns)))
    square = tangent * tangent
    scale = 1.0 / (1.0 + square)
    return (1.0 - square) * scale, 2.0 * tangent * scale
