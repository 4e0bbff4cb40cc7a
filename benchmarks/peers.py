"""The tools we compare: each suggests the next point of a maximisation on the unit cube.

An adapter does what the tool's own users do in a sequential loop. Packages are imported by the
constructors: a process pays only for the tool it uses.
"""

import os
from typing import ClassVar

import numpy as np


class Tool:
    """One way to choose the next point; made afresh for each run by `tool(d, seed)`."""

    name: ClassVar[str]
    imports: ClassVar[str]  # what a user's script has to import
    packages: ClassVar[tuple[str, ...]]  # whose versions matter
    told = 0

    def suggest(self, X, y):
        """The point (d,) to measure next, given all data so far.

        X (n, d) and y (n,) only grow from call to call: the tool is told the new rows.
        """
        for x, value in zip(X[self.told :], y[self.told :], strict=True):
            self._tell(x, float(value))
        self.told = len(y)
        return self._ask(X, y)

    def _tell(self, x, value):
        pass

    def _ask(self, X, y):
        raise NotImplementedError


class RMES(Tool):
    """`rmes.Optimizer` with its defaults; the noise is inferred."""

    name = "rmes"
    imports = "import rmes"
    packages = ("rmes", "numpy", "scipy")

    def __init__(self, d, seed):
        import rmes

        space = {f"x{i}": (0.0, 1.0) for i in range(d)}
        self.optimizer = rmes.Optimizer(space, direction="maximize", noise_sd=None, seed=seed)
        self.trial = None

    def _tell(self, x, value):
        asked = self.trial is not None and self.trial.params == named(x)
        self.optimizer.tell(self.trial if asked else named(x), value)

    def _ask(self, X, y):
        self.trial = self.optimizer.ask()
        return point(self.trial.params)


class OptunaGP(Tool):
    """Optuna's `GPSampler` with its defaults (log expected improvement), one study throughout."""

    name = "optuna-gp"
    imports = "import optuna; from optuna.samplers import GPSampler"
    packages = ("optuna", "greenlet", "torch", "numpy", "scipy")

    def __init__(self, d, seed):
        import optuna

        limit_torch()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = {f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(d)}
        sampler = optuna.samplers.GPSampler(seed=seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.trial = None

    def _tell(self, x, value):
        from optuna.trial import create_trial

        if self.trial is not None and self.trial.params == named(x):
            self.study.tell(self.trial, value)
        else:
            trial = create_trial(params=named(x), distributions=self.space, value=value)
            self.study.add_trial(trial)

    def _ask(self, X, y):
        self.trial = self.study.ask(self.space)
        return point(self.trial.params)


class BoTorch(Tool):
    """`SingleTaskGP`, default priors, standardised y; subclasses give the acquisition."""

    imports = (
        "import torch; from botorch.fit import fit_gpytorch_mll; "
        "from botorch.models import SingleTaskGP; from botorch.optim import optimize_acqf"
    )
    packages = ("botorch", "gpytorch", "torch", "numpy", "scipy")
    warm = True  # fit from the last setting, as the closed-loop tutorial does to be quick

    def __init__(self, d, seed):
        import torch

        limit_torch()
        torch.manual_seed(seed)
        self.bounds = torch.stack([torch.zeros(d), torch.ones(d)]).double()
        self.fitted = []  # the hyperparameters of the last model

    def _ask(self, X, y):
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.optim import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        X = torch.from_numpy(X)
        model = SingleTaskGP(X, torch.from_numpy(y)[:, None])
        if self.warm and self.fitted:  # not `load_state_dict`: it brings the old scale of y along
            for parameter, value in zip(model.parameters(), self.fitted, strict=True):
                parameter.data.copy_(value)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self.fitted = [parameter.detach().clone() for parameter in model.parameters()]
        acquisition = self._acquisition(model, X)
        x, _ = optimize_acqf(acquisition, self.bounds, q=1, num_restarts=10, raw_samples=512)
        return x[0].numpy()


class BoTorchMES(BoTorch):
    """Max-value entropy search with BoTorch's defaults over 1,000 Sobol candidates."""

    name = "botorch-mes"

    def _acquisition(self, model, X):
        from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
        from botorch.utils.sampling import draw_sobol_samples

        return qMaxValueEntropy(model, draw_sobol_samples(self.bounds, n=1000, q=1)[:, 0])


class BoTorchLogNEI(BoTorch):
    """Log noisy expected improvement, as BoTorch advises for noisy data."""

    name = "botorch-lognei"

    def _acquisition(self, model, X):
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement

        return qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)


class BayesOpt(Tool):
    """bayesian-optimization: its own GP (one length-scale, no noise) and expected improvement."""

    name = "bayes-opt"
    imports = "import bayes_opt"
    packages = ("bayesian-optimization", "scikit-learn", "numpy", "scipy")

    def __init__(self, d, seed):
        from bayes_opt import BayesianOptimization, acquisition

        self.optimizer = BayesianOptimization(
            f=None,
            pbounds={f"x{i}": (0.0, 1.0) for i in range(d)},
            acquisition_function=acquisition.ExpectedImprovement(xi=0.01),
            random_state=seed,
            verbose=0,
            allow_duplicate_points=True,
        )

    def _tell(self, x, value):
        self.optimizer.register(named(x), value)

    def _ask(self, X, y):
        return point(self.optimizer.suggest())


class Random(Tool):
    """Uniform points: what any model has to beat."""

    name = "random"
    imports = "import numpy"
    packages = ("numpy",)

    def __init__(self, d, seed):
        self.d, self.rng = d, np.random.default_rng(seed)

    def _ask(self, X, y):
        return self.rng.random(self.d)


def named(x):
    return {f"x{i}": float(value) for i, value in enumerate(x)}


def point(params):
    return np.array([params[f"x{i}"] for i in range(len(params))])


def limit_torch():
    """Give torch one thread where OpenMP has one: it keeps a count of its own."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        import torch

        torch.set_num_threads(1)


TOOLS = {t.name: t for t in (RMES, OptunaGP, BoTorchMES, BoTorchLogNEI, BayesOpt, Random)}
