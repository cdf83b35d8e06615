"""Memory QoS: how much memory is protected, when a group is slowed down, and who is killed first.

In: the memory QoS of each class (`qos_config`), the pods' shapes, the node's memory in bytes. Out: values of the class
directories, the pods and their containers; None of a value: the file is not touched.

    memory.min, memory.low   a share of the request of the pod, or of the container
    memory.high              of a container: request + share of (limit - request), by whole pages; where it has no limit the
                             node's memory is taken; a share of 0: no bound
    min and low of a class   the sums over its pods; the guaranteed directory is the root and has the sum of all
    priority, OOM group      of a class directory: those of LSR (guaranteed), LS (burstable), BE (best-effort)

A low or high below min becomes min. A pod's request counts init containers; that of a BE pod is its batch-memory. Where nothing
requires memory QoS any more, former values become neutral once. Files that this kernel lacks are left out (its capabilities say
which). Source: memory QoS, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant.model.values import Value
from cotenant_node_executor.strategies.memory.qos_config import (
    NEUTRAL,
    PART,
    MemoryQOS,
    MemoryRule,
    effective,
    memory_rule,
    with_last_valid,
)
from cotenant_node_executor.strategies.pod_view import ContainerShape, PodShape
from cotenant_node_executor.strategies.sections import QOS, camel_name, fitted, of_classes, raw_section
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.cgroup.files import PAGE_BYTES
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, UNLIMITED_TEXT, Knob, NodeCapabilities

NAME = "memory-qos"
_UNLIMITED = int(UNLIMITED_TEXT)
_CLASS_GROUPS = {KubeQoS.GUARANTEED: ROOT_GROUP, KubeQoS.BURSTABLE: BURSTABLE, KubeQoS.BEST_EFFORT: BESTEFFORT}

Values = Mapping[Knob, int]
"""By file; -1 is unlimited."""

KNOBS = (
    Knob.MEMORY_MIN,
    Knob.MEMORY_LOW,
    Knob.MEMORY_HIGH,
    Knob.MEMORY_WMARK_RATIO,
    Knob.MEMORY_WMARK_SCALE_FACTOR,
    Knob.MEMORY_WMARK_MIN_ADJ,
    Knob.MEMORY_PRIORITY,
    Knob.MEMORY_USE_PRIORITY_OOM,
    Knob.MEMORY_OOM_GROUP,
)


class PodMemory(Value, frozen=True):
    """The values of a pod and of its containers in order, and its contribution to its class."""

    pod: Values
    containers: tuple[Values, ...]
    min_bytes: int | None
    low_bytes: int | None
    why: str = ""
    """What is stated."""


class Applied(Struct, frozen=True):
    """Whether the last decision set anything, and by which rule."""

    active: bool = False
    rule: MemoryRule | None = None


def share_of(amount: int, percent: int) -> int:
    """Return a percentage of an amount, truncated towards zero."""
    product = amount * percent
    return product // 100 if product >= 0 else -(-product // 100)


def _protected(config: MemoryQOS, request_bytes: int) -> dict[Knob, int]:
    found: dict[Knob, int] = {}
    if config.min_limit_percent is not None:
        found[Knob.MEMORY_MIN] = share_of(request_bytes, config.min_limit_percent)
    if config.low_limit_percent is not None:
        found[Knob.MEMORY_LOW] = share_of(request_bytes, config.low_limit_percent)
    return found


def _of_oom(config: MemoryQOS) -> dict[Knob, int]:
    stated = {
        Knob.MEMORY_PRIORITY: config.priority,
        Knob.MEMORY_USE_PRIORITY_OOM: config.priority_enable,
        Knob.MEMORY_OOM_GROUP: config.oom_kill_group,
    }
    return {knob: value for knob, value in stated.items() if value is not None}


def _copied(config: MemoryQOS) -> dict[Knob, int]:
    stated = {
        Knob.MEMORY_WMARK_RATIO: config.wmark_ratio,
        Knob.MEMORY_WMARK_SCALE_FACTOR: config.wmark_scale_permill,
        Knob.MEMORY_WMARK_MIN_ADJ: config.wmark_min_adj,
    }
    return {knob: value for knob, value in stated.items() if value is not None} | _of_oom(config)


def _in_order(values: dict[Knob, int]) -> dict[Knob, int]:
    """Raise low and high to min where they are below it."""
    least = values.get(Knob.MEMORY_MIN, 0)
    for knob in (Knob.MEMORY_LOW, Knob.MEMORY_HIGH):
        if 0 < values.get(knob, 0) < least:
            values[knob] = least
    return values


def high_bytes(config: MemoryQOS, request_bytes: int, limit_bytes: int, node_bytes: int) -> int | None:
    """Return a container's memory.high, -1 for no bound; None: not touched. `limit_bytes` of 0 or less: no limit."""
    percent = config.throttling_percent
    if percent is None:
        return None
    if percent == 0:
        return _UNLIMITED
    bound = limit_bytes if limit_bytes > 0 else node_bytes
    return (request_bytes + share_of(bound - request_bytes, percent)) // PAGE_BYTES * PAGE_BYTES


def _container_amounts(container: ContainerShape, batch: bool) -> tuple[int, int]:
    """Request and limit; 0 where it states none."""
    if not batch:
        return container.request_memory_bytes or 0, container.limit_memory_bytes or 0
    amounts = container.batch
    return ((amounts.request_memory_bytes or 0), (amounts.limit_memory_bytes or 0)) if amounts is not None else (0, 0)


@lru_cache(maxsize=256)
def pod_memory(shape: PodShape, rule: MemoryRule, node_bytes: int) -> PodMemory:
    """Return the values of a pod of this shape."""
    name = shape.config_class
    config = effective(rule.of_class(name), name, shape.memory_qos)
    batch = name == QoSClass.BE
    amounts = [_container_amounts(container, batch) for container in shape.containers]
    request = sum([own for own, _ in amounts]) if batch else shape.request_memory_bytes
    of_pod = _protected(config, request)
    containers: list[Values] = []
    for own, limit in amounts:
        values = _protected(config, own)
        high = high_bytes(config, own, limit, node_bytes)
        if high is not None:
            values[Knob.MEMORY_HIGH] = high
        containers.append(_in_order(values) | _copied(config))
    low, least = of_pod.get(Knob.MEMORY_LOW), of_pod.get(Knob.MEMORY_MIN)
    return PodMemory(_in_order(of_pod) | _copied(config), tuple(containers), least, low, _stated(config))


@lru_cache(maxsize=256)
def _stated(config: MemoryQOS) -> str:
    """What is configured, apart from zeros."""
    fields = [(name, getattr(config, name)) for name in config.__struct_fields__ if name != "enable"]
    told = ", ".join([f"{camel_name(name)} {value}" for name, value in fields if value])
    return f"memory QoS: {told or 'neutral'}"


def class_memory(pods: Iterable[tuple[KubeQoS, PodMemory]], rule: MemoryRule) -> dict[KubeQoS, dict[Knob, int]]:
    """Return the values of the class directories: sums over the pods, and what is stated for the class."""
    sums: dict[KubeQoS, dict[Knob, int]] = {kubernetes: {} for kubernetes in KubeQoS}
    for kubernetes, memory in pods:
        for knob, amount in ((Knob.MEMORY_MIN, memory.min_bytes), (Knob.MEMORY_LOW, memory.low_bytes)):
            if amount is not None:
                for each in {kubernetes, KubeQoS.GUARANTEED}:
                    sums[each][knob] = sums[each].get(knob, 0) + amount
    stated = {KubeQoS.GUARANTEED: rule.lsr, KubeQoS.BURSTABLE: rule.ls, KubeQoS.BEST_EFFORT: rule.be}
    return {kubernetes: sums[kubernetes] | _of_oom(stated[kubernetes]) for kubernetes in KubeQoS}


@by_identity
def _rule(slo: NodeSLORendered) -> MemoryRule:
    return memory_rule(raw_section(slo, QOS))


_NOTHING = fitted(NEUTRAL, MemoryQOS, NAME)
_NEUTRAL_RULE = MemoryRule(_NOTHING, _NOTHING, _NOTHING, _NOTHING)
_WHY_NEUTRAL = "no memory QoS"


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The values of the class directories and of every pod, while memory QoS is configured."""
    knobs = _supported(situation.capabilities)
    if situation.slo is None or not knobs:
        return StrategyDecision(memory=memory)
    rule = with_last_valid(_rule(situation.slo), memory.rule if isinstance(memory, Applied) else None)
    active = rule.stated or any(pod.shape.memory_qos is not None for pod in situation.pods.values())
    if not active:
        left_over = memory is None or (isinstance(memory, Applied) and memory.active)
        return StrategyDecision(_values(situation, _NEUTRAL_RULE, knobs, _WHY_NEUTRAL) if left_over else {}, memory=Applied())
    values = _values(situation, rule, knobs)
    return StrategyDecision(values, memory=Applied(True, rule), problems=rule.problems)


@by_identity
def _supported(capabilities: NodeCapabilities) -> frozenset[Knob]:
    return frozenset(knob for knob in KNOBS if capabilities.supports(knob))


def _values(
    situation: Situation, rule: MemoryRule, knobs: frozenset[Knob], why: str = ""
) -> dict[Place, tuple[Desired, ...]]:
    """`why`: the reason of all values; "" for what is stated for each."""
    found: dict[Place, tuple[Desired, ...]] = {}
    pods: list[tuple[KubeQoS, PodMemory]] = []
    for pod in situation.pods.values():
        memory = pod_memory(pod.shape, rule, situation.node.memory_bytes)
        pods.append((pod.kube_qos, memory))
        for group, values in zip(pod.groups, (memory.pod, *memory.containers), strict=True):
            found[group] = _desired(values, knobs, why or memory.why)
    for kubernetes, values in class_memory(pods, rule).items():
        found[_CLASS_GROUPS[kubernetes]] = _desired(values, knobs, why or "memory QoS: the sum of its pods")
    return {place: desired for place, desired in found.items() if desired}


def _desired(values: Values, knobs: frozenset[Knob], why: str) -> tuple[Desired, ...]:
    return tuple([Desired(knob, str(value), NAME, why) for knob, value in values.items() if knob in knobs])


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.PODS,) if _supported(policy.capabilities) else ())


STRATEGY = Strategy(
    name=NAME,
    topic="memory-qos",
    sets=KNOBS,
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=PART,
    reads=of_classes(PART, MemoryQOS),
)
