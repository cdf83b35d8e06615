"""The accessors of this host, by kind of place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cotenant_node_executor.targets.address import (
    EgressClass,
    OomScore,
    Processes,
    RealtimeThreads,
    ResctrlGroup,
    Sysctl,
    SysFile,
    TcClass,
    TcTree,
    TerwayFile,
    Thread,
)
from cotenant_node_executor.targets.other.accessors import Accessor, SysctlAccessor, SysFileAccessor
from cotenant_node_executor.targets.other.core_groups import CoreGroupAccessor
from cotenant_node_executor.targets.other.egress import EgressAccessor
from cotenant_node_executor.targets.other.oom_scores import OomScoreAccessor
from cotenant_node_executor.targets.other.realtime import ClassGiver, RealtimeAccessor
from cotenant_node_executor.targets.other.resctrl import ResctrlAccessor, ThreadsOf, no_threads
from cotenant_node_executor.targets.other.terway import TerwayAccessor
from cotenant_node_executor.targets.other.threads import SchedulingCalls, ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor
from cotenant_node_executor.targets.other.traffic_tree import TrafficTreeAccessor


def host_accessors(
    core_groups: CoreGroupAccessor,
    threads_of: ThreadsOf = no_threads,
    pids_of: ThreadsOf = no_threads,
    realtime: ClassGiver | None = None,
    unified: Callable[[str], Path | None] = lambda _group: None,
) -> dict[type, Accessor]:
    """Return one accessor for each kind of place. `core_groups`: the one of processes; `threads_of`, `pids_of`: the threads and
    the processes of a control group of the executor; `realtime`: gives threads the real-time class, if present; `unified`: a
    group's directory in the cgroup v2 tree."""
    return {
        Sysctl: SysctlAccessor(),
        SysFile: SysFileAccessor(),
        Thread: ThreadAccessor(SchedulingCalls()),
        Processes: core_groups,
        OomScore: OomScoreAccessor(pids_of),
        ResctrlGroup: ResctrlAccessor(threads_of=threads_of),
        RealtimeThreads: RealtimeAccessor(realtime),
        TcClass: TrafficAccessor(),
        TcTree: TrafficTreeAccessor(),
        EgressClass: EgressAccessor(unified),
        TerwayFile: TerwayAccessor(),
    }
