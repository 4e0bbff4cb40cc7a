"""Optuna's distributions as a space of rmes, and values of one as values of the other."""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.search_space import intersection_search_space
from optuna.study import Study

from rmes.space import Categorical, Float, Integer, Parameter, Space


def space_of(study: Study) -> Space:
    """The parameters that all complete trials of a study share, as a space of rmes.

    Conditional parameters, and those whose range has changed, are not in it. Choices that
    `rmes.Categorical` does not take (NaN, objects) are represented by strings.
    """
    return to_space(shared(study))


def distributions_of(space: Space | Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """A space of rmes as Optuna's distributions: for `study.ask`, or a sampler's search space."""
    read = space if isinstance(space, Space) else Space(space)
    return {name: _distribution(parameter) for name, parameter in read.parameters.items()}


def shared(study: Study) -> dict[str, BaseDistribution]:
    """The distributions that all complete trials of a study share: at least one."""
    trials = study.get_trials(deepcopy=False)
    found: dict[str, BaseDistribution] = intersection_search_space(trials)
    if not found:
        raise ValueError(
            f"the complete trials of study {study.study_name!r} have no parameter in common; "
            "at least one complete trial is needed, and one parameter of fixed range in all"
        )
    return found


def to_space(distributions: Mapping[str, BaseDistribution]) -> Space:
    """Distributions by name -> the space of rmes."""
    return Space({name: _parameter(each) for name, each in distributions.items()})


def _parameter(distribution: BaseDistribution) -> Parameter:
    if isinstance(distribution, FloatDistribution):
        return Float(
            distribution.low, distribution.high, log=distribution.log, step=distribution.step
        )
    if isinstance(distribution, IntDistribution):
        return Integer(
            distribution.low, distribution.high, log=distribution.log, step=distribution.step
        )
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(_labels(distribution))
    raise TypeError(f"{distribution!r} is of no kind known: float, integer or categorical")


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(parameter.choices)
    if isinstance(parameter, Integer):
        return IntDistribution(
            int(parameter.low), int(parameter.high), log=parameter.log, step=int(parameter.step)
        )
    return FloatDistribution(
        float(parameter.low), float(parameter.high), log=parameter.log, step=parameter.step
    )


def _labels(distribution: CategoricalDistribution) -> tuple[Any, ...]:
    """The choices, or numbered strings for those that cannot be compared or written down."""
    choices = tuple(distribution.choices)
    plain = all(isinstance(one, str | bool | int | float | None) for one in choices)
    if plain and all(one == one and choices.index(one) == i for i, one in enumerate(choices)):
        return choices
    return tuple(f"{i}: {one!r}" for i, one in enumerate(choices))


def inward(
    params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Values as Optuna has them -> as the space has them. Raises on those outside."""
    read = {}
    for name, distribution in distributions.items():
        value = params[name]
        if isinstance(distribution, CategoricalDistribution):
            value = _labels(distribution)[int(distribution.to_internal_repr(value))]
        elif isinstance(distribution, FloatDistribution | IntDistribution):
            right = isinstance(distribution, FloatDistribution) or value == int(value)
            right = right and not isinstance(value, bool)
            if not (right and distribution.low <= value <= distribution.high):
                raise ValueError(f"{name} is {value}, which is not in {distribution}")
        read[name] = value
    return read


def outward(
    params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> dict[str, Any]:
    """Values as the space has them -> as Optuna wants them, on its grids."""
    read = {}
    for name, value in params.items():
        distribution = distributions[name]
        if isinstance(distribution, CategoricalDistribution):
            value = distribution.choices[_labels(distribution).index(value)]
        elif isinstance(distribution, IntDistribution):
            level = round((value - distribution.low) / distribution.step)
            value = min(distribution.low + level * distribution.step, distribution.high)
        elif isinstance(distribution, FloatDistribution) and distribution.step is not None:
            level = round((value - distribution.low) / distribution.step)
            value = float(min(distribution.low + level * distribution.step, distribution.high))
        read[name] = value
    return read
