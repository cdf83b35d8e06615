"""The harness: gateways, replicas and nodes in one world, and the director that carries out a schedule.

In: a schedule. Out: a world in which its entries take effect when they are due (`actions`). At `span_ms` every fault
that is still in force is lifted; no new workload follows.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from cotenant.engine.definition import ServiceDefinition
from cotenant.events.envelope import Event
from cotenant.model.times import EPOCH
from cotenant.simulation import START, World
from cotenant_console.definitions import definition
from cotenant_verification.harness.controllers import Controllers
from cotenant_verification.harness.gateways import ChaosGateway, Users
from cotenant_verification.harness.nodes import ChaosNode, MachineShape
from cotenant_verification.harness.services import ChaosService
from cotenant_verification.harness.yarn import Copilot, ResourceManager
from cotenant_verification.workload.faults import REPLICATED, RESTARTED_SERVICES
from cotenant_verification.workload.pod_constraints import CONSTRAINTS
from cotenant_verification.workload.schedule import Schedule, ScheduleEntry, ScheduleError, located, ms

PODS = ("", "pods")
LIMITS = '{"maxNoOfPodsToEvictPerNode":1,"maxNoOfPodsToEvictTotal":2}'
"""The descheduler's limits of one cycle; invariant 6 holds it to them."""
REVOCATION = '{"monitor_all_quotas":true,"delay_evict_seconds":20}'
"""Over-use of quotas is taken back, sooner than by default."""
CONFIGS = {"descheduler-arbiter": LIMITS, "quota-tree": REVOCATION}

Definitions = Callable[[str], ServiceDefinition]
Action = Callable[["Harness", ScheduleEntry, datetime], bool]
"""Carries an entry out at a moment; returns whether there was anything to act on."""


class Harness:
    """All participants of a run, and the faults and requests that reach them. It is itself a participant: the director."""

    name = "director"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def __init__(
        self, schedule: Schedule, actions: Mapping[str, Action], users: Users, definitions: Definitions = definition
    ) -> None:
        header = schedule.header
        self.schedule = schedule
        self.world = World(seed=header.seed, hop=ms(header.hop_ms), keep_history=False)
        self.world.streams.log.longest_ttl = timedelta(seconds=header.tombstone_s)
        self.ends = START + ms(header.span_ms)
        """When faults and workload are over."""
        self.happened: Counter[str] = Counter()
        """Faults that took place, by kind."""
        self.asked: Counter[str] = Counter()
        """Requests of users and administrators, by kind; pods also by their constraints."""
        self.gateways = (ChaosGateway(1, users), ChaosGateway(2, users))
        self.services: dict[str, ChaosService] = {}
        self.nodes: dict[str, ChaosNode] = {}
        self.node_listeners: list[Callable[[ChaosNode, datetime], None]] = []
        """Called after every step of every node."""
        self.copilot: Copilot | None = None
        """There from the first NodeManager on."""
        self.revisions = 0
        """How often users have revised pods."""
        self.controllers = Controllers(self._later, self._pod_exists, self._carry_out)
        self._actions = actions
        self._definitions = definitions
        self._boots: Counter[str] = Counter()
        self._plan: list[tuple[datetime, int, Callable[[datetime], object]]] = []
        self._order = 0
        self._choice = Random(header.seed)
        self.world.watchers.append(self.controllers.see)
        for entry in schedule.entries:
            if entry.kind not in actions:
                raise ScheduleError(f"entry at {entry.at_ms} ms: kind {entry.kind!r} is none of {', '.join(sorted(actions))}")
            self.at(START + ms(entry.at_ms), self._carrying(entry))
        self.at(self.ends, self._lift_faults)

    def open(self) -> None:
        """Add all participants. Services start in an order that the seed decides."""
        header = self.schedule.header
        self.world.add(self)
        for gateway in self.gateways:
            self.world.add(gateway)
        replicas = [
            (service, letter)
            for service in RESTARTED_SERVICES
            for letter in ("ab"[: header.replicas] if service in REPLICATED else "a")
        ]
        Random(f"order/{header.seed}").shuffle(replicas)
        for service, letter in replicas:
            made = ChaosService(self._definitions(service), CONFIGS.get(service, "{}"), letter, self.gateways)
            self.services[made.name] = made
            self.world.add(made)

    # -- directing -------------------------------------------------------------------------------------------------

    def step(self, now: datetime, _inbox: Sequence[Event], _world: World) -> datetime | None:
        """Carry out what is due."""
        while self._plan and self._plan[0][0] <= now:
            heapq.heappop(self._plan)[2](now)
        return self._plan[0][0] if self._plan else None

    def at(self, when: datetime, act: Callable[[datetime], object]) -> None:
        """Schedule a call at a moment; for callers inside the director's step."""
        self._order += 1
        heapq.heappush(self._plan, (when, self._order, act))

    def _later(self, wait: timedelta, act: Callable[[datetime], object]) -> None:
        self.at(self.world.now + wait, act)
        self.world.wake(self, self.world.now + wait)

    def _carrying(self, entry: ScheduleEntry) -> Callable[[datetime], None]:
        def act(now: datetime) -> None:
            if not self._carry_out(entry, now):
                return
            if entry.fault:
                self.happened[entry.kind] += 1
            else:
                self.asked.update((entry.kind, *sorted(CONSTRAINTS.intersection(entry.args))))

        return act

    def _carry_out(self, entry: ScheduleEntry, now: datetime) -> bool:
        return self._actions[entry.kind](self, entry, now)

    # -- for acts --------------------------------------------------------------------------------------------------

    def gateway(self) -> ChaosGateway:
        """Users reach any gateway."""
        gateway = self.gateways[self._choice.randrange(len(self.gateways))]
        self.world.wake(gateway, self.world.now)
        return gateway

    def _pod_exists(self, name: str) -> bool:
        return self.gateways[0].holds(PODS, *located(name))

    def add_node(self, name: str, machine: MachineShape) -> bool:
        """Add a machine, unless there is one of that name."""
        if name in self.nodes:
            return False
        self._boots[name] += 1
        node = ChaosNode(name, machine, self.schedule.header.seed, self._boots[name])
        node.listeners += self.node_listeners
        self.nodes[name] = node
        self.world.add(node)
        return True

    def yarn(self) -> ResourceManager:
        """The YARN cluster; the first call adds its copilot."""
        if self.copilot is None:
            self.copilot = Copilot(ResourceManager())
            self.world.add(self.copilot)
        return self.copilot.cluster

    def _lift_faults(self, now: datetime) -> None:
        """Lift every fault: links and clocks are in order."""
        self.world.stalled_until = EPOCH
        names = [*self.services, *(gateway.name for gateway in self.gateways), "yarn-copilot/a"]
        for name in [*names, *(node.name for node in self.nodes.values())]:
            link = self.world.link(name)
            if link is None:
                continue
            link.severed_until = min(link.severed_until, now)
            link.delayed_until = link.lossy_until = link.shuffled_until = EPOCH
            link.answers_lost = link.writes_lost = link.refusals = 0
        for node in self.nodes.values():
            node.set_clock(timedelta(0), 0, now)
