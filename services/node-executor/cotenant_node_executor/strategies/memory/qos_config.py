"""Memory QoS of a class and of a pod.

In: the QoS strategy of the NodeSLO, a pod's QoS class and its annotation `koordinator.sh/memoryQOS`. Out: the configuration in
force, in which None means that a file is not touched.

| policy of the annotation | configuration |
|---|---|
| absent, `default` | the class's, overlaid with the annotation's fields |
| `auto` | the built-in one of the class, overlaid with the annotation's fields |
| `none` | neutral values; the annotation's fields are ignored |

An unreadable annotation counts as absent. A percentage of the NodeSLO that is out of range concerns its field alone: the last
valid value stays, as koordlet's files refuse others; without one the field is unstated. Source: memory QoS, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from cotenant_node_executor.strategies.sections import (
    CLASSES,
    QOS,
    JsonObject,
    JsonValue,
    SectionError,
    T,
    class_part,
    fitted,
    lower_name,
    lowered_object,
    states,
)

PART = "memoryQOS"
POLICY_NONE, POLICY_AUTO = "none", "auto"

NEUTRAL: JsonObject = {
    "enable": False,
    "minlimitpercent": 0,
    "lowlimitpercent": 0,
    "throttlingpercent": 0,
    "wmarkratio": 0,
    "wmarkscalepermill": 50,
    "wmarkminadj": 0,
    "priorityenable": 0,
    "priority": 0,
    "oomkillgroup": 0,
}
_SENSITIVE: JsonObject = {**NEUTRAL, "wmarkratio": 95, "wmarkscalepermill": 20, "wmarkminadj": -25}
CLASS_DEFAULTS: dict[str, JsonObject] = {
    "LSR": _SENSITIVE,
    "LS": _SENSITIVE,
    "BE": {**NEUTRAL, "wmarkratio": 95, "wmarkscalepermill": 20, "wmarkminadj": 50},
    "SYSTEM": NEUTRAL,
}
"""The built-in configuration of each class."""


class MemoryQOS(Struct, frozen=True, kw_only=True, rename=lower_name, cache_hash=True):
    """Percent values are of a request, `wmark_scale_permill` of the limit; None: the file is not touched."""

    enable: bool | None = None
    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None


class MemoryRule(Struct, frozen=True, cache_hash=True):
    """The configuration of each class. `stated`: the NodeSLO has a memory QoS at all. `wrong`: class and field of each value
    that is out of range, and `problems` says so in words; such a field is unstated."""

    lsr: MemoryQOS = MemoryQOS()
    ls: MemoryQOS = MemoryQOS()
    be: MemoryQOS = MemoryQOS()
    system: MemoryQOS = MemoryQOS()
    stated: bool = False
    wrong: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    def of_class(self, name: str) -> MemoryQOS:
        """The configuration of LSR, LS, BE or SYSTEM."""
        return {"LSR": self.lsr, "LS": self.ls, "BE": self.be, "SYSTEM": self.system}[name]


def memory_rule(strategy: Mapping[str, JsonValue]) -> MemoryRule:
    """Return the rule of a QoS strategy with lower-case names. Raises ValueError that names a field of another type."""
    classes: list[MemoryQOS] = []
    wrong: list[tuple[str, str]] = []
    problems: list[str] = []
    for name, field in CLASSES.items():
        config = fitted(class_part(strategy, field, PART, CLASS_DEFAULTS[name], NEUTRAL), MemoryQOS, f"{field}.{PART}")
        bad = out_of_range(config, where_of(field), _PERCENTAGES)
        wrong += [(name.lower(), attribute) for attribute in bad]
        problems += [f"{problem}; the last valid value stays" for problem in bad.values()]
        classes.append(replace(config, **dict.fromkeys(bad)))
    lsr, ls, be, system = classes
    return MemoryRule(lsr, ls, be, system, states(strategy, PART), tuple(wrong), tuple(problems))


def with_last_valid(rule: MemoryRule, last: MemoryRule | None) -> MemoryRule:
    """Return the rule with the last one's values in place of those that are out of range; without a last one they are
    unstated."""
    for name, attribute in rule.wrong if last is not None else ():
        config = replace(getattr(rule, name), **{attribute: getattr(getattr(last, name), attribute)})
        rule = replace(rule, **{name: config})
    return rule


_PERCENTAGES = dict.fromkeys(("minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio"), (0, 100))
"""As the NodeSLO's schema has them."""


def out_of_range(config: Struct, where: str, ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return the fields whose value is not from the first to the second number of their range, each with the problem in words.

    The names of the ranges are those of the NodeSLO; an unstated value is in range.
    """
    attributes = {lower_name(field): field for field in config.__struct_fields__}
    found: dict[str, str] = {}
    for name, (least, most) in ranges.items():
        attribute = attributes[name.lower()]
        value = getattr(config, attribute)
        if value is not None and not least <= value <= most:
            found[attribute] = f"{where}.{name} is {value}: must be between {least} and {most}"
    return found


def in_range(config: T, where: str, ranges: Mapping[str, tuple[int, int]]) -> T:
    """Return a configuration without a value that is out of its range (`out_of_range`). Raises SectionError that names the
    first."""
    for problem in out_of_range(config, where, ranges).values():
        raise SectionError(problem)
    return config


def where_of(field: str) -> str:
    """Return the path in the NodeSLO of the memory QoS of a class, from the class's field in lower case."""
    return f"{QOS}.{field.removesuffix('class')}Class.{PART}"


@lru_cache(maxsize=256)
def effective(of_class: MemoryQOS, qos_class: str, annotation: str | None) -> MemoryQOS:
    """Return the configuration of a pod of this class with this annotation."""
    if annotation is None:
        return of_class
    try:
        policy, stated = asked_by(annotation)
        if policy == POLICY_NONE:
            return fitted(NEUTRAL, MemoryQOS, PART)
        base = {**CLASS_DEFAULTS[qos_class], "enable": of_class.enable} if policy == POLICY_AUTO else document_of(of_class)
        return fitted({**base, **stated}, MemoryQOS, PART)
    except ValueError:
        return of_class


def asked_by(annotation: str) -> tuple[object, JsonObject]:
    """Return the policy that a pod's annotation names, and the fields that it states. Raises ValueError."""
    asked = lowered_object(annotation)
    policy = asked.pop("policy", "")
    return policy, {name: value for name, value in asked.items() if value is not None}


def document_of(config: Struct) -> JsonObject:
    """Return a class's configuration from its section."""
    return {lower_name(field): getattr(config, field) for field in config.__struct_fields__}
