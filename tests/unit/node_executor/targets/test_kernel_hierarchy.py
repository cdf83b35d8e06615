"""Which hierarchies a machine has, from the kernel's own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies, parse_mountinfo, parse_own_groups
from cotenant_node_executor.targets.cgroup.tree import parents
from cotenant_node_executor.targets.interface import CgroupVersion

V1_MOUNTS = r"""
24 20 0:24 /docker/abc /run/bind\040mount rw - cgroup cgroup rw,memory
25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
29 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
""".strip()
V2_MOUNTS = "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def test_a_container_sees_parts_of_trees_and_they_are_taken_where_there_is_nothing_else() -> None:
    v1, _ = parse_mountinfo("30 25 0:24 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")
    assert v1 == {"memory": Path("/sys/fs/cgroup/memory")}


def test_controllers_mounted_together_share_a_directory_and_a_whole_tree_goes_before_a_part() -> None:
    v1, v2 = parse_mountinfo(V1_MOUNTS)
    assert v1 == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
    }
    assert v2 == Path("/sys/fs/cgroup/unified")


def test_a_hybrid_machine_counts_as_v1() -> None:
    v1, v2 = parse_mountinfo(V1_MOUNTS)
    assert Hierarchies(v1, v2, (), {}).version is CgroupVersion.V1


def test_a_unified_machine_counts_as_v2_if_it_offers_cpu() -> None:
    v1, v2 = parse_mountinfo(V2_MOUNTS)
    assert Hierarchies(v1, v2, ("cpu", "memory"), {}).version is CgroupVersion.V2
    assert Hierarchies(v1, v2, ("memory",), {}).version is None
    assert Hierarchies({}, None, (), {}).version is None


def test_the_own_groups_are_read_per_controller() -> None:
    own = parse_own_groups("4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice/x:y.scope\n")
    assert own == {"memory": "a/b", "cpu": "", "cpuacct": "", "": "user.slice/x:y.scope"}


def test_the_groups_above_a_group_come_from_the_top() -> None:
    assert parents("a/b/c") == ["a", "a/b", "a/b/c"]
    assert parents("") == []


@pytest.mark.parametrize("node", ["", "a/b", "..", "."])
def test_a_node_name_that_is_no_directory_is_refused(node: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"node name|relative path"):
        open_driver(None, node, sandbox_dir=tmp_path)


def test_a_base_outside_the_mount_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="relative path"):
        open_driver("../etc", "node-1", sandbox_dir=tmp_path)
