"""The devices of pods' volumes, as the containers that mount them see them.

In: for each pod that asks, the paths at which its containers mount volumes; the processes of a control group. Out: the device
of each volume by the pod's uid, "" for a volume that is on no block device. A container's own table of mounts
(/proc/<pid>/mountinfo) names the device whatever claim, driver or kind of volume it is.

A volume is looked for at each call until one of its containers runs, and then known for as long as its pod asks. Bound: the
pods that ask; one table a container and call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cotenant_node_executor.targets.disks import NO_DEVICES, MountPaths, VolumeDevices
from cotenant_node_executor.targets.other.storage import DEVICES, mount_sources


class VolumeFinder:
    """Finds the devices of one node's pods."""

    def __init__(self, pids: Callable[[str], list[int]], proc: Path = Path("/proc")) -> None:
        """`pids`: the processes of a control group, the container's first one first."""
        self._pids = pids
        self._proc = proc
        self.found: VolumeDevices = NO_DEVICES
        """The same object while nothing changed."""

    def look(self, asked: Mapping[str, MountPaths]) -> None:
        """Look for the volumes that are not known yet. `asked`: by the pod's uid."""
        found = {uid: self._of_pod(paths, self.found.get(uid, {})) for uid, paths in asked.items()}
        if found != self.found:
            self.found = found

    def _of_pod(self, paths: MountPaths, known: Mapping[str, str]) -> Mapping[str, str]:
        found = dict(known)
        for group, volumes in paths.items():
            if all(volume in found for volume in volumes.values()):
                continue
            pids = self._pids(group)
            sources = mount_sources(self._proc / str(pids[0]) / "mountinfo") if pids else {}
            for path, volume in volumes.items():
                if path in sources:
                    found.setdefault(volume, sources[path] if sources[path].startswith(DEVICES) else "")
        return found
