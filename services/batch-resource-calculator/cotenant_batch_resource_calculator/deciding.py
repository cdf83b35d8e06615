"""Decides a node's resources event, and whether it differs enough to be published.

In: the node's state, the configuration, the time. Out: the payload, and whether to publish it at once, later or not at all.

The first rule that matches applies:

    ColocationDisabled    the cluster's or the node's switch is off             withdrawn
    UnknownCapacity       neither the executor nor the object has a capacity    withdrawn
    NoMetric, StaleMetric no metric, or older than degradeTimeMinutes           withdrawn, degraded
    MetricUnknown         no new samples, but for less than that time           the last figures are held
    (none)                the formula

A rejected colocation section keeps the strategy of the node's last event (the built-in defaults where it has none) and
a foreign share that cannot be read keeps the last one; both are named in `message`, and the rejection in the code too.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.domain.third_party import HADOOP_YARN, ThirdPartyError, batch_total, parse_allocations
from cotenant.events.envelope import Event
from cotenant.events.resources import NodeResources
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import QuantityError
from cotenant.model.times import NEVER
from cotenant_batch_resource_calculator.composing import compose, compose_withdrawn
from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.config.in_force import Configuration
from cotenant_batch_resource_calculator.config.json_overlay import JsonObject, JsonValue
from cotenant_batch_resource_calculator.formulas.amounts import Amounts, of_mapping
from cotenant_batch_resource_calculator.formulas.evaluation import (
    DEFAULT_DIFF_THRESHOLD,
    DEFAULT_UPDATE_SECONDS,
    NodeAmounts,
    batch_strategy,
    calculate,
    degrade_minutes,
    withdrawal,
)
from cotenant_batch_resource_calculator.formulas.placing import normalization_ratio, offer
from cotenant_batch_resource_calculator.formulas.synchronise import any_differs, due_from, is_due, stale_from
from cotenant_batch_resource_calculator.node_state import NodeState, Situation, Standing, amounts

CONFIG_REJECTED = "ConfigRejected"
DISABLED = "ColocationDisabled"
UNKNOWN_CAPACITY = "UnknownCapacity"
METRIC_UNKNOWN = "MetricUnknown"


def resources_of(state: NodeState, configuration: Configuration, now: datetime) -> Standing:
    """Return the node's desired event, and whether it is worth publishing."""
    standing = state.standing
    if standing is None or standing.withdrawal != _withdrawn_by_time(state, standing.strategy, now):
        standing = state.standing = _standing(state, configuration, now)
    return standing


def is_due_now(last: Event | None, standing: Standing, now: datetime) -> bool:
    """Whether the payload is published now, by the rule in `core`."""
    return standing.news or (
        standing.differs and is_due(last.time if last is not None else None, now, standing.refresh_seconds)
    )


def next_look(state: NodeState) -> datetime:
    """When a state without a due event may need one by the passing of time alone."""
    standing = state.standing
    if state.node is None or standing is None:
        return NEVER
    times = [NEVER]
    if not standing.withdrawal and state.metric is not None and state.metric.update_time is not None:
        times.append(stale_from(state.metric.update_time, degrade_minutes(standing.strategy)))
    if standing.differs and state.resources is not None and state.resources.time is not None:
        times.append(due_from(state.resources.time, standing.refresh_seconds))
    return min(times)


def _withdrawn_by_time(state: NodeState, strategy: ColocationStrategy, now: datetime) -> str:
    return withdrawal(state.metric.update_time if state.metric is not None else None, strategy, now)[0]


def _standing(state: NodeState, configuration: Configuration, now: datetime) -> Standing:
    if state.situation is None:
        state.situation = _situation(state, configuration)
    situation = state.situation
    strategy = situation.strategy
    payload = _payload(state, situation, now)
    last = state.published
    return Standing(
        payload=payload,
        strategy=strategy,
        withdrawal=_withdrawn_by_time(state, strategy, now),
        news=last is None or _moved(last, payload, strategy.resource_diff_threshold or DEFAULT_DIFF_THRESHOLD),
        differs=last != payload,
        refresh_seconds=strategy.update_time_threshold_seconds or DEFAULT_UPDATE_SECONDS,
        calculated=state.evaluation is not None,
    )


def _situation(state: NodeState, configuration: Configuration) -> Situation:
    base, cluster_enable = _base_strategy(state, configuration)
    strategy, ignored = colocation.on_node(base, state.labels, state.annotations)
    foreign, foreign_note = _foreign(state)
    rejected = configuration.rejection(colocation.KEY)
    notes = [note for note in (ignored, foreign_note, state.reservation().error) if note]
    if rejected:
        notes.append(f"the ConfigMap's section was rejected and the strategy before it stays in force: {rejected}")
    return Situation(
        strategy=strategy,
        policies=batch_strategy(strategy),
        base=msgspec.Raw(msgspec.json.encode(base, order="deterministic")),
        cluster_enable=cluster_enable,
        config=configuration.source,
        foreign=foreign,
        ratio=normalization_ratio(state.annotations),
        reason=CONFIG_REJECTED if rejected else "",
        notes=tuple(notes),
    )


def _payload(state: NodeState, situation: Situation, now: datetime) -> NodeResources:
    strategy = situation.strategy
    if not colocation.is_enabled(situation.cluster_enable, strategy):
        where = "for the node" if situation.cluster_enable else "for the cluster"
        message = f"colocation is switched off {where}: batch and mid resources are not offered"
        return compose_withdrawn(state, _because(situation, DISABLED), message)
    try:
        node = state.figures()
    except QuantityError as error:
        return compose_withdrawn(state, _because(situation, UNKNOWN_CAPACITY), f"the node's capacity: {error}")
    if not of_mapping(node.capacity).cpu or not of_mapping(node.capacity).memory:
        message = "neither the executor nor the node object says how much CPU and memory the node has"
        message = f"the node object cannot be read: {state.unreadable}" if state.unreadable else message
        return compose_withdrawn(state, _because(situation, UNKNOWN_CAPACITY), message)
    code, message = withdrawal(state.metric.update_time if state.metric is not None else None, strategy, now)
    if code:
        return compose_withdrawn(state, _because(situation, code, degraded=True), message)
    last = state.published
    unknown_since = state.metric.unknown_since if state.metric is not None else None
    if unknown_since is not None and last is not None:
        return _held(last, _because(situation, METRIC_UNKNOWN), unknown_since)
    return _calculated(state, node, situation)


def _calculated(state: NodeState, node: NodeAmounts, situation: Situation) -> NodeResources:
    measurement = state.measurement()
    assert measurement is not None
    if state.evaluation is None:
        state.evaluation = calculate(node, measurement, state.pods(), situation.strategy, tuple(state.zones.values()))
    terms = state.evaluation.terms
    assert terms is not None
    taken = {BATCH_CPU: situation.foreign.cpu, BATCH_MEMORY: situation.foreign.memory}
    return compose(state, node, state.evaluation, offer(terms.batch, situation.ratio, taken), situation)


def _because(situation: Situation, reason: str, *, degraded: bool = False) -> Situation:
    """Return the situation with this code; the code of a rejected configuration is kept."""
    both = f"{reason},{situation.reason}" if situation.reason else reason
    return msgspec.structs.replace(situation, reason=both, degraded=degraded)


def _held(last: NodeResources, situation: Situation, since: datetime) -> NodeResources:
    """Return the last figures with the code MetricUnknown: usage is unknown, so nothing is calculated from it."""
    if last.reason.startswith(METRIC_UNKNOWN):
        return last
    message = (
        f"nothing is heard from the node since {since.isoformat(timespec='seconds')}: the last figures are held until the"
        f" metric is older than degradeTimeMinutes; {last.message}"
    )
    return msgspec.structs.replace(last, reason=situation.reason, message=message)


def _base_strategy(state: NodeState, configuration: Configuration) -> tuple[JsonObject, bool]:
    """Return the strategy without the node's own annotation and labels, and whether the cluster enables colocation."""
    config = configuration.colocation
    if config is not None:
        return colocation.select(config, state.labels), config.cluster.get("enable") is True
    last = state.published
    if last is None:
        return colocation.DEFAULTS, False
    kept: JsonValue = msgspec.json.decode(last.strategy)
    return (kept if isinstance(kept, dict) else colocation.DEFAULTS), last.cluster_enable


def _foreign(state: NodeState) -> tuple[Amounts, str]:
    """Return the foreign share: the node's annotation, with its YARN entry replaced by YARN's own report."""
    try:
        total = batch_total(parse_allocations(state.annotations), replaced=HADOOP_YARN if state.yarn is not None else "")
    except ThirdPartyError as error:
        last = state.published
        kept = amounts(last.third_party) if last is not None else Amounts()
        return kept, f"the last known foreign share stays: {error}"
    annotated = Amounts(total.get(BATCH_CPU, 0), total.get(BATCH_MEMORY, 0))
    return (annotated + amounts(state.yarn.used) if state.yarn is not None else annotated), ""


def _moved(old: NodeResources, wanted: NodeResources, threshold: float) -> bool:
    """Whether a code changed, or a figure by more than the dead band."""
    if _codes(old) != _codes(wanted):
        return True
    before, after = _figures(old), _figures(wanted)
    return any_differs(sorted({*before, *after}), before, after, threshold)


def _codes(resources: NodeResources) -> tuple[object, ...]:
    return (
        resources.withdrawn,
        resources.degraded,
        resources.reason,
        resources.cpu_policy,
        resources.memory_policy,
        resources.cluster_enable,
        bytes(resources.strategy),
        tuple(zone.name for zone in resources.zones),
    )


def _figures(resources: NodeResources) -> dict[str, int]:
    if resources.withdrawn:
        return {}
    return {
        "batch-cpu": resources.batch_cpu_milli,
        "batch-memory": resources.batch_memory_bytes,
        "mid-cpu": resources.mid_cpu_milli,
        "mid-memory": resources.mid_memory_bytes,
        "origin-cpu": resources.origin.cpu_milli,
        "origin-memory": resources.origin.memory_bytes,
        **{f"{zone.name}-cpu": zone.batch_cpu_milli for zone in resources.zones},
        **{f"{zone.name}-memory": zone.batch_memory_bytes for zone in resources.zones},
    }
