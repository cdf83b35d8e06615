"""The control groups of host applications.

In: an application of the node SLO, the driver. Out: its directory below the mount. `Kubepods` and the tiers below it mean a
kubelet's directories where there is one on this machine, and otherwise the executor's own: there `hadoop-yarn` below the
best-effort tier is a group beside the best-effort pods.
"""

from __future__ import annotations

from posixpath import join

from cotenant_node_executor.sampling.wanted import HostApplication
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver, detect_layout, host_application_dir
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, Stat

_KUBELETS = ("kubepods.slice", "kubepods")


def kubelet_layout(driver: CgroupDriver) -> KubeletCgroupDriver | None:
    """Return how a kubelet on this machine lays its directories out; None where there is none."""
    prefix = "cpu/" if driver.version is CgroupVersion.V1 else ""
    there = []
    for name in _KUBELETS:
        path = driver.host_stat_path(name, Stat.CPU_STAT)
        if path is not None and path.parent.is_dir():
            there.append(prefix + name)
    return detect_layout(driver.version, there) if there else None


def refusal(directory: str) -> str:
    """Return why nothing is measured at an application's directory; empty for one that may exist."""
    if not directory:
        return "its path is the root of all control groups"
    return "its path has a NUL" if "\0" in directory else ""


def application_directory(application: HostApplication, layout: KubeletCgroupDriver | None, own_root: str) -> str:
    """Return the directory; `layout`: a kubelet's, None where there is none; `own_root`: of the executor, below the mount."""
    own = application.own_group
    if layout is None and own is not None:
        return join(own_root, own)
    return host_application_dir(layout or KubeletCgroupDriver.SYSTEMD, application.name, application.qos, application.path)
