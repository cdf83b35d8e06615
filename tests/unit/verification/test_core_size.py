"""Promise 13: what a core holds is counted, without results that are kept for speed."""

from __future__ import annotations

import pytest

import cotenant_scheduler.state.assigned_pods as assigned_pods
from cotenant_verification.checks.core_size import core_size
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def test_a_pod_that_is_resized_again_and_again_counts_once_and_pods_that_stay_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_pods, "SHAPES_CACHED", 5)
    story = Story()
    story.node(node("a", cpu="64"))
    story.pod(pod("p", cpu="1"))
    story.settle()
    before = core_size(story.core)
    for milli in range(1001, 1101):
        story.pod(pod("p", cpu=f"{milli}m"))
        story.settle()
    after = core_size(story.core)
    assert after <= before + 10
    for index in range(20):
        story.pod(pod(f"q{index}", cpu="1"))
    story.settle()
    assert core_size(story.core) >= after + 20
