"""The accessors of this host, by kind of place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cotenant_node_executor.targets.address import Processes, ResctrlGroup, Sysctl, TcClass, Thread
from cotenant_node_executor.targets.other.accessors import Accessor, ResctrlAccessor, SysctlAccessor
from cotenant_node_executor.targets.other.core_groups import CoreGroupAccessor
from cotenant_node_executor.targets.other.threads import SchedulingCalls, ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor


def host_accessors(pids_of: Callable[[str], Sequence[int]]) -> dict[type, Accessor]:
    """Return one accessor for each kind of place; `pids_of`: the processes of a control group below the executor's root."""
    calls = SchedulingCalls()
    return {
        Sysctl: SysctlAccessor(),
        Thread: ThreadAccessor(calls),
        Processes: CoreGroupAccessor(calls, pids_of),
        ResctrlGroup: ResctrlAccessor(),
        TcClass: TrafficAccessor(),
    }
