"""The interface between the executor's core and a runtime: containers by attempt, orders, observed states.

In: orders (start an attempt, stop a pod, collect its groups, forget it), repeated until they have taken effect. Out: the
state of every container that the runtime knows, by pod uid, including orphaned pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.events.node.runs import RunStatus
from cotenant.model.values import Value

UNKNOWN_EXIT = 137
"""Exit code of a container whose exit status was lost; kubelet reports the same."""

REASON_UNKNOWN = "ContainerStatusUnknown"
REASON_CREATING = "ContainerCreating"
REASON_COMPLETED = "Completed"
REASON_ERROR = "Error"
REASON_OOM = "OOMKilled"
REASON_START_ERROR = "StartError"


class ContainerState(Value, frozen=True):
    """One container's newest attempt. Neither started nor exited: it is being created."""

    name: str
    attempt: int
    pid: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    backoff_seconds: int = 0
    """The back-off before this attempt; set once it has exited."""

    @property
    def exited(self) -> bool:
        return self.exit_code is not None


class PodToRun(Value, frozen=True):
    """A placed pod: its manifest, the path of its groups below the executor's root, and the traceparent of its placement."""

    pod: Pod
    group: str
    node: str
    traceparent: str = ""
    container_ids: Mapping[str, str] = {}
    """Names of its containers by `<runtime>://<id>`, where kubelet's status is in the manifest."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def container_group(self, container: str) -> str:
        """Return the group of one container."""
        return f"{self.group}/{container}"


class Start(Value, frozen=True):
    """Start this attempt of a container; no effect if the attempt exists already."""

    pod: PodToRun
    container: str
    attempt: int
    backoff_seconds: int = 0
    """The back-off before this attempt."""


class Stop(Value, frozen=True):
    """End every process of the pod: SIGTERM, and SIGKILL once the grace period is over."""

    uid: str
    grace_seconds: int


class Collect(Value, frozen=True):
    """The pod has ended: remove its control groups, keep its logs."""

    uid: str


class Forget(Value, frozen=True):
    """The pod is gone: remove its control groups, logs and all other files."""

    uid: str


class AskEviction(Value, frozen=True):
    """Request the eviction of a pod that kubelet runs, as only kubelet may end it."""

    uid: str
    namespace: str
    name: str
    why: str
    grace_seconds: int


Order = Start | Stop | Collect | Forget | AskEviction


class LogRequest(Struct, frozen=True):
    """The end of a container's log. `previous`: of the attempt before the newest."""

    uid: str
    container: str
    tail_lines: int | None = None
    limit_bytes: int = 512 * 1024
    previous: bool = False


class PodLogUnavailableError(LookupError):
    """The requested log does not exist; the message names what is missing."""


class Runtime(Protocol):
    """Runs containers. Calls return at once; the next `poll` shows their effect."""

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """Adopt running pods, once after start. In: placed pods and their last reports, by uid."""
        ...

    def follow(self, pods: Mapping[str, PodToRun]) -> None:
        """Take the placed pods, by uid, whenever they have changed."""
        ...

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """Return the newest attempt of every container, by pod uid and container name."""
        ...

    def changed(self) -> Set[str] | None:
        """Pods whose states may have changed since the last call; None: unknown."""
        ...

    def carry_out(self, order: Order, now: datetime) -> None:
        """Carry out one order, or continue it. A failure is reported in the container's state."""
        ...

    def read_log(self, request: LogRequest) -> str:
        """Return the end of a log. Raises LogUnavailableError."""
        ...
