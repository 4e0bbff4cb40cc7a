"""Optuna: a sampler, and answers for any study.

>>> import optuna
>>> from rmes.optuna import RMESSampler, outlook, recommend
>>> study = optuna.create_study(sampler=RMESSampler(seed=0))  # doctest: +SKIP
>>> study.optimize(objective, n_trials=30)  # doctest: +SKIP
>>> print(recommend(study), outlook(study))  # doctest: +SKIP

Nothing is kept between suggestions: each is computed from the study's trials, the seed and the
number of the trial, so that any process can make the next one and a resumed study is the same one.
"""

try:
    import optuna  # noqa: F401
except ImportError as error:
    raise ImportError('rmes.optuna needs Optuna: pip install "rmes[optuna]"') from error

from rmes.optuna.answers import optimizer_of, outlook, reason_of, recommend
from rmes.optuna.evidence import NOISE_SD, retry_running
from rmes.optuna.sampler import RMESSampler
from rmes.optuna.spaces import distributions_of, space_of

__all__ = [
    "NOISE_SD",
    "RMESSampler",
    "distributions_of",
    "optimizer_of",
    "outlook",
    "reason_of",
    "recommend",
    "retry_running",
    "space_of",
]
