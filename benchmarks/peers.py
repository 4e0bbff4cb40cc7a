"""The tools we compare: each suggests the next point of a maximisation on the unit cube.

An adapter does what the tool's own users do in a sequential loop, and gives the answer that the
tool's documentation tells them to take. Packages are imported by the constructors: a process pays
only for the tool it uses.
"""

import os
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np


class Tool:
    """One way to choose points and to answer; made afresh for each run by `tool(d, seed)`.

    `exact` says that measurements have no noise, for the tools that want to know.
    """

    name: ClassVar[str]
    imports: ClassVar[str]  # what a user's script has to import
    packages: ClassVar[tuple[str, ...]]  # whose versions matter
    told = 0

    def suggest(self, X, y):
        """The point (d,) to measure next, given all data so far.

        X (n, d) and y (n,) only grow from call to call: the tool is told the new rows.
        """
        self._learn(X, y)
        return self._ask(X, y)

    def answer(self, X, y):
        """The point (d,) that the tool's documentation tells its users to take.

        Most tools point at the best single measurement (`best_params`, `max`, `x`).
        """
        self._learn(X, y)
        return X[np.argmax(y)]

    def believed(self, X, y):
        """The optimum (d,) of the posterior mean, or None where the tool cannot give it."""

    def _learn(self, X, y):
        for x, value in zip(X[self.told :], y[self.told :], strict=True):
            self._tell(x, float(value))
        self.told = len(y)

    def _tell(self, x, value):
        pass

    def _ask(self, X, y):
        raise NotImplementedError


class RMES(Tool):
    """`rmes.Optimizer` with its defaults; the noise is inferred."""

    name = "rmes"
    imports = "import rmes"
    packages = ("rmes", "numpy", "scipy")
    settings: ClassVar[dict] = {}

    def __init__(self, d, seed, exact=False):
        import rmes
        from rmes.settings import Settings

        self.optimizer = rmes.Optimizer(
            {f"x{i}": (0.0, 1.0) for i in range(d)},
            direction="maximize",
            noise_sd=0.0 if exact else None,
            seed=seed,
            settings=Settings(**self.settings),
        )
        self.trial = None

    def _tell(self, x, value):
        asked = self.trial is not None and self.trial.params == named(x)
        self.optimizer.tell(self.trial if asked else named(x), value)

    def _ask(self, X, y):
        self.trial = self.optimizer.ask()
        return point(self.trial.params)

    def answer(self, X, y):
        self._learn(X, y)
        return point(self.optimizer.recommend().params)

    believed = answer


class OurMES(RMES):
    """Max-value entropy search of the latent function, on our model."""

    name = "rmes:mes"
    settings: ClassVar[dict] = {"acquisition": "mes"}


class OurLogEI(RMES):
    """Log expected improvement over the best posterior mean, on our model."""

    name = "rmes:log-ei"
    settings: ClassVar[dict] = {"acquisition": "log-ei"}


class OurUCB(RMES):
    """The upper confidence bound, on our model."""

    name = "rmes:ucb"
    settings: ClassVar[dict] = {"acquisition": "ucb"}


class OurPES(RMES):
    """Predictive entropy search, on our model."""

    name = "rmes:pes"
    settings: ClassVar[dict] = {"acquisition": "pes"}


class Optuna(Tool):
    """One study throughout; subclasses give the sampler."""

    def __init__(self, d, seed, exact=False):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = {f"x{i}": optuna.distributions.FloatDistribution(0, 1) for i in range(d)}
        self.study = optuna.create_study(direction="maximize", sampler=self._sampler(seed, exact))
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

    def answer(self, X, y):
        self._learn(X, y)
        return point(self.study.best_params)


class OptunaGP(Optuna):
    """Optuna's `GPSampler` with its defaults (log expected improvement)."""

    name = "optuna-gp"
    imports = "import optuna; from optuna.samplers import GPSampler"
    packages = ("optuna", "greenlet", "torch", "numpy", "scipy")

    def _sampler(self, seed, exact):
        from optuna.samplers import GPSampler

        limit_torch()
        return GPSampler(seed=seed, deterministic_objective=exact)


class OptunaTPE(Optuna):
    """Optuna's `TPESampler` with its defaults: what `create_study` takes."""

    name = "optuna-tpe"
    imports = "import optuna"
    packages = ("optuna", "numpy", "scipy")

    def _sampler(self, seed, exact):
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed)


class BoTorch(Tool):
    """`SingleTaskGP`, default priors, standardised y; subclasses give the acquisition."""

    imports = (
        "import torch; from botorch.fit import fit_gpytorch_mll; "
        "from botorch.models import SingleTaskGP; from botorch.optim import optimize_acqf"
    )
    packages = ("botorch", "gpytorch", "torch", "numpy", "scipy")
    warm = True  # fit from the last setting, as the closed-loop tutorial does to be quick

    def __init__(self, d, seed, exact=False):
        import torch

        limit_torch()
        torch.manual_seed(seed)
        self.bounds = torch.stack([torch.zeros(d), torch.ones(d)]).double()
        self.fitted = []  # the hyperparameters of the last model
        self.model = None

    def _ask(self, X, y):
        import torch

        self.model = self._fit(X, y)
        return self._climb(self._acquisition(self.model, torch.from_numpy(X)))

    def believed(self, X, y):
        import torch
        from botorch.acquisition import PosteriorMean

        with torch.random.fork_rng(devices=[]):  # asking for an answer must not change the run
            model = self.model
            if model is None or len(model.train_targets) != len(y):
                model = self._fit(X, y)
            return self._climb(PosteriorMean(model))

    def _climb(self, acquisition):
        from botorch.optim import optimize_acqf

        x, _ = optimize_acqf(acquisition, self.bounds, q=1, num_restarts=10, raw_samples=512)
        return x[0].numpy()

    def _fit(self, X, y):
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        X = torch.from_numpy(X)
        model = SingleTaskGP(X, torch.from_numpy(y)[:, None])
        if self.warm and self.fitted:  # not `load_state_dict`: it brings the old scale of y along
            for parameter, value in zip(model.parameters(), self.fitted, strict=True):
                parameter.data.copy_(value)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        self.fitted = [parameter.detach().clone() for parameter in model.parameters()]
        return model


class BoTorchMES(BoTorch):
    """Max-value entropy search with BoTorch's defaults over 1,000 Sobol candidates."""

    name = "botorch-mes"

    def _acquisition(self, model, X):
        from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
        from botorch.utils.sampling import draw_sobol_samples

        return qMaxValueEntropy(model, draw_sobol_samples(self.bounds, n=1000, q=1)[:, 0])


class BoTorchGIBBON(BoTorch):
    """GIBBON (`qLowerBoundMaxValueEntropy`) with BoTorch's defaults over 1,000 candidates."""

    name = "botorch-gibbon"

    def _acquisition(self, model, X):
        from botorch.acquisition.max_value_entropy_search import qLowerBoundMaxValueEntropy
        from botorch.utils.sampling import draw_sobol_samples

        candidates = draw_sobol_samples(self.bounds, n=1000, q=1)[:, 0]
        return qLowerBoundMaxValueEntropy(model, candidates)


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

    def __init__(self, d, seed, exact=False):
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

    def answer(self, X, y):
        self._learn(X, y)
        return point(self.optimizer.max["params"])


class Skopt(Tool):
    """scikit-optimize's `Optimizer` with its defaults (GP, hedge of three acquisitions)."""

    name = "skopt"
    imports = "import skopt"
    packages = ("scikit-optimize", "scikit-learn", "numpy", "scipy")

    def __init__(self, d, seed, exact=False):
        from skopt import Optimizer

        self.optimizer = Optimizer([(0.0, 1.0)] * d, random_state=seed)

    def _tell(self, x, value):
        self.optimizer.tell(list(map(float, x)), -value)

    def _ask(self, X, y):
        return np.array(self.optimizer.ask())

    def answer(self, X, y):
        self._learn(X, y)
        return np.array(self.optimizer.get_result().x)

    def believed(self, X, y):
        from skopt.utils import expected_minimum

        self._learn(X, y)
        x, _ = expected_minimum(self.optimizer.get_result(), random_state=0)
        return np.array(x)


class SMAC(Tool):
    """SMAC3's `BlackBoxFacade` with its defaults, told that measurements are noisy.

    It repeats its best points, each time under another seed, and answers with its incumbent.
    """

    name = "smac"
    imports = "import smac"
    packages = ("smac", "configspace", "scikit-learn", "numpy", "scipy")

    def __init__(self, d, seed, exact=False):
        from ConfigSpace import ConfigurationSpace
        from smac import BlackBoxFacade, Scenario

        self.folder = tempfile.TemporaryDirectory()  # it writes its history as it goes
        self.space = ConfigurationSpace({f"x{i}": (0.0, 1.0) for i in range(d)}, seed=seed)
        scenario = Scenario(
            self.space,
            deterministic=exact,
            n_trials=1000,
            seed=seed,
            output_directory=Path(self.folder.name),
        )
        self.facade = BlackBoxFacade(
            scenario,
            target_function=lambda config, seed=0: 0.0,  # the facade wants one and never calls it
            initial_design=BlackBoxFacade.get_initial_design(scenario, n_configs=0),
            overwrite=True,
            logging_level=False,
        )
        self.asked = None

    def _tell(self, x, value):
        from ConfigSpace import Configuration
        from smac.runhistory.dataclasses import TrialInfo, TrialValue

        if self.asked is not None and np.array_equal(point(self.asked.config), x):
            info = self.asked
        else:
            info = TrialInfo(Configuration(self.space, values=named(x)), seed=0)
        self.facade.tell(info, TrialValue(cost=-value))

    def _ask(self, X, y):
        self.asked = self.facade.ask()
        return point(self.asked.config)

    def answer(self, X, y):
        self._learn(X, y)
        return point(self.facade.intensifier.get_incumbent())


class Random(Tool):
    """Uniform points: what any model has to beat."""

    name = "random"
    imports = "import numpy"
    packages = ("numpy",)

    def __init__(self, d, seed, exact=False):
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


TOOLS = {
    t.name: t
    for t in (
        RMES,
        OurMES,
        OurLogEI,
        OurUCB,
        OurPES,
        OptunaGP,
        OptunaTPE,
        BoTorchLogNEI,
        BoTorchMES,
        BoTorchGIBBON,
        BayesOpt,
        Skopt,
        SMAC,
        Random,
    )
}
