"""Verdicts on comparisons of methods: holds, does not hold, cannot tell."""

from collections.abc import Iterable
from dataclasses import dataclass

from rmes.paper.results import LEAST_SEEDS, LEVEL, MEASURES, Interval, Results, log_ratio

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"

METHODS = ("ei", "ucb", "pes", "mes", "rmes")
MARGIN = 0.5  # of log10: regrets within a factor of three are close


@dataclass(frozen=True, slots=True)
class Part:
    """One comparison: what is said, the number that judges it, and the verdict."""

    text: str
    interval: Interval | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper with its parts.

    It holds if all of them do. It does not hold if one does not, beyond what chance does among so
    many: at the level 5 % divided by the number of parts.
    """

    letter: str
    text: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> str:
        """Of the claim as a whole."""
        limit = (1.0 - LEVEL) / max(len(self.parts), 1)
        failed = [part.interval for part in self.parts if part.verdict == FAILS]
        if any(interval is not None and interval.p <= limit for interval in failed):
            return FAILS
        return HOLDS if {part.verdict for part in self.parts} == {HOLDS} else UNKNOWN

    def count(self, verdict: str) -> int:
        """How many parts have that verdict."""
        return sum(part.verdict == verdict for part in self.parts)


def _ratio(
    results: Results, cell: tuple[str, float], measure: str, a: str, b: str
) -> Interval | None:
    """log10 of the mean final regret of a over that of b; None where runs are too few."""
    data = results.data_of(cell[0])
    seeds = results.seeds(data, cell[1], (a, b)) if data else []
    if data is None or len(seeds) < LEAST_SEEDS:
        return None
    first, second = (results.final(data, cell[1], m, measure, seeds) for m in (a, b))
    return log_ratio(first, second)


def negative(interval: Interval | None) -> str:
    """Whether a number is negative."""
    if interval is None or interval.low <= 0.0 <= interval.high:
        return UNKNOWN
    return HOLDS if interval.high < 0.0 else FAILS


def where(cell: tuple[str, float]) -> str:
    """Problem and noise in words."""
    return f"{cell[0]}, σ = {cell[1]:g}"


def smaller(
    results: Results, cell: tuple[str, float], measure: str, a: Iterable[str], b: Iterable[str]
) -> list[Part]:
    """Each of a has a smaller regret than each of b."""
    parts = []
    for one in a:
        for other in b:
            interval = _ratio(results, cell, measure, one, other)
            text = f"{where(cell)}: {MEASURES[measure]} of {one} below {other}"
            parts.append(Part(text, interval, negative(interval)))
    return parts


def close(
    results: Results, cell: tuple[str, float], measure: str, a: str, others: Iterable[str]
) -> list[Part]:
    """The regret of a is within a factor of three of each of the others."""
    parts = []
    for other in others:
        interval = _ratio(results, cell, measure, a, other)
        verdict = UNKNOWN
        if interval is not None and interval.low > -MARGIN and interval.high < MARGIN:
            verdict = HOLDS
        elif interval is not None and (interval.low > MARGIN or interval.high < -MARGIN):
            verdict = FAILS
        text = f"{where(cell)}: {MEASURES[measure]} of {a} close to {other}"
        parts.append(Part(text, interval, verdict))
    return parts


def beaten(results: Results, cell: tuple[str, float], measure: str, a: str) -> Part:
    """Some other method has a smaller regret than a."""
    others = [m for m in METHODS if m != a]
    found = {other: _ratio(results, cell, measure, other, a) for other in others}
    known = {other: interval for other, interval in found.items() if interval is not None}
    text = f"{where(cell)}: some method has a smaller {MEASURES[measure]} than {a}"
    if not known:
        return Part(text, None, UNKNOWN)
    best = min(known, key=lambda other: known[other].value)
    verdict = negative(known[best])
    if verdict != HOLDS:
        none = all(negative(interval) == FAILS for interval in known.values())
        verdict = FAILS if none else UNKNOWN
    return Part(f"{text} (nearest: {best})", known[best], verdict)


def best(results: Results, cell: tuple[str, float], measure: str, a: str) -> list[Part]:
    """The regret of a is smaller than that of every other method."""
    return smaller(results, cell, measure, [a], [m for m in METHODS if m != a])
