"""RMES as a BoTorch acquisition function, on the same formula as everywhere else.

>>> from botorch.optim import optimize_acqf
>>> from rmes.botorch import RectifiedMaxValueEntropy
>>> acquisition = RectifiedMaxValueEntropy(model, bounds=bounds)  # doctest: +SKIP
>>> candidates, value = optimize_acqf(  # doctest: +SKIP
...     acquisition, bounds, q=4, num_restarts=4, raw_samples=256, sequential=True
... )

Importing this module also registers the class's inputs, so that Ax can build it by its class.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmes import information, multistart

try:
    import torch
    from botorch.acquisition import AcquisitionFunction
    from botorch.acquisition.input_constructors import acqf_input_constructor
    from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
    from botorch.exceptions import UnsupportedError
    from botorch.models import SingleTaskGP
    from botorch.models.deterministic import MatheronPathModel
    from botorch.models.model import Model
    from botorch.models.transforms.outcome import Standardize
    from botorch.utils.sampling import draw_sobol_samples
    from botorch.utils.transforms import average_over_ensemble_models, t_batch_mode_transform
    from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
    from linear_operator.utils.cholesky import psd_safe_cholesky
    from torch import Tensor
    from torch.autograd.function import once_differentiable
except ImportError as error:
    raise ImportError('rmes.botorch needs BoTorch: pip install "rmes[botorch]"') from error

_CANDIDATES = 1024  # space-filling points at which draws of the function are looked at
_CLIMBS = 4  # starts for each drawn path
_ROUNDS = 12
_STEP = 0.2  # length-scale for the climbs, of the sides of the box
_TOLERANCE = 1e-4  # of the spread of a path over the box: what a further step would add


class RectifiedMaxValueEntropy(AcquisitionFunction):
    """The information that a noisy measurement at x gives about the maximum.

    The value is exact given the drawn maxima, never negative, and has an exact gradient; nothing
    in it is sampled but the maxima. A batch is built one point after another: `optimize_acqf` with
    ``sequential=True``, or `set_X_pending`.

    Parameters
    ----------
    model : Model
        With one output, or several that `posterior_transform` makes one. Its posterior is taken
        to be Gaussian, and the noise of a new measurement to be what the model says it is: the
        inferred level or, with `train_Yvar`, the mean of the given ones. Of batched models and
        ensembles each member has its own maxima.
    bounds : (2, d) tensor, optional
        Where the maximum is sought: posterior paths are drawn and climbed. For models whose paths
        BoTorch cannot draw, their posterior is drawn at 1024 space-filling points.
    candidate_set : (n, d) tensor, optional
        Where the maximum is sought, instead of `bounds`: for discrete spaces.
    maxima : (K,) or (K, *batch_shape) tensor, optional
        Draws of the maximum of your own (of the minimum unless `maximize`), instead of either.
        These are kept as they are when points are pending.
    num_mv_samples : int
        Maxima to draw, at least 2. The information is at most the logarithm of their number.
    posterior_transform : PosteriorTransform, optional
    maximize : bool
        Whether the largest value is sought.
    X_pending : (p, d) tensor, optional
        Points that are being measured. The model is conditioned on them at its own mean.
    log : bool
        Whether the value is the logarithm of the information in nats, as in BoTorch's LogEI
        family: the better one to climb, as its gradient does not vanish where there is next to
        nothing to learn. An acquisition to be divided by a cost, say, needs ``log=False``.

    Notes
    -----
    Draws come from torch's global generator: seed it with `torch.manual_seed`. The maxima do not
    change between evaluations, only when the pending points do.
    """

    def __init__(
        self,
        model: Model,
        *,
        bounds: Tensor | None = None,
        candidate_set: Tensor | None = None,
        maxima: Tensor | None = None,
        num_mv_samples: int = 16,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
        log: bool = True,
    ) -> None:
        super().__init__(model=model)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"the model has {model.num_outputs} outputs; expected one, or a "
                "posterior_transform that makes one of them"
            )
        if (bounds is None) + (candidate_set is None) + (maxima is None) != 2:
            raise ValueError("expected exactly one of bounds, candidate_set and maxima")
        if bounds is not None and (bounds.ndim != 2 or len(bounds) != 2):
            raise ValueError(f"bounds has shape {tuple(bounds.shape)}; expected (2, d)")
        if candidate_set is not None and candidate_set.ndim != 2:
            raise ValueError(f"candidate_set has shape {tuple(candidate_set.shape)}; not (n, d)")
        if maxima is not None and (maxima.ndim == 0 or len(maxima) < 2):
            raise ValueError(f"maxima has shape {tuple(maxima.shape)}; expected at least 2 of them")
        if maxima is not None and not torch.isfinite(maxima).all():
            raise ValueError("maxima holds a value that is not finite")
        if num_mv_samples < 2:
            raise ValueError(f"num_mv_samples is {num_mv_samples}; expected at least 2")
        self.posterior_transform = posterior_transform
        self.maximize = maximize
        self._log = log  # ensembles are then averaged by logmeanexp
        self._sign = 1.0 if maximize else -1.0
        self._count = num_mv_samples
        self._paths: MatheronPathModel | None = None
        self.register_buffer("_given", maxima)
        self._level: Tensor | None = None
        if _noise_is_constant(model, posterior_transform):
            place = model.train_inputs[0][:1]
            self._level = self._noise(place, self._posterior(place))
        with torch.no_grad():
            if bounds is not None:
                candidate_set = self._draw_paths(bounds)
            self.register_buffer("_candidates", candidate_set)
            self.register_buffer("_unconditioned", self._draw(None))
        self.register_buffer("_maxima", self._unconditioned)
        self.set_X_pending(X_pending)

    @property
    def maxima(self) -> Tensor:
        """The draws in use, (K, *batch_shape), in the units of the objective."""
        return self._sign * self._maxima

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take points (p, d) into account that are being measured; None or no rows: no longer."""
        if X_pending is not None and not X_pending.shape[-2]:
            X_pending = None
        super().set_X_pending(X_pending)
        self._maxima = self._unconditioned
        if self.X_pending is not None and self._given is None:
            with torch.no_grad():
                self._maxima = self._draw(self.X_pending)

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def forward(self, X: Tensor) -> Tensor:
        """The acquisition (b,) at points (b, 1, d)."""
        joint = X
        if self.X_pending is not None:
            pending = self.X_pending.to(X)
            joint = torch.cat([X, pending.expand(*X.shape[:-2], *pending.shape)], dim=-2)
        posterior = self._posterior(joint)
        noise = self._noise(joint, posterior)
        mean = self._sign * posterior.mean[..., 0, 0]
        variance = posterior.variance[..., 0, 0]
        if self.X_pending is not None:
            factor, cross = _pending_factor(_covariance(posterior), noise, len(pending))
            explained = torch.linalg.solve_triangular(factor, cross.mT, upper=False)
            variance = variance - explained.square().sum(dim=(-2, -1))
        return _Information.apply(
            mean, variance.clamp_min(0.0), noise[..., 0], self._maxima.to(X), self._log
        )

    def _posterior(self, X: Tensor, observation_noise: bool = False) -> Any:
        return self.model.posterior(
            X, observation_noise=observation_noise, posterior_transform=self.posterior_transform
        )

    @torch.no_grad()
    def _noise(self, X: Tensor, posterior: Any) -> Tensor:
        """The noise variance (..., q) of measurements at points (..., q, d)."""
        if self._level is not None:  # saves half of the time of a suggestion
            return self._level.to(X).expand(posterior.variance.shape[:-1])
        difference = self._posterior(X, True).variance - posterior.variance
        return difference[..., 0].clamp_min(0.0)

    def _objective(self, Y: Tensor) -> Tensor:
        """What is maximised (..., n), from outputs of the model (..., n, m)."""
        if self.posterior_transform is not None:
            transformed = self.posterior_transform.evaluate(Y)
            Y = transformed if transformed.ndim == Y.ndim else transformed.unsqueeze(-1)
        return self._sign * Y[..., 0]

    def _draw_paths(self, bounds: Tensor) -> Tensor:
        """Draw functions from the posterior if BoTorch can; points (n, d) where they are high."""
        filling = draw_sobol_samples(bounds, n=_CANDIDATES, q=1).squeeze(-2)
        shape = torch.Size([self._count])
        try:
            paths = MatheronPathModel(self.model, sample_shape=shape, ensemble_as_batch=True)
        except (NotImplementedError, UnsupportedError):
            return filling
        self._paths = paths
        drawn = self._objective(paths(filling))  # (K, *batch_shape, n)
        best = drawn.topk(_CLIMBS, dim=-1).indices
        low, side = bounds[0], bounds[1] - bounds[0]
        starts = _array((filling[best] - low) / side).reshape(-1, len(low))
        x = starts.copy()  # of all climbs: a path is evaluated at all of its points at once

        def along(moved: Any, rows: Any) -> tuple[Any, Any]:
            x[rows] = moved
            with torch.enable_grad():
                unit = torch.tensor(x, dtype=low.dtype, device=low.device, requires_grad=True)
                values = self._objective(paths((low + side * unit).reshape(*best.shape, -1)))
                (slopes,) = torch.autograd.grad(values.sum(), unit)
            return _array(values).ravel()[rows], _array(slopes)[rows]

        step = np.full(len(low), _STEP)
        found = multistart.climb(
            along, starts, step, _TOLERANCE * float(drawn.std()), None, _ROUNDS
        )
        places = low + side * torch.as_tensor(found.x, dtype=low.dtype, device=low.device)
        return torch.cat([filling, places])

    def _draw(self, pending: Tensor | None) -> Tensor:
        """Draws (K, *batch_shape) of the maximum, given measurements at the pending points.

        A draw f of the posterior becomes one of the conditioned posterior by Matheron's rule:
        f + Σ(·, P) (Σ(P, P) + noise)⁻¹ (μ(P) − f(P) − ε).
        """
        if self._given is not None:
            return self._sign * self._given
        points = self._candidates
        if pending is not None:
            points = torch.cat([points, pending.to(points)])
        if self._paths is not None:
            drawn = self._objective(self._paths(points))
        else:
            sample = self._posterior(points).sample(torch.Size([self._count]))
            drawn = self._sign * sample[..., 0]
        if pending is None:
            return drawn.amax(dim=-1)
        posterior, count = self._posterior(points), len(pending)
        noise = self._noise(points, posterior)
        factor, cross = _pending_factor(_covariance(posterior), noise, count)
        error = noise[..., -count:].sqrt() * torch.randn_like(drawn[..., -count:])
        surprise = self._sign * posterior.mean[..., -count:, 0] - drawn[..., -count:] - error
        moved = cross @ torch.cholesky_solve(surprise.unsqueeze(-1), factor)
        corrected = drawn[..., :-count] + moved.squeeze(-1)
        return corrected.amax(dim=-1)


def _noise_is_constant(model: Model, transform: PosteriorTransform | None) -> bool:
    """Whether measurements have the same noise variance everywhere: the usual case."""
    outcome = getattr(model, "outcome_transform", None)
    return (
        type(model) is SingleTaskGP
        and not model.batch_shape
        and model.num_outputs == 1
        and isinstance(model.likelihood, (GaussianLikelihood, FixedNoiseGaussianLikelihood))
        and (outcome is None or type(outcome) is Standardize)
        and (transform is None or type(transform) is ScalarizedPosteriorTransform)
    )


def _covariance(posterior: Any) -> Tensor:
    try:
        return posterior.distribution.covariance_matrix
    except (AttributeError, NotImplementedError):
        raise UnsupportedError(
            f"pending points need a Gaussian posterior with a covariance, not {type(posterior)}"
        ) from None


def _pending_factor(covariance: Tensor, noise: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cholesky factor of measurements at the last `count` points; their covariance with others."""
    own = covariance[..., -count:, -count:] + torch.diag_embed(noise[..., -count:])
    return psd_safe_cholesky(own), covariance[..., :-count, -count:]


class _Information(torch.autograd.Function):
    """`rmes.information` on tensors: mean, variance, noise (...,); maxima (K, *batch_shape)."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, variance: Tensor, noise: Tensor, maxima: Tensor, log: bool
    ) -> Tensor:
        """Value (...,)."""
        formula = information.log_rmes if log else information.rmes
        tops = _array(maxima)
        tops = tops.reshape(len(tops), *(1,) * (mean.ndim + 1 - tops.ndim), *tops.shape[1:])
        tops = np.broadcast_to(tops, (len(tops), *mean.shape)).reshape(len(tops), -1)
        mu, var, level = (_array(part).ravel() for part in (mean, variance, noise))
        gain = formula(mu, var, level, tops)
        ctx.slopes = gain.by_mean, gain.by_variance
        return _tensor(gain.value, mean)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """By mean and variance; noise and maxima are constants."""
        by_mean, by_variance = (_tensor(part, slope) for part in ctx.slopes)
        return slope * by_mean, slope * by_variance, None, None, None


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().double().numpy()


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(array, dtype=like.dtype, device=like.device).reshape(like.shape)


@acqf_input_constructor(RectifiedMaxValueEntropy)
def construct_inputs_rmes(
    model: Model,
    bounds: Sequence[tuple[float, float]],
    training_data: Any,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    num_mv_samples: int = 16,
    maximize: bool = True,
    log: bool = True,
) -> dict[str, Any]:
    """Arguments of `RectifiedMaxValueEntropy`, from what Ax knows.

    Parameters
    ----------
    model : Model
    bounds : sequence
        One (low, high) for each coordinate.
    training_data : SupervisedDataset or dictionary of them
    posterior_transform, X_pending, num_mv_samples, maximize, log
        As in `RectifiedMaxValueEntropy`.
    """
    data = next(iter(training_data.values())) if isinstance(training_data, dict) else training_data
    return {
        "model": model,
        "bounds": torch.as_tensor(bounds, dtype=data.X.dtype, device=data.X.device).T,
        "num_mv_samples": num_mv_samples,
        "posterior_transform": posterior_transform,
        "maximize": maximize,
        "X_pending": X_pending,
        "log": log,
    }
