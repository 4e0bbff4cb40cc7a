import mpmath as mp
import numpy as np
import pytest

from rmes import normal

POINTS = [-1e4, -300.0, -60.0, -50.0, -49.9, -40.0, -12.0, -5.0, -1.0, 0.0, 0.3, 2.0, 8.0, 30.0]


def exact_cdf(z: float) -> mp.mpf:
    return mp.erfc(-mp.mpf(z) / mp.sqrt(2)) / 2


@pytest.mark.parametrize("z", POINTS)
def test_every_function_keeps_its_digits(z):
    with mp.workdps(60):
        phi, cdf = mp.npdf(z), exact_cdf(z)
        hazard = phi / cdf
        assert float(normal.log_cdf(z)) == pytest.approx(float(mp.log(cdf)), rel=1e-13)
        assert float(normal.log_pdf(z)) == pytest.approx(float(mp.log(phi)), rel=1e-14)
        assert float(normal.hazard(z)) == pytest.approx(float(hazard), rel=1e-13)
        assert float(normal.slack(z)) == pytest.approx(float(hazard + z), rel=2e-12)
        if z > -37:
            upper = exact_cdf(-z) / phi
            assert float(normal.mills(z)) == pytest.approx(float(upper), rel=1e-13)
            assert float(normal.cdf(z)) == pytest.approx(float(cdf), rel=1e-13)
        if z <= 0:
            scaled = mp.log(cdf) + mp.mpf(z) ** 2 / 2
            assert float(normal.log_scaled_cdf(z)) == pytest.approx(float(scaled), rel=1e-13)


@pytest.mark.parametrize(("low", "high"), [(-9, -8.5), (-1, 2), (8, 8.001), (30, 31), (-30, 30)])
def test_mass_of_an_interval(low, high):
    with mp.workdps(60):
        exact = mp.log(exact_cdf(-low) - exact_cdf(-high))
    assert float(normal.log_mass(low, high)) == pytest.approx(float(exact), rel=1e-12)


def test_no_warning_anywhere():
    z = np.concatenate([-np.logspace(-3, 9, 60), [0.0], np.logspace(-3, 9, 60)])
    with np.errstate(all="raise", under="ignore"):
        for f in (normal.cdf, normal.log_cdf, normal.log_pdf, normal.hazard, normal.slack):
            assert np.isfinite(f(z)).all()
        assert (normal.log_mass(z, z) == -np.inf).all()
        assert (normal.log_mass(-np.inf, z) <= 0).all()
