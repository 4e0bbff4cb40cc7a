"""Beyond the paper: what each of the two corrections brings, and what exact RMES saves."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rmes.evidence import log_evidence
from rmes.paper.likelihood import MODEL
from rmes.paper.problems import problem
from rmes.paper.results import Interval, Record, Results, bootstrap, log_ratio, mean

Array = NDArray[np.float64]

CELLS = ("mes", "noisy-mes", "noiseless-rmes", "rmes")
"""{f, y} × {Gaussian, mixture}: the latent value or the measurement; one entropy or both."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """log10 of mean final regret gained on MES, positive where RMES is better.

    `total` is split into the part of the noise and that of the consistent entropy: each is the mean
    of the two ways to make that one change, before the other change and after it, so that they add
    up to the total.
    """

    data: str
    noise: float
    measure: str
    total: Interval
    by_noise: Interval
    by_entropy: Interval


def ablation(results: Results, measure: str) -> list[Ablation]:
    """The 2 × 2 for every problem and noise that has enough runs of all four."""
    found = []
    for data, noise in results.cells:
        seeds = results.seeds(data, noise, CELLS)
        if len(seeds) < 2:
            continue
        finals = np.stack([results.final(data, noise, m, measure, seeds) for m in CELLS])

        def effects(kind: int, rows: NDArray[np.intp], finals: Array = finals) -> Array:
            mes, noisy, noiseless, rmes = np.log10(finals[:, rows].mean(axis=2))
            by_noise = 0.5 * ((mes - noisy) + (noiseless - rmes))
            by_entropy = 0.5 * ((mes - noiseless) + (noisy - rmes))
            return np.asarray((mes - rmes, by_noise, by_entropy)[kind])

        intervals = [bootstrap(partial(effects, k), len(seeds)) for k in range(3)]
        found.append(Ablation(data, noise, measure, *intervals))
    return found


@dataclass(frozen=True, slots=True)
class Learned:
    """How well a method's runs learnt the length-scales of the GP sample, and what it cost them.

    Attributes
    ----------
    near, far : Array
        Final simple regrets of the runs whose length-scales ended within 40 % of the true ones,
        and of the others.
    likelier : Array
        By how much the log-likelihood of the others' hyperparameters exceeds that of the true ones.
    """

    noise: float
    method: str
    near: Array
    far: Array
    likelier: Array


def learned(results: Results, truth: float) -> list[Learned]:
    """For each noise and method of the GP sample, whose length-scale is `truth`."""
    found = []
    for (data, noise, method), runs in sorted(results.runs.items()):
        if data != "gp":
            continue
        seeds = sorted(seed for seed, run in runs.items() if run.get("theta"))
        if not seeds:
            continue
        log_scales = np.array([runs[seed]["theta"][:2] for seed in seeds])
        close = np.all(np.abs(log_scales - np.log(truth)) < np.log(1.4), axis=1)
        regrets = results.final(data, noise, method, "simple_regret", seeds)
        others = [runs[seed] for seed, near in zip(seeds, close, strict=True) if not near]
        likelier = np.array([_likelier(run, noise, truth) for run in others])
        found.append(Learned(noise, method, regrets[close], regrets[~close], likelier))
    return found


def _likelier(run: Record, noise: float, truth: float) -> float:
    """Log-likelihood of what the run learnt, less that of the true hyperparameters."""
    data = problem("gp").told(np.array(run["x"]), np.array(run["y"]), noise)
    settings = np.array([run["theta"], [np.log(truth), np.log(truth), 0.0]])
    ours, true = log_evidence(MODEL, data, settings)
    return float(ours - true)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one method, medians over all its iterations in all runs."""

    method: str
    choice: float
    fit: float
    runs: int


def costs(results: Results) -> list[Cost]:
    """Seconds to choose a point and to fit before it, by method."""
    found = []
    for method in sorted({method for _, _, method in results.runs}):
        runs = [
            run
            for (_, _, name), by in results.runs.items()
            if name == method
            for run in by.values()
        ]
        choice, fit = (
            float(np.median(np.concatenate([run[name] for run in runs])))
            for name in ("seconds", "fit_seconds")
        )
        found.append(Cost(method, choice, fit, len(runs)))
    return sorted(found, key=lambda cost: cost.choice)


@dataclass(frozen=True, slots=True)
class AdamReport:
    """Adam on the sampled estimate against the exact integral, on the same posteriors and draws.

    Attributes
    ----------
    states : int
        Posteriors compared.
    apart : float
        Median distance of the two points.
    alike : float
        Share of posteriors where they are within 0.01.
    share : Interval
        Exact RMES at Adam's point over that at ours, mean over runs.
    worse : float
        Share of posteriors where Adam's point has less than 95 % of our information.
    slower : float
        How many times longer Adam takes, median.
    regret : dict
        log10 ratio of mean final regrets, adam over exact, by (data, noise, measure).
    """

    states: int
    apart: float
    alike: float
    share: Interval
    worse: float
    slower: float
    regret: dict[tuple[str, float, str], Interval]


def adam(results: Results) -> AdamReport | None:
    """The comparison, if the runs hold one."""
    apart, share, slower, by_run = [], [], [], []
    for (_, _, method), runs in results.runs.items():
        for run in runs.values() if method == "rmes" else ():
            own = []
            for state in run["same_posterior"]:
                ours, theirs = state["chosen"]["rmes"], state["chosen"]["rmes-adam"]
                apart.append(float(np.linalg.norm(np.subtract(ours["x"], theirs["x"]))))
                own.append(theirs["share"] / max(ours["share"], 1e-300))
                slower.append(theirs["seconds"] / run["seconds"][state["iteration"]])
            share += own
            by_run += [float(np.mean(own))] if own else []
    if not apart:
        return None
    regret = {}
    for data, noise in results.cells:
        seeds = results.seeds(data, noise, ("rmes", "rmes-adam"))
        for measure in ("simple_regret", "inference_regret") if len(seeds) > 1 else ():
            theirs, ours = (
                results.final(data, noise, m, measure, seeds) for m in ("rmes-adam", "rmes")
            )
            regret[data, noise, measure] = log_ratio(theirs, ours)
    return AdamReport(
        len(apart),
        float(np.median(apart)),
        float(np.mean(np.array(apart) < 0.01)),
        mean(np.array(by_run)),
        float(np.mean(np.array(share) < 0.95)),
        float(np.median(slower)),
        regret,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How often inequalities between the four cells fail, by noise: shares of points."""

    data: str
    noise: float
    mes_below_rmes: float
    noisy_mes_below_rmes: float
    mes_below_noiseless_rmes: float
    maximum_below_mean: float


def bounds(results: Results) -> list[Bounds]:
    """The shares over all compared posteriors of each problem and noise."""
    names = list(Bounds.__dataclass_fields__)[2:]
    found = []
    for data, noise in results.cells:
        states = [
            state["values"]
            for run in results.runs.get((data, noise, "rmes"), {}).values()
            for state in run["same_posterior"]
        ]
        if states:
            shares = [float(np.mean([values[name] for values in states])) for name in names]
            found.append(Bounds(data, noise, *shares))
    return found
