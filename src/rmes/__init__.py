"""Bayesian optimisation for noisy, expensive measurements.

>>> import rmes
>>> opt = rmes.Optimizer({"x": (0.0, 1.0)}, direction="maximize", seed=0)
>>> trial = opt.ask()
>>> _ = opt.tell(trial, 1.0 - (trial.params["x"] - 0.3) ** 2)
"""

import logging

from rmes import information as information
from rmes.minimize import maximize as maximize
from rmes.minimize import minimize as minimize
from rmes.optimizer import Optimizer as Optimizer
from rmes.optimizer import SpaceExhausted as SpaceExhausted
from rmes.report import Outlook as Outlook
from rmes.report import Recommendation as Recommendation
from rmes.settings import Settings as Settings
from rmes.space import Categorical as Categorical
from rmes.space import Float as Float
from rmes.space import Integer as Integer
from rmes.trials import Trial as Trial

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
