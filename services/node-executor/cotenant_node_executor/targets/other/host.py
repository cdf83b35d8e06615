"""The accessors of this host, by kind of place."""

from __future__ import annotations

from cotenant_node_executor.targets.address import ResctrlGroup, Sysctl, SysFile, TcClass, Thread
from cotenant_node_executor.targets.other.accessors import Accessor, SysctlAccessor, SysFileAccessor
from cotenant_node_executor.targets.other.resctrl import ResctrlAccessor, ThreadsOf, no_threads
from cotenant_node_executor.targets.other.threads import ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor


def host_accessors(threads_of: ThreadsOf = no_threads) -> dict[type, Accessor]:
    """Return one accessor for each kind of place. `threads_of`: the threads of a control group of the executor."""
    return {
        Sysctl: SysctlAccessor(),
        SysFile: SysFileAccessor(),
        Thread: ThreadAccessor(),
        ResctrlGroup: ResctrlAccessor(threads_of=threads_of),
        TcClass: TrafficAccessor(),
    }
