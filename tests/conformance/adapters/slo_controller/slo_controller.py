"""Vectors of the slo-controller page, answered by batch-resource-calculator's own formulas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import Pod
from cotenant.domain.node import overcommitted_amounts
from cotenant.domain.reservation import kubelet_reserved, parse_reservation, trim_allocatable
from cotenant.domain.third_party import ThirdPartyError, batch_total, parse_allocations
from cotenant.events.node.resources import NodeResources
from cotenant.events.placements import Placement
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from cotenant.model.quantities import parse_milli, parse_value, resource_amount
from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.formulas import amounts as algebra
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.batch import MeasuredUsage
from cotenant_batch_resource_calculator.formulas.evaluation import (
    CalculatedResources,
    NodeAmounts,
    NodeMeasurement,
    calculate,
    demand_of,
    withdrawal,
)
from cotenant_batch_resource_calculator.formulas.numa import zone_shares
from cotenant_batch_resource_calculator.formulas.placing import amplified, normalization_ratio, offer
from cotenant_batch_resource_calculator.formulas.synchronise import any_differs, is_due, within_band
from cotenant_batch_resource_calculator.placed_pods import need_of, zones_of
from cotenant_batch_resource_calculator.topology import declared_topology
from tests.conformance.mended import mended

Json = dict[str, Any]


def batch_resource(given: Json, *, name: str) -> object:
    return _OPERATIONS[given["op"]](given)


def mid_resource(given: Json, *, name: str) -> object:
    return _MID_OPERATIONS[given["op"]](given)


# -- reading what the vectors give ---------------------------------------------------------------------------------


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _node(document: Json | None) -> Node:
    return msgspec.convert(_without_nulls(document or {}), Node)


def _pod(document: Json) -> Pod:
    return msgspec.convert(_without_nulls(document), Pod)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _amounts(resources: Json | None) -> Amounts:
    found = resources or {}
    return Amounts(parse_milli(found.get(CPU, 0)), parse_value(found.get(MEMORY, 0)))


def _figures(node: Node) -> NodeAmounts:
    return NodeAmounts(
        {name: resource_amount(name, quantity) for name, quantity in node.status.capacity.items()},
        {name: resource_amount(name, quantity) for name, quantity in node.status.allocatable.items()},
        parse_reservation(node.metadata.annotations),
    )


def _usage_of(part: Json | None) -> Amounts:
    return _amounts((part or {}).get("resources"))


def _measurement(document: Json) -> NodeMeasurement:
    """A metric without the block `nodeMetric` counts as one that was never taken."""
    status = document.get("status") or {}
    metric = status.get("nodeMetric")
    update_time = status.get("updateTime")
    usage = (metric or {}).get("nodeUsage")
    complete = usage is not None and {CPU, MEMORY} <= set(usage.get("resources") or {})
    reclaimable = (status.get("prodReclaimableMetric") or {}).get("resource")
    return NodeMeasurement(
        update_time=_time(update_time) if update_time is not None and metric is not None else None,
        node_usage=_usage_of(usage) if complete else None,
        system_usage=_usage_of((metric or {}).get("systemUsage")),
        pods=tuple(
            MeasuredUsage(
                f"{pod.get('namespace', '')}/{pod['name']}", _usage_of(pod.get("podUsage")), pod.get("priority") or ""
            )
            for pod in status.get("podsMetric") or []
        ),
        host_applications=tuple(
            MeasuredUsage(host["name"], _usage_of(host.get("usage")), host.get("priority") or "")
            for host in status.get("hostApplicationMetric") or []
        ),
        prod_reclaimable=_usage_of(reclaimable),
    )


def _pod_needs(documents: list[Json]) -> list[Any]:
    pods = [_pod(document) for document in documents]
    return [
        need_of(pod, Placement(node="", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid))
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
    ]


def _strategy(document: Json) -> ColocationStrategy:
    return colocation.on_node(colocation.chosen(_without_nulls(document)), {}, {})[0]


def _node_strategy(config: Json, node: Node) -> tuple[ColocationStrategy, bool]:
    loaded = colocation.of_document(_without_nulls(config), defaults={})
    metadata = node.metadata
    strategy, _ = colocation.on_node(colocation.choose(loaded, metadata.labels), metadata.labels, metadata.annotations)
    return strategy, colocation.is_enabled(loaded.cluster.get("enable") is True, strategy)


# -- writing what the vectors expect -------------------------------------------------------------------------------


def _thousandths(amount: int) -> str:
    return f"{amount}m"


def _item(quantity: str, zones: Mapping[str, str]) -> Json:
    return {"reset": False, "quantity": quantity} | ({"zones": dict(zones)} if zones else {})


def _batch_items(evaluation: CalculatedResources, zones: Mapping[str, Amounts]) -> Json:
    assert evaluation.terms is not None
    batch = evaluation.terms.batch
    by_zone = dict(zip(zones, evaluation.zones, strict=True))
    return {
        BATCH_CPU: _item(str(batch.cpu), {zone: str(found.cpu) for zone, found in by_zone.items()}),
        BATCH_MEMORY: _item(str(batch.memory), {zone: _thousandths(found.memory) for zone, found in by_zone.items()}),
    }


def _reset(*names: str) -> Json:
    return {name: {"reset": True} for name in names}


# -- operations ----------------------------------------------------------------------------------------------------


def _calculate(given: Json) -> object:
    if any(given[name] is None for name in ("strategy", "node", "pods", "nodeMetric")):
        return {"error": True}
    measurement = _measurement(given["nodeMetric"])
    strategy = _strategy(given["strategy"])
    if withdrawal(measurement.update_time, strategy, _time(given["now"]))[0]:
        return {"error": False, "items": _reset(BATCH_CPU, BATCH_MEMORY)}
    zones = declared_topology(msgspec.json.encode(given["nrt"])).zones if given.get("nrt") else {}
    demand = demand_of(measurement, _pod_needs(given["pods"]))
    evaluation = calculate(_figures(_node(given["node"])), demand, strategy, tuple(zones.values()))
    return {"error": False, "items": _batch_items(evaluation, zones)}


def _calculate_mid(given: Json) -> object:
    if any(given[name] is None for name in ("strategy", "node", "pods", "nodeMetric")):
        return {"error": True}
    measurement = _measurement(given["nodeMetric"])
    strategy = _strategy(given["strategy"])
    if withdrawal(measurement.update_time, strategy, _time(given["now"]))[0]:
        return {"error": False, "items": _reset(MID_CPU, MID_MEMORY)}
    node = _figures(_node(given["node"]))
    mid = calculate(node, demand_of(measurement, _pod_needs(given["pods"])), strategy).mid.mid
    found = {"error": False, "items": {MID_CPU: _item(str(mid.cpu), {}), MID_MEMORY: _item(str(mid.memory), {})}}
    if given["formula"] == "v1.4" and mid != _mid_before_1_6(given, node, strategy):
        return mended(found, "$.items*", trap=SUPERSEDED)
    return found


SUPERSEDED = "the rule of 1.6 counts: within unused capacity, a missing prediction is 0, thresholds are of the capacity"


def _mid_before_1_6(given: Json, node: NodeAmounts, strategy: ColocationStrategy) -> Amounts | None:
    """None: withdrawn, because there is no prediction."""
    if not _is_predicted(given["nodeMetric"]):
        return None
    percents = (strategy.mid_cpu_threshold_percent, strategy.mid_memory_threshold_percent)
    allocatable = algebra.of_mapping(node.allocatable)
    cpu, memory = (algebra.share(allocatable, 100 if percent is None else percent) for percent in percents)
    return _measurement(given["nodeMetric"]).prod_reclaimable.smaller(Amounts(cpu.cpu, memory.memory)).floored()


def _is_predicted(metric: Json | None) -> bool:
    found = (((metric or {}).get("status") or {}).get("prodReclaimableMetric") or {}).get("resource") or {}
    return found.get("resources") is not None


def _mid_degraded(given: Json) -> object:
    found = _degraded(given)
    if given["formula"] == "v1.4" and not found["degraded"] and not _is_predicted(given["nodeMetric"]):
        return mended(found, "$.degraded", trap=SUPERSEDED)
    return found


def _mid_prepare(given: Json) -> object:
    node, result = _node(given["node"]), given["result"]
    resources, resets = result.get("resources") or {}, result.get("resets") or {}
    decided = NodeResources(
        node=node.metadata.name,
        mid_cpu_milli=parse_value(resources.get(MID_CPU) or 0),
        mid_memory_bytes=parse_value(resources.get(MID_MEMORY) or 0),
    )
    placed = {
        name: str(overcommitted_amounts(decided)[name])
        for name in (MID_CPU, MID_MEMORY)
        if resources.get(name) is not None and not resets.get(name)
    }

    def laid(quantities: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(text) for name, text in quantities.items() if name not in (MID_CPU, MID_MEMORY)} | placed

    return {"error": False, "capacity": laid(node.status.capacity), "allocatable": laid(node.status.allocatable)}


def _calculate_node(given: Json) -> object:
    node = _node(given["node"])
    strategy, enabled = _node_strategy(given["colocationConfig"], node)
    measurement = _measurement(given["nodeMetric"] or {})
    if not enabled or withdrawal(measurement.update_time, strategy, _time(given["now"]))[0]:
        return {"error": False, "items": _reset(BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)}
    evaluation = calculate(_figures(node), demand_of(measurement, _pod_needs(given["pods"] or [])), strategy)
    mid = evaluation.mid.mid
    items = _batch_items(evaluation, {}) | {MID_CPU: _item(str(mid.cpu), {}), MID_MEMORY: _item(str(mid.memory), {})}
    return {"error": False, "items": items}


def _degraded(given: Json) -> Json:
    status = (given["nodeMetric"] or {}).get("status") or {}
    update_time = _time(status["updateTime"]) if status.get("updateTime") is not None else None
    return {"degraded": bool(withdrawal(update_time, _strategy(given["strategy"]), _time(given["now"]))[0])}


def _place(node: Node, result: Json) -> tuple[dict[str, str], dict[str, str], dict[str, str], bool]:
    """Return capacity, allocatable and origin once the result is on the node, and whether its annotation is unreadable."""
    resources, resets = result.get("resources") or {}, result.get("resets") or {}
    ratio = normalization_ratio(result.get("annotations") or {})
    found = {
        name: parse_value(resources[name])
        for name in (BATCH_CPU, BATCH_MEMORY)
        if resources.get(name) is not None and not resets.get(name)
    }
    error = False
    try:
        foreign = batch_total(parse_allocations(node.metadata.annotations))
    except ThirdPartyError:
        error, foreign = True, {}
    if len(found) == 2:
        offered = offer(Amounts(found[BATCH_CPU], found[BATCH_MEMORY]), ratio, foreign)
        assert offered.offered is not None
        placed = {BATCH_CPU: offered.offered.cpu, BATCH_MEMORY: offered.offered.memory}
        origin = {BATCH_CPU: offered.origin.cpu, BATCH_MEMORY: offered.origin.memory}
    else:
        error = False
        withdrawn = offer(None, ratio, foreign)
        placed = {name: amplified(amount, ratio) if name == BATCH_CPU else amount for name, amount in found.items()}
        origin = {BATCH_CPU: withdrawn.origin.cpu, BATCH_MEMORY: withdrawn.origin.memory} | placed
    texts = {name: str(amount) for name, amount in placed.items()}

    def kept(quantities: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(text) for name, text in quantities.items() if name not in (BATCH_CPU, BATCH_MEMORY)}

    return (
        kept(node.status.capacity) | texts,
        kept(node.status.allocatable) | texts,
        {name: str(amount) for name, amount in origin.items()},
        error,
    )


def _prepare(given: Json) -> object:
    capacity, allocatable, origin, error = _place(_node(given["node"]), given["result"])
    return {"error": error, "capacity": capacity, "allocatable": allocatable, "originExtendedAllocatable": origin}


def _milli(resources: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse_milli(quantity) for name, quantity in resources.items()}


def _needs_sync(
    given: Json, strategy: ColocationStrategy, names: list[str], old: Mapping[str, Any], new: Mapping[str, Any]
) -> bool:
    last = _time(given["lastSyncTime"]) if given.get("lastSyncTime") else None
    threshold = strategy.resource_diff_threshold or 0.1
    return is_due(last, _time(given["now"]), strategy.update_time_threshold_seconds or 300) or any_differs(
        names, _milli(old), _milli(new), threshold
    )


def _update_node(given: Json) -> object:
    node = _node(given["node"])
    strategy, _ = _node_strategy(given["colocationConfig"], node)
    old = {name: str(quantity) for name, quantity in node.status.allocatable.items()}
    status = given["node"].get("status") or {}
    if status.get("allocatable") is None or status.get("capacity") is None:
        return {"allocatable": old}
    _, new, _, _ = _place(node, given["result"])
    changed = _needs_sync(given, strategy, [BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY], old, new)
    return {"allocatable": new if changed else old}


def _need_sync_status(given: Json) -> object:
    old, new = _node(given["oldNode"]), _node(given["newNode"])
    strategy = _strategy(given["strategy"])
    return {"needSync": _needs_sync(given, strategy, given["resourceNames"], old.status.allocatable, new.status.allocatable)}


def _differs(given: Json) -> object:
    old, new = (_milli(_node(given[which]).status.allocatable) for which in ("oldNode", "newNode"))
    threshold = _strategy(given["strategy"]).resource_diff_threshold or 0.1
    return {"needSync": any_differs(given["resourceNames"], old, new, threshold)}


def _nrt_update(given: Json) -> object:
    threshold = _strategy(given["strategy"]).resource_diff_threshold or 0.1
    result = given["result"]
    ratio = normalization_ratio(result.get("annotations") or {})
    changed = False
    zones = []
    forgotten = False
    by_zone = result.get("zoneResources") or {}
    for zone in (given["nrt"] or {}).get("zones") or []:
        resources = {resource["name"]: dict(resource) for resource in zone.get("resources") or []}
        wanted_here = by_zone.get(zone["name"])
        if wanted_here is None and by_zone:
            # A zone without a result lends nothing: its old figures do not stay.
            wanted_here = {name: "0" for name in (BATCH_CPU, BATCH_MEMORY) if name in resources}
            forgotten = forgotten or bool(wanted_here)
        for name, quantity in (wanted_here or {}).items():
            wanted = parse_milli(quantity)
            if name == BATCH_CPU:
                wanted = amplified(wanted // 1000, ratio) * 1000
            old = resources.get(name)
            new: Json = {"name": name}
            for part in ("capacity", "allocatable", "available"):
                before = parse_milli(old[part]) if old is not None else None
                after = within_band(before, wanted, threshold)
                changed = changed or before != after
                new[part] = _thousandths(after)
            resources[name] = new
        zones.append({**zone, "resources": sorted(resources.values(), key=lambda resource: str(resource["name"]))})
    found = {"needUpdate": changed, "zones": zones}
    return mended(found, "$.zones*", "$.needUpdate", trap="zones without a result keep stale values") if forgotten else found


def _as_quantities(found: Amounts, names: Mapping[str, Any], *, zone_level: bool) -> Json:
    memory = _thousandths(found.memory) if zone_level else str(found.memory)
    both = {CPU: _thousandths(found.cpu), MEMORY: memory}
    return {name: both[name] for name in names}


def _numa_split(given: Json) -> object:
    zones, count = tuple(zones_of(_pod(given["pod"]))), given["numaNum"]

    def parts(resources: Json) -> list[Json]:
        shares = zone_shares(algebra.to_zone_level(_amounts(resources)), zones, count)
        return [_as_quantities(share, resources, zone_level=True) for share in shares]

    return {"requests": parts(given["podRequest"]), "usages": parts(given["podUsage"])}


def _divide(given: Json) -> object:
    divided = {
        name: _thousandths(algebra.divide(parse_milli(quantity), given["divisor"]))
        for name, quantity in (given["resources"] or {}).items()
    }
    return {"resources": divided}


def _safety_margin(given: Json) -> object:
    strategy = _strategy(given["strategy"])
    margin = algebra.margin_of(
        _amounts(given["capacity"]),
        60 if strategy.cpu_reclaim_threshold_percent is None else strategy.cpu_reclaim_threshold_percent,
        65 if strategy.memory_reclaim_threshold_percent is None else strategy.memory_reclaim_threshold_percent,
    )
    return {"resources": _as_quantities(margin, {CPU: 0, MEMORY: 0}, zone_level=False)}


def _quantities(amounts: Mapping[str, int]) -> Json:
    return {name: _thousandths(amount) if name == CPU else str(amount) for name, amount in amounts.items()}


def _annotation_reserved(given: Json) -> object:
    return {"resources": _quantities(parse_reservation(_node(given["node"]).metadata.annotations).resources)}


def _kubelet_reserved(given: Json) -> object:
    figures = _figures(_node(given["node"]))
    return {"resources": _quantities(kubelet_reserved(figures.capacity, figures.allocatable))}


def _trim_allocatable(given: Json) -> object:
    figures = _figures(_node(given["node"]))
    allocatable, trimmed = trim_allocatable(figures.allocatable, figures.reservation)
    return {"allocatable": _quantities(allocatable), "trimmed": trimmed}


def _colocation_disabled(given: Json) -> object:
    if not given.get("colocationConfig"):
        return {"disabled": True}
    return {"disabled": not _node_strategy(given["colocationConfig"], _node(given["node"]))[1]}


_OPERATIONS = {
    "calculate": _calculate,
    "calculate_node": _calculate_node,
    "degraded": _degraded,
    "prepare": _prepare,
    "update_node": _update_node,
    "need_sync_status": _need_sync_status,
    "nrt_update": _nrt_update,
    "numa_split": _numa_split,
    "divide": _divide,
    "safety_margin": _safety_margin,
    "annotation_reserved": _annotation_reserved,
    "kubelet_reserved": _kubelet_reserved,
    "trim_allocatable": _trim_allocatable,
    "colocation_disabled": _colocation_disabled,
}

_MID_OPERATIONS = {
    "calculate": _calculate_mid,
    "degraded": _mid_degraded,
    "need_sync": _differs,
    "prepare": _mid_prepare,
}
