"""The lines of a group's files for each disk.

In: the blocks of a level (best-effort class, root, pod), this machine's storage, the files' present texts. Out: lines for the
disks that are configured, and for those that are listed in the files but no longer configured; by disk and file.

| level | set | reset |
|---|---|---|
| class, pod | read and write iops and bps (0: unlimited), weight (100 by default) | 0, 0, 0, 0, 100 |
| root | blkio.cost.qos, blkio.cost.model | `enable=0` |

A block that names no disk of this machine is an error of the whole level. On cgroup v2 the same rates are a line of io.max, the
weight one of io.weight, and a latency of a class or pod one of io.latency. Source: blkio, koordlet rule as of v1.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from cotenant_node_executor.strategies.sections import lower_name
from cotenant_node_executor.targets.address import Knob
from cotenant_node_executor.targets.disks import Storage, UnknownDiskError

Lines = Mapping[str, Mapping[Knob, str]]
"""By disk number and file."""

LATENCY_US = 3000
LATENCY_PERCENT = 95
DEFAULT_WEIGHT = 100
MOUNT = "mount"
"""The mount point of a CSI volume, in its folder."""
KUBELET_ROOT = "/var/lib/kubelet"
_LISTED = re.compile(r"[0-9]+:[0-9]+")


class Level(Enum):
    """The level of the files."""

    CLASS = "qos"
    ROOT = "root"
    POD = "pod"


class IOConfig(Struct, frozen=True, kw_only=True, rename=lower_name):
    """Limits of a block; rates of 0 are unlimited, latencies are in microseconds."""

    read_iops: int | None = None
    write_iops: int | None = None
    read_bps: int | None = None
    write_bps: int | None = None
    io_weight_percent: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    read_latency_percent: int | None = None
    write_latency_percent: int | None = None
    enable_user_model: bool | None = None
    model_read_bps: int | None = None
    model_write_bps: int | None = None
    model_read_seq_iops: int | None = None
    model_write_seq_iops: int | None = None
    model_read_rand_iops: int | None = None
    model_write_rand_iops: int | None = None


class Block(Struct, frozen=True, kw_only=True, rename=lower_name):
    """One block device: `type` is device, volumegroup or podvolume."""

    name: str = ""
    type: str = ""
    io_cfg: IOConfig = IOConfig()


class PodVolumes(Struct, frozen=True):
    """A pod's volumes by their names in the pod: the folder in which kubelet mounts each, and the device that its containers
    see, "" where that is no block device."""

    uid: str
    folders: Mapping[str, str] = {}
    devices: Mapping[str, str] = {}


class BlkioPlan(Struct, frozen=True):
    """The lines to set and to reset."""

    set_lines: Lines
    reset_lines: Lines


def csi_folder(uid: str) -> str:
    """Return kubelet's directory of a pod's CSI volumes."""
    return f"{KUBELET_ROOT}/pods/{uid}/volumes/kubernetes.io~csi"


def disk_of(block: Block, storage: Storage, pod: PodVolumes | None = None) -> str:
    """Return the number of the block's disk. Raises UnknownDiskError."""
    match block.type:
        case "device":
            return storage.of_device(block.name)
        case "volumegroup":
            return storage.of_volume_group(block.name)
        case "podvolume" if pod is not None:
            device = pod.devices.get(block.name)
            if device:
                return storage.of_source(device)
            folder = pod.folders.get(block.name)
            if folder is None:
                raise UnknownDiskError(f"the pod has no volume {block.name!r} on a disk")
            return storage.of_mount(f"{csi_folder(pod.uid)}/{folder}/{MOUNT}")
    raise UnknownDiskError(f"block {block.name!r} of type {block.type!r}: expected device, volumegroup or, of a pod, podvolume")


def configured(blocks: Sequence[Block], storage: Storage, pod: PodVolumes | None = None) -> dict[str, IOConfig]:
    """Return the configuration by disk; of two blocks on one disk the last one counts. Raises UnknownDiskError."""
    return {disk_of(block, storage, pod): block.io_cfg for block in blocks}


def listed(texts: Mapping[str, str]) -> set[str]:
    """Return the disks that the files list. Raises ValueError for a line without a value."""
    found: set[str] = set()
    for file in sorted(texts):
        for line in texts[file].splitlines():
            words = line.split()
            if not words:
                continue
            if len(words) < 2:
                raise ValueError(f"{file}: line {line!r} has no value")
            if _LISTED.fullmatch(words[0]):
                found.add(words[0])
    return found


def blkio_plan(level: Level, configs: Mapping[str, IOConfig], listed_disks: set[str]) -> BlkioPlan:
    """Return the lines of a level on cgroup v1."""
    lines = _root_lines if level is Level.ROOT else _group_lines
    return BlkioPlan(
        {disk: lines(disk, config) for disk, config in sorted(configs.items())},
        {disk: _reset(level, disk) for disk in sorted(listed_disks - configs.keys())},
    )


def _group_lines(disk: str, config: IOConfig) -> dict[Knob, str]:
    weight = config.io_weight_percent
    return {
        Knob.BLKIO_READ_IOPS: f"{disk} {config.read_iops or 0}",
        Knob.BLKIO_READ_BPS: f"{disk} {config.read_bps or 0}",
        Knob.BLKIO_WRITE_IOPS: f"{disk} {config.write_iops or 0}",
        Knob.BLKIO_WRITE_BPS: f"{disk} {config.write_bps or 0}",
        Knob.BLKIO_COST_WEIGHT: f"{disk} {DEFAULT_WEIGHT if weight is None else weight}",
    }


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _root_lines(disk: str, config: IOConfig) -> dict[Knob, str]:
    qos = (
        f"rpct={_or(config.read_latency_percent, LATENCY_PERCENT)} rlat={_or(config.read_latency, LATENCY_US)} "
        f"wpct={_or(config.write_latency_percent, LATENCY_PERCENT)} wlat={_or(config.write_latency, LATENCY_US)}"
    )
    model = "ctrl=auto"
    if config.enable_user_model:
        model = (
            f"ctrl=user rbps={config.model_read_bps or 0} rseqiops={config.model_read_seq_iops or 0} "
            f"rrandiops={config.model_read_rand_iops or 0} wbps={config.model_write_bps or 0} "
            f"wseqiops={config.model_write_seq_iops or 0} wrandiops={config.model_write_rand_iops or 0}"
        )
    return {Knob.BLKIO_COST_QOS: f"{disk} enable=1 ctrl=user {qos}", Knob.BLKIO_COST_MODEL: f"{disk} {model}"}


def _reset(level: Level, disk: str) -> dict[Knob, str]:
    if level is Level.ROOT:
        return {Knob.BLKIO_COST_QOS: f"{disk} enable=0"}
    return _group_lines(disk, IOConfig())


def v2_plan(configs: Mapping[str, IOConfig], listed_disks: set[str]) -> BlkioPlan:
    """Return the lines of a class or a pod on cgroup v2. The weight 100 is the kernel's default too."""
    return BlkioPlan(
        {disk: _v2_lines(disk, config) for disk, config in sorted(configs.items())},
        {disk: _v2_lines(disk, IOConfig()) for disk in sorted(listed_disks - configs.keys())},
    )


def _v2_lines(disk: str, config: IOConfig) -> dict[Knob, str]:
    rates = (("rbps", config.read_bps), ("wbps", config.write_bps), ("riops", config.read_iops), ("wiops", config.write_iops))
    bounds = " ".join([f"{name}={rate or 'max'}" for name, rate in rates])
    latencies = [each for each in (config.read_latency, config.write_latency) if each]
    weight = config.io_weight_percent
    return {
        Knob.IO_MAX: f"{disk} {bounds}",
        Knob.IO_WEIGHT: f"{disk} {'default' if weight is None else weight}",
        Knob.IO_LATENCY: f"{disk} target={min(latencies, default=0)}",
    }
