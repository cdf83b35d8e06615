"""Reads this machine's disks, partitions, volume groups and mounts.

In: /sys/block, /sys/class/block, /proc/self/mountinfo. Out: `disks.Storage`. Logical volumes are found by the device mapper's
own tables, without a command: a mapped device of LVM has the uuid `LVM-...`, and its name is `<group>-<volume>`, in which a
hyphen of a name is doubled. A volume group counts for the disk of its first volume's first device.
"""

from __future__ import annotations

import re
from pathlib import Path

from cotenant_node_executor.targets.disks import Storage

MAX_MOUNTS = 4096
DEVICES = "/dev/"
"""Where the sources of mounts that are on block devices lie."""
_LVM_NAME = re.compile(r"(?P<group>(?:[^-]|--)+)-(?P<volume>(?:[^-]|--)+)")


def read_storage(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Storage:
    """Read the tables; unreadable entries are left out."""
    disks: dict[str, str] = {}
    partitions: dict[str, str] = {}
    mapped: list[Path] = []
    for folder in sorted((sys / "block").glob("*")):
        number = _text(folder / "dev")
        if number:
            disks[f"/dev/{folder.name}"] = number
        if _text(folder / "dm/uuid").startswith("LVM-"):
            mapped.append(folder)
        for part in sorted(folder.glob(f"{folder.name}*")):
            if (part / "partition").exists():
                partitions[f"/dev/{part.name}"] = f"/dev/{folder.name}"
    groups: dict[str, str] = {}
    mappers: dict[str, str] = {}
    for folder in mapped:
        name = _text(folder / "dm/name")
        match = _LVM_NAME.fullmatch(name)
        slaves = sorted(path.name for path in (folder / "slaves").glob("*"))
        if match is not None and slaves:
            group = match["group"].replace("--", "-")
            mappers[f"/dev/mapper/{name}"] = group
            below = f"/dev/{slaves[0]}"
            groups.setdefault(group, partitions.get(below, below))
    mounts = {point: source for point, source in mount_sources(proc / "self/mountinfo").items() if source.startswith(DEVICES)}
    return Storage(disks, partitions, groups, mappers, mounts)


def mount_sources(path: Path) -> dict[str, str]:
    """Return the source of each mount point in a table of mounts, such as /proc/self/mountinfo; of mounts over each other the
    last. At most MAX_MOUNTS lines; empty where the table cannot be read."""
    found: dict[str, str] = {}
    for line in _text(path).split("\n")[:MAX_MOUNTS]:
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()
        if len(fields) > 4 and len(source) > 1:
            found[fields[4].replace("\\040", " ")] = source[1]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
