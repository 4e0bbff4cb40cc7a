"""Central differences with the step that balances truncation and rounding, eps^(1/3)."""

import numpy as np

STEP = np.cbrt(np.finfo(float).eps)


def central(function, x, step=STEP):
    """Derivatives (len(x), ...) of a function of one vector, coordinate by coordinate."""
    return np.stack(
        [(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(len(x))]
    )


def assert_gradient(function, points, rtol=1e-6, atol=1e-7):
    """The gradient (m, d) that function returns is that of its value, at each of m points."""
    _, gradient = function(points)
    for axis, shift in enumerate(STEP * np.eye(points.shape[1])):
        slope = (function(points + shift)[0] - function(points - shift)[0]) / (2 * STEP)
        np.testing.assert_allclose(gradient[:, axis], slope, rtol=rtol, atol=atol)
