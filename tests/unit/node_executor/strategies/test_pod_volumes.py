"""Limits of a pod's volumes with several claims: the disks are those that its containers see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.disk.blkio import decide
from cotenant_node_executor.strategies.disk.pod_volumes import mount_paths
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.targets.disks import NO_DEVICES, Storage
from cotenant_node_executor.targets.interface import Knob
from cotenant_node_executor.targets.other.volumes import VolumeFinder
from tests.builders import container
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, situation

ANNOTATION = "koordinator.sh/blkioQOS"
GROUP = "besteffort/poduid-a"
IOPS = "blkio.throttle.read_iops_device"
STORAGE = Storage(
    {"/dev/sda": "8:0", "/dev/sdb": "8:16"},
    {"/dev/sda1": "/dev/sda"},
    {"data": "/dev/sdb"},
    {"/dev/mapper/data-logs": "data"},
)
ON_DISKS = {"data": "/dev/sda1", "logs": "/dev/mapper/data-logs", "scratch": "/dev/sdb"}
SLO = NodeSLORendered(node=NODE, spec=msgspec.Raw(b"{}"))


def several(*blocks: tuple[str, int], **more: Any) -> Pod:
    """A pod with two claims, an ephemeral volume and its own CSI volume; `blocks`: volumes with their reads a second."""
    volumes: list[dict[str, Any]] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "logs", "persistentVolumeClaim": {"claimName": "l"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "fast", "csi": {"driver": "d"}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}/"} for name in ("data", "logs", "scratch", "fast", "elsewhere")]
    bounded = [{"name": name, "type": "podvolume", "ioCfg": {"readIOPS": rate}} for name, rate in blocks]
    annotations = {ANNOTATION: msgspec.json.encode({"blocks": bounded}).decode()}
    fields = {"volumes": volumes, "containers": [container("main", command=["run"], volumeMounts=mounts)], **more}
    return batch("a", annotations=annotations, **fields)


def seen(asked: Pod, devices: dict[str, str] | None, *, kubelet: bool = True) -> Situation:
    """A node whose pods kubelet runs; `devices`: what the pod's containers showed, None before one was looked at."""
    kernel = capabilities(also=(Knob.BLKIO_READ_IOPS,))
    found = situation([asked], node_slo=SLO, kernel=kernel)
    volumes = {"uid-a": devices} if devices is not None else {}
    return replace(found, storage=STORAGE, node=replace(found.node, kubelet_pods=kubelet), volumes=volumes)


def decided(
    asked: Pod, devices: dict[str, str] | None, before: StrategyDecision | None = None, **more: Any
) -> StrategyDecision:
    started = decide(seen(batch("b"), None), None)
    return decide(seen(asked, devices, **more), (before or started).memory)


def lines(decision: StrategyDecision) -> list[str]:
    values = [each.value for each in decision.values.get(GROUP, ()) if each.attribute.value == IOPS]
    return sorted(values[0].split("\n")) if values else []


def test_claims_are_bounded_on_the_disks_that_their_containers_see() -> None:
    decision = decided(several(("data", 9), ("logs", 7)), ON_DISKS)
    assert lines(decision) == ["8:0 9", "8:16 7"]
    assert decision.problems == ()


def test_a_generic_ephemeral_volume_is_found_as_a_claim_is() -> None:
    assert lines(decided(several(("scratch", 5)), ON_DISKS)) == ["8:16 5"]
    both = decided(several(("logs", 7), ("scratch", 5)), ON_DISKS)
    assert lines(both) == ["8:16 5"], "of two blocks on one disk the last one counts"


@pytest.mark.parametrize("devices", [None, {}, {"data": "/dev/sda1"}])
def test_until_a_container_shows_every_volume_the_pod_is_left_alone(devices: dict[str, str] | None) -> None:
    decision = decided(several(("data", 9), ("logs", 7)), devices)
    assert (decision.values, decision.problems) == ({}, ())


def test_limits_in_force_stay_while_a_volume_is_looked_for() -> None:
    first = decided(several(("data", 9)), ON_DISKS)
    again = decided(several(("data", 9), ("logs", 7)), {"data": "/dev/sda1"}, first)
    assert (lines(again), again.problems) == (["8:0 9"], ())
    assert lines(decided(several(("data", 9), ("logs", 7)), ON_DISKS, again)) == ["8:0 9", "8:16 7"]


def test_limits_in_force_stay_while_a_block_names_no_disk() -> None:
    first = decided(several(("data", 9)), ON_DISKS)
    wrong = decided(several(("nothing", 1)), ON_DISKS, first)
    assert lines(wrong) == ["8:0 9"]
    assert wrong.problems == ("annotation of default/a: the pod has no volume 'nothing' on a disk",)
    assert lines(decided(several(("logs", 7)), ON_DISKS, wrong)) == ["8:0 0", "8:16 7"]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("", "the pod has no volume 'data' on a disk"),
        ("/dev/nvme9n1", "'/dev/nvme9n1' is no disk or partition of this machine"),
    ],
)
def test_a_volume_on_no_disk_of_this_machine_is_said(device: str, why: str) -> None:
    decision = decided(several(("data", 9)), {"data": device})
    assert (decision.values, decision.problems) == ({}, (f"annotation of default/a: {why}",))


def test_a_claim_that_no_container_mounts_is_on_no_disk() -> None:
    asked = several(("data", 9), containers=[container("main", command=["run"])])
    assert decided(asked, None).problems == ("annotation of default/a: the pod has no volume 'data' on a disk",)


def test_where_the_executor_runs_the_pods_nothing_is_awaited() -> None:
    assert decided(several(("data", 9)), None, kubelet=False).problems != ()


def test_claims_are_looked_for_at_their_paths_in_the_containers_that_mount_them() -> None:
    found = mount_paths(several(), GROUP)
    assert found == {f"{GROUP}/main": {"/data": "data", "/logs": "logs", "/scratch": "scratch"}}
    assert mount_paths(batch("b", volumes=[{"name": "fast", "csi": {"driver": "d"}}]), GROUP) == {}


# -- finding ----------------------------------------------------------------------------------------------------------

ASKED = {
    "uid-a": {
        f"{GROUP}/main": {"/data": "data", "/var/my logs": "logs"},
        f"{GROUP}/side": {"/d": "data", "/s": "scratch"},
    }
}


class Containers:
    """Processes of control groups, each with a table of mounts below a folder."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.of: dict[str, list[int]] = {}
        self.looks = 0

    def pids(self, group: str) -> list[int]:
        self.looks += 1
        return self.of.get(group, [])

    def start(self, group: str, pid: int, *mounts: tuple[str, str]) -> None:
        self.of[group] = [pid, pid + 1]
        (self.proc / str(pid)).mkdir()
        rows = [f"{number} 1 8:0 / {path} rw,relatime - ext4 {source} rw" for number, (path, source) in enumerate(mounts)]
        (self.proc / str(pid) / "mountinfo").write_text("\n".join(["1 0 0:1 / / rw - overlay overlay rw", *rows, ""]))


@pytest.fixture
def containers(tmp_path: Path) -> Containers:
    return Containers(tmp_path)


def test_volumes_are_found_as_their_containers_start_and_are_then_known(containers: Containers) -> None:
    finder = VolumeFinder(containers.pids, containers.proc)
    finder.look({})
    assert finder.found is NO_DEVICES
    finder.look(ASKED)
    assert finder.found == {"uid-a": {}}
    containers.start(f"{GROUP}/main", 10, ("/data", "/dev/sdb"), ("/var/my\\040logs", "nas:/logs"), ("/etc/hosts", "/dev/sda1"))
    finder.look(ASKED)
    assert finder.found == {"uid-a": {"data": "/dev/sdb", "logs": ""}}
    known, looks = finder.found, containers.looks
    finder.look(ASKED)
    assert finder.found is known, "the same object while nothing changed"
    assert containers.looks == looks + 1, "only the container whose volumes are not all known"
    containers.start(f"{GROUP}/side", 20, ("/d", "/dev/other"), ("/s", "/dev/mapper/data-s"))
    finder.look(ASKED)
    assert finder.found == {"uid-a": {"data": "/dev/sdb", "logs": "", "scratch": "/dev/mapper/data-s"}}
    containers.of.clear()
    finder.look(ASKED)
    assert finder.found["uid-a"]["scratch"] == "/dev/mapper/data-s", "a container that restarts mounts the same volumes"
    finder.look({})
    assert finder.found == {}


def test_a_process_that_is_gone_or_has_mounted_nothing_yet_is_looked_at_again(containers: Containers) -> None:
    finder = VolumeFinder(containers.pids, containers.proc)
    containers.of[f"{GROUP}/main"] = [77]
    finder.look(ASKED)
    containers.start(f"{GROUP}/main", 10)
    finder.look(ASKED)
    assert finder.found == {"uid-a": {}}
    containers.start(f"{GROUP}/main", 11, ("/data", "/dev/sda1"), ("/data", "/dev/sdb"))
    finder.look(ASKED)
    assert finder.found == {"uid-a": {"data": "/dev/sdb"}}, "of mounts over each other the last one is seen"
