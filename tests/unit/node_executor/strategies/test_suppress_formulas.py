"""Quantity, quota and CPU sets of suppression on their own; expected figures are worked out by hand from the rules."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.strategies.cpu.suppression.cfs_quota import next_quota
from cotenant_node_executor.strategies.cpu.suppression.cpu_set import cpuset_targets, next_cpuset, select_cpus, with_dead_band
from cotenant_node_executor.strategies.cpu.suppression.quantity import (
    HostApplicationClass,
    PodClass,
    UsageSplit,
    reserved_milli,
    split_usage,
    suppress_milli,
)
from cotenant_node_executor.strategies.cpu.suppression.strategy import STRATEGY, suppress
from cotenant_node_executor.strategies.situation import BestEffortTree, Processor
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import batch, facts, service, situation, slo, snapshot

# -- quantity ------------------------------------------------------------------------------------------------------


def test_what_is_reserved_is_the_larger_of_what_allocatable_leaves_out_and_the_annotation() -> None:
    assert reserved_milli(8000, 7000, 500) == 1000
    assert reserved_milli(8000, 7000, 2000) == 2000
    assert reserved_milli(8000, 9000) == 0
    assert reserved_milli(8000, 8000) == 0


def test_usage_is_split_into_pods_host_applications_and_the_rest() -> None:
    pods = [PodClass("be", "BE", "Burstable"), PodClass("besteffort", "", "BestEffort"), PodClass("web", "LS", "Burstable")]
    hosts = [
        HostApplicationClass("unmeasured"),
        HostApplicationClass("batch", "BE", "KubepodsBesteffort"),
        HostApplicationClass("elsewhere", "BE", "CgroupRoot"),
        HostApplicationClass("service", "LS", "KubepodsBesteffort"),
    ]
    used = {"be": 100.0, "besteffort": 50.0, "web": 200.0, "unknown": 30.0}
    host_used = {"batch": 10.0, "elsewhere": 20.0, "service": 40.0, "unlisted": 999.0}
    # system: 1000 - (100 + 50 + 200 + 30) - (10 + 20 + 40)
    assert split_usage(1000.0, 0.0, pods, used, hosts, host_used) == UsageSplit(230.0, 60.0, 550.0)
    assert split_usage(1000.0, 600.0, pods, used, hosts, host_used).system_milli == 600.0
    assert split_usage(100.0, 0.0, pods, used).system_milli == 0.0


def test_the_quantity_is_the_threshold_less_what_others_use_and_not_below_the_floor() -> None:
    split = UsageSplit(1500.9, 200.9, 300.9)
    assert suppress_milli(8000, 65, split) == 5200 - 1500 - 200 - 300
    assert suppress_milli(8000, 10, split) == 800 - 2000
    assert suppress_milli(8000, 10, split, 20) == 1600


def test_the_strategy_takes_the_floor_and_the_reservation_of_the_node_slo() -> None:
    reading = snapshot(6000, {"uid-web": 6000})
    floored = suppress(situation([service("web")], node_slo=slo(cpu_suppress_min_percent=20), reading=reading))
    assert floored is not None
    assert floored.quantity_milli == 1600
    reserved = suppress(situation([], node_slo=slo(reserved_cpu_milli=1000), reading=snapshot(0)))
    assert reserved is not None
    assert reserved.quantity_milli == 5200 - 1000


def test_the_decision_as_text_and_figures() -> None:
    decided = suppress(
        situation([service("web"), batch("job")], node_slo=slo(), reading=snapshot(4000, {"uid-web": 1500, "uid-job": 2000}))
    )
    assert decided is not None
    assert decided.why == "best-effort may use 3200m = 8000m x 65% - 1500m services - 500m system"
    assert STRATEGY.figures(decided) == {
        "capacity.cpu-milli": 8000,
        "threshold.percent": 65,
        "node.cpu-milli": 4000,
        "services.cpu-milli": 1500,
        "host.cpu-milli": 0,
        "system.cpu-milli": 500,
        "best-effort.cpu-milli": 3200,
    }
    off = suppress(situation(node_slo=slo(enable=False)))
    assert off is not None
    assert (off.quantity_milli, off.threshold_percent, off.capacity_milli, off.node_used_milli) == (0, 0, 0, 0)
    assert off.why == "suppression is disabled: best-effort is unlimited"
    assert STRATEGY.figures(off) == STRATEGY.figures(None) == {}


def test_the_same_set_goes_down_to_containers_and_no_deeper() -> None:
    groups = frozenset({BESTEFFORT, "besteffort/yarn", "besteffort/yarn/c1", "besteffort/yarn/c1/deeper"})
    here = msgspec.structs.replace(situation(node_slo=slo(enable=False)), tree=BestEffortTree(groups, {}))
    decided = suppress(here)
    assert decided is not None
    sets = {group: [each.value for each in own if each.attribute is Knob.CPUSET_CPUS] for group, own in decided.values.items()}
    assert sets == {group: ["0-7"] for group in (BESTEFFORT, "besteffort/yarn", "besteffort/yarn/c1")}


# -- quota ---------------------------------------------------------------------------------------------------------


def test_the_quota_is_100_us_a_milli_cpu_and_at_least_2000() -> None:
    assert next_quota(3000, 8000, -1) == 300_000
    assert next_quota(-5, 8000, -1) == 2000
    assert next_quota(20, 8000, -1) == 2000
    assert next_quota(21, 8000, -1) == 2100


def test_the_floor_is_reached_whatever_the_distance() -> None:
    assert next_quota(0, 64_000, 3000) == 2000
    assert next_quota(0, 64_000, 2000) is None


def test_a_change_below_one_percent_of_the_node_is_left_out() -> None:
    # 1 % of 64 CPUs is 64000 us
    assert next_quota(2639, 64_000, 200_000) is None
    assert next_quota(2640, 64_000, 200_000) == 264_000
    assert next_quota(1361, 64_000, 200_000) is None
    assert next_quota(1360, 64_000, 200_000) == 136_000


def test_growth_is_a_tenth_of_the_node_at_most_counted_in_whole_cpus() -> None:
    assert next_quota(8000, 8000, 100_000) == 180_000
    assert next_quota(1_000_000, 3003, 100_000) == 140_000
    assert next_quota(1000, 8000, 800_000) == 100_000, "shrinking happens at once"


# -- which CPUs ----------------------------------------------------------------------------------------------------


def machine(*buckets: tuple[tuple[int, int], ...], sockets: tuple[int, ...] = ()) -> list[Processor]:
    """One bucket of (cpu, core) for each NUMA node, on the socket of the same number unless `sockets` is given."""
    return [
        Processor(cpu=cpu, core=core, socket=sockets[node] if sockets else node, node=node)
        for node, bucket in enumerate(buckets)
        for cpu, core in bucket
    ]


TWO_NODES = machine(((0, 0), (1, 0), (2, 1), (3, 1)), ((4, 2), (5, 2), (6, 3), (7, 3)))
THREE_NODES = machine(((0, 0), (1, 0)), ((2, 1), (3, 1)), ((4, 2), (5, 2)))


@pytest.mark.parametrize(
    ("count", "processors", "chosen"),
    [
        (0, TWO_NODES, []),
        (9, TWO_NODES, []),
        (1, TWO_NODES, [0]),
        (2, TWO_NODES, [0, 1]),
        (3, TWO_NODES, [0, 1, 4]),
        (4, TWO_NODES, [0, 1, 4, 5]),
        (5, TWO_NODES, [0, 1, 4, 5, 2]),
        (6, TWO_NODES, [0, 1, 4, 5, 2, 3]),
        (4, TWO_NODES[::-1], [0, 1, 4, 5]),
        (4, THREE_NODES, [0, 1, 2, 3]),
        (5, THREE_NODES, [0, 1, 2, 3, 4]),
        # cores of one thread: nothing whole to take, so single CPUs round-robin
        (3, machine(((0, 0), (1, 1)), ((2, 2), (3, 3))), [0, 2, 1]),
        (2, machine(((0, 0),), ((1, 1),), ((2, 2),)), [0, 1]),
        (6, machine(((0, 0), (1, 1), (2, 2), (3, 3)), ((4, 4),), ((5, 5),)), [0, 4, 5, 1, 2, 3]),
        # the larger bucket first
        (2, machine(((0, 0), (1, 0)), ((2, 1), (3, 1), (4, 2), (5, 2))), [2, 3]),
        # a core whose other thread is not there
        (2, machine(((0, 0), (1, 1), (2, 1))), [1, 2]),
        (3, machine(((0, 0), (1, 1), (2, 1))), [1, 2, 0]),
        # two NUMA nodes a socket are four buckets
        (
            4,
            machine(((0, 0), (1, 0)), ((2, 1), (3, 1)), ((4, 2), (5, 2)), ((6, 3), (7, 3)), sockets=(0, 0, 1, 1)),
            [0, 1, 2, 3],
        ),
        (
            8,
            machine(((0, 0), (1, 0)), ((2, 1), (3, 1)), ((4, 2), (5, 3)), ((6, 4), (7, 5)), sockets=(0, 0, 1, 1)),
            [0, 1, 2, 3, 4, 6, 5, 7],
        ),
        # the keys (0 + 2) x 2 and (2 + 2) x 1 are equal: one bucket, in the order of cores
        (2, [Processor(cpu=1, core=0, socket=1, node=0), Processor(cpu=0, core=5, socket=0, node=2)], [1, 0]),
    ],
)
def test_whole_cores_are_chosen_first_round_robin(count: int, processors: list[Processor], chosen: list[int]) -> None:
    assert select_cpus(count, processors) == chosen


EIGHT = facts(8).processors
ALL = frozenset(range(8))


def test_the_set_has_as_many_cpus_as_the_quantity_rounded_up_and_at_least_two() -> None:
    assert next_cpuset(3000, EIGHT, ALL, {}) == "0-2"
    assert next_cpuset(3001, EIGHT, ALL, {}) == "0-3"
    assert next_cpuset(-5000, EIGHT, ALL, {}) == "0-1"


def test_the_set_grows_by_a_tenth_of_all_cpus_rounded_up() -> None:
    two = frozenset({0, 1})
    assert next_cpuset(8000, EIGHT, two, {}) == "0-2"
    assert next_cpuset(8000, facts(10).processors, two, {}) == "0-2"
    assert next_cpuset(8000, facts(11).processors, two, {}) == "0-3"


def test_cpus_of_lsr_pods_are_used_in_proportion() -> None:
    owners = {0: QoSClass.LSR.value, 1: QoSClass.LSR.value, 2: QoSClass.LS.value}
    # 4 x 2 / 8 = 1 of the LSR CPUs, 3 of the others
    assert next_cpuset(4000, EIGHT, ALL, owners) == "0,2-4"


def test_reserved_cpus_and_those_of_lse_pods_are_left_out() -> None:
    assert next_cpuset(2000, EIGHT, ALL, {}, frozenset({0})) == "2-3"
    assert next_cpuset(2000, EIGHT, ALL, {0: QoSClass.LSE.value, 1: QoSClass.LSE.value}) == "2-3"
    assert next_cpuset(2000, EIGHT, ALL, dict.fromkeys(range(8), QoSClass.LSE.value)) is None


def test_a_single_usable_cpu_is_used_where_no_more_are_wanted() -> None:
    assert next_cpuset(1000, EIGHT[:1], frozenset(), {}) == "0"
    assert next_cpuset(1000, EIGHT[:1], frozenset({0}), {}) is None, "two are wanted, and there is one"


def test_a_quantity_just_above_the_present_cpus_is_within_the_dead_band() -> None:
    # 1 % of 20 CPUs is 200 milli-CPU
    assert with_dead_band(2199, 2, 20_000) == 2000
    assert with_dead_band(2200, 2, 20_000) == 2200
    assert with_dead_band(1999, 2, 20_000) == 1999


def test_under_a_static_policy_only_containers_are_narrowed() -> None:
    levels = [["be"], ["be/pod"], ["be/pod/main"]]
    assert cpuset_targets("0-1", "0-7", True, levels) == {"be": "0-7", "be/pod": "0-7", "be/pod/main": "0-1"}
    assert cpuset_targets("0-1", "0-7", False, levels) == {"be": "0-1", "be/pod": "0-1", "be/pod/main": "0-1"}
