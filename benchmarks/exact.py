"""What the exact integral is worth: against the paper's Adam, in time, and in search quality.

Three parts, all with one BLAS thread; times are those of the processor:

adam    The exact climb and Adam on the same draws from the same starts: value reached, time.
cost    RMES with derivatives at 1,000 points beside the Gaussian process's moments with gradients.
search  How often a suggestion is no lower than the best of 50 random restarts.

    python benchmarks/exact.py                          # everything, then results/exact.md
    python benchmarks/exact.py --parts cost search
    python benchmarks/exact.py --report                 # results/exact.md from the rows
"""

import argparse
import itertools
import json
import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from rmes import adam, choice, information, maxima, suggest
from rmes.criteria import acquire, roughly, screened
from rmes.domain import Domain
from rmes.fit import fit
from rmes.measurements import merge
from rmes.multistart import climb, space_filling, spread
from rmes.settings import Settings, Situation
from speed import RESULTS, bumps, circumstances, table

ROWS = RESULTS / "exact.jsonl"
PARTS = ["adam", "cost", "search"]
NOISES = {"small": 0.01, "large": 0.5}  # in standard deviations of the function

ADAM_SIZES = [(20, 2), (50, 2), (100, 4)]
LADDER = list(itertools.product((0.01, 0.03), (5, 10, 25, 50, 100), (10, 30, 100)))
CHOICES = (100, 1000)  # samples for the choice between the ends
AUTHORS = (500, 3000)  # steps, samples in the authors' code for a sibling method
SEARCH_SIZES = [(5, 1), (10, 2), (20, 2), (50, 2), (100, 4), (50, 6), (200, 6)]
SEARCH_NOISES = (0.01, 0.1, 0.5)


def measured(n, d, noise, seed):
    """Standardised measurements of a smooth random function; the noise is to be inferred."""
    rng = np.random.default_rng([seed, n, d, round(1000 * noise)])
    x = rng.random((n, d))
    y = bumps(d, rng)(x) + noise * rng.normal(size=n)
    return merge(x, (y - y.mean()) / y.std()), rng


def best_of(function, count, scale, rng):
    """The highest of random restarts, climbed much further than a suggestion does."""
    starts = rng.random((count, len(scale)))
    return climb(lambda x, _rows: function(x), starts, scale, 1e-6, rounds=100).value.max()


class Case:
    """All that precedes the climb of one suggestion, as `suggest.choose` does it."""

    def __init__(self, n, d, noise, seed):
        data, self.rng = measured(n, d, noise, seed)
        settings, self.domain = Settings(), Domain(d)
        learned = fit(settings.model, data, self.rng, settings.samples)
        nobody = np.empty((0, d))
        theta = learned.turn(data.size)
        self.posterior = suggest.posterior_given(data, nobody, settings.model, theta)
        self.noise = choice.new_noise(data, self.posterior, None)
        candidates = space_filling(settings.candidates, d, self.rng)
        self.drawn = maxima.from_paths(
            self.posterior, settings.maxima, candidates, self.domain, self.rng
        )
        candidates = np.concatenate([candidates, self.drawn.place.reshape(-1, d)])
        self.exact = acquire("rmes", self.posterior, self.noise, self.drawn, n)
        self.rough = roughly(self.posterior, self.noise, self.drawn)
        self.scale = np.exp(np.log(self.posterior.length_scales).mean(axis=0)).clip(max=1.0)
        mean, variance = self.posterior.predict(candidates)
        values = screened(mean, variance, self.noise(candidates), self.drawn)
        self.starts = candidates[spread(values, candidates / self.scale, settings.climbs)]

    def sampled(self, samples):
        """The paper's estimate, from fresh samples at every call."""
        return adam.sampled(self.posterior, self.noise, self.drawn, samples, self.rng)

    def by_exact(self):
        """The point (1, d) that the climb of a suggestion finds, on the integral itself."""
        found = choice.climbed(self.rough, self.starts, self.scale, self.domain)
        return found.x[[np.argmax(found.value)]]

    def by_adam(self):
        """The point (1, d) that `rmes-adam` finds."""
        noisy, estimate = self.sampled(adam.SAMPLES), self.sampled(adam.FINAL_SAMPLES)
        x, value = adam.search(noisy, estimate, self.starts, self.domain)
        return x[[np.argmax(value)]]

    def by_ladder(self, step, steps, samples):
        """All ends (m, d) of Adam."""
        return adam.ascend(self.sampled(samples), self.starts, step, steps)

    def best_by(self, samples, ends):
        """The end (1, d) that an estimate ranks first."""
        return ends[[np.argmax(self.sampled(samples)(ends)[0])]]


def clocked(function, repeats=1):
    """The result, and the least of the times: of the processor, which neighbours disturb less."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        result = function()
        seconds.append(time.process_time() - began)
    return result, min(seconds)


def adam_rows(seeds):
    for seed in range(seeds):
        for (n, d), (label, noise) in itertools.product(ADAM_SIZES, NOISES.items()):
            case = Case(n, d, noise, seed)
            top = best_of(case.exact, 200, case.scale, case.rng)
            row = {"n": n, "d": d, "noise": label, "seed": seed, "ladder": []}

            def relative(x, case=case, top=top):
                return float(np.exp(case.exact(x)[0].max() - top))

            row["start"] = relative(case.starts)
            for name, way, repeats in (("exact", case.by_exact, 5), ("adam", case.by_adam, 1)):
                x, seconds = clocked(way, repeats)
                row[name] = {"value": relative(x), "seconds": seconds}
            for rung in LADDER:
                ends, seconds = clocked(lambda case=case, rung=rung: case.by_ladder(*rung))
                for final in CHOICES:
                    x, more = clocked(lambda c=case, f=final, ends=ends: c.best_by(f, ends))
                    row["ladder"].append([*rung, final, relative(x), seconds + more])
            if seed == 0:  # a minute each: the time of the whole is taken from three steps
                _, seconds = clocked(lambda case=case: case.by_ladder(1e-3, 3, AUTHORS[1]))
                row["authors_seconds"] = seconds * AUTHORS[0] / 3
            yield row


def cost_rows(repeats=25):
    n, d, points = 200, 6, 1000
    for label, noise in NOISES.items():
        data, rng = measured(n, d, noise, 0)
        learned = fit(Settings().model, data, rng, 0)
        nobody, theta = np.empty((0, d)), learned.settings
        posterior = suggest.posterior_given(data, nobody, Settings().model, theta)
        anywhere = rng.random((points, d))
        noise_at = choice.new_noise(data, posterior, None)
        for size, where in itertools.product((5, 10), ("anywhere", "within 0.5", "within 0.05")):
            tops = maxima.from_paths(posterior, size, anywhere, Domain(d), rng)
            drawn, x = tops.value[0], anywhere
            if where != "anywhere":  # so many length-scales of the maxima's places
                reach = float(where.split()[1]) * np.minimum(posterior.length_scales[0], 1.0)
                around = np.resize(tops.place[0], (points, d))
                x = np.clip(around + reach * rng.uniform(-1.0, 1.0, (points, d)), 0.0, 1.0)
            level = noise_at(x)[0]
            mean, variance = (part[0] for part in posterior.predict(x))
            ways = {
                "moments": lambda posterior=posterior, x=x: posterior.moments(x),
                "rmes": lambda a=(mean, variance, level, drawn): information.rmes(*a),
                "log_rmes": lambda a=(mean, variance, level, drawn): information.log_rmes(*a),
            }
            seconds = {name: [] for name in ways}
            for _ in range(repeats):  # in turns: a machine that slows down slows all alike
                for name, way in ways.items():
                    seconds[name].append(clocked(way)[1])
            c = float(np.median(np.sqrt(level / (level + variance))))
            gamma = float(np.median((drawn[:, None] - mean) / np.sqrt(variance)))
            row = {"noise": label, "maxima": size, "where": where, "seconds": seconds}
            yield row | {"c": c, "gamma": gamma}


def search_rows(seeds):
    for (n, d), noise in itertools.product(SEARCH_SIZES, SEARCH_NOISES):
        reached, at_point, repeats = [], [], 0
        for seed in range(seeds):
            data, rng = measured(n, d, noise, seed)
            alone = Settings(settle=False)  # what RMES finds, also where it would repeat a point
            found = suggest.suggest(data, np.empty((0, d)), alone, rng, Situation.plain(d))
            level = choice.new_noise(data, found.posterior, None)
            function = acquire("rmes", found.posterior, level, found.maxima, n)
            scale = np.exp(np.log(found.posterior.length_scales).mean(axis=0)).clip(max=1.0)
            best = best_of(function, 50, scale, rng)
            reached.append(float(np.exp(found.value - best)))
            at_point.append(float(np.exp(function(found.x[None])[0][0] - best)))
            repeats += found.repeats is not None
        row = {"n": n, "d": d, "noise": noise, "reached": reached}
        yield row | {"at_point": at_point, "repeats": repeats}


# Reporting.


def milliseconds(seconds):
    text = f"{1e3 * np.median(seconds):.3g}"
    return f"{float(text):.0f}" if "e" in text else text


def spans(values):
    return f"{np.median(values):.4f} ({min(values):.4f})"


def cheapest(rows, quality, share=0.9):
    """The quickest rung that reaches `quality` of the exact value in that share of the cases."""
    found = []
    for rungs in zip(*(row["ladder"] for row in rows), strict=True):
        pairs = zip(rungs, rows, strict=True)
        enough = [rung[4] >= quality * row["exact"]["value"] for rung, row in pairs]
        if np.mean(enough) >= share:
            found.append((float(np.median([rung[5] for rung in rungs])), rungs[0][:4]))
    return min(found) if found else None


def adam_report(rows):
    head = ["n, d", "noise", "cases", "best start", "exact", "ms", "rmes-adam", "ms"]
    values = [[*head, "times as long"]]
    head = ["n, d", "noise", "quality", "first step", "steps", "samples", "final samples", "ms"]
    needs = [[*head, "times as long"]]
    for (n, d), noise in itertools.product(ADAM_SIZES, NOISES):
        some = [r for r in rows if (r["n"], r["d"], r["noise"]) == (n, d, noise)]
        if not some:
            continue
        exact, other = ([r[k]["seconds"] for r in some] for k in ("exact", "adam"))
        ours = float(np.median(exact))
        start, *reached = (
            spans([r["start"] for r in some]),
            *(spans([r[k]["value"] for r in some]) for k in ("exact", "adam")),
        )
        line = [f"{n}, {d}", noise, str(len(some)), start, reached[0], milliseconds(exact)]
        line += [reached[1], milliseconds(other), f"{np.median(other) / ours:.0f}"]
        values.append(line)
        for quality in (0.99, 0.999):
            rung = cheapest(some, quality)
            line = [f"{n}, {d}", noise, f"{quality:.1%}"]
            if rung is None:
                needs.append([*line, "–", "–", "–", "–", "–", "none tried suffices"])
                continue
            seconds, setting = rung
            line += [*map(str, setting), milliseconds([seconds])]
            needs.append([*line, f"{seconds / ours:.1f}"])
        authors = [r["authors_seconds"] for r in some if "authors_seconds" in r]
        line = [f"{n}, {d}", noise, "authors' setting", "0.001", *map(str, AUTHORS), "none"]
        needs.append([*line, milliseconds(authors), f"{np.median(authors) / ours:.0f}"])
    return [
        "## Exact against Adam",
        "The same posterior (four settings of the hyperparameters), the same five draws of the "
        "maximum for each and the same starts; only the climb differs. The exact one is that of a "
        "suggestion, on the integral to three digits. Values are those of RMES itself "
        "at the chosen point over the best of 200 random restarts: median (least). Times are "
        f"medians of the climb alone. `rmes-adam` takes {adam.STEPS} steps of {adam.SAMPLES} "
        f"samples, and {adam.FINAL_SAMPLES:,} samples to choose between the ends. "
        "The exact climb's time is the least of five repetitions, Adam's of one.",
        table(values),
        "### Time at equal quality",
        "The quickest of "
        f"{len(LADDER) * len(CHOICES)} settings of Adam that reaches that share of the exact "
        "value in nine of ten cases (in all, of five). This favours Adam: the setting is picked "
        "with hindsight for each row. The authors' time is extrapolated from three steps.",
        table(needs),
        "All estimates are `information.rmes_sampled`, which works in logarithms to be right for "
        "any γ; plainer arithmetic for moderate γ alone would make Adam faster by a small factor.",
    ]


def cost_report(rows):
    lines = [["points", "noise", "maxima", "γ", "c", "moments, ms"]]
    lines[0] += ["rmes, ms", "ratio", "log_rmes, ms", "ratio"]
    for row in rows:
        seconds = {name: np.array(times) for name, times in row["seconds"].items()}
        line = [row["where"], row["noise"], str(row["maxima"]), f"{row['gamma']:.1f}"]
        line += [f"{row['c']:.3f}", milliseconds(seconds["moments"])]
        for name in ("rmes", "log_rmes"):
            ratio = np.median(seconds[name] / seconds["moments"])
            line += [milliseconds(seconds[name]), f"{ratio:.2f}"]
        lines.append(line)
    return [
        "## The cost of RMES",
        "RMES with its derivatives at 1,000 points beside the moments with gradients of one "
        "Gaussian process, n = 200, d = 6; γ and c = τ/σ₊ are medians over the points. Times are "
        "medians; the ratio is the median of paired ratios. Wanted: at most 3. Points anywhere in "
        "the cube are mostly far below the maximum (γ above 25 takes arithmetic in logarithms); "
        "the others lie within so many length-scales of the drawn maxima, in each coordinate.",
        table(lines),
    ]


def search_report(rows):
    lines = [["n, d", "noise", "cases", "no lower", "least", "repeats", "no lower at the point"]]
    everything, points = [], []
    for row in rows:
        reached, at_point = np.array(row["reached"]), np.array(row["at_point"])
        everything.extend(reached)
        points.extend(at_point)
        line = [f"{row['n']}, {row['d']}", str(row["noise"]), str(len(reached))]
        line += [f"{np.mean(reached >= 0.999):.0%}", f"{reached.min():.4f}", str(row["repeats"])]
        lines.append([*line, f"{np.mean(at_point >= 0.999):.0%}"])
    reached, at_point = np.array(everything), np.array(points)
    share, point_share = np.mean(reached >= 0.999), np.mean(at_point >= 0.999)
    total = ["all", "", str(len(reached)), f"{share:.1%}", f"{reached.min():.4f}"]
    lines.append([*total, str(sum(r["repeats"] for r in rows)), f"{point_share:.1%}"])
    return [
        "## Search quality",
        "Share of suggestions whose RMES is no lower (relative 1e-3) than the best of 50 random "
        "restarts that climb on to 1e-6; wanted: 95 %. Least: the lowest ratio. Repeats: where "
        "a measured point is worth as much as the one found, within 1 %, it is suggested instead; "
        "the last column is at that point.",
        table(lines),
    ]


def report(rows):
    """All tables, from the rows of the newest run of each part."""
    parts = ["# Exact RMES"]
    used = []
    for part, write in (("adam", adam_report), ("cost", cost_report), ("search", search_report)):
        some = [row for row in rows if row["what"] == part]
        some = [row for row in some if row["run"] == some[-1]["run"]]
        if some:
            parts += write(some)
            used += some
    notes = [
        f"- {r['cpu_model']}, {r['cores']} cores, one BLAS thread, processor times, "
        f"{r['date'][:10]}, commit {r['commit'] or 'unknown'}"
        for r in used
    ]
    for row in used:
        notes.append("- " + ", ".join(f"{name} {no}" for name, no in row["versions"].items()))
    load = [row["load"] for row in used]
    notes.append(f"- load average {min(load, default=0.0):.1f} to {max(load, default=0.0):.1f}")
    if max(load, default=0.0) > 1.3:
        notes.append(
            "- **The machine was busy** (one thread makes a load of 1). Processor times "
            "still suffer from shared caches and hyperthreads; ratios suffer less."
        )
    return "\n\n".join([*parts, "## Circumstances", "\n".join(dict.fromkeys(notes))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=10, help="cases of each kind")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    ways = {
        "adam": lambda: adam_rows(options.seeds),
        "cost": cost_rows,
        "search": lambda: search_rows(options.seeds),
    }
    if not options.report:
        with threadpool_limits(1), ROWS.open("a") as file:
            for part in options.parts:
                for row in ways[part]():
                    row = circumstances("rmes", "one") | {"what": part} | row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    size = {
                        k: row[k]
                        for k in ("n", "d", "noise", "seed", "maxima", "where")
                        if k in row
                    }
                    print(part, size, f"load {os.getloadavg()[0]:.1f}", flush=True)
    saved = [json.loads(line) for line in ROWS.read_text().splitlines()]
    text = report(saved)
    (RESULTS / "exact.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
