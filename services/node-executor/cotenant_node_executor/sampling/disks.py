"""Disks, their partitions and volumes, and mount points, from the output of `lsblk`, `vgs`, `lvs` and `findmnt`.

In: the texts. Out: which disk a partition, a volume group and a mount point belong to. Source: koordlet's nodestorageinfo
collector. A partition is of the disk whose minor number is its own without the last four bits, so a disk's line must come
before its partitions'. A volume group on several devices belongs to no single disk. A line of another form raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from cotenant.events.node.topology import Disk

LSBLK = ("lsblk", "-P", "-o", "NAME,TYPE,MAJ:MIN")
VGS = ("vgs", "--readonly", "--noheadings", "--options", "vg_name,pv_count,pv_name")
LVS = ("lvs", "--readonly", "--noheadings", "--options", "lv_name,vg_name")
FINDMNT = ("findmnt", "-P", "-o", "TARGET,SOURCE")

_PAIR = re.compile(r'([A-Z:_-]+)="([^"]*)"')
_MINORS_OF_A_DISK = 16


class Devices(msgspec.Struct, frozen=True):
    """`disk_number`: major:minor by disk. `partition_disk`: disk by partition."""

    disk_number: dict[str, str]
    partition_disk: dict[str, str]


def _lines(content: str) -> list[str]:
    return [line.strip() for line in content.split("\n") if line.strip()]


def _pairs(line: str, keys: Sequence[str], what: str) -> list[str]:
    found = _PAIR.findall(line)
    if [key.replace("MAJ_MIN", "MAJ:MIN") for key, _ in found] != list(keys):
        raise ValueError(f"{what}: {line!r} is not {' '.join(keys)}")
    return [value for _, value in found]


def parse_lsblk(content: str) -> Devices:
    """Return disks and partitions."""
    numbers: dict[str, str] = {}
    disks: dict[str, str] = {}
    partitions: dict[str, str] = {}
    for line in _lines(content):
        name, kind, number = _pairs(line, ("NAME", "TYPE", "MAJ:MIN"), "lsblk")
        major, _, minor = number.partition(":")
        if not (major.isdecimal() and minor.isdecimal()):
            raise ValueError(f"lsblk: {number!r} is not major:minor")
        if kind == "disk":
            numbers[f"/dev/{name}"] = number
            disks[number] = f"/dev/{name}"
        elif kind == "part":
            disk = disks.get(f"{major}:{int(minor) - int(minor) % _MINORS_OF_A_DISK}")
            if disk is not None:
                partitions[f"/dev/{name}"] = disk
    return Devices(numbers, partitions)


def parse_vgs(content: str, devices: Devices) -> dict[str, str]:
    """Return the disk of each volume group that lies on one device."""
    found: dict[str, str] = {}
    for line in _lines(content):
        words = line.split()
        if len(words) != 3 or not words[1].isdecimal():
            raise ValueError(f"vgs: {line!r} is not a name, a number and a device")
        group, count, device = words
        disk = device if device in devices.disk_number else devices.partition_disk.get(device)
        if count == "1" and disk is not None:
            found[group] = disk
    return found


def parse_lvs(content: str) -> dict[str, str]:
    """Return the volume group of each logical volume, by its device: `/dev/mapper/<group>-<volume>`, `-` in names doubled."""
    found: dict[str, str] = {}
    for line in _lines(content):
        words = line.split()
        if len(words) != 2:
            raise ValueError(f"lvs: {line!r} is not a volume and its group")
        volume, group = words
        found[f"/dev/mapper/{group.replace('-', '--')}-{volume.replace('-', '--')}"] = group
    return found


def parse_findmnt(content: str) -> dict[str, str]:
    """Return the source of each mount point."""
    found: dict[str, str] = {}
    for line in _lines(content):
        target, source = _pairs(line, ("TARGET", "SOURCE"), "findmnt")
        found[target] = source
    return found


def with_contents(
    disks: Sequence[Disk],
    devices: Devices,
    group_disk: Mapping[str, str],
    volume_group: Mapping[str, str],
    mounts: Mapping[str, str],
) -> tuple[Disk, ...]:
    """Return the disks with their partitions, volumes and mount points."""

    def disk_of(source: str) -> str:
        if source in devices.disk_number:
            return source
        return devices.partition_disk.get(source) or group_disk.get(volume_group.get(source, ""), "")

    found = []
    for disk in disks:
        path = f"/dev/{disk.name}"
        found.append(
            msgspec.structs.replace(
                disk,
                partitions=tuple(sorted(name for name, owner in devices.partition_disk.items() if owner == path)),
                volume_groups=tuple(sorted(name for name, owner in group_disk.items() if owner == path)),
                mount_points=tuple(sorted(target for target, source in mounts.items() if disk_of(source) == path)),
            )
        )
    return tuple(found)
