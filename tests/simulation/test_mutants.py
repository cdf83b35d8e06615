"""Each deliberate defect is caught within its seeds, by a promise that is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.workload.schedule import in_order
from tests.simulation.mutants.defects import MUTANTS
from tests.simulation.mutants.patches import Mutant

pytestmark = pytest.mark.timeout(3600)
"""Nothing is waited for here: it is all computing, which takes many times as long on a crowded machine."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(mutant, id=f"{mutant.name}-caught-by-{min(mutant.caught_by)}") for mutant in MUTANTS]
)
def test_a_defect_is_caught(mutant: Mutant, record_property: Callable[[str, object], None]) -> None:
    seen = []
    with mutant.at_work():
        for seed in mutant.seeds:
            schedule = schedule_of(seed, mutant.minutes * 60, mutant.nodes)
            entries = in_order([*schedule.entries, *mutant.faults])
            violation = run(schedule.having(entries)).violation
            if violation is not None and violation.invariant in mutant.caught_by:
                record_property("promise", f"{violation.invariant} {violation.name}, seed {seed}")
                return
            seen.append(None if violation is None else (violation.invariant, violation.text[:200]))
    pytest.fail(f"{mutant.name} survived seeds {mutant.seeds}: {seen}")
