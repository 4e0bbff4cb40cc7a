import doctest
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pytest

import rmes
from rmes.settings import Settings

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from rmes import plots

MIXED = {
    "temperature_degC": (20.0, 90.0),
    "dose [mg]": rmes.Float(1e-3, 1.0, log=True),
    "cycles": rmes.Integer(1, 40),
    "solvent": rmes.Categorical(["DMF", "THF", "water"]),
    "fixed": (1.0, 1.0),
}


def grown(space, f, count, direction="maximize", **options):
    rng = np.random.default_rng(0)
    settings = Settings(samples=2, maxima=3, candidates=64, climbs=2)
    opt = rmes.Optimizer(space, direction, seed=0, settings=settings, **options)
    for _ in range(count):
        trial = opt.ask()
        opt.tell(trial, f(trial.params) + rng.normal(0.0, 0.1))
    return opt


@pytest.fixture(scope="module")
def mixed():
    opt = grown(MIXED, lambda p: -(((p["temperature_degC"] - 60) / 30) ** 2), 12)
    opt.tell(opt.ask(), failed=True)
    opt.ask()
    return opt


@pytest.fixture(scope="module")
def line():
    return grown({"x": (0.0, 1.0)}, lambda p: (p["x"] - 0.3) ** 2, 10, "minimize", noise_sd=0.1)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def rendered(ax):
    """The picture as pixels: what cannot be drawn raises here."""
    figure = ax.get_figure(root=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def words(ax):
    """Everything written on the axes."""
    texts = [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax._left_title]
    texts += [ax.xaxis.label, ax.yaxis.label]
    return "\n".join(text.get_text() for text in texts)


@pytest.mark.parametrize("name", ["temperature_degC", "dose [mg]", "cycles", "solvent"])
def test_a_slice_shows_belief_data_and_recommendation(mixed, name):
    ax = plots.posterior(mixed, name)
    rendered(ax)
    assert "recommended" in words(ax)
    assert "measured ± noise" in words(ax)
    assert plots.label(name) in words(ax)
    measured = sum(len(trial["values"]) for trial in mixed.trials)
    bars = [c for c in ax.containers if c.lines[0] is not None]
    assert len(bars) == measured


def test_log_parameters_have_log_axes_and_categories_are_ticks(mixed):
    assert plots.posterior(mixed, "dose [mg]").get_xscale() == "log"
    assert plots.posterior(mixed, "temperature_degC").get_xscale() == "linear"
    ax = plots.information(mixed, "solvent", "dose [mg]")
    rendered(ax)
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["DMF", "THF", "water"]


def test_the_band_is_the_prediction(line):
    ax = plots.posterior(line, "x")
    curve = ax.lines[0]
    mean, sd = line.predict([{"x": float(x)} for x in curve.get_xdata()])
    np.testing.assert_allclose(curve.get_ydata(), mean)
    edges = ax.collections[0].get_paths()[0].vertices
    assert edges[:, 1].max() == pytest.approx(np.max(mean + 1.645 * sd))


def test_known_noise_is_the_length_of_the_bars(line):
    ax = plots.posterior(line, "x")
    bar = ax.containers[0].lines[2][0].get_segments()[0]
    assert np.ptp(bar[:, 1]) == pytest.approx(0.2)


def test_noise_told_with_a_measurement_is_its_own_bar():
    opt = rmes.Optimizer({"x": (0.0, 1.0)}, seed=0, noise_sd=0.1)
    opt.tell({"x": 0.2}, 1.0, noise_sd=0.5)
    opt.tell({"x": 0.7}, 2.0)
    bars = [c.lines[2][0].get_segments()[0] for c in plots.posterior(opt, "x").containers]
    np.testing.assert_allclose([np.ptp(bar[:, 1]) for bar in bars], [1.0, 0.2])


def test_information_is_that_of_the_optimizer(line):
    curve = plots.information(line, "x").lines[0]
    told = line.information([{"x": float(x)} for x in curve.get_xdata()])
    np.testing.assert_allclose(curve.get_ydata(), told)


def test_convergence_ends_at_the_recommendation(line):
    fresh = rmes.Optimizer.from_json(line.to_json())
    ax = plots.convergence(fresh)
    rendered(ax)
    numbers, means = ax.lines[0].get_data()
    assert numbers[-1] == 10
    # The run's own model is learnt from a warm start, the picture's from none.
    answer = line.recommend()
    assert abs(means[-1] - answer.mean) < answer.sd
    assert fresh.to_json() == line.to_json()  # drawing changes nothing


def test_convergence_takes_values_told_together():
    opt = rmes.Optimizer({"x": (0.0, 1.0)}, seed=0)
    opt.tell({"x": 0.2}, [1.0, 1.2, 0.9])
    opt.tell({"x": 0.8}, [2.0, 2.1])
    assert plots.convergence(opt).lines[0].get_xdata().tolist() == [3, 5]


def test_the_optimum_is_drawn_from_the_outlook(line):
    ax = plots.optimum(line)
    rendered(ax)
    assert "true optimum" in words(ax)
    area = sum(bar.get_width() * bar.get_height() for bar in ax.patches)
    assert area == pytest.approx(1.0)


def test_trials_say_how_many_failed_and_are_pending(mixed):
    ax = plots.trials(mixed)
    rendered(ax)
    for said in (
        "12 measured",
        "1 failed",
        "1 pending",
        "temperature (°C)",
        "water",
        "recommended",
    ):
        assert said in words(ax)


def test_trials_are_drawn_before_anything_is_measured():
    opt = rmes.Optimizer({"x": (0.0, 1.0)}, seed=0)
    opt.ask(2)
    rendered(plots.trials(opt))


@pytest.mark.parametrize("run", ["mixed", "line"])
def test_the_overview_fits_on_one_figure(run, request):
    opt = request.getfixturevalue(run)
    axes = plots.overview(opt)
    pixels = rendered(axes[0])
    assert np.mean(np.any(pixels[..., :3] != 255, axis=2)) > 0.02  # something is drawn
    assert len({ax.get_figure(root=True) for ax in axes}) == 1


def test_axes_given_are_drawn_on(line):
    _, given = plt.subplots(2, 3)
    for function, ax in zip(
        (plots.convergence, plots.optimum, plots.trials), given[0], strict=True
    ):
        assert function(line, ax=ax) is ax
    assert plots.posterior(line, "x", ax=given[1, 0]) is given[1, 0]
    assert plots.information(line, "x", ax=given[1, 1]) is given[1, 1]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda o: plots.posterior(o, "y"), "unknown parameter 'y'"),
        (lambda o: plots.posterior(o, "fixed"), "'fixed' has a single value"),
        (lambda o: plots.information(o, "cycles", "cycles"), "both 'cycles'"),
        (lambda o: plots.posterior(o, "cycles", at={"cycles": 3}), "no value for"),
        (lambda _: plots.convergence(rmes.Optimizer({"x": (0, 1)})), "nothing has been measured"),
        (lambda _: plots.optimum(rmes.Optimizer({"x": (0, 1)})), "nothing has been measured"),
        (lambda _: plots.overview(rmes.Optimizer({"x": (0, 1)})), "nothing has been measured"),
        (lambda _: plots.overview(rmes.Optimizer({"x": (1, 1)})), "nothing to draw"),
    ],
)
def test_what_cannot_be_drawn_is_said(mixed, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(mixed)
    assert not plt.get_fignums()  # no empty figure is left behind


def test_names_with_signs_of_formulas_are_written_as_they_are():
    assert plots.label("cost_$_per_$") == r"cost \$ per \$"
    assert doctest.testmod(plots).failed == 0


def test_a_missing_matplotlib_is_named_with_the_extra():
    code = "import sys; sys.modules['matplotlib'] = None; import rmes.plots"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'ImportError: rmes.plots needs matplotlib: pip install "rmes[plot]"' in done.stderr
