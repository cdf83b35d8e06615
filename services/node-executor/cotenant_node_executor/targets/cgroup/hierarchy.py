"""The machine's cgroup hierarchies, and this process's groups in them.

In: the texts of /proc/self/mountinfo and /proc/self/cgroup. Out: the mount of each v1 controller, the v2 mount, and the
version that has the cpu controller. A hybrid machine (v1 controllers and a v2 tree without controllers) counts as v1; its v2
tree is used for pressure and cgroup.kill only.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cotenant_node_executor.targets.interface import CgroupVersion

V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer")
V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
_V2 = "cgroup2"
_DELEGATION_ATTRIBUTES = ("trusted.delegate", "user.delegate")  # set by systemd on a unit with Delegate=


class Hierarchies(msgspec.Struct, frozen=True):
    v1: dict[str, Path]  # controller -> mount point
    v2: Path | None
    v2_controllers: tuple[str, ...]
    own: dict[str, str]  # controller, or "" for v2 -> this process's group, without a leading slash

    @property
    def version(self) -> CgroupVersion | None:
        """None where no hierarchy has the cpu controller."""
        if "cpu" in self.v1:
            return CgroupVersion.V1
        return CgroupVersion.V2 if self.v2 is not None and "cpu" in self.v2_controllers else None


def _unescape(path: str) -> str:
    return path.encode().decode("unicode_escape") if "\\" in path else path


def parse_mountinfo(content: str) -> tuple[dict[str, Path], Path | None]:
    """The first mount of each controller, and of cgroup2. A mount of the whole tree is preferred to a bind mount of a part."""
    whole: dict[str, Path] = {}
    part: dict[str, Path] = {}
    for line in content.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        names = [_V2] if kind[0] == "cgroup2" else [name for name in kind[2].split(",") if name in V1_CONTROLLERS]
        for name in names:
            (whole if fields[3] == "/" else part).setdefault(name, Path(_unescape(fields[4])))
    found = part | whole
    v2 = found.pop(_V2, None)
    return {name: found[name] for name in V1_CONTROLLERS if name in found}, v2


def parse_own_groups(content: str) -> dict[str, str]:
    own: dict[str, str] = {}
    for line in content.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path.strip("/")
    return own


def read_hierarchies(proc: Path = Path("/proc")) -> Hierarchies:
    v1, v2 = parse_mountinfo((proc / "self/mountinfo").read_text())
    controllers: tuple[str, ...] = ()
    if v2 is not None:
        controllers = tuple((v2 / "cgroup.controllers").read_text().split())
    return Hierarchies(v1, v2, controllers, parse_own_groups((proc / "self/cgroup").read_text()))


def delegated_group(mount: Path, own: str) -> str | None:
    """The nearest group at or above this process's own that systemd has marked as delegated, or None."""
    path = own
    while path:
        if _marked(mount / path):
            return path
        path = path.rpartition("/")[0]
    return None


def is_namespace_root(mount: Path) -> bool:
    """Whether the mount shows a part of the machine's v2 tree, as in a container: the real root has no cgroup.type."""
    return (mount / "cgroup.type").exists()


def _marked(directory: Path) -> bool:
    for attribute in _DELEGATION_ATTRIBUTES:
        try:
            if os.getxattr(directory, attribute) == b"1":
                return True
        except OSError:  # no such attribute, or not readable: not a sign of delegation
            continue
    return False
