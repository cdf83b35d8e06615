"""Block devices by the names that users give: disks, partitions, volume groups, mount points.

In: the tables that `other.storage` reads. Out: the number `<major>:<minor>` of the disk below. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

MountPaths: TypeAlias = Mapping[str, Mapping[str, str]]
"""Of a pod: by a container's control group, the name of a volume by its path in the container."""
VolumeDevices: TypeAlias = Mapping[str, Mapping[str, str]]
"""By the pod's uid, the device of a volume by the volume's name, empty for one that is on no block device."""
NO_DEVICES: VolumeDevices = {}


class UnknownDiskError(ValueError):
    """No disk of this machine is meant."""


class Storage(Struct, frozen=True):
    """This machine's devices. `disks`: number by path of the disk; `partitions`: disk by path of the partition;
    `volume_groups`: disk by name of the group; `mappers`: volume group by path of the logical volume; `mounts`: device by
    mount point."""

    disks: Mapping[str, str] = {}
    partitions: Mapping[str, str] = {}
    volume_groups: Mapping[str, str] = {}
    mappers: Mapping[str, str] = {}
    mounts: Mapping[str, str] = {}

    def of_device(self, name: str) -> str:
        """Return the number of a disk, or of the disk of a partition. Raises UnknownDiskError."""
        number = self.disks.get(self.partitions.get(name, name))
        if number is None:
            raise UnknownDiskError(f"{name!r} is no disk or partition of this machine")
        return number

    def of_volume_group(self, name: str) -> str:
        """Return the number of the disk of a volume group. Raises UnknownDiskError."""
        number = self.disks.get(self.volume_groups.get(name, ""))
        if number is None:
            raise UnknownDiskError(f"volume group {name!r} is on no disk of this machine")
        return number

    def of_mount(self, path: str) -> str:
        """Return the number of the disk below a mount point. Raises UnknownDiskError."""
        device = self.mounts.get(path)
        if device is None:
            raise UnknownDiskError(f"nothing is mounted at {path}")
        return self.of_source(device)

    def of_source(self, device: str) -> str:
        """Return the number of the disk below what is mounted: a disk, a partition or a logical volume. Raises
        UnknownDiskError."""
        group = self.mappers.get(device)
        return self.of_volume_group(group) if group is not None else self.of_device(device)
