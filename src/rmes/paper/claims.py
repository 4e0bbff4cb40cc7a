"""The claims of the paper, each judged by the runs in a file."""

from dataclasses import replace

import numpy as np

from rmes.paper.results import LEAST_SEEDS, MEASURES, Interval, Results, mean
from rmes.paper.verdicts import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Claim,
    Part,
    beaten,
    best,
    close,
    negative,
    smaller,
    where,
)

RARE = 0.01  # a share of points below which "at least" is taken to hold

SR, IR = MEASURES
BRANIN, EGGHOLDER, GP = "branin", "eggholder", "gp"
MICHALEWICZ = ("michalewicz", 0.01)
LOW, HIGH = 0.01, 0.3
PAPERS = [
    *((name, noise) for name in (BRANIN, EGGHOLDER, GP) for noise in (LOW, HIGH)),
    MICHALEWICZ,
    ("ph", 0.25),
    ("svm", 0.02),
]


def judge(results: Results) -> list[Claim]:
    """All claims, A to H."""
    return [_a(results), _b(results), _c(results), _d(results), *_e_f(results), *_g_h(results)]


def _a(results: Results) -> Claim:
    cells = [(name, noise) for name in (BRANIN, EGGHOLDER, GP) for noise in (LOW, HIGH)]
    parts = [
        part
        for cell in [*cells, MICHALEWICZ]
        for measure in MEASURES
        for part in smaller(results, cell, measure, ["rmes"], ["mes"])
    ]
    text = "RMES ends at smaller simple and inference regret than MES on all synthetic functions"
    return Claim("A", text, tuple(parts))


def _b(results: Results) -> Claim:
    others = ("ei", "ucb", "pes", "mes")
    parts: list[Part] = []
    for noise in (LOW, HIGH):
        cell = (BRANIN, noise)
        for measure in MEASURES:
            parts += close(results, cell, measure, "rmes", others)
            parts += smaller(results, cell, measure, ["rmes"], ["mes"])
        parts.append(_farther(results, cell))
    text = "Branin: all methods are close; MES is slightly behind RMES and queries farther away"
    return Claim("B", text, tuple(parts))


def _farther(results: Results, cell: tuple[str, float]) -> Part:
    """MES queries farther from the maximiser than RMES."""
    seeds = results.seeds(*cell, ("rmes", "mes"))
    text = f"{where(cell)}: queries of rmes are nearer to the maximiser than those of mes"
    if len(seeds) < LEAST_SEEDS:
        return Part(text, None, UNKNOWN)
    ours, theirs = (
        results.curves(*cell, method, "distance", seeds).mean(axis=1) for method in ("rmes", "mes")
    )
    interval = mean(ours - theirs)
    return Part(text, interval, negative(interval))


def _c(results: Results) -> Claim:
    parts = [
        *best(results, (EGGHOLDER, LOW), SR, "rmes"),
        *best(results, (EGGHOLDER, LOW), IR, "rmes"),
        *best(results, (EGGHOLDER, HIGH), IR, "rmes"),
        beaten(results, (EGGHOLDER, HIGH), SR, "rmes"),
    ]
    text = "Eggholder: RMES is best of all, except for simple regret at σ = 0.3"
    return Claim("C", text, tuple(parts))


def _d(results: Results) -> Claim:
    parts: list[Part] = []
    for noise in (LOW, HIGH):
        for measure in MEASURES:
            parts += smaller(results, (GP, noise), measure, ("ei", "ucb", "pes", "rmes"), ["mes"])
    parts += best(results, (GP, LOW), SR, "rmes")
    parts += best(results, (GP, LOW), IR, "ei")
    parts += best(results, (GP, HIGH), SR, "ei")
    parts += best(results, (GP, HIGH), IR, "pes")
    text = (
        "GP sample: MES ends at a much larger regret; RMES has the best simple regret at σ = 0.01; "
        "EI the best inference regret at 0.01 and simple regret at 0.3; PES the best inference "
        "regret at 0.3"
    )
    return Claim("D", text, tuple(parts))


def _e_f(results: Results) -> list[Claim]:
    ahead = ("ei", "ucb", "pes", "rmes")
    michalewicz = [
        *smaller(results, MICHALEWICZ, SR, ahead, ["mes"]),
        *smaller(results, MICHALEWICZ, IR, ahead, ["mes"]),
        *smaller(results, MICHALEWICZ, SR, ("rmes", "ei"), ("ucb", "pes")),
        *smaller(results, MICHALEWICZ, IR, ("pes", "ei"), ("ucb", "rmes")),
        *close(results, MICHALEWICZ, IR, "rmes", ["ucb"]),
    ]
    ph, svm = ("ph", 0.25), ("svm", 0.02)
    real = [
        part
        for measure in MEASURES
        for part in (
            *close(results, ph, measure, "rmes", ("ei", "ucb")),
            *smaller(results, ph, measure, ["rmes"], ["pes"]),
            *smaller(results, svm, measure, ("ei", "ucb", "mes", "rmes"), ["pes"]),
        )
    ]
    real += smaller(results, svm, SR, ["rmes"], ["mes"])
    return [
        Claim(
            "E",
            "Michalewicz: MES is behind all; RMES and EI have the best simple regret; PES and EI "
            "the best inference regret, RMES level with UCB",
            tuple(michalewicz),
        ),
        Claim(
            "F",
            "pH: RMES is close to EI and UCB, PES behind. SVM: RMES is ahead of MES in simple "
            "regret, PES clearly behind",
            tuple(real),
        ),
    ]


def _g_h(results: Results) -> list[Claim]:
    """What MES and RMES choose and say on one posterior, averaged within each run first."""
    parts_g: list[Part] = []
    parts_h: list[Part] = []
    cells = [
        (data, noise)
        for name, noise in PAPERS
        if (data := results.data_of(name)) and results.runs.get((data, noise, "rmes"))
    ]
    for noise in (LOW, HIGH):
        signs = {LOW: 1.0, HIGH: -1.0}
        runs = [
            run
            for name in (BRANIN, EGGHOLDER, GP, "michalewicz")
            for run in results.runs.get((name, noise, "rmes"), {}).values()
            if run["same_posterior"]
        ]
        enough = len(runs) >= LEAST_SEEDS
        sd, height, swamped = (
            np.array(
                [
                    np.mean([_choice(state, what, noise) for state in run["same_posterior"]])
                    for run in runs
                ]
            )
            for what in ("sd", "mean", "swamped")
        )
        more = "more" if noise == LOW else "less"
        text = f"σ = {noise:g}: f is {more} uncertain where mes goes than where rmes does (log10)"
        interval = mean(signs[noise] * -sd) if enough else None
        parts_g.append(Part(text, _flip(interval, -signs[noise]), negative(interval)))
        lower = "lower" if noise == LOW else "higher"
        text = f"σ = {noise:g}: the posterior mean is {lower} where mes goes"
        interval = mean(signs[noise] * height) if enough else None
        parts_g.append(Part(text, _flip(interval, signs[noise]), negative(interval)))
        if noise == HIGH:
            text = "σ = 0.3: noise exceeds the sd of f where mes goes (log10 sd / σ)"
            interval = mean(swamped) if enough else None
            parts_g.append(Part(text, interval, negative(interval)))
    for data, noise in cells:
        runs = [r for r in results.runs[data, noise, "rmes"].values() if r["same_posterior"]]
        enough = len(runs) >= LEAST_SEEDS
        ratio = [
            np.mean([np.log10(max(v["rmes"], 1e-300) / max(v["mes"], 1e-300)) for v in values])
            for values in ([state["values"] for state in run["same_posterior"]] for run in runs)
        ]
        share = [
            np.mean([state["values"]["mes_below_rmes"] for state in run["same_posterior"]])
            for run in runs
        ]
        interval = mean(np.array(ratio)) if enough else None
        text = f"{where((data, noise))}: mean RMES is below mean MES (log10 of the ratio)"
        parts_h.append(Part(text, interval, negative(interval)))
        interval = mean(np.array(share)) if enough else None
        verdict = UNKNOWN
        if interval is not None and (interval.high < RARE or interval.low > RARE):
            verdict = HOLDS if interval.high < RARE else FAILS
        text = f"{where((data, noise))}: MES is below RMES at fewer than 1 % of points (share)"
        parts_h.append(Part(text, interval, verdict))
    return [
        Claim(
            "G",
            "With little noise MES explores more than RMES; with much noise it exploits more, "
            "where noise swamps what is left to learn",
            tuple(parts_g),
        ),
        Claim("H", "MES overestimates the information: it is at least RMES", tuple(parts_h)),
    ]


def _choice(state: dict[str, dict[str, dict[str, float]]], what: str, noise: float) -> float:
    ours, theirs = state["chosen"]["rmes"], state["chosen"]["mes"]
    if what == "mean":
        return theirs["mean"] - ours["mean"]
    if what == "swamped":
        return float(np.log10(theirs["sd"] / noise))
    return float(np.log10(theirs["sd"] / ours["sd"]))


def _flip(interval: Interval | None, sign: float) -> Interval | None:
    if interval is None or sign > 0.0:
        return interval
    return replace(interval, value=-interval.value, low=-interval.high, high=-interval.low)
