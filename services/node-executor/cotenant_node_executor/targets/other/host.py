"""The accessors of this host, by kind of place."""

from __future__ import annotations

from cotenant_node_executor.targets.address import ResctrlGroup, Sysctl, TcClass, Thread
from cotenant_node_executor.targets.other.accessors import Accessor, ResctrlAccessor, SysctlAccessor
from cotenant_node_executor.targets.other.threads import ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor


def host_accessors() -> dict[type, Accessor]:
    """Return one accessor for each kind of place."""
    return {Sysctl: SysctlAccessor(), Thread: ThreadAccessor(), ResctrlGroup: ResctrlAccessor(), TcClass: TrafficAccessor()}
