"""Quotas on a node whose CPUs are faster than the cluster's reference: limits are divided by the node's ratio.

In: the ratio of `node.<node>.resources` (text in Koordinator's node annotation), pods and their limits. Out: quotas of shared
pods and their containers; of batch pods too, from their batch-cpu.

    ratio > 1: ceil(quota / ratio);  otherwise the quota as it is, since a ratio below 1 never raises one
    shared: labelled LS, or without a label and without CPUs of its own

A ratio that is not a positive number is refused, and the last one stays; changes below 0.01 are ignored. Source: CPU
normalisation, koordlet rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeResources
from cotenant.model.names import LABEL_QOS_CLASS
from cotenant_node_executor.strategies.allocation import holds_cpus
from cotenant_node_executor.strategies.pod_view import ContainerAmounts, ContainerShape, PodView
from cotenant_node_executor.strategies.pods.batch_pods import has_quota
from cotenant_node_executor.strategies.pods.batch_values import batch_values
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.convert import MIN_QUOTA_US, UNLIMITED, milli_to_quota_us
from cotenant_node_executor.targets.interface import Knob

NAME = "cpu-normalization"
OFF = -1.0
SMALLEST_CHANGE = 0.01
MAX_RATIO = 1_000_000.0
"""A larger ratio counts as this one, as in the calculator."""
_QOS: dict[str, QoSClass] = {qos.value: qos for qos in QoSClass}


class AdoptedRatio(Struct, frozen=True):
    """The ratio in force."""

    ratio: float


def stated_ratio(stated: float | str | None) -> float:
    """The ratio as a number; OFF for none. Raises ValueError for anything but a positive number."""
    if stated is None:
        return OFF
    try:
        ratio = float(stated)
    except ValueError:
        ratio = math.nan
    if not math.isfinite(ratio) or ratio <= 0:
        raise ValueError(f"CPU normalisation ratio {stated!r}: expected a positive number")
    return ratio


def adopted_ratio(before: float, resources: NodeResources | None) -> float:
    """The ratio in force after these resources."""
    try:
        ratio = stated_ratio(resources.cpu_normalization_ratio if resources is not None else None)
    except ValueError:
        return before
    ratio = min(ratio, MAX_RATIO)
    return ratio if abs(ratio - before) >= SMALLEST_CHANGE else before


def is_shared(labels: Mapping[str, str] | None, annotations: Mapping[str, str]) -> bool:
    """Whether a pod's quota is normalised, from its manifest. `labels` None: a source that knows no labels."""
    if labels is None:
        return True
    qos = _QOS.get(labels.get(LABEL_QOS_CLASS, ""), QoSClass.NONE)
    return shares_cpus(qos, qos is QoSClass.NONE and holds_cpus(annotations))


def shares_cpus(qos: QoSClass, holds_cpus: bool) -> bool:
    """Whether a pod's quota is normalised."""
    return qos is QoSClass.LS or (qos is QoSClass.NONE and not holds_cpus)


def normalized_quota_us(quota_us: int, ratio: float) -> int | None:
    """The quota on this node's CPUs; None for no value of this strategy's."""
    if ratio == OFF or quota_us <= 0:
        return None
    return math.ceil(quota_us / ratio) if ratio > 1 else quota_us


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Quotas while the ratio is above 1."""
    before = memory.ratio if isinstance(memory, AdoptedRatio) else OFF
    ratio = adopted_ratio(before, situation.resources)
    if ratio <= 1:
        return StrategyDecision(memory=AdoptedRatio(ratio))
    use_quota = has_quota(situation.slo)
    why = f"limits on CPUs {ratio:g} times as fast"
    desired: dict[Place, tuple[Desired, ...]] = {}
    for _, pod in sorted(situation.pods.items()):
        quotas = _quotas(pod, ratio, use_quota)
        for group, quota in zip(pod.groups, quotas, strict=False):
            if quota > 0:
                desired[group] = (Desired(Knob.CPU_QUOTA, str(max(quota, MIN_QUOTA_US)), NAME, why),)
    return StrategyDecision(desired, memory=AdoptedRatio(ratio))


def _quotas(pod: PodView, ratio: float, use_quota: bool) -> tuple[int, ...]:
    """Quotas of a pod and its containers, UNLIMITED where this strategy leaves one to others."""
    shape = pod.shape
    if shape.qos is QoSClass.BE:
        amounts = [container.batch or ContainerAmounts("") for container in shape.containers]
        if not use_quota or not any(container.batch for container in shape.containers):
            return ()
        groups = [amounts, *[[amount] for amount in amounts]]
        values = [batch_values(shape.qos, group, use_quota=True, cpu_ratio=ratio) for group in groups]
        return tuple([UNLIMITED if each is None else each.cfs_quota_us for each in values])
    if shape.holds_cpus or not is_shared(pod.labels, pod.annotations):
        return ()
    limits = [_limit_us(container) for container in shape.containers]
    whole = UNLIMITED if UNLIMITED in limits else milli_to_quota_us(sum(c.limit_cpu_milli or 0 for c in shape.containers))
    return tuple([normalized_quota_us(quota, ratio) or UNLIMITED for quota in (whole, *limits)])


def _limit_us(container: ContainerShape) -> int:
    return milli_to_quota_us(container.limit_cpu_milli or 0)


def _inputs(_policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.PODS, Input.RESOURCES))


def _figures(memory: Struct | None) -> dict[str, int]:
    return {"ratio.permille": round(memory.ratio * 1000)} if isinstance(memory, AdoptedRatio) else {}


STRATEGY = Strategy(
    name=NAME,
    topic="cpu-normalization",
    sets=(Knob.CPU_QUOTA,),
    decide=decide,
    inputs=_inputs,
    cause=Cause.PLACEMENTS,
    figures=_figures,
)
