"""The faults of a cluster file: they happen to its nodes, to services and to the log, each for a time.

In: faults with their moments, the nodes and services of the run. Out: a participant of the simulation that causes them, and how
many of each kind took place. `cotenant simulate --chaos` has more kinds, drawn from a seed.

    node-death    the machine fails, and returns later under its name, without pods
    partition     a node or a service is disconnected: its pods keep running, it stores nothing
    crash         a service's process is killed, and starts again later
    stall         the log has no leader: no write arrives
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.simulation import Death, ServiceParticipant, World
from cotenant_console.durations import parse_duration_seconds
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.cluster_file import FaultKind, PlannedFault


class Faults:
    """Causes the faults of a run; it is itself a participant."""

    name = "faults"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def __init__(
        self,
        planned: Iterable[PlannedFault],
        begin: datetime,
        seed: int,
        nodes: Mapping[str, tuple[NodeParticipant, NodeSize]],
        services: Mapping[str, ServiceParticipant],
    ) -> None:
        """`begin`: the moment from which they count; `nodes` and `services` by name."""
        self.happened: Counter[str] = Counter()
        """By kind."""
        self._seed = seed
        self._nodes = dict(nodes)
        self._services = services
        self._boots: Counter[str] = Counter()
        self._order = 0
        self._plan: list[tuple[datetime, int, Callable[[datetime, World], None]]] = []
        for fault in planned:
            self._at(begin + _span(fault.at), self._causing(fault))

    def step(self, now: datetime, _inbox: Sequence[Event], world: World) -> datetime | None:
        """Cause what is due."""
        while self._plan and self._plan[0][0] <= now:
            heapq.heappop(self._plan)[2](now, world)
        return self._plan[0][0] if self._plan else None

    def _at(self, when: datetime, act: Callable[[datetime, World], None]) -> None:
        self._order += 1
        heapq.heappush(self._plan, (when, self._order, act))

    def _causing(self, fault: PlannedFault) -> Callable[[datetime, World], None]:
        def act(now: datetime, world: World) -> None:
            self.happened[fault.kind.value] += self._caused(fault, now, world)

        return act

    def _caused(self, fault: PlannedFault, now: datetime, world: World) -> bool:
        """Cause a fault; return whether there was anything to act on: a node that has failed cannot fail again."""
        until = now + _span(fault.lasts)
        match fault.kind:
            case FaultKind.NODE_DEATH:
                return self._node_dies(fault.target, until, world)
            case FaultKind.PARTITION:
                return self._disconnected(fault.target, until, world)
            case FaultKind.CRASH:
                service = self._services[fault.target]
                service.kill(Death.BETWEEN, until - now)
                world.wake(service, now)
            case FaultKind.STALL:
                world.stalled_until = max(world.stalled_until, until)
        return True

    def _node_dies(self, name: str, until: datetime, world: World) -> bool:
        known = self._nodes.pop(name, None)
        if known is None:
            return False
        participant, size = known
        world.remove(participant)

        def back(_now: datetime, world: World) -> None:
            self._boots[name] += 1
            boot = f"simulated-{self._boots[name]}"
            node = NodeParticipant(simulated_node(name, size, seed=self._seed, boot=boot, outlived=False))
            self._nodes[name] = node, size
            world.add(node)

        self._at(until, back)
        return True

    def _disconnected(self, target: str, until: datetime, world: World) -> bool:
        name = self._services[target].name if target in self._services else f"node-{target}"
        link = world.trouble(name)
        if link is None:
            return False
        link.severed_until = max(link.severed_until, until)
        world.interrupt(name, link.severed_until)
        return True


def _span(text: str) -> timedelta:
    return timedelta(seconds=parse_duration_seconds(text))
