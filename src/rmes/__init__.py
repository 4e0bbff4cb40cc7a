"""Bayesian optimisation for noisy, expensive measurements."""

__version__ = "0.1.0"
