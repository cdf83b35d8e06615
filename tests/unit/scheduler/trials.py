"""What the scheduler tries of a group of pods, noted as it happens."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant_scheduler.cycle.groups.trials import GroupTrial, GroupTrials
from cotenant_scheduler.cycle.queue import GroupClass
from cotenant_scheduler.state.pod_records import PodRecord


def tried_members(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows: the names of the members that are tried one by one, in their order."""
    tried: list[str] = []
    place = GroupTrials.place_member

    def note(self: GroupTrials, trial: GroupTrial, group: GroupClass, record: PodRecord, *more: Any) -> Any:
        tried.append(record.key[1])
        return place(self, trial, group, record, *more)

    monkeypatch.setattr(GroupTrials, "place_member", note)
    return tried
