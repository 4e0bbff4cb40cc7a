"""The same Gaussian process in scikit-learn."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from rmes.kernels import MATERN52

# Logarithms of three length-scales, signal variance and noise variance.
THETA = np.array([-0.5, 0.3, 0.1, 0.2, -3.0])


def process(kernel, theta, mean_variance=0.0):
    scales = np.exp(theta[:3])
    shape = Matern(scales, nu=2.5) if kernel is MATERN52 else RBF(scales)
    full = ConstantKernel(np.exp(theta[3])) * shape + WhiteKernel(np.exp(theta[4]))
    if mean_variance:
        full = full + ConstantKernel(mean_variance)
    return GaussianProcessRegressor(full, alpha=0.0, optimizer=None)
