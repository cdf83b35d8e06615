"""Host applications: processes outside of pods that the NodeSLO names, with their control groups.

In: `hostApplications` of the NodeSLO. Out: each with its class, and its control group where that is below the executor's own
root. Of applications of the same name the last one counts. Only what is below that root is ever written to.

    base Kubepods, KubepodsBurstable, KubepodsBesteffort: the root, `burstable`, `besteffort` / parentDir / relativePath
    any other base, and an application without cgroupPath: a directory of the machine, which is measured and left alone

Source: host applications, koordlet rule. YARN's containers are the application `yarn-task` below `besteffort`.
"""

from __future__ import annotations

from posixpath import join, normpath

from msgspec import Struct

from cotenant.events.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.pod_view import BESTEFFORT, BURSTABLE
from cotenant_node_executor.strategies.sections import section
from cotenant_node_executor.targets.paths import HostApplicationPath, Layout, host_application_dir

_OWN_BASES = {"Kubepods": "", "KubepodsBurstable": BURSTABLE, "KubepodsBesteffort": BESTEFFORT}


class CgroupPath(Struct, frozen=True, rename="camel"):
    """Where an application's control group is."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(Struct, frozen=True, rename="camel"):
    """One application."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None

    @property
    def base(self) -> str:
        return self.cgroup_path.base if self.cgroup_path is not None else ""

    @property
    def own_group(self) -> str | None:
        """Its control group below the executor's root; None where it is elsewhere."""
        path = self.cgroup_path
        if path is None or path.base not in _OWN_BASES:
            return None
        tier = _OWN_BASES[path.base]
        inner = normpath(join("/", path.parent_dir.strip("/"), path.relative_path.strip("/"))).lstrip("/")
        return join(tier, inner) if inner else None

    def directory(self, root: str) -> str:
        """Its directory below the mount, `root` being the executor's."""
        own = self.own_group
        if own is not None:
            return join(root, own)
        path = self.cgroup_path
        stated = None if path is None else HostApplicationPath(path.base, path.parent_dir, path.relative_path)
        return host_application_dir(Layout.CGROUPFS, self.name, self.qos, stated)


class _Spec(Struct, frozen=True, rename="camel"):
    host_applications: tuple[HostApplication, ...] = ()


_spec = section("", _Spec)


def host_applications(slo: NodeSLORendered | None) -> tuple[HostApplication, ...]:
    """The applications by name."""
    return _by_name(slo) if slo is not None else ()


@by_identity
def _by_name(slo: NodeSLORendered) -> tuple[HostApplication, ...]:
    found = _spec(slo)
    named = {each.name: each for each in found.host_applications if each.name} if found is not None else {}
    return tuple([named[name] for name in sorted(named)])
