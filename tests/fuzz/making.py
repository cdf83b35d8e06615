"""JSON of a type: one generator for the structs of events and the schemas of kinds.

In: a type that msgspec decodes, a random source, a heat. Out: JSON of that shape; each leaf is one at an edge of its type with
the probability `heat`, and now and then of another type. Names come from small pools, so that what is said by several messages
is about the same few entities. What msgspec's description of a type does not say (the names of resources, the key of a label)
is found by the name of the field.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from tests.fuzz.extremes import INTEGERS, QUANTITIES, SPANS, TIMES, heated, junk, literal, near, scalar, text
from tests.fuzz.texts import CONFIGURATION, RESOURCES, STRATEGY, SUPPRESSION, annotation_keys, as_text, label_keys, value_of

NODES = ("n1", "n2")
NAMESPACES = ("default", "team")
PODS = ("web", "job", "bank")
JOBS = ("job-1", "job-2")
QUOTAS = ("team", "child", "koordinator-root-quota", "koordinator-default-quota")
DEEPEST = 12
"""Structs within structs."""

Make = Callable[["Maker", str, int], Any]

_WORDS: dict[str, tuple[str, ...]] = {
    "node": NODES, "nodeName": (*NODES, "", ""), "namespace": NAMESPACES, "name": (*PODS, "main"), "pod": PODS, "job": JOBS,
    "quota": QUOTAS, "tree": ("", "", "tree"), "uid": ("uid-web", "uid-job", "uid-bank", "uid-2"), "objectUid": ("", "uid-web"),
    "resourceVersion": ("", "7"), "topologyKey": ("zone", "kubernetes.io/hostname"), "key": ("app", "zone",
    "example.com/taint"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"), "value": ("", "a", "1", "web"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"), "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "restartPolicy": ("Always", "OnFailure", "Never"), "schedulerName": ("", "koord-scheduler", "default-scheduler"),
    "priorityClassName": ("", "koord-batch", "koord-prod", "system-node-critical", "mine"),
    "preemptionPolicy": ("PreemptLowerPriority", "Never"), "kind": ("ReplicaSet", "DaemonSet", "Pod"), "image": ("app:1",
    "busybox"), "phase": ("Pending", "Running", "Succeeded", "Failed", "Aborted"), "status": ("True", "False", "Unknown"),
    "qos": ("LS", "BE", "LSR"), "priority": ("koord-prod", "koord-batch", "koord-mid"), "protocol": ("TCP", "UDP"),
    "mode": ("EvictDirectly", "ReservationFirst"), "trigger": ("User", "LowNodeLoad", "TaintEviction"),
    "reason": ("", "CrashLoopBackOff", "DeadlineExceeded", "OOMKilled"), "state": ("waiting", "running", "terminated",
    "RUNNING", "LOST"), "type": ("Ready", "Eviction", "gpu"), "boot": ("boot", "boot-2"), "cpuset": ("0-3",),
    "reservedCpus": ("0-1", ""), "cpuSuppressPolicy": ("cpuset", "cfsQuota"), "cpuPolicy": ("groupIdentity", "coreSched"),
    "policy": ("auto", "none", "cpuBurstOnly"), "unhealthyPodEvictionPolicy": ("IfHealthyBudget", "AlwaysAllow"),
    "handler": ("runc", "kata"), "gang": ("", "default/gang"), "id": ("n1:8041", "n2:8041", "n9:1"), "nodeId": ("n1:8041",
    "n2:8041"), "nodeHostName": NODES, "cluster": ("", "yarn-2"), "workload": ("", "uid-rs"), "ttl": SPANS, "target": NODES,
    "qosClass": ("BE", "LS"), "apiVersion": ("v1", "apps/v1"),
}  # fmt: skip
_AMOUNT_MAPS = frozenset({
    "requests", "limits", "capacity", "allocatable", "overhead", "podFixed", "min", "max", "resources", "podUsage", "used",
    "request", "childRequest", "runtime", "allocated", "guaranteed", "nonPreemptibleRequest", "nonPreemptibleUsed", "total",
    "scaledMin", "free", "estimated",
})  # fmt: skip
_TIMES = frozenset({"creationTimestamp", "deletionTimestamp", "timeAdded", "startTime", "lastTransitionTime"})
_MATCHED = frozenset({"labels", "matchLabels", "nodeSelector"})


class Maker:
    """Makes JSON of types. `documents` returns the document that a raw member holds, by the names of struct and field."""

    def __init__(self, random: Random, heat: float, fullness: float, named: Mapping[str, str] | None = None) -> None:
        """`fullness`: how often a member is there that may be left out. `named`: what the entity's own names are."""
        self.random = random
        self.heat = heat
        self.fullness = fullness
        self.named = dict(named or {})

    def make(self, of: Any) -> Any:
        """Return JSON of a type."""
        return _compiled(of)(self, "", 0)

    def hot(self) -> bool:
        return self.random.random() < self.heat

    def word(self, field: str) -> str:
        """A text that a field of this name may hold."""
        if self.hot():
            return text(self.random)
        known = self.named.get(field)
        if known is not None and self.random.random() < 0.95:
            return known
        if field in _TIMES:
            return near(self.random)
        return self.random.choice(_WORDS.get(field, ("", "a", "web", "1", "5m0s")))

    def quantity(self) -> Any:
        if self.hot():
            return self.random.choice((self.random.choice(QUANTITIES), scalar(self.random)))
        return self.random.choice(("1", "500m", "1Gi", "2", "100", 1, "4Gi", "1k"))

    def key(self, field: str) -> str:
        if self.hot():
            return text(self.random)
        if field in _AMOUNT_MAPS:
            return self.random.choice(RESOURCES)
        return self.random.choice(("app", "zone", "a", "b", "cpu"))


@cache
def _compiled(of: Any) -> Make:
    return _make(inspect.type_info(of), {})


def _make(info: inspect.Type, known: dict[type, Make]) -> Make:
    if isinstance(info, inspect.Metadata):
        return _make(info.type, known)
    if isinstance(info, inspect.StructType):
        return _struct(info, known)
    if isinstance(info, inspect.UnionType):
        return _union(info, known)
    if isinstance(info, inspect.DictType):
        return _dict(_make(info.value_type, known))
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
        return _list(_make(info.item_type, known))
    if isinstance(info, inspect.TupleType):
        parts = [_make(part, known) for part in info.item_types]
        return lambda maker, field, depth: [part(maker, field, depth) for part in parts]
    if isinstance(info, inspect.EnumType):
        values = [member.value for member in info.cls]
        return lambda maker, field, depth: (
            text(maker.random) if maker.heat and maker.random.random() < 0.01 else maker.random.choice(values)
        )
    if isinstance(info, inspect.IntType):
        return _int(info)
    return _PLAIN[type(info)]


def _struct(info: inspect.StructType, known: dict[type, Make]) -> Make:
    if info.cls in known:
        return known[info.cls]
    members: list[tuple[str, bool, Make]] = []

    def make(maker: Maker, field: str, depth: int) -> Any:
        if maker.hot() and maker.random.random() < 0.05:
            return junk(maker.random)
        random, fullness = maker.random, maker.fullness if depth < DEEPEST else 0.0
        made = {
            name: member(maker, name, depth + 1)
            for name, required, member in members
            if required or name == "metadata" or name in maker.named or random.random() < fullness
        }
        if maker.hot():
            made[text(random)] = junk(random)
        return made

    known[info.cls] = make
    owner = info.cls.__name__
    members += [
        (field.encode_name, field.required, _RAW.get((owner, field.name)) or _make(field.type, known)) for field in info.fields
    ]
    return make


def _union(info: inspect.UnionType, known: dict[type, Make]) -> Make:
    kinds = {type(each) for each in info.types}
    if inspect.StrType in kinds and kinds & {inspect.IntType, inspect.FloatType}:
        return lambda maker, field, depth: maker.quantity()
    options = [_make(each, known) for each in info.types]
    return lambda maker, field, depth: maker.random.choice(options)(maker, field, depth)


def _count(maker: Maker) -> int:
    if maker.heat and maker.random.random() < 0.003:
        return maker.random.choice((100, 3000))
    return maker.random.choice((0, 1, 1, 2, 3))


def _dict(value: Make) -> Make:
    def make(maker: Maker, field: str, depth: int) -> Any:
        random, count = maker.random, _count(maker) if depth < DEEPEST else 1
        if field == "data":
            return {
                key: as_text(random, example, maker.heat) for key, example in CONFIGURATION.items() if random.random() < 0.6
            }
        if field == "annotations":
            keys = annotation_keys()
            return {key: value_of(random, key, maker.heat) for key in (random.choice(keys) for _ in range(count * 3))}
        if field in _MATCHED:
            keys = label_keys()
            made = {key: value_of(random, key, maker.heat) for key in (random.choice(keys) for _ in range(count))}
            return {"app": "web", **made} if random.random() < 0.5 else made
        made = {maker.key(field): value(maker, field, depth) for _ in range(min(count, 3))}
        made.update({f"{maker.key(field)}-{number}": value(maker, field, DEEPEST) for number in range(3, count)})
        return made

    return make


def _list(item: Make) -> Make:
    def make(maker: Maker, field: str, depth: int) -> Any:
        count = _count(maker) if depth < DEEPEST else 1
        if count > 3:
            few = [item(maker, field, DEEPEST) for _ in range(3)]
            return few * (count // 3) if len(str(few)) < 2000 else few
        return [item(maker, field, depth) for _ in range(count)]

    return make


def _int(info: inspect.IntType) -> Make:
    least, most = info.ge, info.le
    edges = [edge for edge in (least, most) if edge is not None]
    edges += [edge + step for edge in (least, most) if edge is not None for step in (-1, 1)]
    within = [
        number for number in (*INTEGERS, *edges) if (least is None or number >= least) and (most is None or number <= most)
    ]
    usual = [
        number for number in (0, 1, 2, 10, 60, 1000, 100_000) if number in within or most is None or number <= most
    ] or within

    def make(maker: Maker, field: str, depth: int) -> Any:
        if not maker.hot():
            return maker.random.choice(usual)
        if maker.random.random() < 0.9:
            return maker.random.choice(within)
        return maker.random.choice((maker.random.choice(INTEGERS), literal(maker.random), scalar(maker.random)))

    return make


def _float(maker: Maker, field: str, depth: int) -> Any:
    return scalar(maker.random) if maker.hot() else maker.random.choice((0.0, 0.5, 1.0, 10.0))


def _bool(maker: Maker, field: str, depth: int) -> Any:
    return scalar(maker.random) if maker.hot() and maker.random.random() < 0.1 else maker.random.random() < 0.5


def _time(maker: Maker, field: str, depth: int) -> Any:
    return maker.random.choice(TIMES) if maker.hot() else near(maker.random)


def _bytes(maker: Maker, field: str, depth: int) -> Any:
    size = maker.random.choice((0, 1, 8, 40, 400)) if maker.hot() else maker.random.choice((0, 4))
    return base64.b64encode(maker.random.randbytes(size)).decode()


def _raw(maker: Maker, field: str, depth: int) -> Any:
    if field == "patch":
        return heated(
            maker.random, {"spec": {"terminationGracePeriodSeconds": 2}, "metadata": {"labels": {"a": "b"}}}, maker.heat
        )
    return junk(maker.random) if maker.hot() else maker.random.choice(({}, [], {"a": 1}, None))


def _strategy(maker: Maker, field: str, depth: int) -> Any:
    return heated(maker.random, STRATEGY, maker.heat)


def _rendered(maker: Maker, field: str, depth: int) -> Any:
    return heated(maker.random, {"resourceUsedThresholdWithBE": SUPPRESSION}, maker.heat)


_RAW: dict[tuple[str, str], Make] = {("NodeResources", "strategy"): _strategy, ("NodeSLORendered", "spec"): _rendered}
"""What raw members hold, by struct and field; `hold` adds documents of kinds."""
_PLAIN: dict[type, Make] = {
    inspect.StrType: lambda maker, field, depth: maker.word(field),
    inspect.BoolType: _bool,
    inspect.FloatType: _float,
    inspect.NoneType: lambda maker, field, depth: None,
    inspect.DateTimeType: _time,
    inspect.BytesType: _bytes,
    inspect.RawType: _raw,
    inspect.AnyType: _raw,
}


def hold(struct: str, field: str, of: type[msgspec.Struct]) -> None:
    """Have a raw member hold a document of a type."""
    _RAW[struct, field] = lambda maker, name, depth: _compiled(of)(maker, name, 1)
