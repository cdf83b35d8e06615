"""`python -m tests.fuzz`: many cases over the cores, other ones in each run. `make fuzz N=1000000`.

In: how many cases (in all, dealt out to the cores), a seed, services. Out: a line a core with its cases and messages; a fault
ends the run with the smallest plan that shows it, as Hypothesis prints it, and with status 1. Cases are made in blocks of
BLOCK, each from its own seed, so that what Hypothesis remembers of a run stays bounded.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import PLANS, Step, run
from tests.fuzz.cores import SUBJECTS

BLOCK = 500


def block(service: str, number: int, cases: int) -> tuple[int, int]:
    """Run a block of cases; return how many there were, and how many messages they folded."""
    done = [0, 0]

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(PLANS)
    def every_case(plan: list[Step]) -> None:
        done[0] += 1
        done[1] += run(service, plan)

    every_case()
    return done[0], done[1]


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", "--cases", type=int, default=100_000, help="in all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first block; printed")
    parser.add_argument("--for", type=float, dest="seconds", default=float("inf"), help="end after so many seconds")
    parser.add_argument("services", nargs="*", help=f"of {', '.join(sorted(SUBJECTS))}; all unless named")
    options = parser.parse_args()
    services = options.services or sorted(SUBJECTS)
    unknown = set(services) - SUBJECTS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    print(f"seed {options.seed}", flush=True)
    totals = {service: [0, 0] for service in services}
    began, number = time.monotonic(), options.seed
    while sum(cases for cases, _ in totals.values()) < options.cases and time.monotonic() - began < options.seconds:
        for service in services:
            cases, folded = block(service, number, min(BLOCK, -(-options.cases // len(services))))
            totals[service][0] += cases
            totals[service][1] += folded
        number += 1
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            " ".join(f"{name}={cases}/{folded}" for name, (cases, folded) in totals.items()),
            f"rss_mib={resident_mib}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
