"""What may happen to a cluster in which all features are used: steps for hypothesis, and a log on which they are carried out.

Nodes, quotas, gangs and names are few, so that steps concern one another. A step without anything to act on does nothing.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import PlacementPhase
from cotenant.events.resizes import ContainerResources, ResizeState, ResizeStatus
from cotenant.model.quantities import resource_amount
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, network, rules

GANG, QUOTA = "gang.scheduling.koordinator.sh", "quota.scheduling.koordinator.sh"
NODES = ("n0", "n1", "n2", "n3")
GROUPS = {"g": ("g",), "h": ("h", "i"), "i": ("h", "i"), "k": ("k",)}
"""By gang, the gangs that it is placed with."""
CPUS = ("500m", "1", "1500m", "3")
POLICIES = ("", "Aligned", "Restricted", "takes pods", "takes pods only")
KEYED = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "host", "matchLabelKeys": ["rev"]}
SPREAD = {**KEYED, "topologyKey": SPINE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def side(name: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {name: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def cpu_of(document: dict[str, Any]) -> int:
    return resource_amount("cpu", document["spec"]["containers"][0]["resources"]["requests"]["cpu"])


numbers = st.integers(0, 30)
cpus = st.sampled_from(CPUS)
quotas = st.sampled_from(["", "", "red", "red-1", "red-2", "blue"])
priorities = st.sampled_from([1, 5, 5, 9])
labels = st.fixed_dictionaries(
    {},
    optional={
        "app": st.sampled_from("ab"),
        "rev": st.sampled_from("xy"),
        f"{QUOTA}/preemptible": st.sampled_from(["false", "true"]),
    },
)
specs = st.sampled_from(
    [
        *[{}] * 5,
        {"preemptionPolicy": "Never"},
        {"schedulingGates": [{"name": "wait"}]},
        {"schedulerName": "their-scheduler"},
        side("podAntiAffinity", KEYED),
        side("podAffinity", KEYED),
        {"topologySpreadConstraints": [SPREAD]},
        {"nodeSelector": {"host": "n1"}},
    ]
)
looks = st.tuples(quotas, priorities, labels, specs)
"""What pods have in common: quota, priority, labels, fields of their specs."""
gathers = st.sampled_from(["", "", rules("BlockLayer!"), rules("SpineLayer"), rules("BlockLayer", multiples={"BlockLayer": 2})])
gangs = st.tuples(
    st.just("gang"), st.sampled_from(sorted(GROUPS)), st.lists(cpus, min_size=1, max_size=4), st.integers(1, 4), st.booleans(),
    gathers, looks,
)  # fmt: skip
singles = st.tuples(st.just("pod"), numbers, cpus, looks, st.sampled_from([False, False, False, True]))
"""At the end, whether it may be in reservations only."""
early = st.lists(st.tuples(cpus, st.sampled_from([1, 1, 2]), labels), min_size=3, max_size=14)
"""Pods that fill the nodes first: cpu, priority, labels."""
steps = st.one_of(
    singles,
    singles,
    singles,
    gangs,
    gangs,
    st.tuples(st.just("reservation"), st.integers(0, 3), cpus, st.sampled_from(POLICIES), st.booleans(), quotas),
    st.tuples(st.just("reservation goes"), st.integers(0, 3)),
    st.tuples(st.just("quota"), st.sampled_from(["red", "red-1", "red-2", "blue"]), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("quota goes"), st.sampled_from(["red", "red-2", "blue"])),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["2", "4", "6"]), st.booleans()),
    st.tuples(st.just("node goes"), st.just("n3")),
    st.tuples(st.just("budget"), st.sampled_from("ab"), st.integers(0, 1)),
    st.tuples(st.just("relabelled"), numbers, looks),
    st.tuples(st.just("resized"), numbers, cpus),
    st.tuples(st.just("resize reported"), numbers, st.sampled_from(list(ResizeState))),
    st.tuples(st.just("ungated"), numbers),
    st.tuples(st.just("nominated by them"), numbers, st.sampled_from(["", *NODES])),
    st.tuples(st.just("deleting"), numbers),
    st.tuples(st.just("victim leaves"), numbers),
    st.tuples(st.just("is gone"), numbers),
    st.tuples(st.just("stopped"), numbers),
    st.tuples(st.just("ends"), numbers),
    st.tuples(st.just("later"), st.sampled_from([1, 11, 40])),
    st.tuples(st.just("being stored")),
    st.tuples(st.just("being stored")),
    st.tuples(st.just("stored")),
    st.tuples(st.just("refused")),
    st.tuples(st.just("settle")),
)  # fmt: skip
configs = st.builds(
    lambda order, hold, preempting, runtime, ancestors: SchedulerConfig(
        queue=QueueArgs(order=order, hold_after_seconds=hold),
        reservation=ReservationArgs(enable_preemption=preempting),
        quota_runtime_limits=runtime,
        quota_check_ancestors=ancestors,
    ),
    st.sampled_from(list(QueueOrder)), st.sampled_from([0, 1, 30]), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


class Happenings:
    """A log with one scheduler, and the documents on it by name."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.story = ReservedStory(config)
        self.documents: dict[str, dict[str, Any]] = {}
        self.reservations: dict[str, str] = {}
        """The uid of each that there was, by name."""
        self.reserved_cpu: dict[str, int] = {}
        """What each of them asks for."""
        self.over: set[str] = set()
        """Pods that have run to their end."""
        network(self.story)
        for name in NODES[:3]:
            self.node(name, "4", cordoned=False)

    def node(self, name: str, cpu: str, *, cordoned: bool) -> None:
        own = {"host": name, SPINE: "s1" if name < "n2" else "s2", BLOCK: f"b{name[1:]}"}
        self.story.node(node(name, cpu=cpu, labels=own, unschedulable=cordoned))
        self.story.executor(name)

    def store(self, document: dict[str, Any]) -> None:
        self.documents[document["metadata"]["name"]] = document
        self.story.pod(document)

    def one(self, number: int, names: list[str] | None = None) -> str:
        """One of the names, by default of pods that exist; empty for none."""
        among = sorted(self.documents) if names is None else sorted(names)
        return among[number % len(among)] if among else ""

    def perform(self, step: tuple[Any, ...]) -> None:
        story = self.story
        match step:
            case ("pod", int() as number, str() as cpu, tuple() as look, bool() as needs_one):
                if f"p{number}" not in self.documents and f"p{number}" not in story.placed():
                    self.store(self.looking(f"p{number}", cpu, look, wants() if needs_one and "app" in look[2] else {}))
            case ("gang", str() as name, list() as sizes, int() as least, bool() as strict, str() as gather, tuple() as look):
                self.gang(name, sizes, least, strict, gather, look)
            case ("reservation", int() as number, *more):
                self.reserve(f"r{number}", *more)
            case ("reservation goes", int() as number) if self.reservations.pop(f"r{number}", None):
                story.reservation_deleted(f"r{number}")
            case ("quota", str() as name, int() as most, int() as least):
                parent = "red" if "-" in name else ""
                story.quota(name, max={"cpu": 1000 * most}, min={"cpu": 1000 * min(least, most)}, parent=parent)
            case ("quota goes", str() as name):
                story.quota_deleted(name)
            case ("node", str() as name, str() as cpu, bool() as cordoned):
                self.node(name, cpu, cordoned=cordoned)
            case ("node goes", str() as name) if name in story.core.nodes.rows:
                story.node_deleted(name)
            case ("budget", str() as app, int() as allowed):
                story.budget(app, {"app": app}, allowed=allowed)
            case ("later", int() as seconds):
                story.later(seconds)
            case (str() as what, int() as number, *more):
                self.happen(what, number, *more)

    def looking(self, name: str, cpu: str, look: tuple[Any, ...], annotations: dict[str, str]) -> dict[str, Any]:
        quota, priority, marks, spec = look
        own = {**marks, f"{QUOTA}/name": quota} if quota else marks
        return pod(name, cpu=cpu, memory="64Mi", priority=priority, labels=own, annotations=annotations, **spec)

    def gang(self, name: str, sizes: list[str], least: int, strict: bool, gather: str, look: tuple[Any, ...]) -> None:
        if any(other.startswith(name) for other in (*self.documents, *self.story.placed())):
            return
        groups = json.dumps([f"default/{one}" for one in GROUPS[name]])
        own = {f"{GANG}/name": name, f"{GANG}/min-available": str(min(least, len(sizes))), f"{GANG}/groups": groups}
        own |= {f"{GANG}/mode": "Strict" if strict else "NonStrict"}
        own |= {f"{GANG}/network-topology-spec": gather} if gather else {}
        for index, cpu in enumerate(sizes):
            self.store(self.looking(f"{name}{index}", cpu, look, own))

    def reserve(self, name: str, cpu: str, policy: str, once: bool, quota: str) -> None:
        if name in self.reservations:
            return
        self.reservations[name] = uid = f"uid-{name}-{self.story.sequence}"
        self.reserved_cpu[name] = resource_amount("cpu", cpu)
        more: dict[str, Any] = {"allocatePolicy": policy, "allocateOnce": once} if policy else {"allocateOnce": once}
        own = {f"{QUOTA}/name": quota} if quota else {}
        if policy.startswith("takes pods"):
            more = {"allocatePolicy": "Restricted", "allocateOnce": False, "preAllocation": True}
            more |= {"preAllocationPolicy": {"enableMultiple": not once}}
            own |= {f"{GROUP}/pre-allocation-required": "true"} if policy.endswith("only") else {}
        self.story.reservation(reservation(name, app="a", cpu=cpu, memory="64Mi", uid=uid, labels=own, **more))

    def happen(self, what: str, number: int, *more: Any) -> None:
        """Something happens to a pod."""
        story, placed = self.story, self.story.placed()
        name = self.one(number, [each for each in placed if each in self.documents])
        if what == "victim leaves":
            leaving = {victim.name for nomination in story.nominated().values() for victim in nomination.victims}
            name = self.one(number, [each for each in leaving if each in self.documents])
        elif what in ("is gone", "deleting"):
            name = self.one(number)
        elif what in ("ungated", "nominated by them", "relabelled"):
            name = self.one(number, [each for each in self.documents if each not in placed])
        elif what == "stopped":
            name = self.one(number, [each for each in placed if self.ends(each)])
        if not name:
            return
        document = msgspec.json.decode(msgspec.json.encode(self.documents.get(name, {})))
        if what in ("stopped", "ends"):
            self.over.add(name)
        match what, more:
            case ("deleting" | "victim leaves", _):
                document["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
                self.store(document)
            case ("is gone", _):
                del self.documents[name]
                story.pod_deleted(name)
            case ("stopped", _):
                story.run(placed[name], name, RunPhase.STOPPED)
            case ("ends", _):
                story.run(placed[name], name, RunPhase.SUCCEEDED)
            case ("resized", (str() as cpu,)):
                wanted = {"cpu": cpu, "memory": "64Mi"}
                document["spec"]["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
                self.store(document)
            case ("resize reported", (ResizeState() as state,)):
                self.report_resize(name, state)
            case ("ungated", _) if document["spec"].pop("schedulingGates", None):
                self.store(document)
            case ("nominated by them", (str() as to,)) if document["spec"].get("schedulerName"):
                self.store({**document, "status": {"nominatedNodeName": to}})
            case ("relabelled", ((_, _, dict() as marks, _),)) if GANG not in str(document):
                kept = {key: value for key, value in document["metadata"].get("labels", {}).items() if key.startswith(QUOTA)}
                document["metadata"]["labels"] = {**marks, **kept}
                self.store(document)

    def ends(self, name: str) -> bool:
        placement = self.story.placement(name)
        return placement is not None and placement.phase is PlacementPhase.TERMINATING

    def report_resize(self, name: str, state: ResizeState) -> None:
        placement = self.story.placement(name)
        # No node reports a pod as running that it has reported as stopped or ended.
        if placement is None or placement.resize is None or name in self.over:
            return
        wanted = self.documents[name]["spec"]["containers"][0]["resources"]["requests"]
        done = (ContainerResources(name="main", requests=wanted, limits=wanted),)
        admitted = done if state in (ResizeState.DONE, ResizeState.IN_PROGRESS) else placement.resize.admitted
        status = ResizeStatus(sequence=placement.resize.sequence, state=state, admitted=admitted)
        self.story.run(placement.node, name, RunPhase.RUNNING, resize=status)
