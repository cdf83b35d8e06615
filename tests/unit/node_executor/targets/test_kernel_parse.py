"""Parsing of the kernel's texts that the shared vectors do not cover."""

from __future__ import annotations

import pytest

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets import parse
from cotenant_node_executor.targets.cgroup import paths
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath, KubeletCgroupDriver
from cotenant_node_executor.targets.interface import CgroupVersion
from cotenant_node_executor.targets.kubelet.binding import KubeletPod, expected_directory
from cotenant_node_executor.targets.psi import parse_pressure

V1, V2 = CgroupVersion.V1, CgroupVersion.V2


def test_a_v1_numa_line_with_its_sum_is_read() -> None:
    assert parse.parse_numa_stat(V1, "total=30 N0=10 N1=20\nfile=1 N0=1 N1=0") == (
        parse.NumaPages(0, 10),
        parse.NumaPages(1, 20),
    )


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (V1, ""),
        (V1, "file=1 N0=1"),
        (V1, "total=1 X0=1"),
        (V2, "anon N0=1"),
        (V2, "anon N1=1\nfile N1=1"),
        (V2, "anon N0=1\nfile N0=1 N1=1"),
        (V2, "file N0=1\nanon N0=1"),
    ],
)
def test_an_inconsistent_numa_text_is_refused(version: CgroupVersion, content: str) -> None:
    with pytest.raises(ValueError, match="numa_stat"):
        parse.parse_numa_stat(version, content)


@pytest.mark.parametrize("content", ["nr_periods x\nnr_throttled 1\nthrottled_time 1", "nr_periods -1\nnr_throttled 1"])
def test_a_counter_that_is_no_number_is_named(content: str) -> None:
    with pytest.raises(ValueError, match=r"cpu\.stat nr_periods"):
        parse.parse_cpu_stat(V1, content)


def test_the_working_set_excludes_reclaimable_memory() -> None:
    stat = parse.parse_memory_stat(
        V2, "anon 9\nfile 9\ninactive_file 1\nactive_file 2\ninactive_anon 10\nactive_anon 20\nunevictable 40\n"
    )
    assert (stat.without_page_cache, stat.with_page_cache) == (70, 73)


def test_a_memory_key_without_a_number_is_named() -> None:
    with pytest.raises(ValueError, match="active_anon"):
        parse.parse_memory_stat(V2, "file 1\nanon 1\ninactive_file 1\nactive_file 1\ninactive_anon 1\nactive_anon x")


def test_an_empty_group_has_no_processes() -> None:
    assert parse.parse_pids("") == ()
    with pytest.raises(ValueError, match=r"cgroup\.procs"):
        parse.parse_pids("12\nx\n")


def test_pressure_is_read_with_both_lines() -> None:
    found = parse_pressure("some avg10=1.50 avg60=0.20 avg300=0.00 total=12\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=3\n")
    assert (found.some.avg10, found.some.total_us, found.full.total_us, found.full_supported) == (1.5, 12, 3, True)


@pytest.mark.parametrize("content", ["", "some", "some avg10=x avg60=0.00 avg300=0.00 total=0"])
def test_a_broken_pressure_text_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="pressure line"):
        parse_pressure(content)


@pytest.mark.parametrize("layout", list(KubeletCgroupDriver))
@pytest.mark.parametrize("qos", list(KubeQoS))
def test_uid_and_tier_are_parsed_from_a_pods_directory(layout: KubeletCgroupDriver, qos: KubeQoS) -> None:
    directory = paths.pod_dir(layout, qos, "a-b")
    assert paths.kube_qos_of_dir(directory) is qos
    assert paths.pod_uid_of_dir(layout, directory.rsplit("/", 1)[1]) == (
        "a-b" if layout is KubeletCgroupDriver.CGROUPFS else "a_b"
    )


def test_a_static_pods_directory_is_named_by_the_uid_that_kubelet_gave_it() -> None:
    pod = KubeletPod("of-the-object", "burstable/podof-the-object", ("main",), static_uid="0a-1b")
    assert expected_directory(KubeletCgroupDriver.CGROUPFS, pod) == "kubepods/burstable/pod0a-1b"
    assert (
        expected_directory(KubeletCgroupDriver.SYSTEMD, KubeletPod("a-b", "poda-b", ()))
        == "kubepods.slice/kubepods-poda_b.slice"
    )


def test_a_host_application_cannot_leave_the_tree() -> None:
    path = HostApplicationPath("Kubepods", "../..", "../etc")
    assert paths.host_application_dir(KubeletCgroupDriver.CGROUPFS, "app", "LS", path) == "etc"
    assert paths.host_application_dir(KubeletCgroupDriver.CGROUPFS, "app", "LSR", None) == "host-latency-sensitive/app"
    assert paths.host_application_dir(KubeletCgroupDriver.CGROUPFS, "app", "", HostApplicationPath()) == ""


@pytest.mark.parametrize(
    ("name", "qos", "directory"),
    [("../../../etc", "BE", "etc"), ("/etc", "LS", "host-latency-sensitive/etc"), ("a//./b", "", "a/b"), ("../..", "LSE", "")],
)
def test_a_host_applications_name_cannot_leave_the_tree(name: str, qos: str, directory: str) -> None:
    assert paths.host_application_dir(KubeletCgroupDriver.CGROUPFS, name, qos, None) == directory


def test_systemd_is_the_layout_if_both_exist_or_none_is_known() -> None:
    assert paths.detect_layout(V2, ["kubepods", "kubepods.slice"]) is KubeletCgroupDriver.SYSTEMD
    assert paths.detect_layout(V2, [], kubelet=KubeletCgroupDriver.CGROUPFS) is KubeletCgroupDriver.CGROUPFS
