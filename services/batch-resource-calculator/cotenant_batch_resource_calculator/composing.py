"""Builds the NodeResources payload: every term with its source, and the formula as text.

In: an evaluation (or the reason for none), the offer after the foreign share, and the node's state for the sources. Out:
the payload, with amounts saturated at their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cotenant.domain.amplification import amplified as amplified_by
from cotenant.domain.amplification import format_ratios
from cotenant.domain.reservation import kubelet_reserved
from cotenant.events.node.resources import NodeResources, Term, ZoneResources
from cotenant.model.bounds import saturated
from cotenant.model.quantities import format_milli
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, of_mapping
from cotenant_batch_resource_calculator.formulas.batch import CalculatePolicy
from cotenant_batch_resource_calculator.formulas.evaluation import (
    DEFAULT_DIFF_THRESHOLD,
    CalculatedResources,
    NodeAmounts,
)
from cotenant_batch_resource_calculator.formulas.mid import STATIC_MODE
from cotenant_batch_resource_calculator.formulas.numa import whole_bytes
from cotenant_batch_resource_calculator.formulas.placing import Offer, amplified
from cotenant_batch_resource_calculator.formulas.synchronise import within_band
from cotenant_batch_resource_calculator.node_state import NodeSettings, NodeState, usage
from cotenant_batch_resource_calculator.risk import Risk, budget_text, source_of

_REQUEST, _MAX_USAGE_REQUEST = CalculatePolicy.REQUEST, CalculatePolicy.MAX_USAGE_REQUEST
MAX_NAMED_PODS = 32
"""At most this many pods are named in `assumed` and `dangling`; the figures count all of them."""


def _term(name: str, figures: Amounts, source: str = "") -> Term:
    return Term(name=name, cpu_milli=saturated(figures.cpu), memory_bytes=saturated(figures.memory), source=source)


def _terms(
    state: NodeState,
    node: NodeAmounts,
    evaluation: CalculatedResources,
    offer: Offer,
    situation: NodeSettings,
    risk: Risk | None,
) -> list[Term]:
    found = evaluation.terms
    assert found is not None
    machine = state.executor_ref or state.node_ref
    mid = evaluation.mid
    predicted = [
        _term("node-usage", found.capacity - mid.margin - mid.unused, state.metric_ref),
        _term("mid-prod-reclaimable", mid.prod_reclaimable, state.metric_ref),
        _term("mid-unused", mid.unused, state.metric_ref),
        _term("mid-reclaimed", mid.reclaimed),
        _term("mid-reserved", mid.reserved, state.metric_ref),
        _term("mid-unallocated", mid.unallocated),
        _term("mid-limit", mid.limit, situation.config),
        _term("mid", mid.mid),
    ]
    ratios = situation.shape.amplification
    amplified_amounts = [
        _term("allocatable", of_mapping(node.allocatable), machine),
        _term("amplified", of_mapping({**node.allocatable, **amplified_by(node.allocatable, ratios)}), situation.config),
    ]
    observed = []
    if risk is not None and risk.assumed_milli is not None and risk.real_milli is not None:
        observed = [
            _term("risk-assumed", Amounts(risk.assumed_milli), source_of(state.published, "system-used")),
            _term("risk-real", Amounts(risk.real_milli), state.metric_ref),
        ]
    return [
        _term("capacity", found.capacity, machine),
        _term("margin", found.margin, situation.config),
        _term("system-used", found.system_used, state.metric_ref),
        _term("host-applications", found.host_applications, state.metric_ref),
        _term("kubelet-reserved", of_mapping(kubelet_reserved(node.capacity, node.allocatable)), machine),
        _term("annotation-reserved", of_mapping(node.reservation.resources), state.node_ref),
        _term("node-reserved", found.node_reserved, machine),
        _term("high-priority-used", found.need.used, state.metric_ref),
        _term("high-priority-request", found.need.request),
        _term("high-priority-max-used-request", found.need.max_used_request, state.metric_ref),
        _term("calculated", found.batch),
        _term("origin", offer.origin, _ratio_source(state, situation) if situation.ratio > 1.0 else ""),
        _term("third-party", situation.foreign, state.yarn_ref or state.node_ref),
        *([_term("forecast-need", Amounts(found.expected_cpu), state.metric_ref)] if found.expected_cpu else ()),
        *(predicted if mid.measured else predicted[-2:]),
        *(amplified_amounts if ratios else ()),
        *observed,
    ]


def _ratio_source(state: NodeState, situation: NodeSettings) -> str:
    """The source of the ratio: the machine's CPUs, else the object's annotation."""
    if not situation.shape.cpu_normalization:
        return state.node_ref
    return state.declared_ref or state.machine_ref or situation.config


def _zones(state: NodeState, evaluation: CalculatedResources, ratio: float, threshold: float) -> tuple[ZoneResources, ...]:
    last = {zone.name: zone for zone in (state.published.zones if state.published is not None else ())}
    zones = []
    for name, figures in zip(state.zones(), evaluation.zones, strict=True):
        old = last.get(name)
        cpu, memory = saturated(amplified(figures.cpu, ratio)), saturated(whole_bytes(figures.memory))
        zones.append(
            ZoneResources(
                name=name,
                batch_cpu_milli=within_band(old.batch_cpu_milli if old else None, cpu, threshold),
                batch_memory_bytes=within_band(old.batch_memory_bytes if old else None, memory, threshold),
            )
        )
    return tuple(zones)


def _memory(count: int) -> str:
    """Return bytes as readable text; the exact figures are in the terms."""
    return f"{count / (1 << 30):.2f}Gi" if abs(count) >= 1 << 30 else f"{count / (1 << 20):.1f}Mi"


def _formula_text(evaluation: CalculatedResources, offer: Offer, situation: NodeSettings, risk: Risk | None) -> str:
    found = evaluation.terms
    assert found is not None
    assert offer.offered is not None
    policies = situation.policies
    taken = found.system_used.larger(found.node_reserved)

    def need(policy: CalculatePolicy) -> Amounts:
        if policy is _REQUEST:
            return found.need.request
        return found.need.max_used_request if policy is _MAX_USAGE_REQUEST else found.need.used

    reserve = found.node_reserved if policies.memory_policy is _REQUEST else taken
    cpu = (
        f"batch-cpu {format_milli(offer.offered.cpu)} = capacity {format_milli(found.capacity.cpu)}"
        f" - margin {format_milli(found.margin.cpu)} - system {format_milli(taken.cpu)}"
        f" - pods {format_milli(need(policies.cpu_policy).cpu)} by {policies.cpu_policy.value}"
    )
    memory = (
        f"batch-memory {_memory(offer.offered.memory)} = capacity {_memory(found.capacity.memory)}"
        f" - margin {_memory(found.margin.memory)} - system {_memory(reserve.memory)}"
        f" - pods {_memory(need(policies.memory_policy).memory)} by {policies.memory_policy.value}"
    )
    if found.expected_cpu:
        cpu += f", system and pods together at least {format_milli(found.expected_cpu)} by the forecast"
    if situation.foreign.cpu:
        cpu += f" - foreign {format_milli(situation.foreign.cpu)}"
    if situation.foreign.memory:
        memory += f" - foreign {_memory(situation.foreign.memory)}"
    return f"{cpu} (not below 0); {memory} (not below 0)" + "".join(_further(evaluation, situation, risk))


def _further(evaluation: CalculatedResources, situation: NodeSettings, risk: Risk | None) -> Iterator[str]:
    """Yield the parts of the message about a risk budget, mid, normalised CPUs and amplification."""
    mid, strategy, shape = evaluation.mid, situation.strategy, situation.shape
    if risk is not None:
        yield f"; {budget_text(risk.data)}"
    if not mid.measured:
        yield f"; mid-cpu {format_milli(mid.mid.cpu)}, mid-memory {_memory(mid.mid.memory)} by midReclaimMode {STATIC_MODE}"
    elif mid.prod_reclaimable != ZERO or strategy.mid_unallocated_percent:
        percent = strategy.mid_unallocated_percent or 0
        yield (
            f"; mid-cpu {format_milli(mid.mid.cpu)} = predicted reclaimable {format_milli(mid.prod_reclaimable.cpu)}"
            f" within unused {format_milli(mid.unused.cpu)} + {percent} % of unallocated {format_milli(mid.unallocated.cpu)},"
            f" at most {format_milli(mid.limit.cpu)}; mid-memory {_memory(mid.mid.memory)} likewise"
        )
    if situation.ratio > 1.0:
        yield f"; batch-cpu in units of the reference CPU: x {situation.ratio:.2f}"
    if shape.amplification:
        yield f"; allocatable is amplified by {format_ratios(shape.amplification)}"


def compose(
    state: NodeState,
    node: NodeAmounts,
    evaluation: CalculatedResources,
    offer: Offer,
    situation: NodeSettings,
    risk: Risk | None,
) -> NodeResources:
    """Return the payload of a node that offers batch resources."""
    found = evaluation.terms
    assert found is not None
    assert offer.offered is not None
    mid = evaluation.mid.mid
    notes = list(situation.notes)
    if found.need.assumed:
        notes.append(f"{len(found.need.assumed)} pods without a metric yet count by their request")
    if found.need.dangling:
        notes.append(f"{len(found.need.dangling)} pods are measured and not placed here: their usage counts")
    policies = situation.policies
    threshold = situation.strategy.resource_diff_threshold or DEFAULT_DIFF_THRESHOLD
    return NodeResources(
        node=state.name,
        batch_cpu_milli=saturated(offer.offered.cpu),
        batch_memory_bytes=saturated(offer.offered.memory),
        mid_cpu_milli=max(saturated(mid.cpu), 0),
        mid_memory_bytes=max(saturated(mid.memory), 0),
        cpu_policy=policies.cpu_policy.value,
        memory_policy=policies.memory_policy.value,
        terms=tuple(_terms(state, node, evaluation, offer, situation, risk)),
        reason=situation.reason,
        message="; ".join([_formula_text(evaluation, offer, situation, risk), *notes]),
        update_time=state.metric.update_time if state.metric is not None else None,
        third_party=usage(situation.foreign),
        origin=usage(offer.origin),
        zones=_zones(state, evaluation, situation.ratio, threshold),
        assumed=found.need.assumed[:MAX_NAMED_PODS],
        dangling=found.need.dangling[:MAX_NAMED_PODS],
        cpu_normalization_ratio=situation.ratio,
        cluster_enable=situation.cluster_enable,
        strategy=situation.base,
        config=situation.config,
        risk=risk.data if risk is not None else None,
        **_shape(state, situation),
    )


def _shape(state: NodeState, situation: NodeSettings) -> dict[str, Any]:
    shape = situation.shape
    return {
        "cpu_normalization": shape.cpu_normalization,
        "amplification": shape.amplification,
        "devices": shape.devices.amounts,
        "device_labels": shape.devices.labels,
        "yarn": state.yarn.used if state.yarn is not None else None,
        "failed": situation.failed,
    }


def compose_withdrawn(state: NodeState, situation: NodeSettings, message: str, risk: Risk | None) -> NodeResources:
    """Return the payload of a node that offers no batch and mid resources; the history of a risk budget is kept."""
    policies = situation.policies
    return NodeResources(
        node=state.name,
        withdrawn=True,
        degraded=situation.degraded,
        cpu_policy=policies.cpu_policy.value,
        memory_policy=policies.memory_policy.value,
        reason=situation.reason,
        message="; ".join([message, *situation.notes]),
        update_time=state.metric.update_time if state.metric is not None else None,
        third_party=usage(situation.foreign),
        cluster_enable=situation.cluster_enable,
        strategy=situation.base,
        config=situation.config,
        risk=risk.data if risk is not None else None,
        **_shape(state, situation),
    )
