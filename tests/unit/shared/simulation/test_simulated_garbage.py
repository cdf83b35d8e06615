"""A simulation looks for garbage in cycles as often as it finds some, and leaves the interpreter as it was."""

from __future__ import annotations

import gc

from cotenant.simulation import collecting_rarely
from cotenant.simulation.garbage import OFTEN, RARELY, WORTH_A_LOOK


def leave_cycles(count: int) -> None:
    for _ in range(count):
        ring: list[object] = []
        ring.append(ring)


def test_a_look_that_finds_nothing_makes_looks_rare_and_one_that_finds_garbage_makes_them_frequent() -> None:
    before, looked_at = gc.get_threshold(), gc.get_freeze_count()
    with collecting_rarely():
        assert gc.get_freeze_count() > looked_at
        gc.collect()
        assert gc.get_threshold() == RARELY
        leave_cycles(WORTH_A_LOOK)
        gc.collect()
        assert gc.get_threshold() == OFTEN
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_the_interpreters_pace_comes_back_after_a_failure() -> None:
    before, listening = gc.get_threshold(), len(gc.callbacks)
    try:
        with collecting_rarely():
            raise LookupError
    except LookupError:
        pass
    assert gc.get_threshold() == before
    assert len(gc.callbacks) == listening
