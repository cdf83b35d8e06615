"""Typed requests and responses of the ResourceManager's REST API. Prefix `/ws/v1/cluster`, JSON.

Only this module builds the body of an update, because the ResourceManager validates nothing: an unknown field counts as 0, a
wrapped or empty body sets the node's total and the over-commit timeout to 0, which kills every container on it. The body
therefore has exactly the three numbers, which are validated first.
"""

from __future__ import annotations

import msgspec

from cotenant.model.bounds import Int32, Int64
from cotenant_yarn_copilot.capacity import YarnResource

ACTIVE = "ACTIVE"
RUNNING = "RUNNING"
LOST = "LOST"
NODE_STATES = "NEW,RUNNING,UNHEALTHY,DECOMMISSIONING,DECOMMISSIONED,LOST,REBOOTED,SHUTDOWN"
NEVER_KILL_MS = 2**31 - 1
"""Over-commit timeout of 24 days, so that shrinking a node never kills containers. -1 would keep an older deadline."""

_MAX_INT = 2**31 - 1


class AnswerError(ValueError):
    """The ResourceManager's response does not match its API."""


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """State of one ResourceManager."""

    ha_state: str = ""
    state: str = ""
    hadoop_version: str = ""


class _Total(msgspec.Struct, frozen=True, rename="camel"):
    memory: Int64 = 0
    v_cores: Int32 = 0


class RmNode(msgspec.Struct, frozen=True, rename="camel"):
    """A NodeManager in the ResourceManager's list. Available resources are negative while it is over-committed."""

    id: str
    state: str = ""
    node_host_name: str = ""
    num_containers: Int32 = 0
    used_memory: Int64 = msgspec.field(default=0, name="usedMemoryMB")
    used_virtual_cores: Int32 = 0
    avail_memory: Int64 = msgspec.field(default=0, name="availMemoryMB")
    available_virtual_cores: Int32 = 0
    total_resource: _Total | None = None

    @property
    def used(self) -> YarnResource:
        """YARN's allocation on it."""
        return YarnResource(self.used_virtual_cores, self.used_memory)

    @property
    def total(self) -> YarnResource:
        """Its total; used + available for versions that do not report it."""
        if self.total_resource is not None:
            return YarnResource(self.total_resource.v_cores, self.total_resource.memory)
        return YarnResource(self.used_virtual_cores + self.available_virtual_cores, self.used_memory + self.avail_memory)


class _InfoAnswer(msgspec.Struct, frozen=True, rename="camel"):
    cluster_info: ClusterInfo


class _NodeList(msgspec.Struct, frozen=True):
    node: list[RmNode] = []


class _NodesAnswer(msgspec.Struct, frozen=True):
    nodes: _NodeList | None = None


class _NodeAnswer(msgspec.Struct, frozen=True):
    node: RmNode


class _UpdateResource(msgspec.Struct, frozen=True):
    memory: int
    vcores: int = msgspec.field(name="vCores")


class _Update(msgspec.Struct, frozen=True, rename="camel"):
    resource: _UpdateResource
    over_commit_timeout: int


_INFO = msgspec.json.Decoder(_InfoAnswer)
_NODES = msgspec.json.Decoder(_NodesAnswer)
_NODE = msgspec.json.Decoder(_NodeAnswer)


def read_info(body: bytes) -> ClusterInfo:
    """Return the state of a ResourceManager. Raises AnswerError."""
    try:
        return _INFO.decode(body).cluster_info
    except msgspec.DecodeError as error:
        raise AnswerError(f"/ws/v1/cluster/info: {error}") from error


def read_nodes(body: bytes) -> tuple[RmNode, ...]:
    """Return the NodeManagers in the order of their ids. Raises AnswerError."""
    try:
        nodes = _NODES.decode(body).nodes
    except msgspec.DecodeError as error:
        raise AnswerError(f"/ws/v1/cluster/nodes: {error}") from error
    return tuple(sorted(nodes.node if nodes is not None else (), key=lambda node: node.id))


def read_node(body: bytes) -> RmNode:
    """Return one NodeManager. Raises AnswerError."""
    try:
        return _NODE.decode(body).node
    except msgspec.DecodeError as error:
        raise AnswerError(f"/ws/v1/cluster/nodes/<id>: {error}") from error


def update_body(total: YarnResource, over_commit_timeout_ms: int = NEVER_KILL_MS) -> bytes:
    """Return the body that sets a node's total. Raises ValueError on values that the ResourceManager would misread."""
    for name, value in (
        ("memory", total.memory_mb),
        ("vCores", total.vcores),
        ("overCommitTimeout", over_commit_timeout_ms),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT:
            raise ValueError(f"{name} is {value!r}: must be an integer between 0 and {_MAX_INT}")
    return msgspec.json.encode(_Update(_UpdateResource(total.memory_mb, total.vcores), over_commit_timeout_ms))
