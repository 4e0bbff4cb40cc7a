"""RMESSearchCV is a search of scikit-learn, and takes its noise from the folds."""

import multiprocessing
import pickle

import joblib
import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    KFold,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import rmes
from rmes.sklearn import RMESSearchCV, fold_noise

SVC_SPACE = {"C": rmes.Float(1e-2, 1e3, log=True), "gamma": rmes.Float(1e-6, 1.0, log=True)}
RIDGE_SPACE = {"alpha": rmes.Float(1e-4, 1e2, log=True)}


def expected_to_fail(search):
    """Of what scikit-learn lists for its own searches, what fails here too, and nothing else."""
    if isinstance(search.estimator, Ridge):
        return {"check_supervised_y_2d": "DataConversionWarning not caught"}
    return {}


@parametrize_with_checks(
    [
        RMESSearchCV(Ridge(), {"alpha": (0.1, 1.0)}, n_iter=2, cv=2, error_score="raise"),
        RMESSearchCV(LogisticRegression(), {"C": (0.1, 1.0)}, n_iter=2, cv=2, error_score="raise"),
    ],
    expected_failed_checks=expected_to_fail,
)
@pytest.mark.filterwarnings("ignore")  # the checks make warnings on purpose
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


class Wave(ClassifierMixin, BaseEstimator):
    """A classifier without data: fold scores are a function of x, a fold's effect and noise."""

    def __init__(self, x=0.5, kind="plain", broken_above=2.0, noise=0.02):
        self.x = x
        self.kind = kind
        self.broken_above = broken_above
        self.noise = noise

    def fit(self, X, y):
        if self.x > self.broken_above:
            raise ArithmeticError("out of range")
        self.classes_ = np.unique(y)
        self.fold_ = float(X[:, 0].mean())
        return self

    def score(self, X, y):
        rng = np.random.default_rng(abs(hash((self.x, float(X[0, 0])))))
        return 1 - (self.x - 0.3) ** 2 + self.fold_ + self.noise * rng.standard_normal()


@pytest.fixture
def data(rng):
    return rng.standard_normal((50, 2)), np.arange(50) % 2


# ------------------------------------------------------------------ as scikit-learn does


def test_an_svc_is_tuned_better_than_at_random():
    X, y = load_wine(return_X_y=True)
    search = RMESSearchCV(SVC(), SVC_SPACE, n_iter=20, random_state=0).fit(X, y)
    space = {"C": stats.loguniform(1e-2, 1e3), "gamma": stats.loguniform(1e-6, 1.0)}
    random = RandomizedSearchCV(SVC(), space, n_iter=20, random_state=0).fit(X, y)
    assert search.best_score_ > random.best_score_
    assert search.best_score_ > 0.9
    assert search.predict(X[:5]).shape == (5,)
    assert search.score(X, y) == search.best_estimator_.score(X, y)


def test_gradient_boosting_is_tuned():
    X, y = load_diabetes(return_X_y=True)
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0)
    space = {
        "learning_rate": rmes.Float(0.01, 1.0, log=True),
        "max_leaf_nodes": rmes.Integer(2, 30),
        "min_samples_leaf": stats.randint(5, 60),
    }
    search = RMESSearchCV(model, space, n_iter=14, cv=3, random_state=0).fit(X, y)
    assert search.best_score_ > cross_val_score(model, X, y, cv=3).mean()
    assert isinstance(search.best_params_["max_leaf_nodes"], int)
    assert 5 <= search.best_params_["min_samples_leaf"] < 60


def test_results_have_the_columns_of_randomized_search(data):
    options = {"n_iter": 6, "cv": 3, "return_train_score": True, "random_state": 0}
    ours = RMESSearchCV(Ridge(), RIDGE_SPACE, **options).fit(*data)
    theirs = RandomizedSearchCV(Ridge(), {"alpha": stats.loguniform(1e-4, 1e2)}, **options)
    theirs.fit(*data)
    added = {f"{name}_test_score" for name in ("posterior_mean", "posterior_std", "noise_std")}
    assert set(ours.cv_results_) == set(theirs.cv_results_) | added
    for column, values in theirs.cv_results_.items():
        assert len(ours.cv_results_[column]) == len(values) == 6
    assert set(vars(theirs)) - {"param_distributions"} <= set(vars(ours))
    best = ours.best_index_
    assert ours.best_params_ == ours.cv_results_["params"][best]
    assert ours.best_score_ == ours.cv_results_["mean_test_score"][best]


def test_a_clone_has_the_same_parameters_and_finds_the_same(data):
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=7, cv=3, random_state=3)
    twin = clone(search)
    assert twin.get_params(deep=False).keys() == search.get_params(deep=False).keys()
    assert twin.param_space == search.param_space
    assert search.set_params(estimator__fit_intercept=False).estimator.fit_intercept is False
    search.set_params(estimator__fit_intercept=True)
    assert search.fit(*data).cv_results_["params"] == twin.fit(*data).cv_results_["params"]


def test_a_fitted_search_can_be_pickled(data):
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=5, cv=3, random_state=0).fit(*data)
    again = pickle.loads(pickle.dumps(search))
    assert again.best_params_ == search.best_params_
    assert again.recommendation_ == search.recommendation_
    np.testing.assert_array_equal(again.predict(data[0]), search.predict(data[0]))


def test_without_refit_there_is_an_answer_but_no_estimator(data):
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=5, refit=False, random_state=0).fit(*data)
    assert search.best_params_
    assert not hasattr(search, "best_estimator_")


def test_a_callable_refit_has_the_last_word(data):
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=5, refit=lambda _: 2, random_state=0)
    assert search.fit(*data).best_index_ == 2


def test_of_several_metrics_the_one_to_refit_by_is_improved():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    space = {"logisticregression__C": rmes.Float(1e-4, 1e4, log=True)}
    scoring = ["accuracy", "neg_log_loss"]
    options = {"scoring": scoring, "n_iter": 8, "cv": 3, "random_state": 0}
    search = RMESSearchCV(model, space, refit="neg_log_loss", **options).fit(X, y)
    results = search.cv_results_
    assert search.multimetric_
    assert "mean_test_accuracy" in results
    assert search.best_index_ == np.argmax(results["posterior_mean_test_neg_log_loss"])
    assert search.best_score_ == results["mean_test_neg_log_loss"][search.best_index_]
    for refit in (False, lambda _: 0):
        with pytest.raises(ValueError, match="expected the name of the one to be improved"):
            RMESSearchCV(model, space, refit=refit, **options).fit(X, y)


# ------------------------------------------------------------------ the space


def test_choices_may_be_any_objects(data):
    scalers = [StandardScaler(), MinMaxScaler(), "passthrough"]
    model = make_pipeline(StandardScaler(), Ridge())
    space = {"standardscaler": scalers, "ridge__alpha": (0.1, 1.0)}
    search = RMESSearchCV(model, space, n_iter=9, cv=3, random_state=0).fit(*data)
    assert search.best_params_["standardscaler"] in scalers
    assert search.recommendation_.params["standardscaler"] in scalers
    tried = [params["standardscaler"] for params in search.cv_results_["params"]]
    assert all(one in scalers for one in tried)
    assert len({id(one) for one in tried}) > 1


def test_parameters_are_given_in_many_ways(data):
    space = {
        "x": stats.uniform(0.1, 0.8),
        "noise": stats.loguniform(1e-4, 1e-2),
        "kind": np.array(["plain", "other"]),
        "broken_above": rmes.Float(2, 3),
    }
    search = RMESSearchCV(Wave(), space, n_iter=12, cv=3, random_state=0).fit(*data)
    for params in search.cv_results_["params"]:
        assert 0.1 <= params["x"] <= 0.9
        assert 1e-4 <= params["noise"] <= 1e-2
        assert type(params["kind"]) is str


def test_a_finite_space_is_evaluated_once(data):
    search = RMESSearchCV(Wave(), {"x": [0.1, 0.2, 0.3, 0.4]}, n_iter=9, cv=3, random_state=0)
    with pytest.warns(UserWarning, match="the space has 4 points, fewer than n_iter=9"):
        search.fit(*data)
    assert sorted(search.cv_results_["param_x"]) == [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"param_space": {"x": stats.norm(0, 1)}}, "'x' has the distribution norm; expected"),
        ({"param_space": {"x": []}}, "'x': the list of choices is empty"),
        ({"param_space": {"x": (1.0, 0.0)}}, "'x': low is 1.0 and high is 0.0"),
        ({"param_space": {}}, "a space is a dictionary"),
        ({"n_iter": 0}, "n_iter"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_arguments_are_named(data, options, message):
    search = RMESSearchCV(Wave(), {"x": (0.0, 1.0)}).set_params(**options)
    with pytest.raises(ValueError, match=message):
        search.fit(*data)


# ------------------------------------------------------------------ noise


def test_the_noise_is_the_standard_error_of_the_mean_over_folds(rng):
    scores = 0.7 + 0.1 * rng.standard_normal((4000, 5))
    noise = fold_noise(scores, same_splits=False)
    # Half of the degrees of freedom are lent by the median of χ²₄/4, which is 0.84.
    assert np.mean(noise**2) == pytest.approx(0.1**2 / 5 * (1 + 0.84) / 2, rel=0.03)


def test_what_a_fold_adds_to_all_candidates_is_no_noise(rng):
    own = 0.01 * rng.standard_normal((500, 5))
    folds = np.array([0.2, -0.1, 0.0, 0.1, -0.3])
    shared = fold_noise(own + folds, same_splits=True)
    np.testing.assert_allclose(shared, fold_noise(own, same_splits=True), rtol=1e-9)
    assert np.median(shared) == pytest.approx(0.01 / np.sqrt(5), rel=0.15)
    assert np.median(fold_noise(own + folds, same_splits=False)) > 10 * np.median(shared)


def test_no_spread_is_not_taken_for_no_noise(rng):
    scores = 0.7 + 0.1 * rng.standard_normal((9, 5))
    scores[4] = 0.7
    noise = fold_noise(scores, same_splits=False)
    assert noise[4] > 0.4 * np.median(noise)
    almost_all = np.full((9, 5), 1.0)
    almost_all[2, 1] = 0.9
    assert np.all(fold_noise(almost_all, same_splits=False) > 0)
    assert np.all(fold_noise(np.ones((9, 5)), same_splits=True) == 0)


def test_failed_candidates_and_single_splits_have_no_spread(rng):
    scores = rng.random((5, 3))
    scores[1, 2] = np.nan
    assert np.isnan(fold_noise(scores, same_splits=True)).tolist() == [False, True] + [False] * 3
    assert np.isnan(fold_noise(scores[:, :1], same_splits=True)).all()


def test_the_best_is_the_one_believed_in_not_the_luckiest(data):
    # Noise of 0.3 in a fold, 0.1 in the mean of 9; the truth falls by 0.49 from 0.3 to 1, and by
    # 0.09, less than the noise, from 0.3 to 0: one search of three may be misled.
    best, recommended, luckiest = [], [], []
    for state in range(3):
        search = RMESSearchCV(
            Wave(noise=0.3), {"x": (0.0, 1.0)}, n_iter=30, cv=9, random_state=state
        )
        search.fit(*data)
        results = search.cv_results_
        assert search.best_index_ == np.argmax(results["posterior_mean_test_score"])
        luckiest.append(search.best_index_ == np.argmax(results["mean_test_score"]))
        assert np.median(results["noise_std_test_score"]) == pytest.approx(0.1, rel=0.4)
        assert search.recommendation_.sd < 0.1
        assert search.optimizer_.outlook().expected_gap >= 0.0
        best.append(search.best_params_["x"])
        recommended.append(search.recommendation_.params["x"])
    assert not all(luckiest)
    assert np.median(best) == pytest.approx(0.3, abs=0.2)
    assert np.median(recommended) == pytest.approx(0.3, abs=0.2)


def test_candidates_are_repeated_only_where_the_splits_change(data):
    fixed = RMESSearchCV(Wave(noise=0.3), {"x": (0.0, 1.0)}, n_iter=20, cv=3, random_state=0)
    fixed.fit(*data)
    assert len(set(fixed.cv_results_["param_x"])) == 20
    shuffled = clone(fixed).set_params(cv=KFold(3, shuffle=True)).fit(*data)
    assert len(shuffled.cv_results_["params"]) == 20
    seeded = clone(fixed).set_params(cv=StratifiedKFold(3, shuffle=True, random_state=0))
    assert len(set(seeded.fit(*data).cv_results_["param_x"])) == 20


def test_with_one_split_the_noise_is_inferred(data):
    search = RMESSearchCV(
        Wave(), {"x": (0.0, 1.0)}, n_iter=12, cv=ShuffleSplit(1, random_state=0), random_state=0
    ).fit(*data)
    assert np.isnan(search.cv_results_["noise_std_test_score"]).all()
    assert search.best_params_["x"] == pytest.approx(0.3, abs=0.25)


# ------------------------------------------------------------------ failures


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_failed_candidates_are_avoided_and_have_their_rows(data):
    search = RMESSearchCV(
        Wave(broken_above=0.5), {"x": (0.0, 1.0)}, n_iter=16, cv=3, random_state=0
    ).fit(*data)
    results = search.cv_results_
    failed = np.isnan(results["mean_test_score"])
    x = results["param_x"].astype(float)
    np.testing.assert_array_equal(failed, x > 0.5)
    assert 0 < failed.sum() < 6
    assert np.isnan(results["posterior_mean_test_score"]).tolist() == failed.tolist()
    assert search.best_params_["x"] == pytest.approx(0.3, abs=0.1)
    states = [trial["state"] for trial in search.optimizer_.trials]
    assert states.count("failed") == failed.sum()


class Stubborn(Wave):
    """Fails in all fits but those of its first candidates."""

    fits = 0

    def fit(self, X, y):
        type(self).fits += 1
        if type(self).fits > 12 and self.x != 0.5 and self.x not in self.known:
            raise ArithmeticError("no more")
        self.known.add(self.x)
        return super().fit(X, y)

    known: set = set()  # noqa: RUF012, shared on purpose


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_batches_that_fail_altogether_do_not_end_the_search(data):
    Stubborn.fits, Stubborn.known = 0, set()
    search = RMESSearchCV(Stubborn(), {"x": (0.0, 1.0)}, n_iter=8, cv=3, random_state=0)
    search.fit(*data)
    results = search.cv_results_
    # The four first succeed, the others fail; one of the first shares the call with them.
    assert np.isnan(results["mean_test_score"]).sum() == 4
    assert len(results["params"]) == 9
    assert len(set(results["param_x"])) == 8


def test_if_nothing_can_be_fitted_scikit_learn_says_so(data):
    search = RMESSearchCV(Wave(broken_above=-1), {"x": (0.0, 1.0)}, n_iter=6, cv=3)
    with pytest.raises(ValueError, match="All the 12 fits failed"):
        search.fit(*data)


def test_errors_are_raised_if_asked_for(data):
    search = RMESSearchCV(Wave(broken_above=-1), {"x": (0.0, 1.0)}, n_iter=6, error_score="raise")
    with pytest.raises(ArithmeticError, match="out of range"):
        search.fit(*data)


# ------------------------------------------------------------------ workers


def test_a_batch_gives_each_worker_a_fold(data):
    sizes = []
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=11, cv=2, n_jobs=5, random_state=0)
    with joblib.parallel_config(backend="threading"):
        search.fit(*data)

    def record(candidates):
        sizes.append(len(candidates))
        return {
            "params": rows[: sum(sizes)],
            "mean_test_score": np.arange(sum(sizes)) / 20,
            **{f"split{i}_test_score": np.arange(sum(sizes)) / 20 for i in range(2)},
        }

    rows = search.cv_results_["params"]
    search._run_search(record)
    assert sizes == [4, 3, 3, 1]


def test_the_batch_decides_not_the_number_of_workers(data):
    search = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=9, cv=2, batch_size=2, random_state=0)
    alone = search.fit(*data).cv_results_["params"]
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert clone(search).fit(*data).cv_results_["params"] == alone


class Located(Wave):
    """Its score is one greater if it is computed in another process."""

    def score(self, X, y):
        return super().score(X, y) + (multiprocessing.parent_process() is not None)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_processes_of_a_dask_cluster_evaluate_the_candidates(data):
    distributed = pytest.importorskip("distributed")
    ridge = RMESSearchCV(Ridge(), RIDGE_SPACE, n_iter=8, cv=2, batch_size=2, random_state=0)
    located = RMESSearchCV(Located(), {"x": (0.0, 1.0)}, n_iter=6, cv=2, random_state=0)
    alone = clone(ridge).fit(*data)
    assert np.all(clone(located).fit(*data).cv_results_["mean_test_score"] < 1.4)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        ridge.fit(*data)
        located.fit(*data)
    assert np.all(located.cv_results_["mean_test_score"] > 1.4)
    assert ridge.cv_results_["params"] == alone.cv_results_["params"]
    assert ridge.best_params_ == alone.best_params_
