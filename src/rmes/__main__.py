"""`python -m rmes`, and the command `rmes`."""

import sys


def main() -> int:
    """Run the command line, or say what is missing for it."""
    try:
        from rmes import cli
    except ImportError as error:
        print(f"rmes: {error}", file=sys.stderr)
        return 1
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
