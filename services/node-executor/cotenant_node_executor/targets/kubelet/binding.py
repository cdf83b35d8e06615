"""The mapping of kubelet's directories to groups of the executor.

The rest of the executor uses groups laid out like kubepods: "pod<uid>", "besteffort/pod<uid>", containers one level below
by their names. In: the found directories, the pods that LOG places here, container names by id. Out: directories by group;
directories without an owner.

| directory | group |
|---|---|
| kubelet's root, its tiers | "", "burstable", "besteffort" |
| a pod of LOG, by its uid; a static pod by the hash that kubelet calls it by | the pod's |
| a container of such a pod whose id has a name | <pod>/<name> |
| another directory in a best-effort pod, as the pause container's | <pod>/<directory>: CPU sets narrow in the whole tree |
| anything else | none: it is never written |

A container of a Kata pod has no group: its directory holds a virtual machine, whose limits the runtime manages. The pod
has one, as upstream. A pod whose directory is in another tier than its manifest's is bound to that directory.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.paths import (
    KubeletCgroupDriver,
    container_dir,
    container_number_of_dir,
    pod_dir,
    tier_dir,
)
from cotenant_node_executor.targets.kubelet.kubepods import FoundPod

KATA = "kata"
RUNTIMES = {"cri-containerd-": "containerd", "crio-": "cri-o", "docker-": "docker", "pouch-": "pouch"}
"""By the prefix of a container's directory."""
NOT_CONTAINERS = "crio-conmon-"
"""cri-o's monitor, which lies beside the container where its configuration says so."""


class KubeletPod(Struct, frozen=True):
    """A pod of LOG that kubelet runs. `ids`: its containers' ids with their names, as far as its status says them."""

    uid: str
    group: str
    containers: tuple[str, ...]
    ids: Mapping[str, str] = {}
    static_uid: str = ""
    """kubelet's name of a static pod, whose object has another uid; "" for all others."""
    runtime_class: str = ""

    @property
    def is_kata(self) -> bool:
        """Whether its containers run in a virtual machine."""
        return self.runtime_class == KATA or self.runtime_class.startswith(f"{KATA}-")


class Bound(Struct, frozen=True):
    """Directories by group, below the directory that holds kubelet's root. `ids`: container ids by group."""

    directories: Mapping[str, str] = {}
    ids: Mapping[str, str] = {}
    inodes: Mapping[str, int] = {}
    strangers: tuple[str, ...] = ()
    """Pods' directories that belong to no pod of LOG."""
    missing: tuple[str, ...] = ()
    """Uids of pods of LOG without a directory."""
    unnamed: tuple[str, ...] = ()
    """Directories in pods with an unknown container; the pause container is one of each pod."""
    kata: tuple[str, ...] = ()
    """Uids of Kata pods whose containers are left out."""
    runtimes: tuple[str, ...] = ()


NOTHING_BOUND = Bound()


def container_number(layout: KubeletCgroupDriver, name: str) -> str | None:
    """The id in a directory's name; None for what is no container's."""
    if name.startswith(NOT_CONTAINERS):
        return None
    try:
        # cri-o names its containers so in both layouts.
        return container_number_of_dir(layout, name.removeprefix("crio-") if layout is KubeletCgroupDriver.CGROUPFS else name)
    except ValueError:
        return None


def runtime_of(name: str) -> str:
    """The runtime that names a directory so; "" where the name does not say."""
    return next((runtime for prefix, runtime in RUNTIMES.items() if name.startswith(prefix)), "")


def expected_directory(layout: KubeletCgroupDriver, pod: KubeletPod) -> str:
    """kubelet's directory of a pod, by its tier and kubelet's uid."""
    tier = pod.group.rpartition("/")[0]
    qos = next((each for each in KubeQoS if each.value.lower() == tier), KubeQoS.GUARANTEED)
    return pod_dir(layout, qos, pod.static_uid or pod.uid)


def _names_of(layout: KubeletCgroupDriver, pod: KubeletPod, named: Mapping[str, str]) -> dict[str, str]:
    """Names of a pod's containers by directory, from its status; by id from `named` otherwise."""
    found = dict(named)
    for container_id, name in pod.ids.items():
        try:
            found[container_number(layout, container_dir(layout, container_id)) or ""] = name
        except ValueError:
            continue
    return found


def bind(
    layout: KubeletCgroupDriver | None, found: Iterable[FoundPod], pods: Mapping[str, KubeletPod], named: Mapping[str, str]
) -> Bound:
    """Bind directories to groups. `named`: container names by id, beside those that the pods' statuses say."""
    if layout is None:
        return Bound(missing=tuple(sorted(pods)))
    directories = {"": tier_dir(layout, KubeQoS.GUARANTEED)}
    directories |= {qos.value.lower(): tier_dir(layout, qos) for qos in (KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT)}
    by_text = {_text(layout, uid): pod for pod in pods.values() for uid in (pod.uid, pod.static_uid) if uid}
    ids: dict[str, str] = {}
    inodes: dict[str, int] = {}
    strangers: list[str] = []
    unnamed: list[str] = []
    kata: list[str] = []
    runtimes: dict[str, None] = {}
    missing = set(pods)
    for each in found:
        pod = by_text.get(each.uid)
        if pod is None:
            strangers.append(each.directory)
            continue
        missing.discard(pod.uid)
        directories[pod.group], inodes[pod.group] = each.directory, each.inode
        if pod.is_kata:
            kata.append(pod.uid)
            continue
        names = _names_of(layout, pod, named)
        for container in each.containers:
            path = f"{each.directory}/{container.name}"
            number = container_number(layout, container.name)
            if runtime := runtime_of(container.name):
                runtimes[runtime] = None
            name = names.get(number or "", "")
            if name not in pod.containers:
                unnamed.append(path)
                if each.qos is KubeQoS.BEST_EFFORT and container.name not in pod.containers:
                    directories[f"{pod.group}/{container.name}"] = path
                continue
            group = f"{pod.group}/{name}"
            # Two of one name while one ends and the next begins: the newer directory has the larger inode.
            if group not in directories or inodes[group] < container.inode:
                directories[group], ids[group], inodes[group] = path, number or "", container.inode
    return Bound(
        directories, ids, inodes, (*strangers,), tuple(sorted(missing)), (*unnamed,), tuple(sorted(kata)), (*runtimes,)
    )


def _text(layout: KubeletCgroupDriver, uid: str) -> str:
    return uid.replace("-", "_") if layout is KubeletCgroupDriver.SYSTEMD else uid
