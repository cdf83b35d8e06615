"""The client of each YARN cluster: made when the cluster is first needed, and kept.

In: a cluster's id, from a NodeManager pod's annotation or from the configuration. Out: its client. Source: Koordinator YARN
operator: an empty id stands for the default cluster; a cluster that is met later gets a client then; one whose client cannot be
made is tried again with the next sync.

Bound: a client exists only for a cluster whose ResourceManagers are configured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NoReturn, Protocol, TypeVar

from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.rm_messages import RmNode


class YarnCluster(Protocol):
    """The interface to one YARN cluster: `rm_client.ResourceManagerClient`, or a model of it. All methods raise
    ResourceManagerError."""

    async def find_active(self) -> str:
        """Look up the active ResourceManager again."""

    async def nodes(self) -> tuple[RmNode, ...]:
        """Return the NodeManagers that it lists."""

    async def set_total(self, node_id: str, total: YarnResource, over_commit_timeout_ms: int) -> None:
        """Request a new total for a node."""

    async def confirm(self, node_id: str, total: YarnResource) -> RmNode:
        """Return the node once it reports the total."""


ClientT_co = TypeVar("ClientT_co", covariant=True)


def not_configured(cluster: str) -> NoReturn:
    """Raise ResourceManagerError: nothing says where this cluster's ResourceManagers are."""
    raise ResourceManagerError(f"no ResourceManager is configured for cluster {cluster}")


class ClusterClients(Generic[ClientT_co]):
    """`clients`: those of the configured clusters, by id. `make`: makes another one, or raises ResourceManagerError."""

    def __init__(
        self, clients: Mapping[str, ClientT_co], make: Callable[[str], ClientT_co] = not_configured
    ) -> None:
        self.configured = frozenset(clients)
        self._clients = dict(clients)
        self._make = make

    def of(self, cluster: str) -> ClientT_co:
        """Return a cluster's client. Raises ResourceManagerError if it has none and none can be made."""
        name = cluster or DEFAULT_CLUSTER
        if name not in self._clients:
            self._clients[name] = self._make(name)
        return self._clients[name]
