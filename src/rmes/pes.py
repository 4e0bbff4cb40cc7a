"""Predictive entropy search (Hernández-Lobato, Hoffman & Ghahramani 2014), whole.

The information that a measurement y at x gives about the place x* of the maximum is

    H[y | D] - E_{x*} H[y | D, x*] ≈ ½ log(v(x) + τ²) - mean_p ½ log(v(x | x*_p) + τ²)

(their eqs. 2 and 10), with v(x | x*) the variance of f(x) given that f is largest at x*. Three
conditions stand for that event (their section 2.2):

    C1  f has a local maximum at x*: its gradient and the off-diagonal of its Hessian are zero
        (exact linear observations), the diagonal of its Hessian is negative (EP);
    C2  f(x*) exceeds f at the data (EP);
    C3  f(x*) exceeds f(x) (moments of the bivariate normal, for each x).

Where x* lies on a face of the cube, f need not be flat across the face. For that coordinate C1
says instead that f does not fall towards the outside (EP), and nothing about the curvature.

C1 and C2 do not depend on x, and what they do to the moments of f(x) is linear in the covariances
a(x) of f(x) with a few functionals of f: its value, gradient and Hessian at x*, and its value at
the best point of the data. `_prepare` turns them into weights of a(x), once; an evaluation then
costs little more than the moments of the process.

Every condition keeps or lowers every variance: the linear ones as any observation does; the
inequalities because they cut a half-space, a log-concave factor (Brascamp & Lieb 1976), whose
sites in EP have no negative precision. So v(x | x*) <= v(x) and the acquisition is never negative.

Axes: settings S, maximisers P, points m, then functionals F, conditions or coordinates d.
Derivatives at x* are taken in units of the length-scales, in z = (x - x*) / ℓ.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from rmes.gp import Posterior
from rmes.kernels import Kernel
from rmes.model import NOISE_FLOOR
from rmes.multistart import ValueAndGradient

Array = NDArray[np.float64]

_ROOT_HALF = float(np.sqrt(0.5))
_ROOT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))

# A maximiser this near to a face of the cube lies on it; the search puts it there exactly.
_FACE = 1e-9

# C1 and C2 carry this share of the prior variance as noise, as measurements do in `gp`. Below it
# covariances are rounding error, and a condition that the data imply already stays well posed.
_SOFTENING = NOISE_FLOOR

# C3 carries this share of the variance of f(x*) on top. As x tends to x*, given C1, both sides
# of f(x) <= f(x*) differ by O(|z|²) and the variance of the difference is O(|z|⁴): the limit of
# the moments depends on the direction, while at x* the condition says nothing. The share decides
# how near x* that is felt: within about 0.05 ℓ. Without it, a rim of spurious local maxima
# surrounds x*, 3 % high (n = 10 to 50, d = 2); with 1e-2, C3 is weakened out to 0.1 ℓ.
_CLOSENESS = 1e-4

# Sweeps of EP. Of 1,000 random problems the slowest took 15, undamped; the rest is a guard.
_SWEEPS = 60
_UNDAMPED = 20
_TOLERANCE = 1e-8


def predictive_entropy_search(
    posterior: Posterior, maximizers: Array, noise_variance: Array
) -> ValueAndGradient:
    """Information of a measurement about the place of the maximum, as a function of x.

    Parameters
    ----------
    posterior : Posterior
        With S settings.
    maximizers : (S, P, d) array
        P draws of the maximiser for each setting, in the unit cube.
    noise_variance : (S,) array or number
        Noise variance τ² of the new measurement.

    Returns
    -------
    ValueAndGradient
        Points (m, d) -> the information (m,), in nats and never negative, averaged over settings
        and maximisers, and its gradient (m, d).
    """
    maximizers = np.asarray(maximizers, dtype=float)
    settings, d = posterior.settings, posterior.x.shape[1]
    if maximizers.ndim != 3 or maximizers.shape[::2] != (settings, d) or not maximizers.size:
        raise ValueError(
            f"maximizers must be (S, P, d) = ({settings}, P > 0, {d}), not {maximizers.shape}"
        )
    if posterior.main is not None:
        raise ValueError("predictive entropy search knows no main effects: fit a model without")
    if not np.all((maximizers >= 0.0) & (maximizers <= 1.0)):
        raise ValueError("maximizers must lie in the unit cube; some lie outside or are NaN")
    noise = np.asarray(noise_variance, dtype=float)
    if noise.shape not in ((), (settings,)) or not np.all((noise >= 0.0) & np.isfinite(noise)):
        raise ValueError(
            f"noise_variance must be ({settings},), finite and not negative, not {noise}"
        )
    noise = np.maximum(noise, NOISE_FLOOR * posterior.signal_variance)
    return partial(_value_and_gradient, posterior, _prepare(posterior, maximizers), noise)


@dataclass(frozen=True, slots=True)
class _Conditions:
    """C1 and C2 for each maximiser, as what they make of the covariances with f(x).

    With t(x) = c(x) weights + k(x) data_weights (S, P, m, J), where c(x) are the covariances of
    `_covariances` and k(x) those with the data: the first J - 2 columns, squared, are the parts
    of the variance of f(x) that the conditions explain; the last two are its mean and its
    covariance with f(x*), given data and conditions.

    Attributes
    ----------
    maximizers : (S, P, d) array
    weights : (S, P, F, J) array
    data_weights : (S, n, P J) array
    mean, variance : (S, P) array
        Of f(x*), given the conditions.
    softening : (S, P) array
        Noise variance of C3.
    """

    maximizers: Array
    weights: Array
    data_weights: Array
    mean: Array
    variance: Array
    softening: Array


def _value_and_gradient(
    gp: Posterior, given: _Conditions, noise: Array, x: Array
) -> tuple[Array, Array]:
    """The acquisition at x (m, d): forwards, then back through the same steps."""
    settings, count, _, columns = given.weights.shape
    signal, scales = gp.signal_variance[:, None, None], gp.length_scales[:, None, :]
    alike = gp.alike(x)
    k = signal * alike.value + gp.model.mean_variance  # (S, m, n)
    half = k @ np.swapaxes(gp.inverse_factor, 1, 2)  # (L⁻¹k)'
    variance = gp.prior_variance[:, None] - np.vecdot(half, half)
    variance = np.maximum(variance, 0.0)[:, None]  # rounding; (S, 1, m)
    total = variance + noise[:, None, None]

    # C1 and C2
    z = (x - given.maximizers[:, :, None, :]) / scales[:, None]
    covariances, slopes = _covariances(gp.model.kernel, gp.signal_variance, z)
    covariances[..., 0] += gp.model.mean_variance
    t = covariances @ given.weights  # (S, P, m, J)
    t += (k @ given.data_weights).reshape(settings, -1, count, columns).swapaxes(1, 2)
    explained = np.vecdot(t[..., :-2], t[..., :-2])
    with_star = t[..., -1]  # cov(f(x), f*)

    # C3: the joint normal of f(x) and f* cut at f(x) <= f* (their eq. 9)
    with_gap = variance - explained - with_star  # cov(f(x), f(x) - f*)
    gap = np.maximum(with_gap - with_star + given.variance[..., None], 0.0)  # var(f(x) - f*)
    gap += given.softening[..., None]
    root = np.sqrt(gap)
    alpha = (given.mean[..., None] - t[..., -2]) / root
    _, share, _, share_slope = _truncation(alpha)
    cut = with_gap * with_gap / gap
    reduction = explained + share * cut
    rounded = reduction > variance  # v(x | x*) >= 0
    reduction = np.where(rounded, variance, reduction)
    value = -0.5 * np.mean(np.log1p(-reduction / total), axis=(0, 1))

    # Back: derivatives of the reduction, then of the mean of ½ log(total / (total - reduction))
    by_with_gap = 2.0 * share * with_gap / gap
    by_gap = -cut * (share + 0.5 * alpha * share_slope) / gap
    by_variance = by_with_gap + by_gap
    by_mean = -cut * share_slope / root
    weight = np.where(rounded, 0.0, 0.5 / ((total - reduction) * (settings * count)))
    by_t = (2.0 * weight * (1.0 - by_variance))[..., None] * t
    by_t[..., -2] = weight * by_mean
    by_t[..., -1] = -weight * (by_with_gap + 2.0 * by_gap)
    by_variance = np.sum(weight * (by_variance - 1.0), axis=1) + 0.5 / (total[:, 0] * settings)
    by_k = by_t.swapaxes(1, 2).reshape(settings, len(x), -1) @ given.data_weights.swapaxes(1, 2)
    by_k -= (2.0 * by_variance)[..., None] * (half @ gp.inverse_factor)
    by_k *= 2.0 * signal
    gradient = alike.pull(by_k, x, gp.x)
    gradient /= scales
    by_covariances = by_t @ given.weights.swapaxes(2, 3)
    gradient += np.sum(_covariance_gradient(slopes, z, by_covariances), axis=1)
    gradient /= scales
    return value, np.sum(gradient, axis=0)


class _Pairs(NamedTuple):
    """Elements i <= j of the Hessian: their indices, where i = j, and one-hot rows of both."""

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    diagonal: NDArray[np.intp]
    off_diagonal: NDArray[np.intp]
    one_hot_i: Array
    one_hot_j: Array


@lru_cache(maxsize=16)
def _pairs(d: int) -> _Pairs:
    i, j = np.triu_indices(d)
    eye = np.eye(d)
    return _Pairs(i, j, np.flatnonzero(i == j), np.flatnonzero(i != j), eye[i], eye[j])


def _covariances(
    kernel: Kernel, signal: Array, z: Array
) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Prior covariances of f(x) with f, ∂f/∂z_i and ∂²f/∂z_i∂z_j (i <= j) at x*, for zero mean.

    z = (x - x*) / ℓ (S, P, m, d) gives (S, P, m, F) with F = 1 + d + d (d + 1) / 2. Also returns
    the derivatives of the kernel in s, (S, P, m) each.
    """
    d = z.shape[-1]
    pairs = _pairs(d)
    v = signal[:, None, None]
    value, first, second, third = kernel.slopes(np.vecdot(z, z))
    value, first, second, third = v * value, v * first, v * second, v * third
    result = np.empty((*z.shape[:-1], 1 + d + len(pairs.i)))
    result[..., 0] = value
    result[..., 1 : d + 1] = (-2.0 * first)[..., None] * z
    result[..., d + 1 :] = (4.0 * second)[..., None] * (z[..., pairs.i] * z[..., pairs.j])
    result[..., d + 1 + pairs.diagonal] += (2.0 * first)[..., None]
    return result, (value, first, second, third)


def _covariance_gradient(
    slopes: tuple[Array, Array, Array, Array], z: Array, weights: Array
) -> Array:
    """Gradient in z (S, P, m, d) of Σ_F weights_F covariances_F (`_covariances`)."""
    d = z.shape[-1]
    pairs = _pairs(d)
    _, first, second, third = slopes
    for_gradient, for_hessian = weights[..., 1 : d + 1], weights[..., d + 1 :]
    turned = (for_hessian * z[..., pairs.j]) @ pairs.one_hot_i
    turned += (for_hessian * z[..., pairs.i]) @ pairs.one_hot_j  # 2 H z, H symmetric
    trace = np.sum(for_hessian[..., pairs.diagonal], axis=-1)
    along = 2.0 * first * weights[..., 0]
    along += 4.0 * second * (trace - np.vecdot(for_gradient, z))
    along += 4.0 * third * np.vecdot(turned, z)
    gradient = along[..., None] * z
    gradient -= (2.0 * first)[..., None] * for_gradient
    gradient += (4.0 * second)[..., None] * turned
    return gradient


def _covariances_at_a_point(kernel: Kernel, d: int) -> Array:
    """Prior covariance (F, F) of f, ∂f/∂z_i, ∂²f/∂z_i∂z_j at one point, for unit signal.

    The fourth derivative of κ(|z|²) at z = 0 is 4 κ''(0) (δ_ij δ_kl + δ_ik δ_jl + δ_il δ_jk): the
    terms in κ''' and κ'''' vanish there, for Matérn-5/2 like |z|.
    """
    _, first, second, _ = (float(slope) for slope in kernel.slopes(np.zeros(())))
    pairs = _pairs(d)
    i, j = pairs.one_hot_i, pairs.one_hot_j
    same = (pairs.i == pairs.j).astype(float)
    result = np.zeros((1 + d + len(same), 1 + d + len(same)))
    result[0, 0] = 1.0
    result[0, d + 1 :] = result[d + 1 :, 0] = 2.0 * first * same
    result[1 : d + 1, 1 : d + 1] = -2.0 * first * np.eye(d)
    products = np.outer(same, same) + (i @ i.T) * (j @ j.T) + (i @ j.T) * (j @ i.T)
    result[d + 1 :, d + 1 :] = 4.0 * second * products
    return result


def _prepare(gp: Posterior, maximizers: Array) -> _Conditions:
    """Condition on C1 exactly and on the inequalities of C1 and C2 by EP (their eqs. 3 to 7)."""
    settings = len(maximizers)
    mean, covariance, deviation, solved = _functionals(gp, maximizers)
    equalities, inequalities = _conditions(maximizers, deviation)

    # C1, the linear part: equalities' f = 0
    vacuous = ~np.any(equalities, axis=-1)
    prior = equalities @ covariance @ equalities.swapaxes(2, 3)
    prior += np.eye(prior.shape[-1]) * (vacuous[..., None, :] + _SOFTENING)
    explain = (_inverse_factor(prior) @ equalities).swapaxes(2, 3)  # (S, P, F, equalities)
    surprise = explain.swapaxes(2, 3) @ mean[..., None]

    # The inequalities u > 0 given that: mean, covariance, and weights of their covariance with f(x)
    shared = inequalities @ covariance @ explain
    u_mean = (inequalities @ mean[..., None] - shared @ surprise)[..., 0]
    u_covariance = inequalities @ covariance @ inequalities.swapaxes(2, 3)
    u_covariance -= shared @ shared.swapaxes(2, 3)
    u_weights = inequalities.swapaxes(2, 3) - explain @ shared.swapaxes(2, 3)
    u_variance = np.maximum(np.diagonal(u_covariance, axis1=2, axis2=3), 0.0)
    unit = np.sqrt(u_variance + _SOFTENING)
    u_mean = u_mean / unit
    u_covariance /= unit[..., :, None] * unit[..., None, :]
    u_weights /= unit[..., None, :]

    precision, shift = _expectation_propagation(u_covariance, u_mean, _SOFTENING / unit**2)
    root = np.sqrt(precision)
    eye = np.eye(unit.shape[-1])
    factor = _inverse_factor(eye + root[..., :, None] * u_covariance * root[..., None, :])
    factor *= root[..., None, :]
    # (I + T V)⁻¹ (ν - T m) = w - √T B⁻¹ √T V w with B = I + √T V √T
    w = (shift - precision * u_mean)[..., None]
    w = w - factor.swapaxes(2, 3) @ (factor @ (u_covariance @ w))
    explain_all = np.concatenate([explain, u_weights @ factor.swapaxes(2, 3)], axis=-1)

    # Weights of the mean of f(x), beyond that given the data, and of cov(f(x), f*), f* = f(x*)
    mean_weights = u_weights @ w - explain @ surprise
    star = covariance[..., :1, :]
    star_explained = star @ explain_all
    star_weights = -explain_all @ star_explained.swapaxes(2, 3)
    star_weights[..., 0, 0] += 1.0
    weights = np.concatenate([explain_all, mean_weights, star_weights], axis=-1)
    star_mean = mean[..., 0] + (star @ mean_weights)[..., 0, 0]
    star_variance = star[..., 0, 0] - np.sum(star_explained**2, axis=(2, 3))
    star_variance = np.maximum(star_variance, 0.0)  # rounding
    data_weights = -solved @ weights  # (S, P, n, J)
    data_weights[..., -2] += gp.alpha[:, None, :]
    data_weights = data_weights.swapaxes(1, 2).reshape(settings, len(gp.x), -1)
    softening = _CLOSENESS * star_variance + _SOFTENING * gp.prior_variance[:, None]
    weights = np.ascontiguousarray(weights[..., :-1, :])  # f at the data has only data weights
    return _Conditions(maximizers, weights, data_weights, star_mean, star_variance, softening)


def _functionals(gp: Posterior, maximizers: Array) -> tuple[Array, Array, Array, Array]:
    """What the data say about f, gradient and Hessian at x*, and about f at the best data point.

    Returns the mean (S, P, F + 1) and covariance (S, P, F + 1, F + 1), prior deviations (S, F + 1),
    and K⁻¹ times the prior covariances with the data (S, P, n, F + 1).

    C2 under noise: the paper asks for f(x*) above the largest measurement, softened by the noise,
    but the largest of noisy measurements exceeds the function by luck. Here f(x*) is to exceed f
    at the point of the data with the highest posterior mean, whose uncertainty and correlation
    with f(x*) are those of the posterior. Without noise both are the same.
    """
    settings, count, d = maximizers.shape
    n, each = len(gp.x), np.arange(settings)
    z = (gp.x - maximizers[:, :, None, :]) / gp.length_scales[:, None, None, :]
    with_data, _ = _covariances(gp.model.kernel, gp.signal_variance, z)  # (S, P, n, F)
    with_data[..., 0] += gp.model.mean_variance
    size = with_data.shape[-1]
    half = gp.inverse_factor @ with_data.swapaxes(1, 2).reshape(settings, n, -1)
    solved = gp.inverse_factor.swapaxes(1, 2) @ half
    half = half.reshape(settings, n, count, size).swapaxes(1, 2)
    solved = solved.reshape(settings, n, count, size).swapaxes(1, 2)

    prior = gp.signal_variance[:, None, None] * _covariances_at_a_point(gp.model.kernel, d)
    prior[:, 0, 0] += gp.model.mean_variance
    deviation = np.sqrt(np.diagonal(prior, axis1=1, axis2=2)[:, [*range(size), 0]])
    mean = np.empty((settings, count, size + 1))
    covariance = np.empty((settings, count, size + 1, size + 1))
    mean[..., :-1] = (gp.alpha[:, None, None, :] @ with_data)[..., 0, :]
    covariance[..., :-1, :-1] = prior[:, None] - half.swapaxes(2, 3) @ half

    # At a data point b with noise variance η: cov(f(x), f_b | D) = η k(x)' K⁻¹ e_b.
    fitted = gp.y - gp.row_noise * gp.alpha
    best = np.argmax(fitted, axis=1)
    noise = gp.row_noise[each, best]
    column = gp.inverse_factor.swapaxes(1, 2) @ gp.inverse_factor[each, :, best][..., None]
    column = noise[:, None] * column[..., 0]  # η K⁻¹ e_b
    mean[..., -1] = fitted[each, best][:, None]
    cross = noise[:, None, None] * solved[each, :, best]
    covariance[..., -1, :-1] = covariance[..., :-1, -1] = cross
    covariance[..., -1, -1] = (noise * (1.0 - column[each, best]))[:, None]
    column = np.broadcast_to(-column[:, None, :, None], (settings, count, n, 1))
    return mean, covariance, deviation, np.concatenate([solved, column], axis=-1)


def _conditions(maximizers: Array, deviation: Array) -> tuple[Array, Array]:
    """C1 and C2 as combinations of the functionals: those that are 0, those that are positive.

    (S, P, d + d (d - 1) / 2, F + 1) and (S, P, 1 + d, F + 1), in units of the prior deviations; a
    row of zeros is no condition.
    """
    settings, count, d = maximizers.shape
    pairs, axes, size = _pairs(d), np.arange(d), deviation.shape[1]
    interior = (maximizers > _FACE) & (maximizers < 1.0 - _FACE)
    outward = np.where(interior, 0.0, np.where(maximizers > 0.5, 1.0, -1.0))
    off = pairs.off_diagonal

    equalities = np.zeros((settings, count, d + len(off), size))
    equalities[..., axes, 1 + axes] = interior
    both = interior[..., pairs.i[off]] & interior[..., pairs.j[off]]
    equalities[..., d + np.arange(len(off)), 1 + d + off] = both

    inequalities = np.zeros((settings, count, 1 + d, size))
    inequalities[..., 0, 0], inequalities[..., 0, -1] = 1.0, -1.0
    inequalities[..., 1 + axes, 1 + d + pairs.diagonal] = -interior.astype(float)
    inequalities[..., 1 + axes, 1 + axes] = outward
    return equalities / deviation[:, None, None, :], inequalities / deviation[:, None, None, :]


def _inverse_factor(matrix: Array) -> Array:
    """L⁻¹ of matrices (..., q, q), each with the least jitter of its diagonal that it needs."""
    try:
        return np.linalg.inv(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        if matrix.ndim > 2:
            return np.stack([_inverse_factor(one) for one in matrix])
    for jitter in 10.0 ** np.arange(-9.0, -2.0):
        try:
            jittered = matrix + jitter * np.diag(np.diagonal(matrix))
            return np.linalg.inv(np.linalg.cholesky(jittered))
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError(
        "the covariance of gradient and Hessian is not positive definite, even with a jitter of "
        "1e-3: raise the least noise of the measurements"
    )


def _expectation_propagation(
    covariance: Array, mean: Array, softening: Array
) -> tuple[Array, Array]:
    """Gaussian sites for u + noise > 0, u ~ N(mean, covariance), noise ~ N(0, softening).

    Returns precisions and precision-times-means (..., q) of the sites (their section 2.2; Minka
    2001). The factors are log-concave, so no precision is negative, and none exceeds 1 / softening
    even where the conditions contradict each other. The cavity of a site comes from the prior and
    the other sites, not by subtracting the site from the posterior, which would cancel for a
    strong site. All problems sweep together until the last one rests.
    """
    precision, shift = np.zeros_like(mean), np.zeros_like(mean)
    eye = np.eye(mean.shape[-1])
    for sweep in range(_SWEEPS):
        step = 1.0 if sweep < _UNDAMPED else 0.5
        before = precision.copy(), shift.copy()
        for site in range(mean.shape[-1]):
            others = np.where(eye[site] > 0.0, 0.0, precision)
            root = np.sqrt(others)
            row = covariance[..., site, :]
            system = eye + root[..., :, None] * covariance * root[..., None, :]
            solution = root * np.linalg.solve(system, (root * row)[..., None])[..., 0]
            row = row - (solution[..., None, :] @ covariance)[..., 0, :]  # given the other sites
            pull = np.where(eye[site] > 0.0, 0.0, shift) - others * mean
            cavity = np.maximum(row[..., site], 0.0)  # rounding
            deviation = np.sqrt(cavity + softening[..., site])
            alpha = (mean[..., site] + np.sum(row * pull, axis=-1)) / deviation
            hazard, share, rest, _ = _truncation(alpha)
            width = cavity * rest + softening[..., site]
            new_precision = share / width
            new_shift = (hazard + alpha - alpha * rest) * deviation / width
            precision[..., site] += step * (new_precision - precision[..., site])
            shift[..., site] += step * (new_shift - shift[..., site])
        if np.all(np.abs(precision - before[0]) <= _TOLERANCE * (1.0 + precision)) and np.all(
            np.abs(shift - before[1]) <= _TOLERANCE * (1.0 + np.abs(shift))
        ):
            break
    return precision, shift


def _truncation(alpha: Array) -> tuple[Array, Array, Array, Array]:
    """Moments of a normal cut at alpha deviations below its mean, with relative precision.

    Returns the hazard λ = φ/Φ at alpha, the share δ = λ(λ + alpha) of the variance that the cut
    takes away, 1 - δ, and dδ/dalpha. In the lower tail λ + alpha cancels; there, with t = -alpha,
    λ - t = 1 / (t + ω), ω = 2 / (t + 3 / (t + ...)), Laplace's continued fraction, of which 15
    terms are exact to rounding for t > 10.
    """
    tail = alpha < -10.0
    body = np.where(tail, 0.0, alpha)
    hazard = _ROOT_2_OVER_PI / erfcx(-_ROOT_HALF * body)
    share = hazard * (hazard + body)
    rest = 1.0 - share
    slope = hazard - share * (2.0 * hazard + body)
    if np.any(tail):
        t = -alpha[tail]
        omega = np.zeros_like(t)
        for term in range(16, 1, -1):
            omega = term / (t + omega)
        excess = 1.0 / (t + omega)  # λ - t
        left = (t * omega + omega * omega - 1.0) * excess * excess
        hazard[tail], share[tail], rest[tail] = t + excess, 1.0 - left, left
        slope[tail] = left * (t + 2.0 * excess) - excess
    return hazard, share, rest, slope
