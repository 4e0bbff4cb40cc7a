"""A simulator with Monte Carlo error: each value comes with its own standard error.

A station fills its tank up to one level as soon as the fuel falls below another. What that costs
per day is simulated over 40 random months, so a cost is a mean with a standard error, which is
passed on with it. The run ends early once the answer is, with 90 % probability, within 0.5 of the
best possible cost.

Run: python examples/simulator.py [budget]
"""

import sys

import numpy as np

import rmes

MONTHS, DAYS = 40, 30
STORAGE, ORDER, SHORTAGE = 0.4, 25.0, 12.0  # per m³ and day, per order, per missing m³


def cost(params, rng):
    """The cost per day, and its standard error."""
    stock = np.full(MONTHS, float(params["up_to"]))
    total = np.zeros(MONTHS)
    for _ in range(DAYS):
        low = stock < params["reorder_below"]
        total += ORDER * low
        stock = np.where(low, np.maximum(stock, params["up_to"]), stock)
        stock -= rng.gamma(4.0, 1.5, MONTHS)
        total += SHORTAGE * np.maximum(-stock, 0.0)
        stock = np.maximum(stock, 0.0)
        total += STORAGE * stock
    per_day = total / DAYS
    return per_day.mean(), per_day.std(ddof=1) / np.sqrt(MONTHS)


def main(budget=40):
    result = rmes.minimize(
        cost,
        {"reorder_below": (1.0, 40.0), "up_to": (10.0, 120.0)},
        args=(np.random.default_rng(0),),
        budget=budget,
        rng=0,
        stop_when=lambda outlook: outlook.probability_within(0.5) > 0.9,
    )
    print(f"{result.nfev} simulations. {result.message}")
    print(result.recommendation)
    print(result.optimizer.outlook())
    value, error = cost(result.x, np.random.default_rng(1))
    print(f"Simulated once more: {value:.2f} ± {error:.2f} a day")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
