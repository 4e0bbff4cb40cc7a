"""The demo, from a clone: a noisy function, the search, and the answer beside the truth.

Run: python examples/branin.py [seed] [--problem forrester]   (needs pip install "rmes[plot]")
"""

from rmes.demo import arguments, main

if __name__ == "__main__":
    main(**vars(arguments()))
