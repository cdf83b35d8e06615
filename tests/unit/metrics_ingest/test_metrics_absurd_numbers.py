"""Numbers that no executor means: a message with them is refused, its node and the others are measured on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.envelope import EventError
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.model.bounds import MAX_COUNT
from cotenant_metrics_ingest.samples import LARGEST_VALUE
from tests.unit.metrics_ingest.builders_metrics_ingest import MetricsLog

DAY_MS = 86_400_000

REFUSED: dict[str, dict[str, Any]] = {
    "period": {"period_ms": DAY_MS + 1},
    "longest period": {"period_ms": MAX_COUNT, "offsets_ms": (0,)},
    "offset": {"offsets_ms": (-DAY_MS - 1,)},
    "oldest offset": {"offsets_ms": (-MAX_COUNT,)},
    "future offset": {"offsets_ms": (MAX_COUNT,)},
    "period 1e18": {"period_ms": 10**18, "offsets_ms": (0,)},
    "offset -1e17": {"offsets_ms": (-(10**17),)},
    "no period": {"period_ms": 0, "offsets_ms": (0,)},
    "memory": {"memory": (9 * 10**18,)},
    "negative memory": {"memory": (-1,)},
    "system": {"system": (9 * 10**18,)},
    "memory 1e30": {"memory": (10**30,)},
}
UNREADABLE: dict[str, dict[str, Any]] = {
    "period": {"period_ms": 10**30},
    "offset": {"offsets_ms": (-(10**30),)},
    "counter": {"counter": 10**30},
    "negative counter": {"counter": -1},
}


def measured(log: MetricsLog, node: str) -> NodeMetricComputed:
    """Both nodes go on: the last report of one of them after another minute of samples."""
    for _ in range(6):
        log.now += timedelta(seconds=15)
        log.sample((500,), node="n1")
        log.sample((700,), node="n2")
        log.decide()
    reports = [event.data for event in log.log if event.subject == f"metrics.{node}"]
    assert isinstance(reports[-1], NodeMetricComputed)
    return reports[-1]


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_message_with_absurd_times_is_refused(name: str, when: str) -> None:
    log = MetricsLog()
    log.node("n1")
    log.node("n2")
    log.decide()
    if when == "later":
        log.sample((500,), node="n1")
        log.decide()
    log.now += timedelta(seconds=1)
    log.sample((500,), node="n1", **REFUSED[name])
    log.decide()
    assert sum(log.core.refusals.values()) == 1
    assert measured(log, "n1").node_usage.cpu_milli == 500
    assert measured(log, "n2").node_usage.cpu_milli == 700


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_message_beyond_the_bounds_cannot_be_read(name: str) -> None:
    log = MetricsLog()
    log.node("n1")
    with pytest.raises(EventError, match="does not fit: Expected `int`"):
        log.sample((500,), node="n1", **UNREADABLE[name])


def test_the_largest_figures_are_measured() -> None:
    log = MetricsLog()
    log.node("n1")
    log.node("n2")
    log.decide()
    log.sample((LARGEST_VALUE,), (LARGEST_VALUE,), node="n1", system=(LARGEST_VALUE,))
    assert not log.core.refusals
    report = log.decide()[0].data
    assert isinstance(report, NodeMetricComputed)
    assert report.node_usage.cpu_milli == report.node_usage.memory_bytes == LARGEST_VALUE
    assert measured(log, "n2").node_usage.cpu_milli == 700
