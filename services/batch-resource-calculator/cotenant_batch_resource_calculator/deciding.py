"""Decides a node's resources event, and whether it differs enough to be published.

In: the node's state, the configuration, the time. Out: the payload, and whether to publish it at once, later or not at all.

The first rule that matches applies:

    ColocationDisabled    the cluster's or the node's switch is off             withdrawn
    UnknownCapacity       neither the executor nor the object has a capacity    withdrawn
    NoMetric, StaleMetric no metric, or older than degradeTimeMinutes           withdrawn, degraded
    MetricUnknown         no new samples, but for less than that time           the last figures are held
    (none)                the formula

A rejected section keeps what the node's last event has (the strategy, the ratios; the built-in defaults where it has none), and
a foreign share that cannot be read and a ratio that cannot be found keep the last one; each is named in `message`, and a
rejection in the code too. CPU normalisation, amplification and device totals are decided whether or not the node offers
anything: each has a switch of its own (Koordinator stops all of them with colocation).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from cotenant.domain.amplification import amplified
from cotenant.domain.node import overcommitted_amounts
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant.model.bounds import saturated
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import QuantityError
from cotenant.model.tiers import OVERCOMMITTED
from cotenant.model.times import NEVER
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.composing import compose, compose_withdrawn
from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.config.in_force import Configuration
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, of_mapping
from cotenant_batch_resource_calculator.formulas.evaluation import (
    DEFAULT_DIFF_THRESHOLD,
    DEFAULT_UPDATE_SECONDS,
    CalculatedResources,
    NodeAmounts,
    calculate,
    degrade_minutes,
    withdrawal,
)
from cotenant_batch_resource_calculator.formulas.placing import Offer, offer
from cotenant_batch_resource_calculator.formulas.synchronise import due_from, is_due, stale_from
from cotenant_batch_resource_calculator.node_state import NodeSettings, NodeState, Standing
from cotenant_batch_resource_calculator.publishing import moved
from cotenant_batch_resource_calculator.risk import Risk, RiskPools, risk_of
from cotenant_batch_resource_calculator.situations import situation_of

DISABLED = "ColocationDisabled"
UNKNOWN_CAPACITY = "UnknownCapacity"
METRIC_UNKNOWN = "MetricUnknown"


def resources_of(state: NodeState, configuration: Configuration, pools: RiskPools, now: datetime) -> Standing:
    """Return the node's desired event, and whether it is worth publishing."""
    standing = state.standing
    if standing is None or standing.chooses or standing.withdrawal != _withdrawn_by_time(state, standing.strategy, now):
        standing = state.standing = _effective(state, configuration, pools, now)
        if standing.chooses:
            state.evaluation = None
    return standing


def is_due_now(last: Event | None, standing: Standing, now: datetime) -> bool:
    """Whether the payload is published now, by the rule in `core`."""
    return standing.news or (
        standing.differs and is_due(last.time if last is not None else None, now, standing.refresh_seconds)
    )


def next_look(state: NodeState) -> datetime:
    """When a state without a due event may need one with time alone."""
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


def _effective(state: NodeState, configuration: Configuration, pools: RiskPools, now: datetime) -> Standing:
    if state.situation is None:
        state.situation = situation_of(state, configuration)
    situation = state.situation
    strategy = situation.strategy
    payload, state.evaluation, chooses = _payload(state, situation, pools, now)
    last = state.published
    return Standing(
        payload=payload,
        strategy=strategy,
        withdrawal=_withdrawn_by_time(state, strategy, now),
        news=last is None or moved(last, payload, strategy.resource_diff_threshold or DEFAULT_DIFF_THRESHOLD),
        differs=last != payload,
        refresh_seconds=strategy.update_time_threshold_seconds or DEFAULT_UPDATE_SECONDS,
        calculated=state.evaluation is not None,
        chooses=chooses,
    )


class _Withdrawn(Value, frozen=True):
    """The node offers nothing: the code, and the reason in words."""

    reason: str
    message: str
    degraded: bool = False


class _Unknown(Value, frozen=True):
    """The node is silent: its last figures are kept."""

    last: NodeResources
    since: datetime


class _Offered(Value, frozen=True):
    """The formula's result for the node."""

    node: NodeAmounts
    evaluation: CalculatedResources
    offer: Offer
    risk: Risk | None


def _judged(
    state: NodeState, situation: NodeSettings, evaluation: CalculatedResources | None, pools: RiskPools, now: datetime
) -> _Withdrawn | _Unknown | _Offered:
    """Return the result of the first matching rule. `evaluation`: the formula's, where it is known."""
    strategy = situation.strategy
    if not colocation.is_enabled(situation.cluster_enable, strategy):
        where = "for the node" if situation.cluster_enable else "for the cluster"
        return _Withdrawn(DISABLED, f"colocation is switched off {where}: batch and mid resources are not offered")
    try:
        node = state.figures()
    except QuantityError as error:
        return _Withdrawn(UNKNOWN_CAPACITY, f"the node's capacity: {error}")
    if not of_mapping(node.capacity).cpu or not of_mapping(node.capacity).memory:
        message = "neither the executor nor the node object states how much CPU and memory the node has"
        message = f"the node object cannot be read: {state.unreadable}" if state.unreadable else message
        return _Withdrawn(UNKNOWN_CAPACITY, message)
    code, message = withdrawal(state.metric.update_time if state.metric is not None else None, strategy, now)
    if code:
        return _Withdrawn(code, message, degraded=True)
    last = state.published
    unknown_since = state.metric.unknown_since if state.metric is not None else None
    if unknown_since is not None and last is not None:
        return _Unknown(last, unknown_since)
    demand = state.demand()
    assert demand is not None
    risk = risk_of(state, situation, pools, of_mapping(node.capacity).cpu, offers=True)
    if evaluation is None:
        evaluation = calculate(
            node, demand, strategy, tuple(state.zones().values()), risk.data.percent if risk is not None else None
        )
    assert evaluation.terms is not None
    taken = {BATCH_CPU: situation.foreign.cpu, BATCH_MEMORY: situation.foreign.memory}
    return _Offered(node, evaluation, offer(evaluation.terms.batch, situation.ratio, taken), risk)


def _payload(
    state: NodeState, situation: NodeSettings, pools: RiskPools, now: datetime
) -> tuple[NodeResources, CalculatedResources | None, bool]:
    """Return the event, the evaluation that it was made from (None where the formula does not count), and whether a margin was
    chosen for it."""
    match _judged(state, situation, state.evaluation, pools, now):
        case _Withdrawn(reason, message, degraded):
            risk = risk_of(state, situation, pools, _capacity_milli(state), offers=False)
            withdrawn = compose_withdrawn(state, _because(situation, reason, degraded=degraded), message, risk)
            return withdrawn, None, risk is not None and risk.chooses
        case _Unknown(last, since):
            return _held(last, _because(situation, METRIC_UNKNOWN), since), None, False
        case _Offered(node, found, offered, risk):
            return compose(state, node, found, offered, situation, risk), found, risk is not None and risk.chooses


def _capacity_milli(state: NodeState) -> int:
    try:
        return of_mapping(state.figures().capacity).cpu
    except QuantityError:
        return 0


def offered_by(state: NodeState, payload: NodeResources) -> dict[str, int]:
    """Return what a node offers by a resources event, by resource name: its own amounts, amplified, batch and mid."""
    return {**_own(state, payload.amplification), **overcommitted_amounts(payload)}


def offered_under(state: NodeState, configuration: Configuration, pools: RiskPools, now: datetime) -> dict[str, int]:
    """Return the same under another configuration; the state's own caches are left alone."""
    situation = situation_of(state, configuration)
    return {**_own(state, situation.shape.amplification), **_overcommitted(state, situation, pools, now)}


def _own(state: NodeState, ratios: Mapping[str, float]) -> dict[str, int]:
    try:
        allocatable = state.figures().allocatable
    except QuantityError:
        return {}
    return {**allocatable, **amplified(allocatable, ratios)}


def _overcommitted(state: NodeState, situation: NodeSettings, pools: RiskPools, now: datetime) -> dict[str, int]:
    match _judged(state, situation, None, pools, now):
        case _Offered(_, evaluation, offered, _):
            batch, mid = offered.offered or ZERO, evaluation.mid.mid
            amounts_lent = (batch.cpu, batch.memory, mid.cpu, mid.memory)
            return {name: max(saturated(amount), 0) for name, amount in zip(OVERCOMMITTED, amounts_lent, strict=True)}
        case _Unknown(last, _):
            return overcommitted_amounts(last)
        case _Withdrawn():
            return dict.fromkeys(OVERCOMMITTED, 0)


def _because(situation: NodeSettings, reason: str, *, degraded: bool = False) -> NodeSettings:
    """Return the situation with this code; the code of a rejected configuration is kept."""
    both = f"{reason},{situation.reason}" if situation.reason else reason
    return msgspec.structs.replace(situation, reason=both, degraded=degraded)


def _held(last: NodeResources, situation: NodeSettings, since: datetime) -> NodeResources:
    """Return the last figures with the code MetricUnknown: usage is unknown, so nothing is calculated from it. Other
    figures are current."""
    shape = situation.shape
    held = msgspec.structs.replace(
        last,
        cpu_normalization=shape.cpu_normalization,
        amplification=shape.amplification,
        devices=shape.devices.amounts,
        device_labels=shape.devices.labels,
        failed=situation.failed,
    )
    if last.reason.startswith(METRIC_UNKNOWN):
        return held
    message = (
        f"the node has been silent since {since.isoformat(timespec='seconds')}: the last figures are held until the"
        f" metric is older than degradeTimeMinutes; {last.message}"
    )
    return msgspec.structs.replace(held, reason=situation.reason, message=message)
