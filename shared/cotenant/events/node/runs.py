"""The state of a pod on its node, and the executor's report of itself."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from cotenant.events.envelope import Event, Part, Payload
from cotenant.events.resizes import ResizeStatus
from cotenant.model.bounds import Amount, Count, Int32, Seconds


class RunPhase(StrEnum):
    """pending: accepted, not started; running; succeeded, failed: ended permanently; evicted, stopped: by the node, on
    order."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    STOPPED = "stopped"

    terminal: bool
    """No process of the pod is left and none will be started by this run."""
    final: bool
    """The pod is never placed or started again, as in Kubernetes: a stopped pod may be."""

    def __init__(self, value: str) -> None:
        self.final = value in ("succeeded", "failed", "evicted")
        self.terminal = value not in ("pending", "running")


class ContainerRun(Part, frozen=True, kw_only=True):
    """One container. `state` is waiting, running or terminated."""

    name: str
    state: str = "waiting"
    ready: bool = False
    restarts: Count = 0
    pid: Count = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: Int32 | None = None
    reason: str = ""
    message: str = ""
    backoff_seconds: Seconds = 0
    """While it waits to be restarted: how long."""


class EvictionBegun(Part, frozen=True, kw_only=True):
    """The eviction of a pod by a strategy of its node. An executor that starts carries on with it, and counts it for the
    strategy's cool-down and rate."""

    strategy: str
    at: datetime
    why: str = ""
    grace_seconds: Seconds = 0
    offer: str = ""
    """The event of what the node offers, where that decided it."""


class RunStatus(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.run.<namespace>.<pod>`. That a pod was stopped is reported by the tombstone of its run
    (`reports_stop`); the report of a pod that ended by itself stays as long as its object."""

    TYPE = "cotenant.run.v1"
    SUBJECT = "node.{node}.run.{namespace}.{name}"

    node: str
    namespace: str
    name: str
    uid: str
    phase: RunPhase
    started_at: datetime | None = None
    finished_at: datetime | None = None
    containers: tuple[ContainerRun, ...] = ()
    reason: str = ""
    message: str = ""
    eviction: EvictionBegun | None = None
    """From its beginning on."""
    resize: ResizeStatus | None = None
    """From the first resize in place on."""

    @property
    def ready(self) -> bool:
        """Whether it runs and all its containers are ready."""
        return self.phase is RunPhase.RUNNING and all(container.ready for container in self.containers)


def reports_stop(event: Event) -> bool:
    """Return whether the tombstone of a run is its last report: the executor has stopped the pod on order. It is about the
    placement that its subject's node had at that position of LOG, not about a later one of the same pod."""
    return event.tombstone and isinstance(event.data, RunStatus) and event.data.phase is RunPhase.STOPPED


def next_boot(boot: str) -> str:
    """Return the boot id of the load after this one in the same process: `4f1c`, `4f1c+1`, `4f1c+2`."""
    process, _, number = boot.partition("+")
    return f"{process}+{int(number or 0) + 1}"


def is_of_earlier_load(boot: str, own: str) -> bool:
    """Return whether a boot id is that of an earlier load in the same process, whose report was stored late."""
    return boot != own and boot.partition("+")[0] == own.partition("+")[0]


class ExecutorStatus(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.executor`: the executor's start marker, the machine and its capabilities.

    `capacity` and `allocatable`: cpu in milli-cores, others in units. `capabilities`: knob to "supported" or why not. The
    gateway ends it with the Node object; an executor that still runs publishes it again at its next start.
    """
    TYPE = "cotenant.executor.v1"
    SUBJECT = "node.{node}.executor"

    node: str
    boot: str = ""
    version: str = ""
    capacity: dict[str, Amount] = {}
    allocatable: dict[str, Amount] = {}
    labels: dict[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    """key, value, effect"""
    cgroup_version: Count = 0
    sandbox: bool = False
    simulated: bool = False
    capabilities: dict[str, str] = {}
    adopted: tuple[str, ...] = ()
    kernel: str = ""
    operating_system: str = ""
    addresses: tuple[str, ...] = ()
    message: str = ""
    unknown_log: str = ""
    """Why LOG is not the one that the executor followed before; until it is adopted, pods without a placement keep running."""
    pods_by: str = "executor"
    """What starts and ends the pods: the executor, or kubelet, to whose control groups the executor then writes."""
    strategies_off: dict[str, str] = {}
    """Strategies that are off on this node regardless of the node SLO, with the reasons."""
    memory_pressure: str = ""
    """Why the node's memory is too full for further best-effort pods; it then has the taint of the same name."""
