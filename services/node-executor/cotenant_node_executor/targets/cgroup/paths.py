"""Directory names below the cgroup root as kubelet lays them out, with the systemd driver and with cgroupfs.

| | systemd | cgroupfs |
|---|---|---|
| root | kubepods.slice | kubepods |
| QoS directory (none for Guaranteed) | kubepods-burstable.slice | burstable |
| pod | kubepods-burstable-pod<uid>.slice, "-" of the uid as "_" | pod<uid> |
| container | cri-containerd-<id>.scope | <id> |

Pure text rules. Raises ValueError with the expected form.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from posixpath import join, normpath

import msgspec

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, CgroupVersion


class KubeletCgroupDriver(Enum):
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


_ROOT = {KubeletCgroupDriver.SYSTEMD: "kubepods.slice", KubeletCgroupDriver.CGROUPFS: "kubepods"}
_TIER = {KubeQoS.GUARANTEED: ROOT_GROUP, KubeQoS.BURSTABLE: BURSTABLE, KubeQoS.BEST_EFFORT: BESTEFFORT}
_SCOPE_PREFIX = {"docker": "docker-", "containerd": "cri-containerd-", "pouch": "pouch-", "cri-o": "crio-"}
_PARSED_SCOPE_PREFIXES = ("docker-", "cri-containerd-", "crio-")  # pouch scopes are created but never parsed


def tier_dir(layout: KubeletCgroupDriver, qos: KubeQoS) -> str:
    """The QoS directory, with the root as prefix; the root itself for Guaranteed."""
    tier = _TIER[qos]
    if not tier:
        return _ROOT[layout]
    return join(_ROOT[layout], tier if layout is KubeletCgroupDriver.CGROUPFS else f"kubepods-{tier}.slice")


def pod_dir(layout: KubeletCgroupDriver, qos: KubeQoS, uid: str) -> str:
    if layout is KubeletCgroupDriver.CGROUPFS:
        return join(tier_dir(layout, qos), f"pod{uid}")
    tier = _TIER[qos]
    prefix = f"kubepods-{tier}-pod" if tier else "kubepods-pod"
    return join(tier_dir(layout, qos), f"{prefix}{uid.replace('-', '_')}.slice")


def split_container_id(container_id: str) -> tuple[str, str]:
    runtime, separator, number = container_id.partition("://")
    if not separator or runtime not in _SCOPE_PREFIX:
        raise ValueError(f"container id {container_id!r}: expected one of {', '.join(_SCOPE_PREFIX)} then ://<id>")
    return runtime, number


def container_dir(layout: KubeletCgroupDriver, container_id: str) -> str:
    runtime, number = split_container_id(container_id)
    return number if layout is KubeletCgroupDriver.CGROUPFS else f"{_SCOPE_PREFIX[runtime]}{number}.scope"


def pod_uid_of_dir(layout: KubeletCgroupDriver, name: str) -> str:
    """The uid in a pod directory's name. On systemd underscores stay: they may have been "-" or "_"."""
    if layout is KubeletCgroupDriver.CGROUPFS:
        if name.startswith("pod"):
            return name.removeprefix("pod")
    elif name.endswith(".slice"):
        for prefix in ("kubepods-besteffort-pod", "kubepods-burstable-pod", "kubepods-pod"):
            if name.startswith(prefix):
                return name.removeprefix(prefix).removesuffix(".slice")
    raise ValueError(f"{name!r} is not the directory of a pod in the {layout.value} layout")


def container_number_of_dir(layout: KubeletCgroupDriver, name: str) -> str:
    if layout is KubeletCgroupDriver.CGROUPFS:
        return name
    for prefix in _PARSED_SCOPE_PREFIXES:
        if name.startswith(prefix) and name.endswith(".scope"):
            return name.removeprefix(prefix).removesuffix(".scope")
    raise ValueError(f"{name!r} is not the directory of a container in the systemd layout")


def kube_qos_of_dir(path: str) -> KubeQoS:
    """The Kubernetes QoS that a path implies, of kubelet's or of the executor's own groups."""
    if BESTEFFORT in path:
        return KubeQoS.BEST_EFFORT
    return KubeQoS.BURSTABLE if BURSTABLE in path else KubeQoS.GUARANTEED


class HostApplicationPath(msgspec.Struct, frozen=True):
    base: str = ""  # CgroupRoot, Kubepods, KubepodsBurstable, KubepodsBesteffort
    parent_dir: str = ""
    relative_path: str = ""


_LATENCY_SENSITIVE = ("LSE", "LSR", "LS")


def host_application_dir(layout: KubeletCgroupDriver, name: str, qos: str, path: HostApplicationPath | None) -> str:
    """A host application's directory, never outside the mount; the default parent applies only without a path."""
    bases = {
        "Kubepods": _ROOT[layout],
        "KubepodsBurstable": tier_dir(layout, KubeQoS.BURSTABLE),
        "KubepodsBesteffort": tier_dir(layout, KubeQoS.BEST_EFFORT),
    }
    parts: tuple[str, ...]
    if path is not None:
        parts = (bases.get(path.base, ""), path.parent_dir.strip("/"), path.relative_path.strip("/"))
    elif qos in _LATENCY_SENSITIVE:
        parts = ("host-latency-sensitive", name.strip("/"))
    else:
        parts = ("host-best-effort" if qos == "BE" else "", name.strip("/"))
    return normpath(join("/", *parts)).lstrip("/")


def detect_layout(
    version: CgroupVersion, existing: Iterable[str], kubelet: KubeletCgroupDriver | None = None
) -> KubeletCgroupDriver:
    """``existing``: directories relative to the cgroup root. systemd if both layouts exist or none is known."""
    prefix = "cpu/" if version is CgroupVersion.V1 else ""
    there = set(existing)
    for layout in (KubeletCgroupDriver.SYSTEMD, KubeletCgroupDriver.CGROUPFS):
        if prefix + _ROOT[layout] in there:
            return layout
    return kubelet or KubeletCgroupDriver.SYSTEMD
