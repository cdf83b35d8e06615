"""What services use between two samples: by one counter, in two stretches, whoever of them it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.sampling.spikes import MEASURED_NS, Spikes
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion, Stat
from tests.unit.node_executor.builders_node_executor import snapshot, usage

CPUS = 8


class Tree:
    """Counters of an imitated tree, and what is found by them."""

    def __init__(self, folder: Path) -> None:
        self.driver = SandboxDriver(folder, "n1", version=CgroupVersion.V1)
        self.spikes = Spikes(self.driver)
        self.now_ns = 0
        self._ns: dict[str, int] = {}
        for group in ("burstable", "besteffort", "podg"):
            self.driver.create(group)

    def passes(self, **milli: int) -> None:
        """A stretch in which groups used so much; `root` is the whole subtree."""
        self.now_ns += MEASURED_NS
        for group, own in milli.items():
            self._ns[group] = self._ns.get(group, 0) + own * MEASURED_NS // 1000
            path = self.driver.stat_path("" if group == "root" else group, Stat.CPU_USAGE)
            assert path is not None
            path.write_text(str(self._ns[group]))
        self.spikes.read(self.now_ns)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def sample(*guaranteed: str) -> UsageSnapshot:
    """A service of 500 milli-CPU in the burstable group on 8 CPUs, and guaranteed pods that used nothing."""
    pods = {"web": PodSample("web", "burstable", replace(usage("burstable/podweb", 500), cpu_milli=500))}
    pods |= {name: PodSample(name, "guaranteed", usage(f"pod{name}", 0)) for name in guaranteed}
    return replace(snapshot(500, cpus=CPUS), pods=pods)


def found(tree: Tree, seen: UsageSnapshot) -> int | None:
    spike = tree.spikes.found(seen, tree.now_ns)
    return None if spike is None else sum(pod.usage.cpu_milli or 0 for pod in spike.pods.values())


def test_a_rise_counts_when_two_stretches_in_a_row_show_it_and_by_the_smaller_one(tree: Tree) -> None:
    seen = sample()
    tree.spikes.watch(seen)
    tree.passes(burstable=500)
    tree.passes(burstable=4000)
    assert found(tree, seen) is None, "one stretch is a bunch of requests"
    tree.passes(burstable=500)
    assert found(tree, seen) is None
    tree.passes(burstable=4000)
    tree.passes(burstable=3000)
    assert found(tree, seen) == 3000


def test_a_rise_by_half_of_the_node_counts_after_one_stretch(tree: Tree) -> None:
    seen = sample()
    tree.spikes.watch(seen)
    tree.passes(burstable=500)
    tree.passes(burstable=500)
    tree.passes(burstable=4499)
    assert found(tree, seen) is None
    tree.passes(burstable=500)
    tree.passes(burstable=4500)
    assert found(tree, seen) == 4500
    tree.passes(burstable=7000)
    assert found(tree, sample()) == 4500, "the smaller one where both show a rise"


def test_with_guaranteed_pods_services_are_all_but_best_effort(tree: Tree) -> None:
    seen = sample("g")
    tree.spikes.watch(seen)
    for _ in range(3):
        tree.passes(root=6000, besteffort=2500, burstable=500)
    assert found(tree, seen) == 3500


def test_another_sample_of_the_same_groups_goes_on_and_one_of_others_begins_anew(tree: Tree) -> None:
    tree.spikes.watch(sample())
    for _ in range(3):
        tree.passes(burstable=4000)
    tree.spikes.watch(sample())
    assert found(tree, sample()) == 4000
    tree.spikes.watch(sample("g"))
    assert found(tree, sample("g")) is None


def test_what_is_not_watched_is_not_read(tree: Tree) -> None:
    assert tree.spikes.due_ns is None
    tree.spikes.watch(sample())
    assert tree.spikes.due_ns is not None
    tree.spikes.stop()
    assert tree.spikes.due_ns is None


def test_a_group_that_goes_away_is_no_error_and_no_spike(tree: Tree) -> None:
    seen = sample()
    tree.spikes.watch(seen)
    for _ in range(2):
        tree.passes(burstable=4000)
    tree.driver.remove("burstable")
    tree.spikes.read(tree.now_ns + MEASURED_NS)
    assert found(tree, seen) is None
