"""The sampler of rmes: everything is in the package `rmes`, whose extra `optuna` is needed."""

from rmes.optuna import RMESSampler
from rmes.optuna import outlook
from rmes.optuna import recommend

__all__ = ["RMESSampler", "outlook", "recommend"]
