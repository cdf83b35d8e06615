"""The directories of pods and containers below kubelet's root, as they come and go.

In: the directory that holds `kubepods.slice` or `kubepods`, the layout if it is given. Out: the pods' directories with the
directories of their containers. Directories are watched by inotify: one that changed is read again, others are not.
Every RESCAN everything is read once more, since an event may be lost; without a watch (if the kernel refuses it) only this.

A directory counts once it has existed for SETTLE: kubelet and the runtime create it first and write their own values into it
right afterwards, which must neither be recorded as former values nor overwrite ours. Directories that exist at the start
count at once.

Bound: MOST_PODS directories of pods, the first by path; the rest is named in `problems`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.paths import (
    KubeletCgroupDriver,
    detect_layout,
    kube_qos_of_dir,
    pod_uid_of_dir,
    tier_dir,
)
from cotenant_node_executor.targets.interface import CgroupVersion
from cotenant_node_executor.targets.kubelet.inotify import DirectoryWatches

SETTLE_NS = 500_000_000
RESCAN_NS = 30_000_000_000
MOST_PODS = 2000


class FoundContainer(Struct, frozen=True):
    """A directory in that of a pod. `inode` distinguishes a new directory of the same name from the former one."""

    name: str
    inode: int


class FoundPod(Struct, frozen=True):
    """A pod's directory below `kubepods.slice` or `kubepods`. `uid`: as the directory has it; on systemd with "_" for "-"."""

    uid: str
    qos: KubeQoS
    directory: str
    """Below the directory that holds kubelet's root."""
    inode: int
    containers: tuple[FoundContainer, ...]
    """Those that have settled, by name."""


class Kubepods:
    """Kubelet's directories of one node, in one hierarchy."""

    def __init__(
        self, top: Path, *, layout: KubeletCgroupDriver | None = None, fallback: KubeletCgroupDriver | None = None
    ) -> None:
        """`top`: the directory that holds kubelet's root; `layout`: None to find out by what is there, which for a tree that
        holds neither is `fallback`."""
        self._top = top
        self._told, self._fallback = layout, fallback
        self.layout: KubeletCgroupDriver | None = None
        """None while there is no directory of kubelet's."""
        self.pods: Mapping[str, FoundPod] = {}
        """By directory; the same object while nothing changes."""
        self.problems: tuple[str, ...] = ()
        """Directories that cannot be read or watched, and those beyond the bound."""
        self._watches = DirectoryWatches()
        self._refused: dict[str, str] = {}
        self._children: dict[str, dict[str, int]] = {}
        """Inodes of the directories in each directory that was read, by name."""
        self._since: dict[tuple[str, int], int] = {}
        """When each directory was first seen, by path and inode."""
        self._settles_ns: int | None = None
        """When the next directory settles."""
        self._scanned_ns: int | None = None

    def fileno(self) -> int:
        """A descriptor that is readable when directories came or went."""
        return self._watches.fileno()

    @property
    def unsettled(self) -> bool:
        """Whether a directory is too young to count."""
        return self._settles_ns is not None

    def close(self) -> None:
        """Stop all watches."""
        self._watches.close()

    def look(self, now_ns: int) -> bool:
        """Read changed directories; whether `pods` or `problems` have changed."""
        changed = self._watches.changed()
        whole = self._scanned_ns is None or self._watches.lost or now_ns - self._scanned_ns >= RESCAN_NS
        settled = self._settles_ns is not None and now_ns >= self._settles_ns
        if not (changed or whole or settled):
            return False
        first = self._scanned_ns is None
        if whole:
            self._scanned_ns, self._watches.lost = now_ns, False
            self._children.clear()
            self._refused.clear()
        for path in changed:
            self._children.pop(os.path.relpath(path, self._top), None)
        return self._read_all(now_ns, first)

    def _read_all(self, now_ns: int, first: bool) -> bool:
        """Build the pods from known directories and those that must be read again."""
        before, layout_before = (self.pods, self.problems), self.layout
        existing = [name for name in self._list(".") if name in ("kubepods.slice", "kubepods")]
        self.layout = self._layout_of(existing)
        seen: dict[tuple[str, int], int] = {}
        found: dict[str, FoundPod] = {}
        read = {"."}
        beyond = 0
        self._settles_ns = None
        # At the first scan, and when kubelet's root itself is new, the age of a directory is unknown.
        born = now_ns - SETTLE_NS if first else now_ns
        for parent in self._tiers():
            read.add(parent)
            for name, inode in sorted(self._list(parent).items()):
                path = f"{parent}/{name}"
                uid = self._uid_of(name)
                if uid is None:
                    continue
                if len(found) >= MOST_PODS:
                    beyond += 1
                    continue
                read.add(path)
                containers = self._list(path)
                if not self._counts(path, inode, born, now_ns, seen):
                    continue
                settled = [
                    FoundContainer(each, own)
                    for each, own in sorted(containers.items())
                    if self._counts(f"{path}/{each}", own, born, now_ns, seen)
                ]
                found[path] = FoundPod(uid, kube_qos_of_dir(parent), path, inode, (*settled,))
        self._since = seen
        for gone in self._children.keys() - read:
            del self._children[gone]
            self._watches.forget(str(self._top / gone))
        problems = [f"{path}: {why}" for path, why in sorted(self._refused.items())]
        if beyond:
            problems.append(f"{beyond} pods' directories beyond the first {MOST_PODS} are not read")
        self.problems = (*problems,)
        if found != self.pods:
            self.pods = found
        return (self.pods, self.problems) != before or self.layout is not layout_before

    def _counts(self, path: str, inode: int, born: int, now_ns: int, seen: dict[tuple[str, int], int]) -> bool:
        since = seen[path, inode] = self._since.get((path, inode), born)
        due = since + SETTLE_NS
        if now_ns >= due:
            return True
        self._settles_ns = due if self._settles_ns is None else min(self._settles_ns, due)
        return False

    def _layout_of(self, existing: Iterable[str]) -> KubeletCgroupDriver | None:
        there = list(existing)
        if self._told is not None:
            return self._told if tier_dir(self._told, KubeQoS.GUARANTEED) in there else None
        return detect_layout(CgroupVersion.V2, there, self._fallback) if there else None

    def _tiers(self) -> list[str]:
        """The directories that hold pods; those of a tier that is missing are left out."""
        if self.layout is None:
            return []
        root = tier_dir(self.layout, KubeQoS.GUARANTEED)
        there = self._list(root)
        paths = [tier_dir(self.layout, qos) for qos in KubeQoS]
        return [path for path in paths if path == root or path.rpartition("/")[2] in there]

    def _uid_of(self, name: str) -> str | None:
        assert self.layout is not None, "only called below kubelet's root"
        try:
            return pod_uid_of_dir(self.layout, name)
        except ValueError:
            return None

    def _list(self, path: str) -> dict[str, int]:
        """The directories in a directory, with their inodes; read once until it changes."""
        known = self._children.get(path)
        if known is not None:
            return known
        full = str(self._top / path) if path != "." else str(self._top)
        try:
            # The watch is set before reading, so that a directory created in between is noticed.
            self._watches.watch(full)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._refused[path] = f"is not watched: {error.strerror}"
        try:
            with os.scandir(full) as entries:
                found = {entry.name: entry.inode() for entry in entries if entry.is_dir(follow_symlinks=False)}
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._refused[path] = f"cannot be read: {error.strerror}"
            found = {}
        self._children[path] = found
        return found
