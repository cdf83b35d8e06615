"""`decide` has no observable effect but the events that it returns: every service's core is held to it, often, in one run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from cotenant_quota_tree.core import QuotaTreeCore
from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.checks import checker as checker_module

SEED = 1
SPAN = 60


def test_cores_decide_alike_however_often_they_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "DECIDE_EVERY", 10)
    monkeypatch.setattr(checker_module, "DECIDE_FREE", 200_000)
    result = run(schedule_of(SEED, SPAN, 3))
    assert result.violation is None
    assert result.checks["19"] > 100


def test_the_check_costs_no_more_than_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "DECIDE_EVERY", 1)
    monkeypatch.setattr(checker_module, "DECIDE_FREE", 2_000)
    monkeypatch.setattr(checker_module, "DECIDE_SHARE", 0)
    assert 0 < run(schedule_of(SEED, SPAN, 3)).checks["19"] < 200


def test_a_core_that_remembers_being_asked_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "DECIDE_EVERY", 1)
    right = QuotaTreeCore.decide

    def once(self: QuotaTreeCore, now: datetime) -> Any:
        asked = getattr(self, "asked", 0)
        self.__dict__["asked"] = asked + 1
        return right(self, now) if asked % 2 == 0 else []

    monkeypatch.setattr(QuotaTreeCore, "decide", once)
    violation = run(schedule_of(SEED, SPAN, 3)).violation
    assert violation is not None
    assert (violation.invariant, violation.name) == (19, "deciding_changes_nothing")
