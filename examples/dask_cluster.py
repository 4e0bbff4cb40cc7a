"""Optimise on a cluster of processes, and lose one of them half-way.

A yield that depends on temperature and pH is measured with noise. Two worker processes measure at
the same time; each is given a new point as soon as it returns a value. Half-way one of them is
killed, as a machine of a real cluster may be: Dask starts another, what was being measured is
measured again, and the run ends with its full budget.

For many machines, replace the `LocalCluster` by the address of a Dask scheduler:
``Client("tcp://scheduler:8786")``. Nothing else changes.

Run: python examples/dask_cluster.py   (needs pip install "rmes[dask]")
"""

import logging
import os
import signal
import time

import numpy as np
from distributed import Client, LocalCluster

import rmes

BUDGET = 30


def measure(params):
    """The yield in per cent, after a while and with noise of standard deviation 2."""
    time.sleep(0.3)
    warm = (params["temperature"] - 65.0) / 20.0
    acid = (params["ph"] - 5.5) / 1.5
    noise = np.random.default_rng().normal(0.0, 2.0)
    return 80.0 * np.exp(-0.5 * (warm**2 + acid**2)) + noise


def main():
    logging.getLogger("distributed").setLevel(logging.ERROR)  # a killed worker is no surprise here

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def kill_one_half_way(result):
            if result.nfev == BUDGET // 2:
                pid = next(iter(client.run(os.getpid).values()))
                os.kill(pid, signal.SIGKILL)
                print(f"After {result.nfev} measurements worker process {pid} was killed.")

        result = rmes.maximize(
            measure,
            {"temperature": (20.0, 90.0), "ph": rmes.Float(4.0, 9.0)},
            budget=BUDGET,
            rng=0,
            workers=client,
            callback=kill_one_half_way,
        )

    print(result.message)
    print(result.recommendation)
    print(result.optimizer.outlook())


if __name__ == "__main__":
    main()
