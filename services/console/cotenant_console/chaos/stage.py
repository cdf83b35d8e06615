"""The stage: gateways, replicas and nodes in one world, and the director who carries out a schedule.

In: a schedule. Out: a world in which its entries happen at their moments. At `span_ms` everything that is still broken is
mended, and what follows is quiet.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from cotenant.definition import Definition
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.simulation import START, Death, Link, World
from cotenant.simulation.links import NEVER
from cotenant_console.chaos.faults import REPLICATED, SERVICES
from cotenant_console.chaos.gateways import ChaosGateway, Users
from cotenant_console.chaos.manifests import budget, node_config, pod, quota, quota_patch
from cotenant_console.chaos.nodes import ChaosNode
from cotenant_console.chaos.schedule import Entry, Schedule
from cotenant_console.chaos.services import ChaosService
from cotenant_console.simulate.catalogue import definition

QUOTAS = ("scheduling.sigs.k8s.io", "elasticquotas")
CONFIG_MAPS = ("", "configmaps")
NODES = ("", "nodes")
PODS = ("", "pods")
LIMITS = '{"maxNoOfPodsToEvictPerNode":1,"maxNoOfPodsToEvictTotal":2}'
"""The descheduler's limits of one cycle; invariant 6 holds it to them."""
CONFIGS = {"descheduler-arbiter": LIMITS}

AGAIN = timedelta(seconds=5)
AGAIN_TRIES = 12
"""How long the controller of a workload waits for a pod's name to become free."""

Definitions = Callable[[str], Definition]


def ms(count: int) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=count)


class Stage:
    """Everybody, and what happens to them. It is itself a participant: the director."""

    name = "director"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def __init__(self, schedule: Schedule, users: Users, definitions: Definitions = definition) -> None:
        header = schedule.header
        self.schedule = schedule
        self.world = World(seed=header.seed, hop=ms(header.hop_ms), keep_history=False)
        self.happened: Counter[str] = Counter()
        """Faults that took place, by kind."""
        self.gateways = (ChaosGateway(1, users), ChaosGateway(2, users))
        self.services: dict[str, ChaosService] = {}
        self.nodes: dict[str, ChaosNode] = {}
        self.node_listeners: list[Callable[[ChaosNode, datetime], None]] = []
        """Hear of every turn of every node."""
        self._definitions = definitions
        self._boots: Counter[str] = Counter()
        self._plan: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._order = 0
        self._revisions = 0
        self._made: dict[str, Entry] = {}
        self._turn = Random(header.seed)
        self.world.watchers.append(self._replace)
        for entry in schedule.entries:
            self._at(START + ms(entry.at_ms), self._carrying(entry))
        self._at(START + ms(header.span_ms), self._mend)

    def open(self) -> None:
        """Seat everybody. Services start in an order that the seed decides."""
        header = self.schedule.header
        self.world.add(self)
        for gateway in self.gateways:
            self.world.add(gateway)
        replicas = [
            (service, letter)
            for service in SERVICES
            for letter in ("ab"[: header.replicas] if service in REPLICATED else "a")
        ]
        Random(f"order/{header.seed}").shuffle(replicas)
        for service, letter in replicas:
            made = ChaosService(self._definitions(service), CONFIGS.get(service, "{}"), letter, self.gateways)
            self.services[made.name] = made
            self.world.add(made)

    def step(self, now: datetime, _inbox: Sequence[Event], _world: World) -> datetime | None:
        """Carry out what is due."""
        while self._plan and self._plan[0][0] <= now:
            heapq.heappop(self._plan)[2](now)
        return self._plan[0][0] if self._plan else None

    def _at(self, when: datetime, act: Callable[[datetime], None]) -> None:
        self._order += 1
        heapq.heappush(self._plan, (when, self._order, act))

    def _carrying(self, entry: Entry) -> Callable[[datetime], None]:
        def act(now: datetime) -> None:
            carry_out = _ACTS[entry.kind]
            if carry_out(self, entry, now) and entry.fault:
                self.happened[entry.kind] += 1

        return act

    def _replace(self, event: Event) -> None:
        """A workload's controller, as a user has one: a service's pod that was evicted comes again under its name."""
        data = event.data
        if not isinstance(data, EvictionOutcome) or data.reason != "Evicted":
            return
        made = self._made.get(data.name)
        if made is not None and "app" in made.args:
            self._create_again(made, AGAIN_TRIES)

    def _create_again(self, entry: Entry, tries: int) -> None:
        def act(now: datetime) -> None:
            gateway = self.gateways[0]
            if gateway.core.get(gateway.core.collections[PODS].kind, "default", entry.target) is None:
                self.create_pod(entry, now)
            elif tries:
                self._create_again(entry, tries - 1)

        self._at(self.world.now + AGAIN, act)
        self.world.wake(self, self.world.now + AGAIN)

    def _gateway(self) -> ChaosGateway:
        """Users reach any gateway."""
        gateway = self.gateways[self._turn.randrange(len(self.gateways))]
        self.world.wake(gateway, self.world.now)
        return gateway

    # -- the workload ----------------------------------------------------------------------------------------------

    def add_node(self, entry: Entry, _now: datetime) -> bool:
        """A machine joins the cluster."""
        if entry.target in self.nodes:
            return False
        self._boots[entry.target] += 1
        node = ChaosNode(
            entry.target,
            entry.number("cpu"),
            entry.number("memory_gib"),
            self.schedule.header.seed,
            self._boots[entry.target],
        )
        node.listeners += self.node_listeners
        self.nodes[entry.target] = node
        self.world.add(node)
        return True

    def create_pod(self, entry: Entry, now: datetime) -> bool:
        """A user creates a pod."""
        self._made[entry.target] = entry
        self._gateway().wish_creation(now, pod(entry.target, entry.args))
        return True

    def revise_pod(self, entry: Entry, now: datetime) -> bool:
        """A user changes a pod; `stale-update` on the condition that nobody changed it before."""
        self._revisions += 1
        gateway = self.gateways[entry.number("gateway")]
        gateway.wish_revision(now, entry.target, self._revisions, stale=entry.kind == "stale-update")
        self.world.wake(gateway, now)
        return True

    def delete_pod(self, entry: Entry, now: datetime) -> bool:
        """A user deletes a pod."""
        grace = entry.number("grace")
        self._gateway().wish_deletion(now, PODS, "default", entry.target, None if grace < 0 else grace)
        return True

    def create_quota(self, entry: Entry, now: datetime) -> bool:
        """An administrator declares a quota."""
        self._gateway().wish_creation(now, quota(entry.target, entry.number("min"), entry.number("max")))
        return True

    def update_quota(self, entry: Entry, now: datetime) -> bool:
        """An administrator changes a quota."""
        patch = quota_patch(entry.number("min"), entry.number("max"))
        self._gateway().wish_patch(now, QUOTAS, "default", entry.target, patch)
        return True

    def create_budget(self, entry: Entry, now: datetime) -> bool:
        """A user declares a disruption budget."""
        self._gateway().wish_creation(now, budget(entry.target, entry.text("app"), entry.number("min_available")))
        return True

    def configure(self, entry: Entry, now: datetime) -> bool:
        """An administrator changes the node configuration, sometimes to nonsense."""
        document = node_config(entry.args)
        gateway = self._gateway()
        if gateway.core.get(gateway.core.collections[CONFIG_MAPS].kind, "koordinator-system", "slo-controller-config") is None:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
            gateway.wish_creation(now, json.loads(json.dumps(namespace)))
            gateway.wish_creation(now + ms(50), document)
        else:
            data = {"data": document["data"]}
            gateway.wish_patch(now, CONFIG_MAPS, "koordinator-system", "slo-controller-config", data)
        return True

    # -- faults of links -------------------------------------------------------------------------------------------

    def _link(self, target: str) -> Link | None:
        link = self.world.link(target)
        if link is not None:
            link.troubled = True
        return link

    def delay(self, entry: Entry, now: datetime) -> bool:
        """Deliveries come late."""
        link = self._link(entry.target)
        if link is None:
            return False
        link.delay, link.delayed_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
        return True

    def redeliver(self, entry: Entry, _now: datetime) -> bool:
        """The last messages come once more."""
        if self._link(entry.target) is None:
            return False
        self.world.redeliver(entry.target, entry.number("count"))
        return True

    def lose(self, entry: Entry, _now: datetime) -> bool:
        """The next writes fail in one of three ways."""
        link = self._link(entry.target)
        if link is None:
            return False
        field = {"answer-lost": "answers_lost", "write-lost": "writes_lost", "refused": "refusals"}[entry.kind]
        setattr(link, field, entry.number("count"))
        return True

    def stall(self, entry: Entry, now: datetime) -> bool:
        """The log has no leader."""
        self.world.stalled_until = max(self.world.stalled_until, now + ms(entry.number("for_ms")))
        return True

    def partition(self, entry: Entry, now: datetime) -> bool:
        """Cut off from the log."""
        link = self._link(entry.target)
        if link is None:
            return False
        link.severed_until = now + ms(entry.number("for_ms"))
        return True

    def lose_samples(self, entry: Entry, now: datetime) -> bool:
        """Samples of a node do not arrive."""
        link = self._link(f"node-{entry.target}")
        if link is None:
            return False
        link.random = Random(entry.number("seed"))
        link.loss_permille, link.lossy_until = entry.number("permille"), now + ms(entry.number("for_ms"))
        return True

    def shuffle(self, entry: Entry, now: datetime) -> bool:
        """Samples overtake one another."""
        link = self._link(entry.target)
        if link is None:
            return False
        link.random = Random(entry.number("seed"))
        link.shuffle, link.shuffled_until = ms(entry.number("by_ms")), now + ms(entry.number("for_ms"))
        return True

    # -- faults of processes ---------------------------------------------------------------------------------------

    def crash(self, entry: Entry, _now: datetime) -> bool:
        """A process is killed."""
        down = ms(entry.number("down_ms"))
        for gateway in self.gateways:
            if gateway.name == entry.target:
                gateway.kill(down)
                return True
        service = self.services.get(entry.target)
        if service is None:
            return False
        service.service.kill(Death(entry.text("where")), down)
        return True

    def reset(self, entry: Entry, _now: datetime) -> bool:
        """A service's consumer is gone: it starts over at once."""
        service = self.services.get(entry.target)
        if service is None:
            return False
        service.service.kill(Death.BETWEEN, timedelta(0))
        return True

    def pause(self, entry: Entry, _now: datetime) -> bool:
        """A process stops between deciding and storing."""
        service = self.services.get(entry.target)
        if service is None:
            return False
        service.service.pause(ms(entry.number("for_ms")))
        return True

    def lose_requests(self, entry: Entry, now: datetime) -> bool:
        """A service's wishes do not reach any gateway."""
        service = self.services.get(entry.target)
        if service is None:
            return False
        service.mute_until = now + ms(entry.number("for_ms"))
        return True

    # -- faults of nodes -------------------------------------------------------------------------------------------

    def crash_executor(self, entry: Entry, _now: datetime) -> bool:
        """The executor's process dies; its pods go on."""
        node = self.nodes.get(entry.target)
        if node is None:
            return False
        node.crash(ms(entry.number("down_ms")))
        return True

    def set_clock(self, entry: Entry, now: datetime) -> bool:
        """A node's clock jumps and drifts."""
        node = self.nodes.get(entry.target)
        if node is None:
            return False
        node.set_clock(ms(entry.number("by_ms")), entry.number("drift_ppm"), now)
        return True

    def kill_node(self, entry: Entry, now: datetime) -> bool:
        """A machine dies, and comes back later: empty, perhaps of another size or under another name."""
        node = self.nodes.pop(entry.target, None)
        if node is None:
            return False
        self.world.remove(node)
        name = f"{entry.target}x" if entry.kind == "rename" else entry.target
        args: Mapping[str, int | str] = {
            "cpu": entry.args.get("cpu", node.cpu_milli),
            "memory_gib": entry.args.get("memory_gib", node.memory_gib),
        }
        if entry.kind == "rename":
            # The administrator removes the machine that is not there any more.
            self._gateway().wish_deletion(now, NODES, "", entry.target, None)
        returns = Entry(at_ms=0, kind="node", target=name, args=dict(args))
        back = min(now + ms(entry.number("down_ms")), START + ms(self.schedule.header.span_ms))
        self._at(max(back, now + ms(1)), lambda at: self._return(returns, at))
        return True

    def _return(self, entry: Entry, now: datetime) -> None:
        self.add_node(entry, now)

    def _mend(self, now: datetime) -> None:
        """The quiet begins: links and clocks are in order."""
        self.world.stalled_until = NEVER
        names = [self.name, *self.services, *(gateway.name for gateway in self.gateways)]
        for name in [*names, *(node.name for node in self.nodes.values())]:
            link = self.world.link(name)
            if link is None:
                continue
            link.severed_until = min(link.severed_until, now)
            link.delayed_until = link.lossy_until = link.shuffled_until = NEVER
            link.answers_lost = link.writes_lost = link.refusals = 0
        for node in self.nodes.values():
            node.set_clock(timedelta(0), 0, now)


_ACTS: dict[str, Callable[[Stage, Entry, datetime], bool]] = {
    "node": Stage.add_node,
    "create-pod": Stage.create_pod,
    "update-pod": Stage.revise_pod,
    "stale-update": Stage.revise_pod,
    "delete-pod": Stage.delete_pod,
    "create-quota": Stage.create_quota,
    "update-quota": Stage.update_quota,
    "create-budget": Stage.create_budget,
    "config": Stage.configure,
    "delay": Stage.delay,
    "redeliver": Stage.redeliver,
    "answer-lost": Stage.lose,
    "write-lost": Stage.lose,
    "refused": Stage.lose,
    "stall": Stage.stall,
    "partition": Stage.partition,
    "sample-loss": Stage.lose_samples,
    "shuffle": Stage.shuffle,
    "crash": Stage.crash,
    "reset": Stage.reset,
    "pause": Stage.pause,
    "request-lost": Stage.lose_requests,
    "executor-crash": Stage.crash_executor,
    "clock": Stage.set_clock,
    "node-death": Stage.kill_node,
    "capacity": Stage.kill_node,
    "rename": Stage.kill_node,
}
