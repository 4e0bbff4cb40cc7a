"""Answers for any study, whichever sampler made it."""

from collections.abc import Mapping
from dataclasses import replace

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from rmes.optimizer import Optimizer
from rmes.optuna import board
from rmes.optuna.evidence import direction_of, gather, histories, retried
from rmes.optuna.sampler import RMESSampler
from rmes.optuna.spaces import outward, shared, to_space
from rmes.report import Outlook, Recommendation
from rmes.settings import Settings
from rmes.trials import NoiseAt


def optimizer_of(
    study: Study,
    *,
    noise_sd: float | NoiseAt | None = None,
    seed: int = 0,
    search_space: Mapping[str, BaseDistribution] | None = None,
    settings: Settings | None = None,
) -> Optimizer:
    """An `rmes.Optimizer` that has been told all trials of a study, whatever sampler made them.

    Parameters
    ----------
    study : Study
        With a single objective.
    noise_sd : None, number or callable
        Of measurements without the user attribute "noise_sd", as for `rmes.Optimizer`. None takes
        that of the study's sampler if it is an `RMESSampler`, and infers it otherwise.
    seed : int
    search_space : mapping, optional
        Name -> Optuna distribution; by default the parameters that all complete trials share.
    settings : Settings, optional
    """
    direction = direction_of(study)
    if noise_sd is None and isinstance(study.sampler, RMESSampler):
        noise_sd = study.sampler.noise_sd
    distributions = shared(study) if search_space is None else search_space
    trials = study.get_trials(deepcopy=False)
    told = gather(trials, board.read(study), distributions, retried(trials))
    return told.optimizer(to_space(distributions), direction, noise_sd, seed, settings)


def recommend(
    study: Study, among: str = "anywhere", *, noise_sd: float | NoiseAt | None = None
) -> Recommendation:
    """The best parameters of a study as far as a model of all its trials can tell.

    Unlike `study.best_params` this is not the luckiest measurement, and says how sure it is.

    Parameters
    ----------
    study : Study
        With a single objective, made by any sampler.
    among : "anywhere" or "measured"
        The optimum of the posterior mean over the whole space, or over the trials' points.
    noise_sd : None, number or callable
        As for `optimizer_of`.
    """
    direction_of(study)  # before the parameters are compared: it says more
    common = shared(study)
    optimizer = optimizer_of(study, noise_sd=noise_sd, search_space=common)
    found = optimizer.recommend(among)
    return replace(
        found,
        params=outward(found.params, common),
        observed_params=outward(found.observed_params, common),
    )


def outlook(study: Study, *, noise_sd: float | NoiseAt | None = None) -> Outlook:
    """What is still to gain in a study: where the optimum lies and how far the answer is from it.

    Parameters
    ----------
    study : Study
        With a single objective, made by any sampler.
    noise_sd : None, number or callable
        As for `optimizer_of`.
    """
    return optimizer_of(study, noise_sd=noise_sd).outlook()


def reason_of(study: Study, trial: FrozenTrial) -> str | None:
    """Why `RMESSampler` suggested the parameters of a trial; None if it did not."""
    written = board.read(study)
    (died,) = histories([trial])  # it may have the parameters of one of these
    reasons = (written.reason(number) for number in (trial.number, *reversed(died)))
    return next((reason for reason in reasons if reason is not None), None)
