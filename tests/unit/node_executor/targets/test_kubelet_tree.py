"""kubelet's directories on plain folders: found by inotify, bound to pods, by every name and with rubbish among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver, pod_dir
from cotenant_node_executor.targets.kubelet.binding import Bound, KubeletPod, bind
from cotenant_node_executor.targets.kubelet.container_names import GIVEN_UP_NS, READ_NS, ContainerNames
from cotenant_node_executor.targets.kubelet.kubepods import MOST_PODS, RESCAN_NS, SETTLE_NS, Kubepods

UID = "4f3a8f4e-8d2c-4c38-9d27-0a7c1b2d3e4f"
ID = "ab" * 32
SECOND = 1_000_000_000
NOBODY = 65534


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "top"
    made.mkdir()
    return made


def bound(kubepods: Kubepods, *pods: KubeletPod, named: dict[str, str] | None = None) -> Bound:
    return bind(kubepods.layout, kubepods.pods.values(), {pod.uid: pod for pod in pods}, named or {})


def a_pod(uid: str = UID, *, tier: str = "besteffort/", **more: object) -> KubeletPod:
    return KubeletPod(uid, f"{tier}pod{uid}", ("main",), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "runtime", "name"),
    [
        (KubeletCgroupDriver.SYSTEMD, "containerd", f"cri-containerd-{ID}.scope"),
        (KubeletCgroupDriver.SYSTEMD, "cri-o", f"crio-{ID}.scope"),
        (KubeletCgroupDriver.SYSTEMD, "docker", f"docker-{ID}.scope"),
        (KubeletCgroupDriver.CGROUPFS, "containerd", ID),
        (KubeletCgroupDriver.CGROUPFS, "cri-o", f"crio-{ID}"),
    ],
)
@pytest.mark.parametrize("qos", list(KubeQoS))
def test_a_container_is_found_in_every_layout_by_the_id_of_its_status(
    top: Path, layout: KubeletCgroupDriver, runtime: str, name: str, qos: KubeQoS
) -> None:
    directory = pod_dir(layout, qos, UID)
    (top / directory / name).mkdir(parents=True)
    kubepods = Kubepods(top)
    assert kubepods.look(0)
    assert kubepods.layout is layout
    tier = "" if qos is KubeQoS.GUARANTEED else f"{qos.value.lower()}/"
    found = bound(kubepods, a_pod(tier=tier, ids={f"{runtime}://{ID}": "main"}))
    assert found.directories[f"{tier}pod{UID}/main"] == f"{directory}/{name}"
    assert found.ids[f"{tier}pod{UID}/main"] == ID
    assert (found.strangers, found.missing, found.unnamed) == ((), (), ())


def test_both_layouts_are_told_apart_and_the_flag_has_the_last_word(top: Path) -> None:
    for name in ("kubepods", "kubepods.slice"):
        (top / name).mkdir()
    detected, told = Kubepods(top), Kubepods(top, layout=KubeletCgroupDriver.CGROUPFS)
    detected.look(0)
    told.look(0)
    assert (detected.layout, told.layout) == (KubeletCgroupDriver.SYSTEMD, KubeletCgroupDriver.CGROUPFS)


def test_a_directory_that_comes_later_counts_once_it_has_settled_and_a_new_one_of_its_name_is_another(top: Path) -> None:
    kubepods = Kubepods(top)
    kubepods.look(0)
    assert not kubepods.pods
    path = pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BURSTABLE, UID)
    for level in (1, 2, 3):
        (top / "/".join(path.split("/")[:level])).mkdir()
        kubepods.look(SECOND)
    assert (kubepods.layout, dict(kubepods.pods)) == (KubeletCgroupDriver.SYSTEMD, {})
    assert kubepods.look(SECOND + SETTLE_NS)
    first = kubepods.pods[path].inode
    keep = top / "kept"
    (top / path).rename(keep)  # the inode stays in use
    (top / path).mkdir()
    kubepods.look(3 * SECOND)
    assert path not in kubepods.pods
    kubepods.look(3 * SECOND + SETTLE_NS)
    assert kubepods.pods[path].inode != first
    (top / path).rmdir()
    assert kubepods.look(5 * SECOND)
    assert path not in kubepods.pods


def test_nothing_is_read_while_nothing_changes_and_everything_once_in_a_while(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BEST_EFFORT, UID)).mkdir(parents=True)
    kubepods = Kubepods(top)
    kubepods.look(0)
    read: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(str(path)) or scandir(path))  # type: ignore[func-returns-value]
    assert not kubepods.look(SECOND)
    assert read == []
    kubepods.look(RESCAN_NS)
    assert len(read) == 4
    read.clear()
    (top / "kubepods.slice/kubepods-besteffort.slice/garbage").mkdir()
    kubepods.look(RESCAN_NS + 1)
    assert [path.removeprefix(f"{top}/") for path in read] == ["kubepods.slice/kubepods-besteffort.slice"]


def test_a_thousand_groups_and_rubbish_are_told_and_bound_to_nothing(top: Path) -> None:
    root = top / "kubepods.slice"
    besteffort = root / "kubepods-besteffort.slice"
    besteffort.mkdir(parents=True)
    for number in range(1000):
        (besteffort / f"kubepods-besteffort-pod{number}.slice/cri-containerd-{number}.scope").mkdir(parents=True)
    for name in ("garbage", "kubepods-besteffort-pod.scope", ".slice", "🙈", "a b", "pod" + "x" * 200):
        (besteffort / name).mkdir()
    (besteffort / "kubepods-besteffort-podfile.slice").write_text("")
    os.symlink("/", root / "kubepods-podlink.slice")
    kubepods = Kubepods(top)
    kubepods.look(0)
    found = bound(kubepods, a_pod())
    assert len(found.strangers) == 1000
    assert found.missing == (UID,)
    assert set(found.directories) == {"", "burstable", "besteffort"}


def test_what_lies_beyond_the_bound_is_told(top: Path) -> None:
    root = top / "kubepods"
    for number in range(MOST_PODS + 3):
        (root / f"pod{number:05}").mkdir(parents=True)
    kubepods = Kubepods(top)
    kubepods.look(0)
    assert len(kubepods.pods) == MOST_PODS
    assert kubepods.problems == (f"3 pods' directories beyond the first {MOST_PODS} are not read",)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not read everything")
def test_a_directory_that_cannot_be_read_is_told_and_the_others_are_found(tmp_path: Path) -> None:
    top = Path("/run") / f"cotenant-test-{os.getpid()}-unreadable"
    other = pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BEST_EFFORT, "1")
    hidden = pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BEST_EFFORT, UID)
    try:
        (top / other).mkdir(parents=True)
        (top / hidden).mkdir(mode=0o000)
        os.seteuid(NOBODY)
        kubepods = Kubepods(top)
        kubepods.look(0)
    finally:
        os.seteuid(0)
        for directory, _, _ in sorted(os.walk(top), reverse=True):
            os.rmdir(directory)
    assert other in kubepods.pods
    assert [problem for problem in kubepods.problems if problem.startswith(f"{hidden}: cannot be read: Permission denied")]


def test_containers_of_a_kata_pod_are_left_alone_and_a_pause_container_narrows_with_its_best_effort_pod(top: Path) -> None:
    path = pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BEST_EFFORT, UID)
    scope = f"cri-containerd-{ID}.scope"
    (top / path / scope).mkdir(parents=True)
    kubepods = Kubepods(top)
    kubepods.look(0)
    group = f"besteffort/pod{UID}"
    kata = bound(kubepods, a_pod(runtime_class="kata-qemu"), named={ID: "main"})
    assert group in kata.directories
    assert f"{group}/main" not in kata.directories
    assert kata.kata == (UID,)
    paused = bound(kubepods, a_pod())
    assert paused.directories[f"{group}/{scope}"] == f"{path}/{scope}"
    assert paused.unnamed == (f"{path}/{scope}",)
    assert not bound(kubepods, a_pod(runtime_class="katana"), named={ID: "main"}).kata


def test_a_static_pod_is_found_by_the_hash_that_kubelet_calls_it_by(top: Path) -> None:
    (top / pod_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BURSTABLE, "d41d8cd9")).mkdir(parents=True)
    kubepods = Kubepods(top)
    kubepods.look(0)
    found = bound(kubepods, a_pod(tier="burstable/", static_uid="d41d8cd9"))
    assert found.directories[f"burstable/pod{UID}"].endswith("podd41d8cd9.slice")
    assert found.strangers == ()


def test_while_a_container_restarts_the_newer_of_its_two_groups_is_the_one(top: Path) -> None:
    path = pod_dir(KubeletCgroupDriver.CGROUPFS, KubeQoS.BURSTABLE, UID)
    older, newer = "11" * 32, "22" * 32
    for name in (older, newer):
        (top / path / name).mkdir(parents=True)
    kubepods = Kubepods(top)
    kubepods.look(0)
    inodes = {name: (top / path / name).stat().st_ino for name in (older, newer)}
    last = max(inodes, key=lambda name: inodes[name])
    found = bound(kubepods, a_pod(tier="burstable/"), named={older: "main", newer: "main"})
    assert found.directories[f"burstable/pod{UID}/main"] == f"{path}/{last}"


def test_names_are_read_from_the_links_of_logs_and_an_id_without_one_is_given_up(tmp_path: Path) -> None:
    names = ContainerNames(tmp_path)
    assert not names.look_for([ID], 0)
    for name in (f"web-0_default_my-app-{ID}.log", f"web-0_default_my-app-{ID}", "x_y_z.log", "_.log", f"a_b_c_d-{ID}.log"):
        (tmp_path / name).symlink_to("/dev/null")
    assert not names.look_for([ID], READ_NS - 1)
    assert names.look_for([ID], READ_NS)
    assert dict(names.names()) == {ID: "my-app"}
    names.look_for(["unknown"], GIVEN_UP_NS)
    (tmp_path / "web-0_default_late-unknown.log").symlink_to("/dev/null")
    assert names.look_for(["unknown"], 2 * GIVEN_UP_NS - 1)
    assert not ContainerNames(tmp_path / "missing").look_for([ID], 0)
