"""The accessors of this host, by kind of place."""

from __future__ import annotations

from cotenant_node_executor.targets.address import (
    OomScore,
    Processes,
    RealtimeThreads,
    ResctrlGroup,
    Sysctl,
    SysFile,
    TcClass,
    Thread,
)
from cotenant_node_executor.targets.other.accessors import Accessor, SysctlAccessor, SysFileAccessor
from cotenant_node_executor.targets.other.core_groups import CoreGroupAccessor
from cotenant_node_executor.targets.other.oom_scores import OomScoreAccessor
from cotenant_node_executor.targets.other.realtime import ClassGiver, RealtimeAccessor
from cotenant_node_executor.targets.other.resctrl import ResctrlAccessor, ThreadsOf, no_threads
from cotenant_node_executor.targets.other.threads import SchedulingCalls, ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor


def host_accessors(
    threads_of: ThreadsOf = no_threads, pids_of: ThreadsOf = no_threads, realtime: ClassGiver | None = None
) -> dict[type, Accessor]:
    """Return one accessor for each kind of place. `threads_of`, `pids_of`: the threads and the processes of a control group
    of the executor; `realtime`: who gives the real-time class, if anybody."""
    calls = SchedulingCalls()
    return {
        Sysctl: SysctlAccessor(),
        SysFile: SysFileAccessor(),
        Thread: ThreadAccessor(calls),
        Processes: CoreGroupAccessor(calls, pids_of),
        OomScore: OomScoreAccessor(pids_of),
        ResctrlGroup: ResctrlAccessor(threads_of=threads_of),
        RealtimeThreads: RealtimeAccessor(realtime),
        TcClass: TrafficAccessor(),
    }
