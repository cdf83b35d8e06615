"""What services use between two samples: by one counter, over the span with the largest excess, whoever of them it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.sampling.spikes import CONFIRMED_NS, MEASURED_NS, MOST_READINGS, Spikes
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
        self.sample = sample()
        self._ns: dict[str, int] = {}
        for group in ("burstable", "besteffort", "podg"):
            self.driver.create(group)

    def passes(self, *, for_ns: int = MEASURED_NS, **milli: int) -> None:
        """A stretch in which groups used so much; `root` is the whole subtree."""
        self.now_ns += for_ns
        for group, own in milli.items():
            self._ns[group] = self._ns.get(group, 0) + own * for_ns // 1000
            path = self.driver.stat_path("" if group == "root" else group, Stat.CPU_USAGE)
            assert path is not None
            path.write_text(str(self._ns[group]))
        self.spikes.read(self.sample, self.now_ns)


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


def test_a_rise_counts_once_five_milliseconds_of_the_node_are_missed_beside_six_percent_of_it(tree: Tree) -> None:
    # 8 CPUs: 5 ms x 8 CPUs = 40 ms of CPU time above 500 + 480 milli-CPU.
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=2579)
    assert found(tree, sample()) is None, "25 ms x 1599 milli-CPU"
    for _ in range(4):
        tree.passes(burstable=500)
        assert found(tree, sample()) is None
    tree.passes(burstable=2580)
    assert found(tree, sample()) == 2580, "25 ms x 1600 milli-CPU"


def test_a_small_rise_counts_after_several_stretches_by_their_mean(tree: Tree) -> None:
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=1780)
    tree.passes(burstable=1700)
    assert found(tree, sample()) is None, "25 ms x (800 + 720) milli-CPU"
    tree.passes(burstable=1080)
    assert found(tree, sample()) == (1780 + 1700 + 1080) // 3, "100 more"


def test_a_rise_within_the_allowance_is_never_a_spike(tree: Tree) -> None:
    tree.spikes.watch(sample())
    for _ in range(3 * MOST_READINGS):
        tree.passes(burstable=500 + 480)
        assert found(tree, sample()) is None


def test_while_usage_rises_the_counter_is_read_again_soon(tree: Tree) -> None:
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=1779)
    assert tree.spikes.due_ns == tree.now_ns + MEASURED_NS, "25 ms x 799 milli-CPU of 40 ms"
    tree.passes(burstable=1780)
    assert tree.spikes.due_ns == tree.now_ns + CONFIRMED_NS
    tree.passes(for_ns=CONFIRMED_NS, burstable=500)
    assert tree.spikes.due_ns == tree.now_ns + CONFIRMED_NS, "the two before are still more than a half"
    for _ in range(MOST_READINGS):
        tree.passes(burstable=500)
    assert tree.spikes.due_ns == tree.now_ns + MEASURED_NS


def test_a_spike_that_was_found_is_none_over_the_sample_that_has_it(tree: Tree) -> None:
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=4500)
    spike = tree.spikes.found(sample(), tree.now_ns)
    assert spike is not None
    tree.passes(burstable=4500)
    assert found(tree, spike) is None
    tree.passes(burstable=7000)
    assert found(tree, spike) == 7000


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
    tree.spikes.read(seen, tree.now_ns + MEASURED_NS)
    assert found(tree, seen) is None
