"""The demo, from a clone: `rmes demo` does the same.

Run: python examples/branin.py [seed]   (needs pip install "rmes[plot]")
"""

import sys

from rmes.demo import main

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
