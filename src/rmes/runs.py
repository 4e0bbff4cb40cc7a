"""Trials of a study measured by a program, several at once."""

from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from rmes.ledger import Entry, Ledger
from rmes.programs import Outcome, Programs, arguments

_HOPELESS = 5  # failures without a single measurement after which no more are tried


def measure(
    ledger: Ledger, command: Sequence[str], count: int, parallel: int, limit: float | None
) -> Generator[Entry, None, None]:
    """Ask, measure and tell `count` times, several at once; what came of each.

    Only this thread speaks with the storage. Whatever ends the loop, no program is left running
    and no trial pending.
    """
    programs = Programs()
    running: dict[Future[Outcome], Entry] = {}
    asked = measured = failed = 0
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while asked < count or running:
                while asked < count and len(running) < parallel:
                    entry = ledger.ask()
                    asked += 1
                    line = arguments(command, entry.params, entry.trial)
                    running[pool.submit(programs.measure, line, limit)] = entry
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    outcome, number = future.result(), running[future].trial
                    if outcome.error:
                        failed += 1
                        told = ledger.fail(number, outcome.error)
                    else:
                        measured += 1
                        told = ledger.tell(number, outcome.values, outcome.noise_sd)[0]
                    del running[future]
                    yield told
                if failed >= _HOPELESS and not measured:
                    raise ValueError(
                        f"the first {failed} runs failed, the last one so: {outcome.error}"
                    )
        finally:
            programs.end()
            for entry in running.values():
                if ledger.entry(entry.trial).state == "pending":
                    ledger.skip(entry.trial)
