"""How the command line ends: whatever goes wrong is said in one line, with an exit code."""

import csv
import os
import signal
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import typer


def ending(command: Callable[[], Any]) -> int:
    """Run a command; its exit code."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = command()
        sys.stdout.flush()
        return int(code or 0) if code != 130 else _interrupted()
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except BrokenPipeError:  # whoever reads has seen enough
        _silence()
        return 1
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        if not message:  # the help has been shown
            return 2
        return _fail(message, 2 if hasattr(error, "format_message") else 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupted() -> int:
    return _fail("interrupted; what was told is kept, the same command goes on", 130)


def _fail(message: str, code: int) -> int:
    _silence()
    print(f"rmes: {message}", file=sys.stderr)
    return code


def _silence() -> None:
    """Let nothing be written at exit to an output that does not take it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> str | None:
    """What went wrong, in one line; None for what should not happen."""
    if hasattr(error, "format_message"):  # of the arguments
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "rmes"
        said = error.format_message().rstrip(".")
        return f"{said}; see {path} --help" if said else ""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, OSError | ValueError | TypeError | ImportError | csv.Error):
        return " ".join(str(error).split())
    if type(error).__module__.partition(".")[0] in ("sqlalchemy", "optuna"):
        inner = error.__cause__ or error
        original = getattr(inner, "orig", None) or inner
        said = " ".join(str(original).split())
        return f"the storage does not work: {said}; what was told before is kept"
    return None
