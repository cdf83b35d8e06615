"""Shares of the last-level cache and of the memory bandwidth, by class and by pod.

In: the `resctrlQOS` of each class, the pods, the machine's resctrl facts. Out: schemata of the groups LSR, LS and BE, and of
groups of pods with an annotation (`pod_groups`); the control groups whose threads belong to each. LSE pods are in LSR, SYSTEM
pods in none.

While any class states a resctrlQOS, all three groups exist: a class that is not enabled has the whole cache and bandwidth, and
its pods' threads stay where they are. One group's error does not stop the others. Without it, the groups created here
are removed (`targets.other.resctrl`). Each group counts its own occupancy and bandwidth (`mon_data`). Source: resctrl, koordlet
rule.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.cache.pod_groups import ANNOTATION_RESCTRL, GROUP_PREFIX, pod_schemata
from cotenant_node_executor.strategies.cache.schemata import ResctrlQOS, class_l3, class_mb
from cotenant_node_executor.strategies.sections import (
    CLASSES,
    QOS,
    JsonObject,
    class_part,
    fitted,
    of_classes,
    raw_section,
    states,
)
from cotenant_node_executor.strategies.situation import ResctrlFacts, Situation
from cotenant_node_executor.strategies.strategy import Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place, ResctrlAttribute, ResctrlGroup

NAME = "resctrl"
PART = "resctrlQOS"
GROUPS = ("LSR", "LS", "BE")
NEUTRAL: JsonObject = {
    "enable": False,
    "catrangestartpercent": 0,
    "catrangeendpercent": 100,
    "mbapercent": 100,
}
DEFAULTS: dict[str, JsonObject] = {"LSR": NEUTRAL, "LS": NEUTRAL, "BE": {**NEUTRAL, "catrangeendpercent": 30}}
_SCHEMATA, _CONTROL_GROUPS = ResctrlAttribute.SCHEMATA, ResctrlAttribute.CONTROL_GROUPS


class ResctrlRule(Struct, frozen=True):
    """The configuration of each class; empty where none is stated."""

    classes: dict[str, ResctrlQOS] = {}


@by_identity
def _rule(slo: NodeSLORendered) -> ResctrlRule:
    strategy = raw_section(slo, QOS)
    if not states(strategy, PART):
        return ResctrlRule()
    return ResctrlRule({
        name: fitted(class_part(strategy, CLASSES[name], PART, DEFAULTS[name], NEUTRAL), ResctrlQOS, f"{name}.{PART}")
        for name in GROUPS
    })


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """The groups of the classes and of the pods that request one."""
    facts, slo = situation.node.resctrl, situation.slo
    if facts is None or slo is None:
        return StrategyDecision()
    rule = _rule(slo)
    values: dict[Place, tuple[Desired, ...]] = {}
    problems: list[str] = []
    own = _own_groups(situation, facts, values, problems)
    for name, config in rule.classes.items():
        members = [pod.group for pod in situation.pods.values() if pod.shape.config_class == name and pod.uid not in own]
        values[ResctrlGroup(name)] = _of_class(name, config, facts, members if config.enable else [], problems)
    return StrategyDecision({place: desired for place, desired in values.items() if desired}, problems=tuple(problems))


def _of_class(
    name: str, config: ResctrlQOS, facts: ResctrlFacts, members: list[str], problems: list[str]
) -> tuple[Desired, ...]:
    lines = ""
    for part in (class_l3, class_mb):
        try:
            lines += part(config, facts) or ""
        except ValueError as error:
            problems.append(f"group {name}: {error}")
    return _desired(lines, members, f"{PART} of {name}")


def _own_groups(
    situation: Situation, facts: ResctrlFacts, values: dict[Place, tuple[Desired, ...]], problems: list[str]
) -> set[str]:
    """Add the groups of pods with an annotation, and return these pods' uids."""
    found: set[str] = set()
    for pod in situation.pods.values():
        annotation = pod.manifest.metadata.annotations.get(ANNOTATION_RESCTRL)
        if annotation is None:
            continue
        try:
            lines = pod_schemata(annotation, facts)
        except ValueError as error:
            problems.append(f"pod {pod.namespace}/{pod.name}: {error}")
            continue
        found.add(pod.uid)
        values[ResctrlGroup(f"{GROUP_PREFIX}{pod.uid}")] = _desired(
            lines, [pod.group], f"annotation of {pod.namespace}/{pod.name}"
        )
    return found


def _desired(lines: str, members: list[str], why: str) -> tuple[Desired, ...]:
    schemata = (Desired(_SCHEMATA, lines, NAME, why),) if lines else ()
    threads = (Desired(_CONTROL_GROUPS, ",".join(sorted(members)), NAME, why),) if members else ()
    return schemata + threads


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.PODS,) if policy.capabilities.supports("resctrl") else ())


STRATEGY = Strategy(
    name=NAME,
    topic="resctrl",
    sets=(_SCHEMATA, _CONTROL_GROUPS),
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=PART,
    reads=of_classes(PART, ResctrlQOS),
)
