"""YARN beside cotenant: a small ResourceManager, and the copilot that runs its real pass against it.

In: NodeManagers that register, are lost and restart; applications' total demand; the log. Out: `yarn.*` facts by
`cotenant_yarn_copilot.syncing.Syncing.sync`, the process' own pass, every SYNC and soon after a node's resources changed.

The ResourceManager's rules (Hadoop's): a NodeManager has the total announced at registration, until a client sets another
total; a smaller total ends no container (over-commitment shows as negative room), a container starts only where there is room.
Containers have one vcore; applications fill NodeManagers in the order of their ids, and end the youngest first. What a
container uses of the machine is not modelled: it counts by its allocation.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant.model.times import EPOCH
from cotenant.simulation import World
from cotenant.simulation.links import LinkedLog
from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.cluster_clients import ClusterClients
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.core import FILTERS
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.rm_messages import LOST, RUNNING, RmNode, read_nodes
from cotenant_yarn_copilot.syncing import MIN_PASS_SECONDS, Syncing

PORT = 8041
SYNC = timedelta(seconds=5)
SOON = timedelta(seconds=MIN_PASS_SECONDS)

# Failing writes are expected in a run; configure logging to see the copilot's warnings.
logging.getLogger("cotenant_yarn_copilot").addHandler(logging.NullHandler())


class NodeManager(msgspec.Struct):
    """The ResourceManager's record of a NodeManager. A container is one vcore and its memory."""

    host: str
    announced: YarnResource
    total: YarnResource
    containers: list[int]
    """The memory of each, the oldest first."""
    lost: bool = False

    @property
    def has_room(self) -> bool:
        """Whether one more container of one MB would start."""
        return not self.lost and len(self.containers) < self.total.vcores and sum(self.containers) < self.total.memory_mb


class ResourceManager:
    """A cluster of NodeManagers; answers as `rm_client` reads it."""

    def __init__(self) -> None:
        self.managers: dict[str, NodeManager] = {}
        self.silent = False
        self._wanted = 0
        self._memory_mb = 1

    def register(self, host: str, announced: YarnResource) -> None:
        """A NodeManager starts: its containers are gone, its total is the announced one."""
        self.managers[f"{host}:{PORT}"] = NodeManager(host, announced, announced, [])
        self._schedule()

    def lose(self, host: str, *, lost: bool) -> bool:
        """Lose a NodeManager (its containers keep running, the ResourceManager gives them up), or bring it back."""
        manager = self.managers.get(f"{host}:{PORT}")
        if manager is None or manager.lost == lost:
            return False
        manager.lost, manager.containers = lost, []
        self._schedule()
        return True

    def want(self, containers: int, memory_mb: int) -> None:
        """Set the applications' demand: the number of containers of one vcore each."""
        self._wanted, self._memory_mb = containers, max(memory_mb, 1)
        self._schedule()

    def _schedule(self) -> None:
        running = sum(len(manager.containers) for manager in self.managers.values())
        for name in sorted(self.managers):
            manager = self.managers[name]
            while running > self._wanted and manager.containers:
                manager.containers.pop()
                running -= 1
            while running < self._wanted and manager.has_room:
                manager.containers.append(min(self._memory_mb, manager.total.memory_mb - sum(manager.containers)))
                running += 1

    # -- the interface that the copilot calls -----------------------------------------------------------------------

    async def find_active(self) -> str:
        """Return the address of the active one."""
        if self.silent:
            raise ResourceManagerError("no ResourceManager is ACTIVE")
        return "model"

    async def nodes(self) -> tuple[RmNode, ...]:
        """Return all NodeManagers, through the same decoder as those of a real one."""
        await self.find_active()
        listed = [_listed(name, manager) for name, manager in sorted(self.managers.items())]
        return read_nodes(msgspec.json.encode({"nodes": {"node": listed}}))

    async def set_total(self, node_id: str, total: YarnResource, over_commit_timeout_ms: int) -> None:
        """Set a total; running containers stay."""
        await self.find_active()
        if over_commit_timeout_ms <= 0:
            raise ResourceManagerError("such an update would end every container on the node")
        self.managers[node_id].total = total
        self._schedule()

    async def confirm(self, node_id: str, total: YarnResource) -> RmNode:
        """Return the node as it is listed now."""
        found = next(node for node in await self.nodes() if node.id == node_id)
        if found.total != total:
            raise ResourceManagerError(f"{node_id} has {found.total}, not {total}")
        return found


def _listed(name: str, manager: NodeManager) -> dict[str, object]:
    memory, vcores = sum(manager.containers), len(manager.containers)
    return {
        "id": name,
        "state": LOST if manager.lost else RUNNING,
        "nodeHostName": manager.host,
        "numContainers": vcores,
        "usedMemoryMB": memory,
        "usedVirtualCores": vcores,
        "availMemoryMB": manager.total.memory_mb - memory,
        "availableVirtualCores": manager.total.vcores - vcores,
        "totalResource": {"memory": manager.total.memory_mb, "vCores": manager.total.vcores},
    }


class Copilot:
    """yarn-copilot's process, with crashes: see `cotenant.simulation.Participant`."""

    filters: tuple[str, ...] = FILTERS
    usage_filters: tuple[str, ...] = ()

    def __init__(self, cluster: ResourceManager) -> None:
        self.name = "yarn-copilot/a"
        self.cluster = cluster
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)
        self._syncing: Syncing | None = None
        self._last = EPOCH
        self._next = EPOCH
        self._down_until = EPOCH
        self._dies: timedelta | None = None

    def kill(self, down: timedelta) -> None:
        """End the process at its next step."""
        self._dies = down

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold; make a pass when one is due."""
        if self._dies is not None:
            world.leave()
            self._down_until, self._dies, self._syncing = now + self._dies, None, None
        if now < self._down_until:
            return self._down_until
        if self._down_until != EPOCH:
            self._down_until = EPOCH
            world.load()
            return now + SOON
        if self._syncing is None:
            log = LinkedLog(world.streams.log, world.append)
            clients = ClusterClients({DEFAULT_CLUSTER: self.cluster})
            self._syncing = Syncing(log, clients, CopilotConfig(), now=lambda: world.now)
        for event in inbox:
            self._syncing.copilot.apply(event)
            if isinstance(event.data, NodeResources):
                self._next = min(self._next, self._last + SOON)
        if now >= self._next:
            self._loop.run_until_complete(self._syncing.sync())
            self._last, self._next = now, now + SYNC
        return self._next
