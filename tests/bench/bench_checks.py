"""What the checks of `cotenant simulate --chaos` cost: their share of a run's CPU time.

Each run is made with its checks and without them; the share is what they add, of what the run takes with them.
"""

from __future__ import annotations

import time

from cotenant_verification.chaos.run import run, schedule_of

RUNS = ((42, 600.0, 0), (5, 120.0, 100))
"""Seed, seconds, and nodes (0: as many as the seed chooses)."""


def main() -> None:
    """A line each run."""
    for seed, span, nodes in RUNS:
        spent = {}
        for checked in (True, False):
            schedule = schedule_of(seed, span, nodes)
            began = time.process_time()
            events = run(schedule, checked=checked).events
            spent[checked] = time.process_time() - began
        share = 1 - spent[False] / spent[True]
        print(
            f"simulator_checks_share_seed_{seed} {share:.2f} of the CPU time "
            f"({spent[True]:.1f} s with, {spent[False]:.1f} s without, {events} events)",
            flush=True,
        )


if __name__ == "__main__":
    main()
