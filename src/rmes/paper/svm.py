"""Accuracy of a support vector machine on the Wisconsin breast cancer data, from a table.

The table `svm.csv` holds, at each node of a grid over (C, ln γ), how many of the 569 cases are
classified rightly: in 100-fold cross-validation with one fixed shuffle, which is the truth, and in
20-fold cross-validation with several fresh shuffles, which are the measurements. It was made by
`python -m rmes.paper.svm` (scikit-learn is needed for that alone; some 15 minutes of one core).
"""

import csv
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PENALTY = (0.5, 2.0)
LOG_GAMMA = (-5.0, -3.0)
NODES = 25  # on each side
SHUFFLES = 8
CASES = 569

_FILE = Path(__file__).with_name("svm.csv")


@dataclass(frozen=True, slots=True)
class Table:
    """Accuracies at the nodes (i, j) of the unit square: x = (i, j) / (NODES - 1).

    Attributes
    ----------
    truth : (NODES, NODES) array
        100-fold accuracy.
    measured : (NODES, NODES, SHUFFLES) array
        20-fold accuracies.
    """

    truth: Array
    measured: Array

    def value(self, x: Array) -> Array:
        """The truth (m,) at points x (m, 2), bilinear between the nodes."""
        total = np.zeros(len(x))
        for i, j, weight in _corners(x):
            total += weight * self.truth[i, j]
        return total

    def measure(self, x: Array, uniform: Array) -> float:
        """A 20-fold accuracy at x (2,), chosen by two uniform numbers.

        The node is one of the four around x, as often as its bilinear weight says; the shuffle is
        any of those of that node. So the spread is that of real measurements.
        """
        corners = list(_corners(x[None]))
        weights = np.cumsum([weight[0] for _, _, weight in corners])
        chosen = min(int(np.searchsorted(weights, uniform[0])), 3)
        i, j, _ = corners[chosen]
        return float(self.measured[i[0], j[0], int(uniform[1] * SHUFFLES)])

    @property
    def noise_sd(self) -> float:
        """Standard deviation of a measurement around the mean of its node."""
        variance = self.measured.var(axis=2, ddof=1)
        return float(np.sqrt(variance.mean()))


def _corners(x: Array) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Array]]:
    """Indices and bilinear weights (m,) of the four nodes around each point."""
    place = np.clip(x, 0.0, 1.0) * (NODES - 1)
    low = np.minimum(place.astype(np.intp), NODES - 2)
    part = place - low
    for i in (0, 1):
        for j in (0, 1):
            along = part[:, 0] if i else 1.0 - part[:, 0]
            across = part[:, 1] if j else 1.0 - part[:, 1]
            yield low[:, 0] + i, low[:, 1] + j, along * across


@cache
def table() -> Table:
    """The table of the package."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = [[int(cell) for cell in row] for row in csv.reader(file) if row[0].isdigit()]
    counts = np.array(rows, dtype=float)
    shape = (NODES, NODES)
    return Table(
        counts[:, 2].reshape(shape) / CASES, counts[:, 3:].reshape(*shape, SHUFFLES) / CASES
    )


def compute(node: tuple[int, int]) -> list[int]:
    """One row of the table: how many cases are right, once in 100 folds, then in 20 folds."""
    count = _counter()
    penalty = np.interp(node[0], [0, NODES - 1], PENALTY)
    gamma = np.exp(np.interp(node[1], [0, NODES - 1], LOG_GAMMA))
    # A measurement has a shuffle of its own: no two nodes share one.
    first = 1 + SHUFFLES * (node[0] * NODES + node[1])
    fresh = [count(penalty, gamma, 20, first + s) for s in range(SHUFFLES)]
    return [*node, count(penalty, gamma, 100, 0), *fresh]


@cache
def _counter() -> Callable[[float, float, int, int], int]:
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    features, label = load_breast_cancer(return_X_y=True)
    features = StandardScaler().fit_transform(features)
    distance = np.sum((features[:, None] - features) ** 2, axis=2)

    def count(penalty: float, gamma: float, folds: int, shuffle: int) -> int:
        kernel = np.exp(-gamma * distance)
        right = 0
        for train, test in KFold(folds, shuffle=True, random_state=shuffle).split(features):
            machine = SVC(C=penalty, kernel="precomputed")
            machine.fit(kernel[np.ix_(train, train)], label[train])
            right += int(np.sum(machine.predict(kernel[np.ix_(test, train)]) == label[test]))
        return right

    return count


def main(path: Path = _FILE, workers: int = 2) -> None:
    """Compute the table and write it."""
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the table of the SVM needs scikit-learn: pip install scikit-learn"
        ) from error
    nodes = [(i, j) for i in range(NODES) for j in range(NODES)]
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(compute, nodes))
    header = ["penalty_node", "log_gamma_node", "right_in_100_folds"]
    header += [f"right_in_20_folds_{s}" for s in range(SHUFFLES)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _FILE)
