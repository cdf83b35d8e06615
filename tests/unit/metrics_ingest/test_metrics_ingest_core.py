"""The metrics-ingest core through apply and decide."""

from datetime import timedelta

import msgspec
import pytest

from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant_metrics_ingest.config import MetricsConfig
from tests.unit.metrics_ingest.builders_metrics_ingest import START, MetricsLog, host, pod

FAST = MetricsConfig(report_interval_seconds=2, aggregate_duration_seconds=10, durations_seconds=(10, 20, 60))


def test_the_first_sample_is_reported_at_once_with_the_sample_as_cause() -> None:
    log = MetricsLog()
    node = log.node()
    log.decide()
    sample = log.sample([1000, 2000], [50, 70], system=[100, 300])
    (event,) = log.decide()
    assert event.subject == "metrics.n1"
    assert event.causes == (sample, node)
    metric = log.metric()
    assert metric.node_usage == Usage(cpu_milli=1500, memory_bytes=60)
    assert metric.system_usage.cpu_milli == 200
    assert metric.update_time == log.now


def test_reports_come_at_the_interval_and_only_with_news() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000])
    assert len(log.decide()) == 1
    log.now += timedelta(seconds=15)
    log.sample([3000])
    assert log.decide() == []
    assert len(log.decide(after=45)) == 1
    assert log.metric().node_usage.cpu_milli == 2000
    assert log.decide(after=61) == []


def test_means_forget_what_is_older_than_the_window() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.run([9000] * 30, each=2)
    log.run([1000] * 12, each=2)
    assert log.metric().node_usage.cpu_milli == 1000


def test_percentiles_take_the_rank_below_without_interpolation() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.run(list(range(1, 11)), each=5)
    log.decide(after=3)
    window = log.metric().aggregated_node_usages[0]
    assert window.duration_seconds == 10
    figures = (window.p50, window.p90, window.p95, window.p99)
    assert [usage.cpu_milli for usage in figures] == [5, 9, 9, 9]
    assert window.avg.cpu_milli == 5


def test_a_window_in_cold_start_has_no_percentiles() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.run([1000] * 8, each=2)
    log.decide(after=2)
    metric = log.metric()
    assert [window.duration_seconds for window in metric.aggregated_node_usages] == [10]
    assert metric.cold_windows == (20, 60)
    log.run([1000] * 8, each=2)
    log.decide(after=2)
    assert log.metric().cold_windows == (60,)


def test_pods_and_host_applications_are_those_of_the_last_message_sorted() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([5, 5], pods=[pod("z", [10, 20]), pod("a", [30, 50], qos="BE")], hosts=[host("nginx", [7, 9])])
    log.decide()
    metric = log.metric()
    assert [(entry.name, entry.qos, entry.usage.cpu_milli) for entry in metric.pods] == [("a", "BE", 40), ("z", "LS", 15)]
    assert [(entry.name, entry.usage.cpu_milli) for entry in metric.host_applications] == [("nginx", 8)]
    log.now += timedelta(seconds=2)
    log.sample([5, 5], pods=[pod("a", [50, 50])])
    log.decide()
    assert [(entry.name, entry.usage.cpu_milli) for entry in log.metric().pods] == [("a", 45)]


def test_pods_without_uid_are_distinguished_by_name() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    for name, cpu in (("a", 10), ("b", 30)):
        nameless = msgspec.structs.replace(pod(name, [cpu]), uid="")
        log.now += timedelta(seconds=2)
        log.sample([5], pods=[nameless])
        log.decide()
        assert [(entry.name, entry.usage.cpu_milli) for entry in log.metric().pods] == [(name, cpu)]


def test_pods_that_come_twice_in_a_message_are_added_up() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([5], pods=[pod("a", [10]), pod("a", [30])])
    log.decide()
    assert log.metric().pods[0].usage.cpu_milli == 20


def test_after_a_restart_a_message_without_pods_ends_those_that_the_report_had() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([5], pods=[pod("a", [10])])
    log.decide()
    fresh = log.reloaded()
    log.now += timedelta(seconds=2)
    log.sample([5])
    fresh.apply(log.usage[-1])
    (event,) = fresh.decide(log.now)
    assert event.data.pods == ()  # type: ignore[attr-defined]


def test_a_pod_that_started_between_two_messages_has_the_newest_samples() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([1] * 15, pods=[pod("late", [100, 200])])
    log.decide()
    assert log.metric().pods[0].usage.cpu_milli == 150


def test_a_silent_node_is_unknown_since_its_last_sample_and_keeps_its_figures() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000])
    log.decide()
    heard = log.now
    assert log.decide(after=179) == []
    (event,) = log.decide(after=1)
    metric = log.metric()
    assert event.subject == "metrics.n1"
    assert metric.unknown_since == heard
    assert metric.node_usage.cpu_milli == 1000
    assert log.decide(after=600) == []


def test_a_node_that_sends_samples_again_is_reported_at_once() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000])
    log.decide()
    log.decide(after=300)
    log.sample([3000])
    log.decide()
    metric = log.metric()
    assert metric.unknown_since is None
    assert metric.update_time == log.now


def test_a_node_that_never_reports_is_unknown_since_it_was_declared() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.decide(after=200)
    metric = log.metric()
    assert metric.unknown_since == START
    assert metric.update_time is None
    log.sample([1000])
    log.decide()
    assert log.metric().unknown_since is None


def test_after_downtime_of_the_service_no_node_is_marked_silent_at_once() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000])
    log.decide()
    fresh = log.reloaded()
    assert fresh.decide(log.now + timedelta(hours=1)) == []
    (event,) = fresh.decide(log.now + timedelta(hours=1, seconds=180))
    assert event.data.unknown_since == log.now  # type: ignore[attr-defined]


def test_time_running_backwards_is_refused_with_the_reason_and_changes_no_window() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([1000, 1000])
    log.decide()
    ref = log.sample([9000, 9000], at=log.now - timedelta(seconds=30))
    log.decide(after=2)
    metric = log.metric()
    assert metric.node_usage.cpu_milli == 1000
    assert metric.refused_samples == 1
    assert metric.refused_reason.startswith("TimeRunsBackwards: " + ref)
    assert log.core.refusals == {"TimeRunsBackwards": 1}


def test_a_sample_from_the_future_is_refused_and_later_ones_are_taken() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([9000], at=log.now + timedelta(seconds=61))
    log.sample([1000], at=log.now + timedelta(seconds=1))
    log.decide(after=1)
    metric = log.metric()
    assert metric.node_usage.cpu_milli == 1000
    assert metric.refused_reason.startswith("FromTheFuture")


def test_a_sample_older_than_every_window_is_refused() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([9000], at=log.now - timedelta(minutes=2))
    assert log.decide() == []
    assert log.core.refusals == {"OlderThanEveryWindow": 1}


def test_a_duplicate_message_is_no_error_and_counts_once() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([1000], counter=7)
    log.sample([5000], counter=7)
    log.decide()
    assert log.metric().node_usage.cpu_milli == 1000
    assert log.core.refusals == {}


def test_overlapping_messages_count_their_newer_samples_only() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample([1000, 1000, 1000])
    log.now += timedelta(seconds=1)
    log.sample([9000, 9000, 5000])
    log.decide()
    assert log.metric().node_usage.cpu_milli == 2000


@pytest.mark.parametrize(
    "wanted",
    [
        {"cpu": [1, 2], "memory": [1]},
        {"cpu": [-1]},
        {"cpu": [2**60]},
        {"cpu": [1, 2], "offsets_ms": [0, -1000]},
        {"cpu": [1, 2], "offsets_ms": [-1000, 5]},
        {"cpu": [1], "period_ms": 0, "offsets_ms": [0]},
        {"cpu": [], "offsets_ms": []},
    ],
)
def test_series_that_do_not_fit_are_refused(wanted: dict[str, list[int]]) -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.sample(**wanted)  # type: ignore[arg-type]
    assert log.decide() == []
    assert log.core.refusals == {"Malformed": 1}


def test_samples_of_a_node_without_an_object_are_counted_and_dropped() -> None:
    log = MetricsLog()
    log.decide()
    for number in range(5):
        log.sample([1000], node=f"undeclared-{number}")
    assert log.decide() == []
    assert log.core.refusals == {"NoNodeObject": 5}
    assert log.core._nodes == {}


def test_a_deleted_node_ends_its_metrics() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000])
    log.decide()
    log.delete_node()
    (event,) = log.decide()
    assert event.tombstone
    assert log.decide(after=600) == []
    log.node()
    log.decide()
    log.sample([3000])
    log.decide()
    assert log.metric().node_usage.cpu_milli == 3000


def test_a_restart_continues_with_equal_windows() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    values = [(7 * number) % 1000 for number in range(60)]
    log.run(values, each=2, system=[10, 30], pods=[pod("a", [10, 20])], hosts=[host("nginx", [7, 9])])
    log.decide(after=2)
    fresh = log.reloaded()
    assert fresh.decide(log.now) == []
    for core in (log.core, fresh):
        assert core._nodes["n1"].windows is not None
    log.now += timedelta(seconds=2)
    log.sample([500, 700], system=[10, 30], pods=[pod("a", [100, 200])])
    fresh.apply(log.usage[-1])
    after_restart, in_order = (core.decide(log.now)[0].data for core in (fresh, log.core))
    assert isinstance(after_restart, NodeMetricComputed)
    assert isinstance(in_order, NodeMetricComputed)
    # Prediction models are stored every ten minutes.
    assert after_restart.prediction is None
    assert after_restart == msgspec.structs.replace(in_order, prediction=None, prod_peak=None)


def test_samples_that_arrive_before_their_nodes_digest_are_folded_after_it() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.run([1000] * 8, each=2)
    log.decide(after=2)
    log.sample([3000, 3000])
    in_order = log.core.decide(log.now + timedelta(seconds=3))
    fresh = log.reloaded()
    after_restart = fresh.decide(log.now + timedelta(seconds=3))
    # When it was heard is the one thing that only a service that listened knows better.
    assert [msgspec.structs.replace(event.data, update_time=None) for event in after_restart] == [
        msgspec.structs.replace(event.data, update_time=None) for event in in_order
    ]


def test_after_a_restart_no_message_since_the_last_report_is_missing() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.minutes(3, 500, pods=[pod("a", [10] * 15)])
    for cpu in (500, 1000, 2000, 3000):
        log.now += timedelta(seconds=15)
        log.sample([cpu + second for second in range(15)], pods=[pod("a", [cpu // 10] * 15)])
        log.decide()
    digest = log.metric().digest
    assert digest is not None
    assert digest.last_ms == 1000 * (log.now - timedelta(seconds=45)).timestamp()
    fresh = log.reloaded()
    fresh.decide(log.now)
    log.now += timedelta(seconds=15)
    log.sample([2500] * 15, pods=[pod("a", [400] * 15)])
    fresh.apply(log.usage[-1])
    after_restart, in_order = (core.decide(log.now)[0].data for core in (fresh, log.core))
    assert isinstance(after_restart, NodeMetricComputed)
    assert isinstance(in_order, NodeMetricComputed)
    assert in_order.services_peak == Usage(cpu_milli=3014, memory_bytes=1000)
    # Prediction has its own promise (test_prediction).
    assert after_restart == msgspec.structs.replace(
        in_order, prediction=after_restart.prediction, prod_peak=after_restart.prod_peak
    )


def test_stored_metrics_are_counted_by_whether_the_node_was_heard() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.minutes(3, 500)
    assert log.core.stored == {"succeeded": 3, "failed": 0}
    log.decide(after=60)
    assert log.core.stored == {"succeeded": 4, "failed": 0}
    log.decide(after=600)
    assert log.metric().unknown_since is not None
    assert log.core.stored == {"succeeded": 4, "failed": 1}


def test_a_damaged_digest_starts_empty_and_stops_nothing() -> None:
    log = MetricsLog(FAST)
    log.node()
    log.decide()
    log.run([1000] * 8, each=2)
    digest = log.metric().digest
    assert digest is not None
    for damaged in (b"\xff", digest.slots.closed[:-1], b"\x00" * 40):
        slots = msgspec.structs.replace(digest.slots, closed=damaged)
        means = msgspec.structs.replace(digest.means, sums=damaged)
        metric = msgspec.structs.replace(log.metric(), digest=msgspec.structs.replace(digest, slots=slots, means=means))
        other = MetricsLog(FAST)
        other.now = log.now
        other.node()
        other._store(msgspec.structs.replace(log.log[-1], data=metric))
        other.decide()
        other.now += timedelta(seconds=2)
        other.sample([4000, 4000])
        other.decide(after=2)
        assert other.metric().node_usage.cpu_milli == 4000


def test_many_nodes_are_reported_in_portions_by_name() -> None:
    log = MetricsLog()
    for number in range(1100):
        log.node(f"n{number:04}")
    log.decide()
    for number in range(1100):
        log.sample([number], node=f"n{number:04}")
    assert len(log.core.decide(log.now)) == 999
    assert [event.subject for event in log.decide()] == [f"metrics.n{number:04}" for number in range(1100)]


def test_reports_due_within_a_twentieth_of_a_second_are_one_batch_and_wait_no_longer() -> None:
    log = MetricsLog()
    names = ("n1", "n2", "n3")
    for name in names:
        log.node(name)
        log.decide()
        log.sample([1000], node=name)
        log.decide(after=0.01)
    log.now += timedelta(seconds=15)
    for name in names:
        log.sample([3000], node=name)
    log.decide()
    # n1 is due at 60.01 s, n2 and n3 10 and 20 ms later, less than a look after n1.
    assert [event.subject for event in log.decide(after=44.98)] == ["metrics.n1"]
    assert log.decide(after=0.02) == []
    assert [event.subject for event in log.decide(after=0.03)] == ["metrics.n2", "metrics.n3"]
