"""A container's state, read from the files of its newest attempt.

In: the attempt's files, and whether one of its processes or its shim is running. Out: a `ContainerState`. An attempt without
exit status and processes gets UNKNOWN_EXIT, which is written to its status file so that later reads return the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cotenant_node_executor.runtime.container_files import AttemptFiles
from cotenant_node_executor.runtime.interface import (
    REASON_COMPLETED,
    REASON_CREATING,
    REASON_ERROR,
    REASON_OOM,
    REASON_START_ERROR,
    REASON_UNKNOWN,
    UNKNOWN_EXIT,
    ContainerState,
)
from cotenant_node_executor.runtime.launch import CANNOT_RUN
from cotenant_node_executor.targets.interface import CgroupDriver, Knob

MAX_MESSAGE = 1024


def container_state(
    container: str, files: AttemptFiles, running: bool, out_of_memory: Callable[[], bool]
) -> ContainerState:
    """Return the state of one attempt. `out_of_memory`: whether the OOM killer acted in its group since it started."""
    # The files appear while they are read: status after `running` was determined, and each before the one that is written
    # earlier, so that a container that has ended has a start, and one with a pid too: it is not read again while it runs.
    exit_code = files.number("status")
    pid = files.number("pid") or 0
    started_at = files.changed_at("pid") if pid else None
    if exit_code is None and running:
        return ContainerState(
            container, files.attempt, pid=pid, started_at=started_at, reason="" if pid else REASON_CREATING
        )
    if exit_code is None:
        exit_code, reason = UNKNOWN_EXIT, REASON_UNKNOWN
        files.file("status").write_text(f"{UNKNOWN_EXIT}\n", encoding="ascii")
        files.file("error").write_text("the container's end was not observed", encoding="ascii")
    else:
        reason = _reason(files, exit_code, out_of_memory)
    return ContainerState(
        container,
        files.attempt,
        started_at=started_at,
        finished_at=files.changed_at("status"),
        exit_code=exit_code,
        reason=reason,
        message=files.text("error")[:MAX_MESSAGE],
        backoff_seconds=files.number("wait") or 0,
    )


def _reason(files: AttemptFiles, exit_code: int, out_of_memory: Callable[[], bool]) -> str:
    if exit_code == 0:
        return REASON_COMPLETED
    error = files.text("error")
    if exit_code in (CANNOT_RUN, CANNOT_RUN + 1) and error:
        return REASON_START_ERROR
    if exit_code == UNKNOWN_EXIT and error:
        return REASON_UNKNOWN
    if exit_code == UNKNOWN_EXIT and out_of_memory():
        return REASON_OOM
    return REASON_ERROR


def oom_kills(driver: CgroupDriver, group: str) -> int:
    """Number of OOM kills in this group, from memory.oom_control on v1 and memory.events on v2."""
    path = driver.path(group, Knob.MEMORY_LIMIT) if group else None
    if path is None:
        return 0
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for line in path.with_name(name).read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.isdigit():
                    return int(value)
    return 0
