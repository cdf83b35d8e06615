"""The part of a NodeMetric that the formulas read.

In: a message on `metrics.<node>`. Out: its usages; the windows' own state, predictions by model and contention are not decoded
and not kept: they are two thirds of a report.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from cotenant.events.envelope import Part, PayloadView
from cotenant.events.node.metrics import HostApplicationMetric, NodeMetricComputed, Usage
from cotenant.model.bounds import Seconds

_NO_USAGE = Usage()


class PodMetricView(Part, frozen=True, kw_only=True):
    """Average usage of one pod, and its tier."""

    namespace: str
    name: str
    priority: str = ""
    usage: Usage = _NO_USAGE


class AggregatedUsageView(Part, frozen=True, kw_only=True):
    """A node's mean and 99th percentile over one window."""

    duration_seconds: Seconds
    p99: Usage = _NO_USAGE
    avg: Usage = _NO_USAGE


class NodeMetricView(PayloadView, frozen=True, kw_only=True):
    """`cotenant.events.NodeMetricComputed`, as far as it is read here."""

    OF = NodeMetricComputed

    node: str
    update_time: datetime | None = None
    unknown_since: datetime | None = None
    node_usage: Usage = _NO_USAGE
    system_usage: Usage = _NO_USAGE
    aggregated_node_usages: tuple[AggregatedUsageView, ...] = ()
    pods: tuple[PodMetricView, ...] = ()
    host_applications: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable: Usage | None = None
    prod_peak: Usage | None = None
    services_peak: Usage | None = None


ReadMetric: TypeAlias = NodeMetricComputed | NodeMetricView
"""Both are folded alike; a reader of the log is given views."""
