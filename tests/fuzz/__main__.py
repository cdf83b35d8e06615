"""`python -m tests.fuzz`: many cases over the cores, other ones in each run. `make fuzz N=1000000`.

In: how many cases (in all, dealt out to the cores), a seed, services. Out: a line a core with its cases and messages. A fault
is printed with the smallest plan that shows it, as Hypothesis prints it, once for each place in the code; the run goes on, and
its exit status is 1. Cases are made in blocks of BLOCK, each from its own seed, so that what Hypothesis remembers of a run
stays bounded.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import PLANS, Step, run
from tests.fuzz.cores import SUBJECTS

BLOCK = 500


def block(service: str, number: int, cases: int) -> tuple[int, int, Exception | None]:
    """Run a block of cases; return how many there were, how many messages they folded, and the fault that ended the block."""
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

    try:
        every_case()
    except Exception as fault:  # noqa: BLE001 - whatever a core raises is a finding
        return done[0], done[1], fault
    return done[0], done[1], None


def place(fault: BaseException) -> str:
    """Where a fault was raised, and its type: two faults of one place are one finding."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{last.filename}:{last.lineno} {type(fault).__name__}"


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
    found: set[tuple[str, str]] = set()
    while sum(cases for cases, _ in totals.values()) < options.cases and time.monotonic() - began < options.seconds:
        for service in services:
            cases, folded, fault = block(service, number, min(BLOCK, -(-options.cases // len(services))))
            if fault is not None and (service, place(fault)) not in found:
                found.add((service, place(fault)))
                print(f"FAULT {service} seed {number}", "".join(traceback.format_exception(fault)), sep="\n", flush=True)
            totals[service][0] += cases
            totals[service][1] += folded
        number += 1
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            " ".join(f"{name}={cases}/{folded}" for name, (cases, folded) in totals.items()),
            f"rss_mib={resident_mib}",
            flush=True,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
