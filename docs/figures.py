"""The pictures of "How it works", as SVG: docs/figures/*.svg.

Lines are labelled where they are, and the ground is white with a soft edge, so that the pictures
can be read on light and dark pages and by colour-blind eyes.

Run: python docs/figures.py   (needs pip install "rmes[plot]")
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr

from rmes import information
from rmes.plots import BLUE, GREY, ORANGE, PURPLE

FOLDER = Path(__file__).parent / "figures"
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "rmes",
    "font.family": ["sans-serif"],
}
SEQUENCE = (BLUE, PURPLE, ORANGE)


def weight(nu, gamma, rho):
    """w_k(ν) = Φ((γ_k − ρν)/c) / Φ(γ_k)."""
    c = np.sqrt(1.0 - rho * rho)
    return ndtr((gamma - rho * nu) / c) / ndtr(gamma)


def weights():
    """What a drawn maximum says about the measurement, without, with some and with much noise."""
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    nu = np.linspace(-3.5, 3.5, 351)
    gammas = (-0.3, 0.6, 1.6)
    panels = ((0.999, "little noise: c = 0.04"), (0.85, "c = 0.53"), (0.4, "much noise: c = 0.92"))
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (rho, title) in zip(axes, panels, strict=True):
        density = np.exp(-0.5 * nu * nu)
        axis.fill_between(nu, 0.0, 0.8 * density, color=GREY, alpha=0.18, linewidth=0)
        for gamma, colour in zip(gammas, SEQUENCE, strict=True):
            axis.plot(nu, weight(nu, gamma, rho), color=colour, linewidth=2)
        axis.set(title=title, xlabel="measurement ν, standardised", xlim=(-3.5, 3.5), ylim=(0, 2.9))
    axes[0].set_ylabel("weight w(ν)")
    for gamma, colour in zip(gammas, SEQUENCE, strict=True):
        place = (-3.35, 1.0 / ndtr(gamma) + 0.08)
        axes[0].annotate(f"γ = {gamma:g}", place, color=colour, fontsize=9)
    axes[2].annotate("density of ν", (-1.05, 0.3), color=GREY, fontsize=9)
    return figure


def quadrature():
    """The step that a fixed rule steps over, and the error that it makes."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    nodes, masses = np.polynomial.hermite_e.hermegauss(64)
    masses = masses / np.sqrt(2 * np.pi)
    gammas = np.array([0.4, 1.0, 1.5])
    nu = np.linspace(-0.5, 2.5, 601)
    for noise, colour, text in ((0.6, BLUE, "c = 0.6"), (0.02, PURPLE, "c = 0.02")):
        left.plot(nu, integrand(nu, gammas, np.sqrt(1 - noise**2)), color=colour, linewidth=2)
        place = {0.6: (1.85, 0.012), 0.02: (0.75, 0.1)}[noise]
        left.annotate(text, place, color=colour)
    inside = nodes[(nodes > -0.5) & (nodes < 2.5)]
    left.plot(inside, np.zeros(len(inside)), "|", color="black", markersize=12, clip_on=False)
    left.annotate("| nodes of a\n  fixed rule", (-0.45, 0.012), fontsize=9)
    left.set(
        title="What is integrated, for three maxima", xlabel="measurement ν", ylim=(0, None),
        xlim=(-0.5, 2.5), ylabel="nats × density",
    )  # fmt: skip
    c = np.geomspace(1e-4, 0.95, 81)
    rho = np.sqrt(1.0 - c * c)
    exact = information.rmes(np.zeros(81), rho**2, c**2, np.outer(gammas, rho)).value
    fixed = []
    for each in rho:
        with np.errstate(all="ignore"):
            fixed.append(np.sum(masses * integrand(nodes, gammas, each, density=False)))
    true = np.array([reference(gammas, each) for each in rho])
    for values, colour in ((fixed, PURPLE), (exact, BLUE)):
        error = np.abs(np.asarray(values) / true - 1.0)
        right.loglog(c, np.maximum(error, 1e-16), color=colour, linewidth=2)
    right.annotate("64 fixed Gauss–Hermite nodes", (1.3e-4, 0.25), color=PURPLE)
    right.annotate("rmes: nodes that follow the steps", (1.3e-4, 1e-10), color=BLUE)
    right.set(
        title="Relative error of RMES", ylim=(1e-16, 3.0), xlim=(1e-4, 1.0),
        xlabel="share of noise c = τ/σ₊ (small: exact)",
    )  # fmt: skip
    return figure


def integrand(nu, gammas, rho, density=True):
    """(1/K) Σ_k w_k log(w_k / w̄), times the density of ν."""
    w = np.array([weight(nu, gamma, rho) for gamma in gammas])
    with np.errstate(all="ignore"):
        terms = np.where(w > 0.0, w * np.log(w / w.mean(axis=0)), 0.0)
    return terms.mean(axis=0) * (np.exp(-0.5 * nu * nu) / np.sqrt(2 * np.pi) if density else 1.0)


def reference(gammas, rho):
    """RMES by brute force: 24 Gauss–Legendre nodes in each of many panels around the steps."""
    c = np.sqrt(1.0 - rho * rho)
    near = (gammas[:, None] + c * np.linspace(-9.0, 9.0, 73)).ravel() / rho
    edges = np.unique(np.concatenate([np.linspace(-9.0, 9.0, 145), near[np.abs(near) < 9.0]]))
    x, mass = np.polynomial.legendre.leggauss(24)
    half, middle = np.diff(edges)[:, None] / 2, (edges[:-1, None] + edges[1:, None]) / 2
    return np.sum(half * mass * integrand(middle + half * x, gammas, rho))


def logarithm():
    """RMES vanishes far below the maximum; its logarithm shows the way."""
    figure = Figure(figsize=(9, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    mean = np.linspace(-30.0, 3.0, 400)
    maxima = np.array([1.0, 1.6, 2.3])
    ones = np.ones_like(mean)
    plain = information.rmes(mean, ones, 0.25, maxima)
    log = information.log_rmes(mean, ones, 0.25, maxima)
    left.plot(mean, plain.value, color=BLUE, linewidth=2)
    left.set(title="RMES: flat where little is to be learnt", xlabel="posterior mean μ, σ = 1",
             ylabel="nats", ylim=(0, None))  # fmt: skip
    right.plot(mean, log.value, color=ORANGE, linewidth=2)
    right.set(title="log RMES: a slope everywhere", xlabel="posterior mean μ, σ = 1",
              ylabel="log nats")  # fmt: skip
    for axis in (left, right):
        for top in maxima:
            axis.axvline(top, color=GREY, linewidth=0.8, linestyle=":")
    left.annotate("three draws of\nthe maximum", (0.4, 0.6 * plain.value.max()), color=GREY,
                  ha="right", fontsize=9)  # fmt: skip
    gone = mean[plain.value < 1e-16].max()
    left.annotate(f"below 1e-16 left of μ = {gone:.0f}", (-29.0, 0.06 * plain.value.max()),
                  color=BLUE, fontsize=9)  # fmt: skip
    return figure


def main():
    """Draw all of them."""
    FOLDER.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for draw in (weights, quadrature, logarithm):
            path = FOLDER / f"{draw.__name__}.svg"
            draw().savefig(path, metadata={"Date": None})
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
