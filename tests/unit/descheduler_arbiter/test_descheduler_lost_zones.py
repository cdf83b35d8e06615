"""Many nodes lost at once: zones, their states, and the rate at which nodes get the NoExecute taint."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from cotenant.events.node.conditions import NodeCondition, ZoneDisruption
from cotenant_descheduler_arbiter.config.policy import NodeEvictionRates
from cotenant_descheduler_arbiter.node_lifecycle.zones import ZoneState, eviction_rate, zone_of, zone_state
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import START, Cluster, configuration

NO_BALANCING = configuration(balance=False)
RATES = NodeEvictionRates()
SECOND = timedelta(seconds=1)


def cluster_of(count: int, zones: int = 1, **lifecycle: object) -> Cluster:
    """Nodes n0 .. with an executor, a metric and a pod each; n<i> stands in zone i modulo `zones`."""
    cluster = Cluster(configuration(balance=False, nodeLifecycle=lifecycle))
    for index in range(count):
        name = f"n{index}"
        cluster.node(name, labels={"topology.kubernetes.io/zone": f"z{index % zones}"})
        cluster.executor(name)
        cluster.pod(f"web-{index}", name)
        cluster.metric(name)
    cluster.decide()
    return cluster


def lose(cluster: Cluster, *indices: int) -> None:
    for index in indices:
        cluster.metric(f"n{index}", at=cluster.now - timedelta(minutes=1), unknown_since=cluster.now)
    cluster.decide()


def come_back(cluster: Cluster, *indices: int) -> None:
    for index in indices:
        cluster.metric(f"n{index}")
    cluster.decide()


def condition(cluster: Cluster, index: int) -> NodeCondition:
    data = cluster.last[f"node.n{index}.condition"].data
    assert isinstance(data, NodeCondition)
    return data


def evicting(cluster: Cluster) -> set[str]:
    found = set()
    for subject, event in cluster.last.items():
        if subject.endswith(".condition") and not event.tombstone:
            assert isinstance(event.data, NodeCondition)
            if event.data.evicts:
                found.add(event.data.node)
    return found


def taintings(cluster: Cluster) -> list[datetime]:
    """The times at which nodes got the taint, as the conditions on the log say."""
    said = [event.data for event in cluster.decided if isinstance(event.data, NodeCondition)]
    times = {(data.tainted_at, data.node) for data in said if data.evicts and data.tainted_at is not None}
    return sorted(at for at, _ in times)


@pytest.mark.parametrize(
    ("nodes", "lost", "state"),
    [
        (10, 0, ZoneState.NORMAL),
        (2, 1, ZoneState.NORMAL),
        (3, 2, ZoneState.NORMAL),
        (4, 3, ZoneState.PARTIAL),
        (100, 54, ZoneState.NORMAL),
        (100, 55, ZoneState.PARTIAL),
        (100, 100, ZoneState.FULL),
        (1, 1, ZoneState.FULL),
        (0, 0, ZoneState.NORMAL),
    ],
)
def test_the_state_of_a_zone_follows_from_its_counts(nodes: int, lost: int, state: ZoneState) -> None:
    assert zone_state(nodes, lost, RATES) is state


@pytest.mark.parametrize(
    ("state", "nodes", "rate"),
    [
        (ZoneState.NORMAL, 1000, 0.1),
        (ZoneState.FULL, 10, 0.1),
        (ZoneState.PARTIAL, 50, 0.0),
        (ZoneState.PARTIAL, 51, 0.01),
    ],
)
def test_the_rate_of_a_zone_follows_from_its_state_and_size(state: ZoneState, nodes: int, rate: float) -> None:
    assert eviction_rate(state, nodes, RATES) == rate


def test_a_zone_is_region_and_zone() -> None:
    region, zone = {"topology.kubernetes.io/region": "eu"}, {"topology.kubernetes.io/zone": "a"}
    assert [zone_of({**region, **zone}), zone_of(zone), zone_of(region), zone_of({"a": "b"})] == ["eu/a", "/a", "eu/", ""]


def test_nodes_lost_at_once_are_tainted_one_every_ten_seconds() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0, 1, 2, 3)
    assert len(evicting(cluster)) == 1
    for second in range(1, 31):
        cluster.advance(SECOND)
        assert len(evicting(cluster)) == 1 + second // 10, second
    assert [(at - START).total_seconds() for at in taintings(cluster)] == [0, 10, 20, 30]


def test_each_zone_has_a_rate_of_its_own() -> None:
    cluster = cluster_of(12, zones=2)
    lose(cluster, 0, 2, 1, 3)
    assert evicting(cluster) == {"n0", "n1"}


def test_the_node_that_is_lost_longest_is_tainted_first() -> None:
    cluster = cluster_of(10)
    lose(cluster, 9)
    cluster.advance(SECOND)
    lose(cluster, 5)
    cluster.advance(SECOND)
    lose(cluster, 1)
    cluster.advance(timedelta(seconds=8))
    assert evicting(cluster) == {"n9", "n5"}


def test_a_lost_node_takes_no_pods_before_the_rate_allows_its_eviction() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0, 1)
    assert condition(cluster, 1).taints == (("node.kubernetes.io/unreachable", "", "NoSchedule"),)
    assert not condition(cluster, 1).ready


def test_tolerations_count_from_the_taint_and_not_from_the_loss() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0, 1)
    for _ in range(10):
        cluster.advance(SECOND)
    assert (condition(cluster, 1).since, condition(cluster, 1).tainted_at) == (START, START + timedelta(seconds=10))
    cluster.advance(timedelta(seconds=299))
    assert [job.pod for job in cluster.migrations()] == ["web-0"]
    cluster.advance(SECOND)
    assert {job.pod for job in cluster.migrations()} == {"web-0", "web-1"}


def test_a_small_zone_in_partial_disruption_loses_no_further_pods() -> None:
    cluster = cluster_of(31)
    lose(cluster, *range(2))
    lose(cluster, *range(2, 30))
    before = evicting(cluster)
    assert len(before) == 1
    for _ in range(20):
        cluster.advance(timedelta(minutes=1))
    assert evicting(cluster) == before
    assert {job.node for job in cluster.migrations()} == before
    disruption = condition(cluster, 29).disruption
    assert disruption == ZoneDisruption(state="PartialDisruption", lost=30, nodes=31, nodes_per_second=0.0, since=START)


def test_a_large_zone_in_partial_disruption_loses_a_node_every_hundred_seconds() -> None:
    cluster = cluster_of(61)
    lose(cluster, *range(60))
    for _ in range(1000):
        cluster.advance(SECOND)
    times = [(at - START).total_seconds() for at in taintings(cluster)]
    assert times == [0, *range(100, 1001, 100)]


def test_one_zone_that_is_lost_as_a_whole_goes_at_the_normal_rate() -> None:
    cluster = cluster_of(8, zones=2)
    lose(cluster, 0, 2, 4, 6)
    for _ in range(30):
        cluster.advance(SECOND)
    assert evicting(cluster) == {"n0", "n2", "n4", "n6"}
    disruption = condition(cluster, 0).disruption
    assert disruption is not None
    assert (disruption.state, disruption.nodes_per_second) == ("FullDisruption", 0.1)


def test_where_every_node_is_lost_taints_are_removed_and_count_again_from_the_next() -> None:
    cluster = cluster_of(3)
    lose(cluster, 0)
    assert evicting(cluster) == {"n0"}
    cluster.advance(timedelta(seconds=200))
    lose(cluster, 1, 2)
    assert evicting(cluster) == set()
    cluster.advance(timedelta(hours=1))
    assert cluster.migrations() == []
    come_back(cluster, 2)
    assert evicting(cluster) == {"n0"}
    back = cluster.now
    cluster.advance(timedelta(seconds=299))
    assert cluster.migrations() == []
    cluster.advance(SECOND)
    assert [job.pod for job in cluster.migrations()] == ["web-0"]
    assert condition(cluster, 0).tainted_at == back


def test_a_node_that_flaps_does_not_lift_the_rate() -> None:
    cluster = cluster_of(10)
    for _ in range(30):
        lose(cluster, 0, 1, 2)
        cluster.advance(SECOND)
        come_back(cluster, 0, 1, 2)
        cluster.advance(SECOND)
    times = taintings(cluster)
    assert len(times) >= 2
    assert all(later - earlier >= timedelta(seconds=10) for earlier, later in pairwise(times))


def test_a_tainted_node_that_is_deleted_or_moved_counts_in_its_zones_rate_also_after_a_restart() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0, 1)
    for subject in ("objects.core.nodes._.n0", "node.n0.executor", "metrics.n0"):
        cluster.publish(subject, cluster.last[subject].data, tombstone=True)
    cluster.decide()
    cluster.advance(timedelta(seconds=9))
    cluster.restart()
    cluster.decide()
    assert evicting(cluster) == set()
    cluster.advance(SECOND)
    assert evicting(cluster) == {"n1"}


def test_a_restart_keeps_rate_and_tolerations() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0, 1)
    cluster.advance(timedelta(seconds=9))
    cluster.restart()
    cluster.decide()
    assert evicting(cluster) == {"n0"}
    cluster.advance(SECOND)
    assert evicting(cluster) == {"n0", "n1"}
    cluster.restart()
    cluster.advance(timedelta(seconds=290))
    assert [job.pod for job in cluster.migrations()] == ["web-0"]


def test_the_taint_changes_its_key_with_the_status_and_keeps_its_time() -> None:
    cluster = cluster_of(10)
    lose(cluster, 0)
    cluster.advance(timedelta(seconds=100))
    cluster.executor("n0")
    cluster.decide()
    found = condition(cluster, 0)
    assert found.taints[1] == ("node.kubernetes.io/not-ready", "", "NoExecute")
    assert (found.since, found.tainted_at) == (cluster.now, START)


def test_a_zone_at_its_threshold_is_said_at_most_every_ten_seconds() -> None:
    cluster = cluster_of(8)
    lose(cluster, 0, 1, 2, 3)
    before = len(cluster.decided)
    for _ in range(10):
        lose(cluster, 4)
        cluster.advance(SECOND / 2)
        come_back(cluster, 4)
        cluster.advance(SECOND / 2)
    of_others = [
        event for event in cluster.decided[before:]
        if isinstance(event.data, NodeCondition) and event.data.node in ("n0", "n1", "n2", "n3") and not event.data.evicts
    ]
    assert len(of_others) <= 3 * 4


def test_the_condition_loses_its_disruption_when_the_zone_recovers() -> None:
    cluster = cluster_of(8)
    lose(cluster, *range(5))
    assert condition(cluster, 4).disruption is not None
    cluster.advance(timedelta(seconds=20))
    come_back(cluster, 0, 1, 2)
    assert condition(cluster, 4).disruption is None
    assert condition(cluster, 0).disruption is None


def test_rates_are_configured() -> None:
    cluster = cluster_of(10, nodeEvictionRate=1, unhealthyZoneThreshold=0.9)
    lose(cluster, *range(6))
    for _ in range(5):
        cluster.advance(SECOND)
    assert len(evicting(cluster)) == 6


def test_a_rate_of_zero_evicts_nobody() -> None:
    cluster = cluster_of(10, nodeEvictionRate=0)
    lose(cluster, 0)
    cluster.advance(timedelta(hours=1))
    assert evicting(cluster) == set()


def test_the_zones_of_the_last_decision_can_be_read() -> None:
    cluster = cluster_of(9, zones=2)
    lose(cluster, 0, 2, 4, 6)
    assert [(zone.zone, zone.nodes, zone.lost, zone.nodes_per_second) for zone in cluster.core.zones()] == [
        ("/z0", 5, 4, 0.0),
        ("/z1", 4, 0, 0.1),
    ]
