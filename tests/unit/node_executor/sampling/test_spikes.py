"""What services use between two samples: by one counter, over the span with the largest excess, whoever of them it is."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.sampling.spikes import CONFIRMED_NS, FIRST, MEASURED_NS, MOST_READINGS, Spikes
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion, Stat
from tests.unit.node_executor.builders_node_executor import snapshot, usage

CPUS = 8


class Tree:
    """Counters of an imitated tree, and what is found by them."""

    def __init__(self, folder: Path, seen: UsageSnapshot | None = None) -> None:
        self.driver = SandboxDriver(folder, "n1", version=CgroupVersion.V1)
        self.spikes = Spikes(self.driver)
        self.now_ns = 0
        self.sample = seen or sample()
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


def sample(*guaranteed: str, milli: int = 500, cpus: int = CPUS) -> UsageSnapshot:
    """A service of 500 milli-CPU in the burstable group on 8 CPUs, and guaranteed pods that used nothing."""
    pods = {"web": PodSample("web", "burstable", replace(usage("burstable/podweb", milli), cpu_milli=milli))}
    pods |= {name: PodSample(name, "guaranteed", usage(f"pod{name}", 0)) for name in guaranteed}
    return replace(snapshot(milli, cpus=cpus), pods=pods)


def settle(tree: Tree, *milli: int) -> None:
    """So many readings of this usage, again and again, that its fluctuation is known."""
    tree.spikes.watch(tree.sample)
    for _ in range((FIRST + MOST_READINGS) // len(milli) + 2):
        for each in milli:
            tree.passes(burstable=each)
            tree.spikes.found(tree.sample, tree.now_ns, waits=True)


def found(tree: Tree, seen: UsageSnapshot, *, waits: bool = True) -> int | None:
    spike = tree.spikes.found(seen, tree.now_ns, waits=waits)
    return None if spike is None else sum(pod.usage.cpu_milli or 0 for pod in spike.pods.values())


def test_before_their_fluctuation_is_known_seven_milliseconds_of_the_node_are_a_spike(tree: Tree) -> None:
    # 8 CPUs: 7 ms x 8 CPUs = 56 ms of CPU time above 500 + 400 milli-CPU.
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=3139)
    assert found(tree, sample()) is None, "25 ms x 2239 milli-CPU"
    for _ in range(6):
        tree.passes(burstable=500)
        assert found(tree, sample()) is None
    tree.passes(burstable=3140)
    assert found(tree, sample()) == 3140, "25 ms x 2240 milli-CPU"


def test_steady_services_are_found_by_two_and_a_half_milliseconds_of_the_node(tree: Tree) -> None:
    settle(tree, 500)
    tree.passes(burstable=1699)
    assert found(tree, sample()) is None, "25 ms x 799 milli-CPU of 20 ms"
    settle(tree, 500)
    tree.passes(burstable=1700)
    assert found(tree, sample()) == 1700


def test_a_small_rise_counts_after_several_stretches_by_their_mean(tree: Tree) -> None:
    settle(tree, 500)
    tree.passes(burstable=1300)
    tree.passes(burstable=1250)
    assert found(tree, sample()) is None, "25 ms x (400 + 350) milli-CPU of 20 ms"
    tree.passes(burstable=1000)
    assert found(tree, sample()) == (1300 + 1250 + 1000) // 3, "100 more"


def test_what_services_do_again_and_again_is_no_spike_of_theirs(tree: Tree) -> None:
    settle(tree, 300, 300, 300, 1100)
    tree.passes(burstable=1700)
    assert found(tree, sample()) is None, "a deviation of 400 milli-CPU is usual: 3.5 x 400 of 800"
    tree.passes(burstable=3900)
    assert found(tree, sample()) is not None


def test_while_nothing_is_known_and_no_service_waits_twice_as_much_is_a_spike(tree: Tree) -> None:
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=5379)
    assert found(tree, sample(), waits=False) is None, "25 ms x 4479 milli-CPU of 112 ms: nothing is known"
    tree.passes(burstable=902)
    assert found(tree, sample(), waits=False) == (5379 + 902) // 2


def test_steady_services_that_do_not_wait_are_found_by_five_milliseconds_of_the_node(tree: Tree) -> None:
    settle(tree, 500)
    tree.passes(burstable=2499)
    assert found(tree, sample(), waits=False) is None, "25 ms x 1599 milli-CPU of 40 ms"
    settle(tree, 500)
    tree.passes(burstable=2500)
    assert found(tree, sample(), waits=False) == 2500


def test_services_that_do_not_wait_and_fluctuate_most_have_no_upper_limit(tree: Tree) -> None:
    settle(tree, 0, 4000)
    tree.passes(burstable=3300)
    assert found(tree, sample()) is not None, "more than 56 ms of CPU time"
    settle(tree, 0, 4000)
    tree.passes(burstable=8000)
    assert found(tree, sample(), waits=False) is None, "25 ms x 7100 milli-CPU of 495 ms: 7 deviations of 2828 milli-CPU"


def test_a_rise_within_the_allowance_is_never_a_spike(tree: Tree) -> None:
    settle(tree, 500)
    for _ in range(3 * MOST_READINGS):
        tree.passes(burstable=500 + 400)
        assert found(tree, sample()) is None


def test_while_usage_rises_the_counter_is_read_again_soon(tree: Tree) -> None:
    settle(tree, 500)
    tree.passes(burstable=1299)
    assert tree.spikes.due_ns == tree.now_ns + MEASURED_NS, "25 ms x 399 milli-CPU of 20 ms"
    settle(tree, 500)
    tree.passes(burstable=1300)
    assert tree.spikes.due_ns == tree.now_ns + CONFIRMED_NS
    tree.passes(for_ns=CONFIRMED_NS, burstable=900)
    assert tree.spikes.due_ns == tree.now_ns + CONFIRMED_NS, "both together are still a half"
    for _ in range(MOST_READINGS):
        tree.passes(burstable=500)
    assert tree.spikes.due_ns == tree.now_ns + MEASURED_NS


def test_a_spike_that_was_found_is_none_over_the_sample_that_has_it(tree: Tree) -> None:
    settle(tree, 500)
    tree.passes(burstable=4500)
    spike = tree.spikes.found(sample(), tree.now_ns, waits=True)
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
    settle(tree, 500)
    tree.passes(burstable=1700)
    tree.spikes.watch(sample())
    assert found(tree, sample()) == 1700
    tree.spikes.watch(sample("g"))
    assert found(tree, sample("g")) is None
    tree.spikes.watch(sample())
    tree.passes(burstable=500)
    tree.passes(burstable=1700)
    assert found(tree, sample()) is None, "their fluctuation is not known any more"


@settings(max_examples=30, deadline=None)
@given(
    percent=st.integers(10, 90), before=st.integers(0, 800), phase=st.integers(0, MEASURED_NS), cpus=st.sampled_from((2, 8, 64))
)
def test_a_rise_of_steady_services_by_a_tenth_of_the_node_or_more_is_found_within_a_tenth_of_a_second(
    percent: int, before: int, phase: int, cpus: int
) -> None:
    assert spike_found_ns(percent, before, phase, cpus, waits=True) <= 90_000_000


@settings(max_examples=30, deadline=None)
@given(
    percent=st.integers(14, 90), before=st.integers(0, 800), phase=st.integers(0, MEASURED_NS), cpus=st.sampled_from((2, 8, 64))
)
def test_a_rise_by_a_seventh_is_found_as_soon_where_none_of_them_waits(
    percent: int, before: int, phase: int, cpus: int
) -> None:
    assert spike_found_ns(percent, before, phase, cpus, waits=False) <= 90_000_000


def spike_found_ns(percent: int, before: int, phase: int, cpus: int, *, waits: bool) -> int:
    """How long after the beginning of a rise by so many percent of the node it is found, in ns."""
    with TemporaryDirectory() as folder:
        tree = Tree(Path(folder), sample(milli=before, cpus=cpus))
        settle(tree, before)
        began, rise = tree.now_ns + phase, cpus * 10 * percent
        while found(tree, tree.sample, waits=waits) is None:
            assert tree.spikes.due_ns is not None
            length = tree.spikes.due_ns - tree.now_ns
            risen = min(max(0, tree.spikes.due_ns - began), length)
            tree.passes(for_ns=length, burstable=before + rise * risen // length)
            assert tree.now_ns - began < 1_000_000_000
        return tree.now_ns - began


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), percent=st.integers(0, 8), cpus=st.sampled_from((2, 8, 64)))
def test_a_usual_fluctuation_is_never_a_spike(seed: int, percent: int, cpus: int) -> None:
    chance, mean = random.Random(seed), 100 * cpus
    with TemporaryDirectory() as folder:
        tree = Tree(Path(folder), sample(milli=mean, cpus=cpus))
        tree.spikes.watch(tree.sample)
        for _ in range(600):
            tree.passes(burstable=mean + chance.randint(-percent * cpus * 10, percent * cpus * 10))
            assert found(tree, tree.sample) is None
            assert found(tree, tree.sample, waits=False) is None


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_requests_of_a_large_node_are_never_a_spike(seed: int) -> None:
    """3,200 requests/s of 2 ms on 64 CPUs, which come when they like."""
    chance, rate = random.Random(seed), 80
    with TemporaryDirectory() as folder:
        tree = Tree(Path(folder), sample(milli=6400, cpus=64))
        tree.spikes.watch(tree.sample)
        for _ in range(600):
            requests = round(chance.gauss(rate, rate**0.5))
            tree.passes(burstable=requests * 80)
            assert found(tree, tree.sample) is None
            assert found(tree, tree.sample, waits=False) is None


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
