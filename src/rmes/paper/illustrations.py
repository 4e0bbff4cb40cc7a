"""Figures 1 to 4: what the paper corrects, on densities and on posteriors in one dimension."""

from typing import Any

import numpy as np

from rmes.normal import cdf, log_pdf
from rmes.paper import instances

# Okabe & Ito's colours, which the colour-blind tell apart; a method has the same one everywhere.
COLOURS = {
    "rmes": "#D55E00",
    "mes": "#0072B2",
    "ei": "#009E73",
    "ucb": "#E69F00",
    "pes": "#CC79A7",
    "noisy-mes": "#56B4E9",
    "noiseless-rmes": "#7F7F7F",
    "log-ei": "#000000",
    "rmes-adam": "#8B4513",
}
DASHES = {"rmes": "-", "mes": "--", "ei": "-.", "ucb": ":", "pes": (0, (5, 1, 1, 1, 1, 1))}

_LATENT, _MEASURED = "#0072B2", "#E69F00"


def noise_matters(pyplot: Any) -> Any:
    """Figure 1: densities of f and of y, before the maximum is known and given f* = 0.5."""
    figure, axes = pyplot.subplots(1, 2, figsize=(7.2, 2.8), sharey=True, layout="constrained")
    z = np.linspace(-7.0, 7.0, 1401)
    sd_f, sd_y, top = 2.0, np.sqrt(5.0), 0.5
    axes[0].plot(z, np.exp(log_pdf(z / sd_f)) / sd_f, color=_LATENT, label="f")
    axes[0].plot(z, np.exp(log_pdf(z / sd_y)) / sd_y, "--", color=_MEASURED, label="y")
    below = np.exp(log_pdf(z / sd_f)) / sd_f / cdf(top / sd_f) * (z <= top)
    g = (sd_y**2 * top - sd_f**2 * z) / (sd_f * sd_y)
    given = np.exp(log_pdf(z / sd_y)) / sd_y * cdf(g) / cdf(top / sd_f)
    axes[1].plot(z, below, color=_LATENT, label="f given f*")
    axes[1].plot(z, given, "--", color=_MEASURED, label="y given f*")
    axes[1].axvline(top, color="grey", lw=0.8, ls=":", label="f* = 0.5")
    for axis in axes:
        axis.legend(frameon=False, loc="upper left")
        axis.set_xlabel("value")
        axis.set_ylim(bottom=0.0)
    axes[0].set_ylabel("density")
    return figure


def mixture(pyplot: Any) -> Any:
    """Figure 2: a normal, and the average of normals truncated at the drawn maxima."""
    figure, axis = pyplot.subplots(figsize=(4.6, 2.8), layout="constrained")
    z = np.linspace(-4.0, 4.0, 1601)
    density = np.exp(log_pdf(z))
    tops = np.array([0.7, 0.9, 1.0, 1.5, 3.0])
    average = np.mean([density / cdf(top) * (z <= top) for top in tops], axis=0)
    axis.plot(z, density, "--", color=_LATENT, label="N(0, 1)")
    axis.plot(z, average, color=COLOURS["rmes"], label="average of the\nfive truncated")
    axis.set_xlabel("value")
    axis.set_ylabel("density")
    axis.set_ylim(bottom=0.0)
    axis.legend(frameon=False, loc="upper left")
    return figure


def disagreement(pyplot: Any, one: instances.Instance) -> Any:
    """Figures 3 and 4: a posterior, both acquisitions on it and what they choose."""
    heights = {"height_ratios": [2.4, 1.0, 1.0, 1.2]}
    figure, axes = pyplot.subplots(
        4, 1, figsize=(5.6, 6.4), sharex=True, gridspec_kw=heights, layout="constrained"
    )
    theirs, ours = one.choices
    sd_y = np.sqrt(one.sd**2 + one.noise_sd**2)
    top = axes[0]
    top.plot(one.grid, one.mean, color="black", label="mean")
    for sign in (-2.0, 2.0):
        shown = sign > 0
        top.plot(
            one.grid,
            one.mean + sign * one.sd,
            "--",
            color=_LATENT,
            lw=1.0,
            label="± 2 sd of f" if shown else None,
        )
        top.plot(
            one.grid,
            one.mean + sign * sd_y,
            ":",
            color=_MEASURED,
            lw=1.2,
            label="± 2 sd of y" if shown else None,
        )
    for k, value in enumerate(one.drawn):
        top.axhline(value, color="#CC79A7", lw=0.7, label=None if k else "drawn maxima")
    top.plot(one.x, one.y, "s", color="#D55E00", ms=5, label="measurements")
    top.set_ylabel("f")
    top.legend(frameon=False, ncols=3, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 1.28))
    for axis, name, values in ((axes[1], "rmes", one.rmes), (axes[2], "mes", one.mes)):
        axis.plot(one.grid, values, color=COLOURS[name])
        axis.set_ylabel(f"{name.upper()}\n(nats)")
    axes[3].plot(one.grid, one.sd, "--", color=_LATENT, label="sd of f")
    axes[3].plot(one.grid, sd_y, ":", color=_MEASURED, label="sd of y")
    axes[3].set_ylim(bottom=0.0)
    axes[3].set_ylabel("sd")
    axes[3].set_xlabel("x")
    axes[3].legend(
        frameon=False, fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.95)
    )
    circle = {"marker": "o", "mfc": "none", "mec": COLOURS["rmes"]}
    cross = {"marker": "x", "color": COLOURS["mes"]}
    for axis, values, choice, mark in (
        (axes[0], one.mean, ours, circle),
        (axes[0], one.mean, theirs, cross),
        (axes[1], one.rmes, ours, circle),
        (axes[2], one.mes, theirs, cross),
        (axes[3], one.sd, ours, circle),
        (axes[3], one.sd, theirs, cross),
    ):
        axis.plot(one.grid[choice], values[choice], ms=9, mew=2, ls="", clip_on=False, **mark)
    return figure


def tell(found: instances.Found, verb: str) -> str:
    """The caption of `disagreement`."""
    one = found.instance
    return (
        f"A posterior on which MES {verb} more than RMES (seed {one.seed}, noise sd "
        f"{one.noise_sd:g}). Top: measurements, posterior mean, two sd of f and of y, drawn "
        "maxima; below: the two acquisitions; bottom: the standard deviations. A circle marks the "
        f"choice of RMES, a cross that of MES. Found by a search: of {instances.SEEDS} random "
        f"posteriors of this kind, {found.share:.0%} show a clear difference in this direction and "
        f"{found.opposite:.0%} one in the other."
    )
