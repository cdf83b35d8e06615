"""Metrics that the node SLO requires beside node and pods: host applications, page cache, cold memory.

In: the node SLO. Out: ``SamplingOptions``. A spec of another form than Koordinator's asks for no host applications.
Bound: MOST_APPLICATIONS.
"""

from __future__ import annotations

from posixpath import join, normpath

import msgspec

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.sampling.latency.readings import AskedService
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP

MOST_APPLICATIONS = 32
OWN_TIERS = {"Kubepods": ROOT_GROUP, "KubepodsBurstable": BURSTABLE, "KubepodsBesteffort": BESTEFFORT}
"""The executor's group for each base of a path that means the pods' groups."""
WITHOUT_PAGE_CACHE, WITH_HOT_PAGE_CACHE = "usageWithoutPageCache", "usageWithHotPageCache"


class HostApplication(msgspec.Struct, frozen=True):
    """An application outside pods. ``path``: of its control group; None for the default of its QoS class."""

    name: str
    qos: str = ""
    priority: str = ""
    path: HostApplicationPath | None = None

    @property
    def base(self) -> str:
        return self.path.base if self.path is not None else ""

    @property
    def own_group(self) -> str | None:
        """Its control group below the executor's root, from which no path may escape; None if it is elsewhere."""
        path = self.path
        if path is None or path.base not in OWN_TIERS:
            return None
        inner = normpath(join("/", path.parent_dir.strip("/"), path.relative_path.strip("/"))).lstrip("/")
        return join(OWN_TIERS[path.base], inner) if inner else None


class SamplingOptions(msgspec.Struct, frozen=True):
    """``page_cache``: beside the working set; ``cold_memory``: as well; ``threads``: the CPU time of busy pods' threads;
    ``spikes``: the services' CPU between two samples."""

    host_applications: tuple[HostApplication, ...] = ()
    page_cache: bool = False
    cold_memory: bool = False
    threads: bool = False
    spikes: bool = False
    services: tuple[AskedService, ...] = ()
    """Pods that report their own latency, by group."""


class _Path(msgspec.Struct, frozen=True, rename="camel"):
    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class _Application(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    qos: str = ""
    priority: str = ""
    cgroup_path: _Path | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    host_applications: list[_Application] | None = None


HOST_APPLICATIONS = _Spec
"""The shape of the member that is read here."""
_DECODER = msgspec.json.Decoder(_Spec)


def wanted_by(slo: NodeSLORendered | None) -> SamplingOptions:
    """Return what a node SLO requires to be measured."""
    return _wanted_by(slo) if slo is not None else SamplingOptions()


@by_identity
def _wanted_by(slo: NodeSLORendered) -> SamplingOptions:
    try:
        listed = _DECODER.decode(slo.spec).host_applications or ()
    except (msgspec.DecodeError, RecursionError):
        listed = ()
    applications = {each.name: _application(each) for each in listed if each.name}
    policy = slo.memory_collect_policy
    return SamplingOptions(
        tuple(applications[name] for name in sorted(applications)[:MOST_APPLICATIONS]),
        page_cache=policy != WITHOUT_PAGE_CACHE,
        cold_memory=policy == WITH_HOT_PAGE_CACHE,
        threads=any(each.enable and each.group_identity > 0 for each in (slo.ls_identity, slo.lsr_identity)),
        spikes=slo.enable,
    )


def _application(given: _Application) -> HostApplication:
    path = given.cgroup_path
    where = HostApplicationPath(path.base, path.parent_dir, path.relative_path) if path is not None else None
    return HostApplication(given.name, given.qos, given.priority, where)
