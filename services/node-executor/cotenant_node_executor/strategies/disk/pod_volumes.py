"""A pod's volumes: the folders in which kubelet mounts them, and the paths at which its containers see those of claims.

In: a pod, this machine's mounts, the devices that its containers see. Out: `PodVolumes`; where to look for the devices.

| volume | found by |
|---|---|
| CSI, part of the pod | kubelet's folder, which has the volume's name |
| the only claim of a pod | kubelet's folder, which has the persistent volume's name: the one that is left |
| any claim, generic ephemeral volumes too | the device at its path in a container that runs (`targets.other.volumes`) |

Nothing on this machine states which folder belongs to which of several claims; the mounts of the containers do, for any kind of
persistent volume. A claim that no container mounts is on no disk here. Block volumes (`volumeDevices`) are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from posixpath import normpath

import msgspec
from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant_node_executor.strategies.disk.blkio_plan import MOUNT, Block, PodVolumes, csi_folder
from cotenant_node_executor.targets.disks import MountPaths

POD_VOLUME = "podvolume"
"""The type of a block that names a volume of its pod."""


class _Claim(Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _Volume(Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _Claim | None = None
    csi: dict[str, object] | None = None
    ephemeral: dict[str, object] | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether it is a claim's, of the user or made for the pod."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None


class _Mount(Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""


def volumes_of(pod: Pod, claims: Mapping[str, str], devices: Mapping[str, str] | None = None) -> PodVolumes:
    """Return a pod's volumes on disks: for a claim the folder of its persistent volume, for a CSI volume its own name.
    `devices`: of volumes, as its containers see them."""
    folders: dict[str, str] = {}
    for volume in _volumes(pod):
        claim = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim is not None else ""
        if claim in claims:
            folders[volume.name] = claims[claim]
        elif volume.csi is not None:
            folders[volume.name] = volume.name
    return PodVolumes(pod.metadata.uid, folders, devices or {})


def claims_of(pod: Pod, mounts: Iterable[str]) -> dict[str, str]:
    """Return the folder of a pod's claim, which has its persistent volume's name, by the claim's name.

    A pod with one claim has one folder of CSI beside those of its own CSI volumes. With several claims, or claims that come
    and go with the pod, no folder can be told from another: none is returned.
    """
    volumes = _volumes(pod)
    claims = {each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim is not None}
    own = {each.name for each in volumes if each.csi is not None}
    folders: set[str] = set()
    for path in mounts:
        folder, _, last = path.rpartition("/")
        parent, _, name = folder.rpartition("/")
        if last == MOUNT and parent == csi_folder(pod.metadata.uid) and name not in own:
            folders.add(name)
    if len(claims) != 1 or len(folders) != 1 or any(each.ephemeral is not None for each in volumes):
        return {}
    return {claims.pop(): folders.pop()}


def mount_paths(pod: Pod, group: str) -> MountPaths:
    """Return where containers mount volumes of claims: by control group the volume's name by path. `group`: the pod's."""
    claimed = {each.name for each in _volumes(pod) if each.is_claimed}
    found: dict[str, dict[str, str]] = {}
    for container in pod.spec.containers if claimed else ():
        paths: dict[str, str] = {}
        for raw in container.volume_mounts:
            with suppress(msgspec.MsgspecError):
                mount = msgspec.json.decode(raw, type=_Mount)
                if mount.name in claimed and mount.mount_path:
                    paths[normpath(mount.mount_path)] = mount.name
        if paths:
            found[f"{group}/{container.name}"] = paths
    return found


def is_awaited(pod: Pod, blocks: Sequence[Block], volumes: PodVolumes) -> bool:
    """Return whether a block names a volume whose device is seen only once a container that mounts it runs."""
    named = {block.name for block in blocks if block.type == POD_VOLUME} - volumes.folders.keys() - volumes.devices.keys()
    return bool(named) and any(named.intersection(paths.values()) for paths in mount_paths(pod, "").values())


def _volumes(pod: Pod) -> list[_Volume]:
    """The volumes that can be read."""
    found: list[_Volume] = []
    for raw in pod.spec.volumes:
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(raw, type=_Volume))
    return found
