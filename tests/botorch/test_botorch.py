"""RMES in BoTorch: the core's numbers, on BoTorch's models and in its loops."""

import importlib

import numpy as np
import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.testing import MockModel, MockPosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import ExactMarginalLogLikelihood

import rmes.botorch
from rmes import information
from rmes.botorch import RectifiedMaxValueEntropy

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
MAXIMA = torch.tensor([0.9, 1.4, 1.1, 2.0], dtype=torch.double)

# Ours is double precision on the unit cube with standardised values, but where that is the point.
pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning",
)


@pytest.fixture(autouse=True)
def seeded():
    torch.set_num_threads(1)
    torch.manual_seed(20261115)


def measured(count=20, dtype=torch.double):
    x = torch.rand(count, 2, dtype=dtype)
    y = torch.sin(5 * x[:, :1]) + x[:, 1:] + 0.1 * torch.randn(count, 1, dtype=dtype)
    return x, (y - y.mean()) / y.std()


@pytest.fixture
def data():
    return measured()


@pytest.fixture
def model(data):
    return with_noise(SingleTaskGP(*data, outcome_transform=None), 0.05)


def with_noise(model, variance):
    model.likelihood.noise = variance
    model.covar_module.lengthscale = 0.4
    return model


def moments(model, x, noise, **options):
    posterior = model.posterior(x, **options)
    shape = posterior.mean.shape[:-2]
    return (
        posterior.mean.reshape(shape).detach().numpy(),
        posterior.variance.reshape(shape).detach().numpy(),
        noise,
    )


# ------------------------------------------------------------------ the core's numbers


@pytest.mark.parametrize("log", [True, False])
def test_values_are_those_of_the_core(model, log):
    x = torch.rand(7, 1, 2, dtype=torch.double)
    acquisition = RectifiedMaxValueEntropy(model, maxima=MAXIMA, log=log)
    formula = information.log_rmes if log else information.rmes
    expected = formula(*moments(model, x, model.likelihood.noise.item()), MAXIMA.numpy()).value
    np.testing.assert_allclose(acquisition(x).detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("log", [True, False])
def test_gradients_are_those_of_the_core(model, log):
    x = torch.rand(7, 1, 2, dtype=torch.double, requires_grad=True)
    acquisition = RectifiedMaxValueEntropy(model, maxima=MAXIMA, log=log)
    (gradient,) = torch.autograd.grad(acquisition(x).sum(), x)
    formula = information.log_rmes if log else information.rmes
    gain = formula(*moments(model, x, model.likelihood.noise.item()), MAXIMA.numpy())
    posterior = model.posterior(x)
    (by_mean,) = torch.autograd.grad(
        posterior.mean.flatten() @ torch.from_numpy(gain.by_mean), x, retain_graph=True
    )
    (by_variance,) = torch.autograd.grad(
        posterior.variance.flatten() @ torch.from_numpy(gain.by_variance), x
    )
    np.testing.assert_allclose(gradient, by_mean + by_variance, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("log", [True, False])
def test_gradcheck_passes(model, log):
    acquisition = RectifiedMaxValueEntropy(model, maxima=MAXIMA, log=log)
    x = torch.tensor([[[0.3, 0.8]], [[0.2, 0.7]], [[0.5, 0.9]]], dtype=torch.double)
    assert torch.autograd.gradcheck(acquisition, x.requires_grad_(), rtol=1e-5)


def test_gradcheck_passes_with_pending_points(model):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE)
    acquisition.set_X_pending(torch.tensor([[0.35, 0.85], [0.1, 0.2]], dtype=torch.double))
    x = torch.tensor([[[0.3, 0.8]], [[0.2, 0.7]]], dtype=torch.double)
    assert torch.autograd.gradcheck(acquisition, x.requires_grad_(), rtol=1e-5)


def test_it_is_the_same_each_time_and_for_the_same_seed(data):
    x = torch.rand(5, 1, 2, dtype=torch.double)
    values = []
    for _ in range(2):
        torch.manual_seed(1)
        acquisition = RectifiedMaxValueEntropy(SingleTaskGP(*data), bounds=SQUARE)
        values += [acquisition(x), acquisition(x)]
    assert all(torch.equal(value, values[0]) for value in values)


def test_the_information_is_positive_and_at_most_the_logarithm_of_the_number_of_maxima(model):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE, num_mv_samples=8, log=False)
    value = acquisition(torch.rand(200, 1, 2, dtype=torch.double))
    assert torch.all(value >= 0)
    assert torch.all(value <= np.log(8))


# ------------------------------------------------------------------ models


def test_rows_of_a_batch_do_not_interact(model):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE)
    x = torch.rand(4, 3, 1, 2, dtype=torch.double)
    value = acquisition(x)
    assert value.shape == (4, 3)
    torch.testing.assert_close(value[2, 1], acquisition(x[2, 1])[0], rtol=1e-8, atol=1e-8)


def test_noise_of_each_measurement_counts_by_its_mean(data):
    x, y = data
    variances = torch.linspace(0.01, 0.09, len(y), dtype=torch.double)[:, None]
    model = SingleTaskGP(x, y, train_Yvar=variances, outcome_transform=None)
    points = torch.rand(5, 1, 2, dtype=torch.double)
    expected = information.log_rmes(*moments(model, points, 0.05), MAXIMA.numpy()).value
    value = RectifiedMaxValueEntropy(model, maxima=MAXIMA)(points).detach()
    np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("transform", [None, ScalarizedPosteriorTransform(torch.tensor([-2.0]))])
def test_noise_that_is_the_same_everywhere_is_asked_for_once(data, given, transform):
    x, y = data
    noise = {"train_Yvar": torch.rand_like(y)} if given else {}
    model = SingleTaskGP(x, 3.0 + 5.0 * y, outcome_transform=Standardize(1), **noise)
    acquisition = RectifiedMaxValueEntropy(
        model, maxima=3.0 + 5.0 * MAXIMA, posterior_transform=transform
    )
    points = torch.rand(7, 1, 2, dtype=torch.double)
    once = acquisition(points)
    assert acquisition._level is not None
    acquisition._level = None
    torch.testing.assert_close(once, acquisition(points), rtol=1e-10, atol=0.0)


def test_an_outcome_transform_changes_nothing_but_the_units(data):
    x, y = data
    scaled = SingleTaskGP(
        10 + 3 * x,
        100 + 5 * y,
        outcome_transform=Standardize(1),
        input_transform=Normalize(2, bounds=10 + 3 * SQUARE),
    )
    plain = SingleTaskGP(x, y, outcome_transform=None)
    points = torch.rand(5, 1, 2, dtype=torch.double)
    expected = RectifiedMaxValueEntropy(plain, maxima=MAXIMA)(points)
    value = RectifiedMaxValueEntropy(scaled, maxima=100 + 5 * MAXIMA)(10 + 3 * points)
    torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-7)
    drawn = RectifiedMaxValueEntropy(scaled, bounds=10 + 3 * SQUARE).maxima
    assert torch.all(drawn > 100 + 5 * y.mean())
    assert torch.all(drawn < 100 + 5 * 2 * y.max())


def test_a_posterior_transform_makes_one_objective_of_two_outputs(data):
    x, y = data
    transform = ScalarizedPosteriorTransform(torch.tensor([0.25, -0.75], dtype=torch.double))
    one = with_noise(SingleTaskGP(x, y, outcome_transform=None), 0.05)
    pair = ModelListGP(one, with_noise(SingleTaskGP(x, -y, outcome_transform=None), 0.05))
    points = torch.rand(5, 1, 2, dtype=torch.double)
    noise = one.likelihood.noise.item() * (0.25**2 + 0.75**2)
    known = moments(pair, points, noise, posterior_transform=transform)
    acquisition = RectifiedMaxValueEntropy(pair, maxima=MAXIMA, posterior_transform=transform)
    expected = information.log_rmes(*known, MAXIMA.numpy()).value
    np.testing.assert_allclose(acquisition(points).detach(), expected, rtol=1e-9)
    acquisition = RectifiedMaxValueEntropy(pair, bounds=SQUARE, posterior_transform=transform)
    acquisition.set_X_pending(points[:2, 0])
    assert torch.isfinite(acquisition(points)).all()


def test_minimising_is_maximising_the_negative(data):
    x, y = data
    points = torch.rand(5, 1, 2, dtype=torch.double)
    up = with_noise(SingleTaskGP(x, y, outcome_transform=None), 0.05)
    down = with_noise(SingleTaskGP(x, -y, outcome_transform=None), 0.05)
    expected = RectifiedMaxValueEntropy(up, maxima=MAXIMA)(points)
    value = RectifiedMaxValueEntropy(down, maxima=-MAXIMA, maximize=False)(points)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    drawn = RectifiedMaxValueEntropy(down, bounds=SQUARE, maximize=False).maxima
    assert torch.all(drawn < 0)


def test_members_of_a_batched_model_have_their_own_maxima(data):
    x, y = data
    both = SingleTaskGP(x.expand(2, -1, -1), torch.stack([y, 3 * y + 1]), outcome_transform=None)
    acquisition = RectifiedMaxValueEntropy(both, bounds=SQUARE)
    assert acquisition.maxima.shape == (16, 2)
    points = torch.rand(4, 1, 1, 2, dtype=torch.double).expand(4, 2, 1, 2)
    value = acquisition(points)
    assert value.shape == (4, 2)
    posterior = both.posterior(points)
    for member in range(2):
        noise = both.likelihood.noise[member].item()
        expected = information.log_rmes(
            posterior.mean[:, member, 0, 0].detach().numpy(),
            posterior.variance[:, member, 0, 0].detach().numpy(),
            noise,
            acquisition.maxima[:, member].numpy(),
        )
        np.testing.assert_allclose(value[:, member].detach(), expected.value, rtol=1e-9)
    acquisition.set_X_pending(torch.rand(2, 2, dtype=torch.double))
    assert acquisition(points).shape == (4, 2)


class Ensemble(SingleTaskGP):
    """Batched settings of the hyperparameters to average over, as a fully Bayesian model has."""

    _is_ensemble = True

    def posterior(self, X, **options):
        return super().posterior(X.unsqueeze(-3), **options)


@pytest.mark.parametrize("log", [True, False])
def test_an_ensemble_is_averaged_as_information(data, log):
    x, y = data
    both = Ensemble(x.expand(2, -1, -1), torch.stack([y, y]), outcome_transform=None)
    both.covar_module.lengthscale = torch.tensor([[[0.2, 0.2]], [[0.6, 0.6]]])
    own = torch.stack([MAXIMA, MAXIMA + 0.5], dim=-1)
    points = torch.rand(5, 1, 2, dtype=torch.double)
    value = RectifiedMaxValueEntropy(both, maxima=own, log=log)(points).detach()
    members = []
    for member in range(2):
        alone = SingleTaskGP(x, y, outcome_transform=None)
        alone.covar_module.lengthscale = both.covar_module.lengthscale[member]
        acquisition = RectifiedMaxValueEntropy(alone, maxima=own[:, member], log=False)
        members.append(acquisition(points).detach())
    mean = torch.stack(members).mean(dim=0)
    torch.testing.assert_close(value, mean.log() if log else mean, rtol=1e-7, atol=1e-9)


def test_single_precision_is_the_double_one_rounded():
    x, y = measured(dtype=torch.float)
    single = with_noise(SingleTaskGP(x, y, outcome_transform=None), 0.05)
    double = with_noise(SingleTaskGP(x.double(), y.double(), outcome_transform=None), 0.05)
    points = torch.rand(6, 1, 2, requires_grad=True)
    maxima = MAXIMA.float()
    value = RectifiedMaxValueEntropy(single, maxima=maxima, log=False)(points)
    assert value.dtype == torch.float
    expected = RectifiedMaxValueEntropy(double, maxima=maxima, log=False)(points.double())
    torch.testing.assert_close(value.double(), expected, rtol=2e-2, atol=1e-4)
    value.sum().backward()
    assert points.grad.dtype == torch.float
    assert torch.isfinite(points.grad).all()
    acquisition = RectifiedMaxValueEntropy(single, bounds=SQUARE.float())
    acquisition.set_X_pending(torch.rand(2, 2))
    assert acquisition.maxima.dtype == torch.float
    assert torch.isfinite(acquisition(points)).all()


class Brownian:
    """No GPyTorch model and no paths: only a posterior."""

    num_outputs = 1

    def posterior(self, X, observation_noise=False, posterior_transform=None):
        line = X[..., 0]
        covariance = torch.minimum(line[..., :, None], line[..., None, :])
        jitter = 0.25 if observation_noise else 1e-9
        covariance = covariance + jitter * torch.eye(line.shape[-1], dtype=X.dtype)
        return GPyTorchPosterior(MultivariateNormal(torch.zeros_like(line), covariance))


def test_a_model_that_only_has_a_posterior_will_do():
    interval = torch.tensor([[0.01], [1.0]], dtype=torch.double)
    acquisition = RectifiedMaxValueEntropy(Brownian(), bounds=interval, num_mv_samples=4000)
    # The maximum of a Brownian motion up to 1 has the density 2φ: its mean is √(2/π) = 0.798.
    # 4000 draws have a standard error of 0.0095; looking at 1024 points takes 0.5826/32 off.
    assert acquisition.maxima.mean().item() == pytest.approx(0.798 - 0.018, abs=0.03)
    acquisition.set_X_pending(torch.tensor([[1.0]], dtype=torch.double))
    # The end is believed to be at 0 with a noise of 0.25 beside its variance of 1.
    assert acquisition.maxima.mean() < 0.75
    x = torch.tensor([[[0.5]], [[0.9]]], dtype=torch.double)
    assert torch.isfinite(acquisition(x)).all()


@pytest.mark.filterwarnings("ignore::linear_operator.utils.warnings.NumericalWarning")  # the grid
def test_draws_of_the_maximum_agree_with_those_on_a_fine_grid(model):
    axis = torch.linspace(0, 1, 21, dtype=torch.double)
    grid = torch.cartesian_prod(axis, axis)
    climbed = RectifiedMaxValueEntropy(model, bounds=SQUARE, num_mv_samples=200).maxima
    looked = RectifiedMaxValueEntropy(model, candidate_set=grid, num_mv_samples=200).maxima
    error = torch.sqrt((climbed.var() + looked.var()) / 200)
    assert torch.abs(climbed.mean() - looked.mean()) < 4 * error + 0.02  # 0.02: the grid's bias
    assert climbed.std() == pytest.approx(looked.std().item(), rel=0.25)


# ------------------------------------------------------------------ pending points


def test_pending_points_change_the_values_and_are_forgotten(model):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE)
    x, _ = optimize_acqf(acquisition, SQUARE, q=1, num_restarts=2, raw_samples=64)
    before = acquisition(x)
    acquisition.set_X_pending(x)
    assert acquisition(x) < before - 0.1  # a second measurement of a point tells less
    acquisition.set_X_pending(None)
    assert torch.equal(acquisition(x), before)
    acquisition.set_X_pending(x[:0])
    assert torch.equal(acquisition(x), before)


@pytest.mark.parametrize("given", [None, 0.05])
def test_pending_points_narrow_the_posterior_as_measurements_do(data, given):
    x, y = data
    pending, points = torch.rand(3, 2).double(), torch.rand(5, 1, 2).double()
    noise = {} if given is None else {"train_Yvar": torch.full_like(y, given)}
    model = SingleTaskGP(x, y, outcome_transform=None, **noise)
    level = model.likelihood.noise.flatten()[:1].item()
    believed = model.posterior(pending).mean.detach()
    more = {} if given is None else {"train_Yvar": torch.full((23, 1), given).double()}
    told = SingleTaskGP(
        torch.cat([x, pending]), torch.cat([y, believed]), outcome_transform=None, **more
    )
    acquisition = RectifiedMaxValueEntropy(model, maxima=MAXIMA, X_pending=pending)
    expected = information.log_rmes(*moments(told, points, level), MAXIMA.numpy()).value
    np.testing.assert_allclose(acquisition(points).detach(), expected, rtol=1e-6)


def test_pending_points_narrow_the_maxima(model):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE, num_mv_samples=64)
    before = acquisition.maxima.std()
    acquisition.set_X_pending(torch.rand(60, 2, dtype=torch.double))
    assert acquisition.maxima.std() < 0.8 * before


# ------------------------------------------------------------------ loops


@pytest.mark.parametrize("q", [1, 4])
def test_optimize_acqf_finds_points(model, q):
    acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE)
    points, value = optimize_acqf(
        acquisition, SQUARE, q=q, num_restarts=3, raw_samples=128, sequential=q > 1
    )
    assert points.shape == (q, 2)
    assert torch.all((points >= 0) & (points <= 1))
    looked = acquisition(torch.rand(256, 1, 2, dtype=torch.double)).max()
    assert value.reshape(-1)[0] >= looked - 1e-6
    assert acquisition.X_pending is None


def test_ax_can_build_it(model, data):
    construct = get_acqf_input_constructor(RectifiedMaxValueEntropy)
    x, y = data
    dataset = SupervisedDataset(x, y, feature_names=["a", "b"], outcome_names=["y"])
    inputs = construct(
        model=model,
        training_data={"y": dataset},
        bounds=[(0.0, 1.0), (0.0, 1.0)],
        objective=None,
        X_pending=x[:2] + 0.01,
        num_mv_samples=6,
    )
    acquisition = RectifiedMaxValueEntropy(**inputs)
    assert acquisition.maxima.shape == (6,)
    assert acquisition.X_pending.shape == (2, 2)
    assert acquisition(torch.rand(3, 1, 2, dtype=torch.double)).shape == (3,)


def test_importing_twice_is_harmless():
    again = importlib.reload(rmes.botorch)
    for version in (RectifiedMaxValueEntropy, again.RectifiedMaxValueEntropy):
        assert get_acqf_input_constructor(version)


def test_a_noisy_loop_ends_near_the_optimum():
    def bump(x):
        return 4 * torch.exp(-8 * (x - 0.7).square().sum(dim=-1, keepdim=True))

    x = torch.rand(5, 2, dtype=torch.double)
    y = bump(x) + 0.2 * torch.randn(5, 1, dtype=torch.double)
    for _ in range(8):
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = RectifiedMaxValueEntropy(model, bounds=SQUARE)
        new, _ = optimize_acqf(acquisition, SQUARE, q=1, num_restarts=2, raw_samples=64)
        x = torch.cat([x, new])
        y = torch.cat([y, bump(new) + 0.2 * torch.randn(1, 1, dtype=torch.double)])
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    best = x[model.posterior(x).mean.argmax()]
    assert bump(best) > 3.7  # of 4, with a noise of 0.2


# ------------------------------------------------------------------ bad input


def test_several_outputs_need_a_transform(data):
    x, y = data
    model = SingleTaskGP(x, torch.cat([y, -y], dim=-1))
    with pytest.raises(UnsupportedError, match=r"2 outputs.*posterior_transform"):
        RectifiedMaxValueEntropy(model, bounds=SQUARE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of bounds, candidate_set and maxima"),
        ({"bounds": SQUARE, "maxima": MAXIMA}, "exactly one"),
        ({"bounds": SQUARE.T[:1]}, r"\(1, 2\); expected \(2, d\)"),
        ({"candidate_set": SQUARE[None]}, r"not \(n, d\)"),
        ({"maxima": MAXIMA[:1]}, "expected at least 2"),
        ({"maxima": MAXIMA * np.nan}, "not finite"),
        ({"bounds": SQUARE, "num_mv_samples": 1}, "is 1; expected at least 2"),
    ],
)
def test_bad_arguments_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        RectifiedMaxValueEntropy(model, **options)


def test_pending_points_need_a_covariance():
    posterior = MockPosterior(mean=torch.zeros(1, 1), variance=torch.ones(1, 1))
    acquisition = RectifiedMaxValueEntropy(MockModel(posterior), maxima=MAXIMA)
    acquisition.set_X_pending(torch.rand(2, 2, dtype=torch.double))
    with pytest.raises(UnsupportedError, match="need a Gaussian posterior"):
        acquisition(torch.rand(1, 1, 2, dtype=torch.double))
