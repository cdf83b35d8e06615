"""Copies of cores share with the original only what does not change."""

from __future__ import annotations

import msgspec

from cotenant.events.placements import Waiting
from cotenant_scheduler.cycle.queue import QueueEntry
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_verification.checks.copying import copied


class Ring(msgspec.Struct, frozen=True):
    """Frozen, and it refers to what changes."""

    holder: Holder


class Holder(msgspec.Struct):
    """Refers to its ring."""

    rings: list[Ring] = []


def test_a_frozen_entry_of_a_copy_refers_to_the_copys_record() -> None:
    record = PodRecord(("default", "web"))
    records = {"web": record}
    entries = [QueueEntry((0, "", "default", "web"), (record,))]
    copied_records, (entry,) = copied((records, entries))
    assert copied_records["web"] is not record
    assert entry.records[0] is copied_records["web"]
    assert entries[0].records[0] is record


def test_a_payload_is_shared() -> None:
    waiting = Waiting(namespace="default", name="web", uid="u", nodes=0, reasons=(), wakes_on=(), message="")
    assert copied([waiting])[0] is waiting


def test_a_cycle_through_a_frozen_struct_is_copied_as_one() -> None:
    holder = Holder()
    holder.rings.append(Ring(holder))
    made = copied(holder)
    assert made is not holder
    assert made.rings[0].holder is made
