"""Hyperparameters of scikit-learn estimators by cross-validation, whose folds tell the noise.

>>> from sklearn.datasets import load_wine
>>> from sklearn.svm import SVC
>>> import rmes
>>> from rmes.sklearn import RMESSearchCV
>>> space = {"C": rmes.Float(1e-2, 1e3, log=True), "gamma": rmes.Float(1e-6, 1.0, log=True)}
>>> search = RMESSearchCV(SVC(), space, n_iter=20, random_state=0)
>>> search.fit(*load_wine(return_X_y=True)).best_params_  # doctest: +SKIP
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmes.optimizer import Optimizer, SpaceExhausted
from rmes.space import Categorical, Float, Integer, Space

try:
    from joblib import effective_n_jobs
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.model_selection._split import _yields_constant_splits
    from sklearn.utils import check_random_state
    from sklearn.utils._param_validation import Interval
except ImportError as error:
    raise ImportError('rmes.sklearn needs scikit-learn: pip install "rmes[sklearn]"') from error

Array = NDArray[np.float64]

# Degrees of freedom that the spread of all candidates lends to that of one: with five folds a
# variance has four of its own, and is wrong by a factor of two more often than not.
_LENT = 4.0


class RMESSearchCV(BaseSearchCV):
    """Search of hyperparameters where a cross-validation tells most about the best score.

    Used like `sklearn.model_selection.RandomizedSearchCV`. Candidates are chosen one after another
    (in batches, if there are more workers than folds), and the best is the one that the model of
    all scores believes in, not the one with the luckiest folds.

    Parameters
    ----------
    estimator : estimator
    param_space : dict
        Name -> (low, high), `rmes.Float`, `rmes.Integer`, `rmes.Categorical`, a list of choices,
        or scipy.stats' `uniform`, `loguniform` or `randint`. A pair is a range of real numbers,
        a list means one of these.
    n_iter : int
        Candidates to evaluate.
    scoring, n_jobs, cv, verbose, pre_dispatch, return_train_score
        As in RandomizedSearchCV. Any backend of joblib will do. Of several metrics, the one that
        `refit` names is improved.
    refit : bool, str or callable
        As in RandomizedSearchCV; the best candidate is that with the highest posterior mean
        (unless a callable decides), among those evaluated.
    batch_size : int, optional
        Candidates to evaluate at once. By default as many as it takes to give each worker a fold:
        one, unless there are more workers than folds. State it for results that do not depend
        on the number of workers.
    random_state : int, RandomState or None
    error_score : "raise" or number
        Candidates whose score is NaN have failed: their neighbourhood is avoided. Another number
        is taken for a score.

    Attributes
    ----------
    recommendation_ : rmes.Recommendation
        The optimum of the posterior mean over the whole space, evaluated or not, with an interval.
        Print it. None if every candidate failed in some fold.
    optimizer_ : rmes.Optimizer
        With all scores, for its `outlook`. Choices that are not strings or numbers are
        represented by their places in the list.
    best_index_, best_params_, best_score_, best_estimator_, cv_results_, n_splits_, scorer_, ...
        As in RandomizedSearchCV; `best_score_` is the mean over folds of the best candidate.
        `cv_results_` also has `posterior_mean_test_score`, `posterior_std_test_score` and
        `noise_std_test_score` (with several metrics, the name of the improved one).

    Notes
    -----
    The noise of a mean score is its standard error over the k folds. Folds are not independent
    measurements, which is why

    - what a fold adds to the scores of all candidates alike is taken out first, if all are
      evaluated on the same splits: it does not matter for their order. The rest is what chooses
      between them. No candidate is then evaluated twice, as that would tell nothing;
    - the variance of a candidate is averaged with that of the others, as k scores say little of
      it and may even agree by chance: no spread is not taken for no noise, as long as there is
      spread elsewhere;
    - training sets overlap, so that the scores would differ more on other data than this says: it
      is the noise of the choice, not that of the generalisation error.

    With one split there is no spread, and the noise is inferred from the scores of all candidates.
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012, it is scikit-learn's protocol
        **BaseSearchCV._parameter_constraints,
        "param_space": [dict],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        param_space: dict[str, Any],
        *,
        n_iter: int = 30,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        batch_size: int | None = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.param_space = param_space
        self.n_iter = n_iter
        self.batch_size = batch_size
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        """Evaluate a space-filling design, then whatever tells most, batch by batch."""
        space = _Choices.read(self.param_space)
        if isinstance(self.scoring, list | tuple | set | dict):
            self._metric({})
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        workers = effective_n_jobs(self.n_jobs)
        told = partial(self._told, space, seed)
        results: dict[str, Any] = {}
        lost: list[dict[str, Any]] = []  # candidates without a row, since all their fits failed
        count = 0
        while count < self.n_iter:
            optimizer, _ = told(results, lost)
            wanted = self.batch_size or 1
            if not results:
                wanted = max(wanted, optimizer.initial)
            elif self.batch_size is None:
                wanted = math.ceil(workers / self._scores(results).shape[1])
            batch = _ask(optimizer, min(wanted, self.n_iter - count))
            if not batch:
                warnings.warn(
                    f"the space has {count} points, fewer than n_iter={self.n_iter}: all of them "
                    "have been evaluated",
                    UserWarning,
                    stacklevel=2,
                )
                break
            count += len(batch)
            try:
                results = evaluate_candidates([space.show(params) for params in lost + batch])
                lost = []
            except ValueError as error:
                if not results or "fits failed" not in str(error):
                    raise
                lost += batch  # scikit-learn refuses rows without any success: give it some later
        if lost:
            means = results[f"mean_test_{self._metric(results)}"]
            good = results["params"][int(np.argmax(np.nan_to_num(means, nan=-np.inf)))]
            results = evaluate_candidates([*(space.show(params) for params in lost), good])
        self._conclude(space, results, *told(results, []))

    def _metric(self, results: dict[str, Any]) -> str:
        """The name of what is improved."""
        if "mean_test_score" in results:
            return "score"
        if not isinstance(self.refit, str):
            raise ValueError(
                f"refit is {self.refit!r}; with several metrics, expected the name of the one to "
                "be improved"
            )
        return self.refit

    def _scores(self, results: dict[str, Any]) -> Array:
        """Scores (n, k) of the candidates in each fold."""
        end = f"_test_{self._metric(results)}"
        folds = (key for key in results if key.startswith("split") and key.endswith(end))
        return np.stack([np.asarray(results[key], dtype=float) for key in folds], axis=1)

    def _told(
        self,
        space: "_Choices",
        seed: int,
        results: dict[str, Any],
        lost: list[dict[str, Any]],
    ) -> tuple[Optimizer, Array]:
        """An optimizer that knows all scores so far, and their noise deviations (n,)."""
        # A number of folds, and a list of splits, always give the same ones.
        constant = not hasattr(self.cv, "split") or _yields_constant_splits(self.cv)
        scores = self._scores(results) if results else np.empty((0, 2))
        # Exact measurements are not repeated; what the noise is, is told with each of them.
        noise_sd = 0.0 if constant and scores.shape[1] > 1 else None
        optimizer = Optimizer(space.space, "maximize", noise_sd, seed)
        noise = fold_noise(scores, constant)
        for params, row, sd in zip(results.get("params", ()), scores, noise, strict=True):
            if np.isfinite(row).all():
                known = None if np.isnan(sd) else float(sd)
                optimizer.tell(space.hide(params), float(np.mean(row)), noise_sd=known)
            else:
                optimizer.tell(space.hide(params), failed=True)
        for params in lost:
            optimizer.tell(params, failed=True)
        return optimizer, noise

    def _conclude(
        self, space: "_Choices", results: dict[str, Any], optimizer: Optimizer, noise: Array
    ) -> None:
        """Set the attributes and the columns that RandomizedSearchCV does not have."""
        metric = self._metric(results)
        mean = np.full(len(noise), np.nan)
        sd = mean.copy()
        answer = None
        rows = np.flatnonzero(np.isfinite(results[f"mean_test_{metric}"]))
        if len(rows):
            measured = [space.hide(results["params"][row]) for row in rows]
            mean[rows], sd[rows] = optimizer.predict(measured)
            answer = optimizer.recommend()
            answer = replace(
                answer,
                params=space.show(answer.params),
                observed_params=space.show(answer.observed_params),
            )
        results[f"posterior_mean_test_{metric}"] = mean
        results[f"posterior_std_test_{metric}"] = sd
        results[f"noise_std_test_{metric}"] = noise
        self.optimizer_ = optimizer
        self.recommendation_ = answer

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: dict[str, Any]) -> int:
        """The candidate with the highest posterior mean, unless a callable chooses."""
        believed = results[f"posterior_mean_test_{refit_metric}"]
        if callable(refit) or np.isnan(believed).all():
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))
        return int(np.nanargmax(believed))


def fold_noise(scores: Array, same_splits: bool) -> Array:
    """Standard deviations (n,) of the noise of mean scores, from the scores (n, k) of k folds.

    Candidates with a NaN among their scores do not count, and have NaN. So have all if k is 1.
    With `same_splits` fold j has the same data for all candidates, and what it adds to all of them
    alike is no noise.
    """
    noise = np.full(len(scores), np.nan)
    good = np.isfinite(scores).all(axis=1)
    candidates, folds = int(good.sum()), scores.shape[1]
    if folds == 1 or not candidates:
        return noise
    deviation = scores[good] - scores[good].mean(axis=1, keepdims=True)
    own = folds - 1.0
    if same_splits and candidates > 2:
        effect = np.median(deviation, axis=0)  # a few hopeless candidates have effects of their own
        deviation = deviation - (effect - effect.mean())
        own *= 1.0 - 1.0 / candidates
    variance = np.sum(deviation**2, axis=1) / own
    typical = float(np.median(variance)) or float(np.mean(variance))
    variance = (own * variance + _LENT * typical) / (own + _LENT)
    noise[good] = np.sqrt(variance / folds)
    return noise


def _ask(optimizer: Optimizer, count: int) -> list[dict[str, Any]]:
    """Up to `count` points, fewer where the space ends."""
    asked: list[dict[str, Any]] = []
    for _ in range(count):
        try:
            asked.append(optimizer.ask().params)
        except SpaceExhausted:
            break
    return asked


@dataclass(frozen=True, slots=True)
class _Choices:
    """The space, and what stands behind the numbers of choices that are any objects."""

    space: Space
    objects: dict[str, list[Any]]

    @staticmethod
    def read(param_space: Mapping[str, Any]) -> "_Choices":
        parameters: dict[str, Any] = {}
        objects: dict[str, list[Any]] = {}
        for name, given in param_space.items():
            parameters[name] = _parameter(name, given)
            if isinstance(given, list | np.ndarray) and parameters[name] is None:
                objects[name] = list(given)
                parameters[name] = Categorical(range(len(objects[name])))
        return _Choices(Space(parameters), objects)

    def show(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for the estimator."""
        objects = self.objects
        return {k: objects[k][v] if k in objects else v for k, v in params.items()}

    def hide(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for the optimizer."""
        places = {
            name: next(i for i, one in enumerate(choices) if one is params[name])
            for name, choices in self.objects.items()
        }
        return {**params, **places}


def _parameter(name: str, given: Any) -> Any:
    """A parameter of a `Space`, or None for a list of objects of any kind."""
    if isinstance(given, list | np.ndarray):
        choices = given.tolist() if isinstance(given, np.ndarray) else given
        if not choices:
            raise ValueError(f"parameter {name!r}: the list of choices is empty")
        plain = all(one is None or isinstance(one, str | bool | int | float) for one in choices)
        return Categorical(choices) if plain else None
    family = getattr(getattr(given, "dist", None), "name", None)
    if family in ("uniform", "loguniform", "reciprocal", "randint"):
        low, high = given.support()
        if family == "randint":
            return Integer(int(low), int(high))
        return Float(float(low), float(high), log=family != "uniform")
    if family is not None:
        raise ValueError(
            f"parameter {name!r} has the distribution {family}; expected uniform, loguniform or "
            "randint, or a range of rmes"
        )
    return given
