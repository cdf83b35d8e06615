"""Which scheduling class a pod is protected by: none, fair or real-time.

In: the node SLO (`resourceQOSStrategy.lsClass.cpuQOS.cpuClass`, likewise `lsrClass`), a pod's annotation
`cotenant.io/cpu-class`, which wins. Out: the class. It concerns pods whose CPU identity is latency-sensitive (1 or 2), on
kernels without group identity; `fair` by default, as it cannot starve others. An unknown value is
`fair`, and a problem.

    none       shares and cpu.idle of the best-effort pods only (the strategy `idle`)
    fair       `spread`: threads on CPUs of their own, long slices, the best-effort group idle as a whole
    realtime   `realtime`: SCHED_FIFO with a budget and a guard
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.cpu.identity.idle import idle_rule
from cotenant_node_executor.strategies.cpu.identity.strategy import effective_identity
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import CPU_PART, QOS, of_classes, readable_section
from cotenant_node_executor.strategies.situation import Situation, in_best_effort_tree
from cotenant_node_executor.strategies.strategy import Input, NodePolicy
from cotenant_node_executor.targets.interface import THREADS

ANNOTATION = "cotenant.io/cpu-class"
NONE, FAIR, REALTIME = "none", "fair", "realtime"
CLASSES = (NONE, FAIR, REALTIME)


class _CpuQos(Struct, frozen=True, rename="camel"):
    cpu_class: str = FAIR


class _Class(Struct, frozen=True):
    cpuQOS: _CpuQos = _CpuQos()  # noqa: N815 - the name in the document


class _Strategy(Struct, frozen=True, rename="camel"):
    lsr_class: _Class = _Class()
    ls_class: _Class = _Class()


_SECTION = readable_section(QOS, _Strategy)
CLASS_SHAPES = of_classes(CPU_PART, _CpuQos, classes=("lsrClass", "lsClass"))
"""The parts of the NodeSLO that are read here."""


class Protected(Struct, frozen=True):
    """The pods of each class, by name, and what was asked for and is unknown."""

    fair: tuple[PodView, ...] = ()
    realtime: tuple[PodView, ...] = ()
    problems: tuple[str, ...] = ()


def protected(situation: Situation) -> Protected | None:
    """The pods to protect; None where that is off, or this kernel has group identity for it."""
    rule = idle_rule(situation.slo, situation.capabilities)
    if rule is None or not rule.enable or not situation.capabilities.supports(THREADS):
        return None
    found: dict[str, list[PodView]] = {name: [] for name in CLASSES}
    problems: list[str] = []
    for pod in _by_name(situation.pods.values()):
        if in_best_effort_tree(pod.group) or effective_identity(rule, pod.shape) <= 0:
            continue
        asked = pod.annotations.get(ANNOTATION) or class_of(situation.slo, pod.qos)
        if asked not in CLASSES:
            where = f"pod {pod.namespace}/{pod.name}" if ANNOTATION in pod.annotations else f"class {pod.qos.value}"
            problems.append(f"{where}: unknown cpu class {asked[:20]!r}, expected one of {', '.join(CLASSES)}; {FAIR} is used")
            asked = FAIR
        found[asked].append(pod)
    return Protected(tuple(found[FAIR]), tuple(found[REALTIME]), tuple(dict.fromkeys(problems)))


def inputs(policy: NodePolicy) -> frozenset[Input]:
    """When the strategies of both classes decide: also while they are off, as what they gave threads is taken back."""
    return frozenset((Input.PODS, Input.USAGE) if policy.capabilities.supports(THREADS) else ())


def class_of(slo: NodeSLORendered | None, qos: QoSClass) -> str:
    """The class that the node SLO states for a QoS class; LSE has that of LSR, pods without a label that of LS."""
    stated = (_SECTION(slo) if slo is not None else None) or _Strategy()
    of_class = stated.lsr_class if qos in (QoSClass.LSR, QoSClass.LSE) else stated.ls_class
    return of_class.cpuQOS.cpu_class or FAIR


def _by_name(pods: Iterable[PodView]) -> list[PodView]:
    return sorted(pods, key=lambda pod: (pod.namespace, pod.name))
