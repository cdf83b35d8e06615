"""Promises 4 and 5: overcommitted resources follow from fresh samples, and no decision acts on stale ones."""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import Migration
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.yarn import YarnNode
from cotenant.events.placements import Placement
from cotenant.model.subjects import metrics_subject
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.placements import new_placements

EXPIRATION = timedelta(seconds=180)
"""Load-aware scheduling's and LowNodeLoad's default."""
DEGRADE_MINUTES = 15
LENT = ("koord-batch", "koord-free")


class _Strategy(msgspec.Struct, rename="camel"):
    degrade_time_minutes: int | None = None
    mid_unallocated_percent: int | None = None


def batch_follows_from_its_samples(view: LogView, event: Event) -> Wrong:
    """A node's batch resources are at most capacity - margin - system - services - YARN by the metric and the report of
    YARN that the event names as its causes: nothing is offered twice.

    The services' usage is summed here from that metric: of every pod that is not batch itself. Nothing is offered on a
    metric that is older than the strategy allows.
    """
    data = event.data
    if not isinstance(data, NodeResources) or event.tombstone or data.withdrawn:
        return
    terms = {term.name: term for term in data.terms}
    metric = _metric_of(view, event, terms["system-used"].source if "system-used" in terms else "")
    if metric is None:
        if data.batch_cpu_milli or data.batch_memory_bytes:
            yield event.subject, f"{event.ref} offers {data.batch_cpu_milli}m of {data.node} and names no metric as its cause"
        return
    strategy = msgspec.json.decode(data.strategy, type=_Strategy)
    allowed = timedelta(minutes=strategy.degrade_time_minutes or DEGRADE_MINUTES)
    if metric.update_time is not None and event.time is not None and event.time - metric.update_time > allowed:
        yield event.subject, f"{event.ref} uses a metric of {metric.update_time} at {event.time}"
    if data.cpu_policy != "usage" or "capacity" not in terms:
        return
    services = sum(pod.usage.cpu_milli for pod in metric.pods if pod.priority not in LENT)
    taken = max(metric.system_usage.cpu_milli, terms["node-reserved"].cpu_milli)
    yarn = view.by_reference(terms["third-party"].source) if "third-party" in terms else None
    foreign = yarn.data.used.cpu_milli or 0 if yarn is not None and isinstance(yarn.data, YarnNode) else 0
    origin = max(0, terms["capacity"].cpu_milli - terms["margin"].cpu_milli - taken - services)
    if data.cpu_normalization_ratio > 1.0:
        origin = math.ceil(origin * data.cpu_normalization_ratio)
    most = max(0, origin - foreign)
    # The published figure may stay while it is within the dead band of the newly calculated one.
    if data.batch_cpu_milli > most:
        yield event.subject, (
            f"{event.ref} offers {data.batch_cpu_milli}m of {data.node}: capacity {terms['capacity'].cpu_milli} - margin "
            f"{terms['margin'].cpu_milli} - system {taken} - services {services} - YARN {foreign} is {most}"
        )


def mid_leaves_services_their_requests(view: LogView, event: Event) -> Wrong:
    """A node's mid resources are at most the part of services' requests that is predicted unused, within
    unused capacity, by the metric that the event names, and the configured share of unrequested capacity: mid takes no service
    below its request. A static amount is the operator's.
    """
    data = event.data
    if not isinstance(data, NodeResources) or event.tombstone or data.withdrawn:
        return
    terms = {term.name: term for term in data.terms}
    if "mid-prod-reclaimable" not in terms or "capacity" not in terms:
        return
    metric = _metric_of(view, event, terms["mid-prod-reclaimable"].source)
    predicted = metric.prod_reclaimable if metric is not None else None
    used = metric.node_usage if metric is not None else Usage()
    share = msgspec.json.decode(data.strategy, type=_Strategy).mid_unallocated_percent or 0
    capacity, unallocated = terms["capacity"], terms["mid-unallocated"]
    figures = (
        ("mid-cpu", data.mid_cpu_milli, predicted and predicted.cpu_milli, capacity.cpu_milli - used.cpu_milli,
         unallocated.cpu_milli),
        ("mid-memory", data.mid_memory_bytes, predicted and predicted.memory_bytes, capacity.memory_bytes - used.memory_bytes,
         unallocated.memory_bytes),
    )
    for name, offered, reclaimable, unused, unrequested in figures:
        most = max(0, min(reclaimable or 0, unused)) + max(0, unrequested) * share // 100
        if offered > most:
            yield event.subject, (
                f"{event.ref} offers {name} {offered} of {data.node}: services are predicted not to need {reclaimable or 0}, "
                f"{unused} is unused, and {share} % of {unrequested} may be offered"
            )


def metrics_follow_the_time_of_the_log(_: LogView, event: Event) -> Wrong:
    """The time of a node's last sample is log time: no metric is later than its event, whatever the node's clock says."""
    data = event.data
    if not isinstance(data, NodeMetricComputed) or data.update_time is None or event.time is None:
        return
    if data.update_time > event.time + timedelta(seconds=1):
        yield event.subject, f"{event.ref} of {event.time} dates the last sample of {data.node} to {data.update_time}"


def _metric_of(view: LogView, event: Event, source: str) -> NodeMetricComputed | None:
    """The metric that the figures were computed from: held figures name an older one than the message that made the calculator
    hold them."""
    for cause in (source, *event.causes):
        found = view.by_reference(cause)
        if found is not None and isinstance(found.data, NodeMetricComputed):
            return found.data
    return None


def stale_metrics_evict_nobody(view: LogView, seen: CommitSeen) -> Wrong:
    """LowNodeLoad moves no pod of a node whose metric is unknown or expired in the state that was decided on."""
    if seen.service != "descheduler-arbiter":
        return
    for event in seen.events:
        data = event.data
        if not isinstance(data, Migration) or data.trigger != "LowNodeLoad" or data.created_at != seen.commit.now:
            continue
        metric = view.version_at(metrics_subject(data.node), seen.commit.folded)
        why = _stale(metric, event)
        if why:
            yield event.subject, f"{event.ref} moves {data.namespace}/{data.pod} off {data.node}, whose metric {why}"


def stale_metrics_take_no_pods(view: LogView, seen: CommitSeen) -> Wrong:
    """The policy in force refuses nodes with an expired metric: no pod is placed there."""
    if seen.service != "scheduler":
        return
    for event in new_placements(view, seen):
        assert isinstance(event.data, Placement)
        metric = view.version_at(metrics_subject(event.data.node), seen.commit.folded)
        if metric is None or not isinstance(metric.data, NodeMetricComputed) or metric.data.update_time is None:
            continue
        if event.time is not None and event.time - metric.data.update_time >= EXPIRATION:
            yield event.subject, (
                f"{event.ref} is a placement on {event.data.node}, whose metric dates from "
                f"{metric.data.update_time}"
            )


def _stale(metric: Event | None, event: Event) -> str:
    if metric is None or not isinstance(metric.data, NodeMetricComputed):
        return "is not there"
    if metric.data.unknown_since is not None:
        return f"has been unknown since {metric.data.unknown_since}"
    if metric.data.update_time is not None and event.time is not None and event.time - metric.data.update_time > EXPIRATION:
        return f"dates from {metric.data.update_time}"
    return ""
