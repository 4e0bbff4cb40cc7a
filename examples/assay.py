"""An assay on plates: wells in triplicate, some of them lost, a region where nothing works.

The signal-to-background ratio of an immunoassay depends on the dilution of the antibody, the time
of incubation and the buffer. A plate takes four conditions in three wells each. A well may be lost
to a bubble; above 50 minutes the PBS dries out and all its wells are lost. After each plate the
study is saved, as the next plate is run another day.

Run: python examples/assay.py [plates]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import rmes

SPACE = {
    "dilution": rmes.Float(1e-4, 1e-1, log=True),
    "minutes": rmes.Integer(10, 60, step=5),
    "buffer": rmes.Categorical(["PBS", "TBS", "casein"]),
}


def wells(params, rng):
    """The ratios of three wells, without the lost ones."""
    if params["buffer"] == "PBS" and params["minutes"] > 50:
        return []
    off = np.log10(params["dilution"] / 4e-3)
    ratio = {"PBS": 6.0, "TBS": 7.0, "casein": 9.0}[params["buffer"]]
    ratio *= np.exp(-(off**2) - ((params["minutes"] - 40) / 30) ** 2)
    return [float(ratio + rng.normal(0.0, 0.6)) for _ in range(3) if rng.random() > 0.1]


def main(plates=7):
    rng = np.random.default_rng(1)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "assay.json"
        file.write_text(rmes.Optimizer(SPACE, direction="maximize", seed=0).to_json())
        for plate in range(1, plates + 1):
            opt = rmes.Optimizer.from_json(file.read_text())  # another day
            for trial in opt.ask(n=4):
                ratios = wells(trial.params, rng)
                if ratios:
                    opt.tell(trial, ratios)  # replicates: how much they differ is used too
                else:
                    opt.tell(trial, failed=True)
            file.write_text(opt.to_json())
            answer = opt.recommend()
            print(f"Plate {plate}: expect {answer.mean:.1f} ± {answer.sd:.1f} at {answer.params}")
    failed = sum(trial["state"] == "failed" for trial in opt.trials)
    print(f"\n{len(opt.trials)} conditions, {failed} failed.")
    print(opt.recommend("measured"))  # one that has been on a plate
    print(opt.outlook())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
