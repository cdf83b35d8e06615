"""What the executor's core knows of a runtime: containers by attempt, orders, and what was seen.

In: orders (start an attempt, stop a pod, collect its groups, forget it), repeated as long as they are wanted. Out: the
state of every container that the runtime knows, by pod uid, also of orphaned pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.events.runs import RunStatus

UNKNOWN_EXIT = 137
"""Exit code of a container whose end nobody saw, as kubelet reports it."""

REASON_UNKNOWN = "ContainerStatusUnknown"
REASON_CREATING = "ContainerCreating"
REASON_COMPLETED = "Completed"
REASON_ERROR = "Error"
REASON_OOM = "OOMKilled"
REASON_START_ERROR = "StartError"


class ContainerState(Struct, frozen=True, gc=False):
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
    """The wait before this attempt; filled in once it has exited."""

    @property
    def exited(self) -> bool:
        return self.exit_code is not None


class PodToRun(Struct, frozen=True, gc=False):
    """A placed pod: its manifest, and where its groups lie below the executor's root."""

    pod: Pod
    group: str
    node: str

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def container_group(self, container: str) -> str:
        """The group of one container."""
        return f"{self.group}/{container}"


class Start(Struct, frozen=True, gc=False):
    """Start this attempt of a container; an attempt that is known already is left alone."""

    pod: PodToRun
    container: str
    attempt: int
    backoff_seconds: int = 0
    """The wait that came before it."""


class Stop(Struct, frozen=True, gc=False):
    """End every process of the pod: SIGTERM, and SIGKILL once the grace period is over."""

    uid: str
    grace_seconds: int


class Collect(Struct, frozen=True, gc=False):
    """The pod has ended: remove its control groups, keep its logs."""

    uid: str


class Forget(Struct, frozen=True, gc=False):
    """The pod is gone: remove its control groups, logs and every trace of it."""

    uid: str


Order = Start | Stop | Collect | Forget


class LogRequest(Struct, frozen=True):
    """The end of a container's log. `previous`: of the attempt before the newest."""

    uid: str
    container: str
    tail_lines: int | None = None
    limit_bytes: int = 512 * 1024
    previous: bool = False


class LogUnavailableError(LookupError):
    """There is no such log here; the message says what is missing."""


class Runtime(Protocol):
    """Something that runs containers. Calls return at once; what they led to is seen by the next `poll`."""

    def adopt(self, pods: Mapping[str, PodToRun], runs: Mapping[str, RunStatus], now: datetime) -> None:
        """Adopt what runs already, once after start: placed pods and their last reports, by uid."""
        ...

    def poll(self, now: datetime) -> Mapping[str, Mapping[str, ContainerState]]:
        """The newest attempt of every container, by pod uid and container name."""
        ...

    def changed(self) -> Set[str] | None:
        """Pods whose states may be others than when this was asked last; None: that is not known."""
        ...

    def carry_out(self, order: Order, now: datetime) -> None:
        """Carry out one order, or go on with it. What cannot be done becomes the container's state."""
        ...

    def read_log(self, request: LogRequest) -> str:
        """Return the end of a log. Raises LogUnavailableError."""
        ...
