"""Hyperparameters of a model by cross-validation, whose folds say how noisy a score is.

The best of many noisy scores looks better than it is, and more so the more are tried. The search
therefore ends with the candidate that the model of all scores believes in.

Run: python examples/cross_validation.py [candidates]   (needs pip install "rmes[sklearn]")
"""

import sys

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import rmes
from rmes.sklearn import RMESSearchCV


def main(candidates=25):
    x, y = load_breast_cancer(return_X_y=True)
    x, y = x[:200], y[:200]  # few data: noisy scores
    search = RMESSearchCV(
        make_pipeline(StandardScaler(), SVC()),
        {
            "svc__C": rmes.Float(1e-2, 1e3, log=True),
            "svc__gamma": rmes.Float(1e-5, 1e0, log=True),
        },
        n_iter=candidates,
        cv=5,
        random_state=0,
    ).fit(x, y)

    scores = search.cv_results_
    lucky = int(np.argmax(scores["mean_test_score"]))
    print(f"Highest score   {scores['mean_test_score'][lucky]:.3f} at {scores['params'][lucky]}")
    believed = scores["posterior_mean_test_score"][lucky]
    print(f"                which the model believes to be {believed:.3f}")
    print(f"Best candidate  {scores['posterior_mean_test_score'][search.best_index_]:.3f} "
          f"at {search.best_params_}")  # fmt: skip
    noise = np.median(scores["noise_std_test_score"])
    print(f"Noise           a score has a standard deviation of about {noise:.3f}\n")
    print(search.recommendation_)
    print(search.optimizer_.outlook())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
