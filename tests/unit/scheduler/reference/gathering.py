"""Gangs that shall be near to one another in the network, plainly: domains are tuples of names, one node counted at a time.

It knows rules that all members of a gang state alike, pods that only resources keep apart, and no room held for anybody but
the owners of reservations (`reserved`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from tests.unit.scheduler.reference import gangs
from tests.unit.scheduler.reference.reserved import owned, takes
from tests.unit.scheduler.reference.world import World

NODE, CLUSTER = "NodeTopologyLayer", "ClusterTopologyLayer"
TRIED = 16
Path = tuple[str, ...]
"""Names of domains from the widest layer down; of the cluster none, of a node its own name last."""


class Rules(NamedTuple):
    """The nearest layer that is a must, empty for none; by layer, of how many pods each domain gets a multiple."""

    must: str
    multiples: dict[str, int]


class Plan(NamedTuple):
    """A domain, and how many pods each of its nodes is to get, in this order."""

    layer: str
    domain: Path
    pods: int
    slots: int
    alike: int
    """How many domains of the layer have room for all."""
    shares: list[tuple[str, int]]


def asked(pod: Pod) -> list[dict[str, object]]:
    text = pod.metadata.annotations.get(f"{gangs.PREFIX}/network-topology-spec", "")
    found: list[dict[str, object]] = json.loads(text)["gatherStrategy"] if text else []
    return found


def layers(world: World) -> list[tuple[str, list[str]]] | None:
    """Name and labels of the layers above the nodes, the widest first; None without a topology."""
    if world.network is None:
        return None
    specs = {spec["topologyLayer"]: spec for spec in world.network["spec"]["networkTopologySpec"]}
    found: list[tuple[str, list[str]]] = []
    above = specs[NODE].get("parentTopologyLayer", "")
    while above:
        found.insert(0, (above, specs[above]["labelKey"]))
        above = specs[above].get("parentTopologyLayer", "")
    return found


class Network:
    """The domains for one gang, with how many of its pods fit into each."""

    def __init__(self, world: World, entry: list[Pod]) -> None:
        self.world = world
        self.entry = entry
        known = layers(world)
        assert known is not None
        self.names = [CLUSTER, *(name for name, _ in known), NODE]
        self.multiples = rules(world, entry).multiples
        self.paths: dict[str, Path | None] = {}
        for name, node in world.nodes.items():
            labels = node.metadata.labels
            found = [next((labels[key] for key in keys if labels.get(key)), "") for _, keys in known]
            self.paths[name] = (*found, name) if all(found) else None
        self.slots = {name: slots(world, entry, name) for name in world.nodes}
        self.rooms: dict[Path, int] = {}

    def path_of(self, node: str) -> Path:
        """Nodes without labels are in a nameless domain of each layer, as if it were one."""
        return self.paths[node] or (*("",) * (len(self.names) - 2), node)

    def children(self, domain: Path) -> list[Path]:
        """The domains directly below."""
        found = {self.path_of(node)[: len(domain) + 1] for node in self.paths}
        return [child for child in found if child[: len(domain)] == domain]

    def room(self, domain: Path) -> int:
        if domain not in self.rooms:
            depth = len(domain)
            multiple = self.multiples.get(self.names[depth], 1)
            amount = self.slots[domain[-1]] if depth == len(self.names) - 1 else sum(map(self.room, self.children(domain)))
            self.rooms[domain] = amount // multiple * multiple
        return self.rooms[domain]

    def running(self, domain: Path, near: set[str]) -> int:
        placed = [node for name, (node, _, _) in self.world.placements.items() if name in near and node in self.paths]
        return sum(1 for node in placed if self.path_of(node)[: len(domain)] == domain)

    def is_named(self, domain: Path) -> bool:
        return "" not in domain

    def at(self, depth: int) -> list[Path]:
        """The domains of a level."""
        found: list[Path] = [()]
        for _ in range(depth):
            found = [child for domain in found for child in self.children(domain)]
        return found

    def shares(self, domain: Path, wanted: int, near: set[str]) -> list[tuple[str, int]]:
        if len(domain) == len(self.names) - 1:
            return [(domain[-1], min(wanted, self.room(domain)))]
        found: list[tuple[str, int]] = []
        children = self.children(domain)
        children.sort(key=lambda child: (-self.running(child, near), -self.room(child), "/".join(child)))
        for child in children:
            multiple = self.multiples.get(self.names[len(child)], 1)
            share = min(wanted, self.room(child)) // multiple * multiple
            given = self.shares(child, share, near)
            found += given
            wanted -= sum(count for _, count in given)
        return found


def shown(plan: Plan) -> str:
    """How the domain of a plan is written; a node by its name alone."""
    return plan.domain[-1] if plan.layer == NODE else "/".join(plan.domain)


def rules(world: World, entry: list[Pod]) -> Rules:
    found = [rule for gang in gangs.group_of(entry[0]) for pod in gangs.members(world, gang)[:1] for rule in asked(pod)]
    known = [CLUSTER, *(name for name, _ in layers(world) or []), NODE]
    musts = [str(rule["layer"]) for rule in found if rule["strategy"] == "MustGather"]
    unknown = sorted(name for name in musts if name not in known)
    must = unknown[0] if unknown else max(musts, key=known.index, default="")
    multiples = {str(rule["layer"]): int(str(rule.get("podCountMultiple", 1))) for rule in found}
    return Rules(must, {name: amount for name, amount in multiples.items() if amount > 1})


def slots(world: World, entry: list[Pod], node: str) -> int:
    """How many of a gang's pods a node takes: of each size by itself, no more than there are; those that other reservations are
    for by themselves."""
    total = 0
    sizes = [(pod_requests(pod), owned(world, pod)) for pod in entry]
    for number, size in enumerate(sizes):
        if size in sizes[:number]:
            continue
        filled = copy(world)
        filled.placements = dict(world.placements)
        filled.uses = dict(world.uses)
        for count in range(sizes.count(size)):
            found = takes(filled, entry[number], node)
            if found is None:
                break
            filled.placements[f"slot {count}"] = (node, entry[number], world.now)
            filled.uses[f"slot {count}"] = found
            total += 1
    return total


def plans(world: World, entry: list[Pod]) -> Iterator[Plan]:
    """The domains that are tried, the best first."""
    network = Network(world, entry)
    must = rules(world, entry).must
    if must and must not in network.names:
        return
    own = {pod.metadata.name for gang in gangs.group_of(entry[0]) for pod in gangs.members(world, gang)}
    own -= world.bound_in_this_pass
    selector = entry[0].metadata.annotations.get("scheduling.koordinator.sh/network-topology-selector", "")
    near = own | {
        name
        for name, pod in world.pods.items()
        if selector
        and gangs.gang_of(pod)
        and pod.metadata.annotations.get("scheduling.koordinator.sh/network-topology-selector") == selector
        and name not in world.bound_in_this_pass
    }
    top = network.names.index(must) if must else 0
    allowed = [domain for domain in network.at(top) if network.is_named(domain)]
    if must and any(network.running(domain, own) for domain in allowed):
        allowed = [domain for domain in allowed if network.running(domain, own)]
    most = min(max(map(network.room, allowed), default=0), len(entry))
    if not most:
        return
    for depth in range(len(network.names) - 1, top - 1, -1):
        fitting = [
            domain
            for domain in network.at(depth)
            if network.is_named(domain) and domain[:top] in allowed and network.room(domain) >= most
        ]

        def order(domain: Path) -> tuple[list[int], list[int], str]:
            above = [domain[:length] for length in range(len(domain), -1, -1)]
            return (
                [-network.running(one, near) for one in above],
                [network.room(one) for one in above],
                domain[-1] if len(domain) == len(network.names) - 1 else "/".join(domain),
            )

        for domain in sorted(fitting, key=order)[:TRIED]:
            shares = network.shares(domain, most, near)
            yield Plan(network.names[depth], domain, most, network.room(domain), len(fitting), shares)


def by_index(pod: Pod) -> tuple[bool, int, str]:
    text = pod.metadata.annotations.get(f"{gangs.PREFIX}/network-topology-index", "")
    return (False, int(text), pod.metadata.name) if text else (True, 0, pod.metadata.name)


def place(world: World, entry: list[Pod]) -> tuple[dict[str, str], Plan | None]:
    """Place a gang's pods in the first domain that takes as many as it needs; nowhere if none does."""
    entry = sorted(entry, key=by_index)
    exact = bool(rules(world, entry).multiples)
    for plan in plans(world, entry):
        made = gangs.place_group(world, entry, Turns(world, plan, exact=exact).node_for)
        if made:
            return made, plan
    return {}, None


class Turns:
    """The nodes of a plan, one after the other."""

    def __init__(self, world: World, plan: Plan, *, exact: bool) -> None:
        self.world = world
        self.plan = plan
        self.exact = exact
        self.turns = [node for node, count in plan.shares for _ in range(count)]

    def node_for(self, pod: Pod) -> str | None:
        """The node whose turn it is, and stays until a pod takes it; or the first of the domain that takes the pod."""
        if self.turns and self.takes(pod, self.turns[0]):
            return self.turns.pop(0)
        if self.exact:
            return None
        return next((node for node, _ in self.plan.shares if self.takes(pod, node)), None)

    def takes(self, pod: Pod, node: str) -> bool:
        """Whether a node takes a pod; the world then says in which reservation."""
        found = takes(self.world, pod, node)
        if found is not None:
            self.world.uses[pod.metadata.name] = found
        return found is not None
