"""The state is a function of the last message of each subject, in whatever order they come."""

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.subjects import matches
from cotenant_descheduler_arbiter.definition import DEFINITION
from cotenant_descheduler_arbiter.state.fold import FILTERS
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import CYCLE, Cluster, configuration, hot_and_cold


def busy() -> Cluster:
    cluster = hot_and_cold(configuration(load={"anomalyCondition": {"consecutiveAbnormalities": 1}}))
    cluster.job("users", "web-0")
    cluster.cycle(2)
    job = next(job for job in cluster.migrations() if job.trigger == "LowNodeLoad")
    cluster.answer(job.job)
    cluster.metric("cold", unknown_since=cluster.now)
    return cluster


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_order_of_the_last_messages_leads_to_the_same_decision(random) -> None:  # type: ignore[no-untyped-def]
    cluster = busy()
    cluster.now += CYCLE
    expected = cluster.core.decide(cluster.now)
    assert expected
    order = [*cluster.last, *random.sample(sorted(cluster.last), 5)]
    random.shuffle(order)
    cluster.restart(order)
    assert cluster.core.decide(cluster.now) == expected


def test_an_outdated_message_changes_nothing() -> None:
    cluster = busy()
    before = cluster.last["objects.core.pods.default.web-1"]
    cluster.pod("web-1", "cold")
    cluster.core.apply(before)
    facts = cluster.core.fold.pods.facts("default/web-1")
    known = cluster.core.fold.pods.objects.get("default/web-1")
    assert facts is not None
    assert known is not None
    assert known.sequence > before.sequence


def test_deciding_changes_nothing() -> None:
    cluster = busy()
    assert cluster.core.decide(cluster.now) == cluster.core.decide(cluster.now)


def test_every_subject_that_is_folded_is_read() -> None:
    for subject in busy().last:
        assert any(matches(each, subject) for each in FILTERS), subject


def test_an_object_that_cannot_be_read_is_left_out_and_named() -> None:
    cluster = hot_and_cold()
    cluster.store("objects.core.pods.default.broken", {"metadata": {"name": 7}})
    assert "objects.core.pods.default.broken" in cluster.core.fold.refused
    cluster.cycle()
    cluster.store("objects.core.pods.default.broken", {"metadata": {"name": "broken", "namespace": "default"}})
    assert cluster.core.fold.refused == {}


def test_malformed_pods_and_metrics_never_stop_a_decision() -> None:
    cluster = hot_and_cold(configuration(load={"anomalyCondition": {"consecutiveAbnormalities": 1}}))
    known = msgspec.json.decode(cluster.last["objects.core.pods.default.web-3"].data.object)  # type: ignore[attr-defined]
    known["spec"]["volumes"] = ["not a volume", {"hostPath": 3}]
    known["metadata"]["annotations"] = {"scheduling.koordinator.sh/eviction-cost": "9" * 5000}
    known["spec"]["tolerations"] = [{"operator": "Exists", "tolerationSeconds": 10**15}]
    cluster.store("objects.core.pods.default.web-3", known)
    cluster.store("objects.core.pods.default.odd", {"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}})
    cluster.cycle()
    kept = {pod.name: pod.reason for pod in cluster.judged("hot").kept}
    assert kept.get("web-3") == "it uses local storage"
    cluster.job("huge", "web-1", ttl="2000000h")
    cluster.job("negative", "web-2", ttl="-5m")
    cluster.cycle()
    assert cluster.migration("negative").reason == "InvalidTTL"
    cluster.metric("hot", at=datetime(2026, 1, 1))  # noqa: DTZ001 - that it has no zone is the point
    assert "has no time zone" in cluster.core.fold.refused["metrics.hot"]
    cluster.decide()
    cluster.metric("cold", unknown_since=cluster.now)
    cluster.now += timedelta(hours=1)
    cluster.decide()


def test_the_configuration_survives_the_start_markers_text() -> None:
    text = DEFINITION.config_text(configuration(maxNoOfPodsToEvictTotal=3))
    assert DEFINITION.config_text(DEFINITION.config_from(text)) == text
    assert "3" in text


def test_an_invalid_configuration_is_refused_when_it_is_decoded() -> None:
    with pytest.raises(msgspec.ValidationError, match="deschedulingInterval: 'often' is not a duration"):
        DEFINITION.config_from('{"deschedulingInterval": "often"}')


def test_a_deleted_nodes_judgement_ends_with_it() -> None:
    cluster = busy()
    cluster.publish("objects.core.nodes._.hot", cluster.last["objects.core.nodes._.hot"].data, tombstone=True)
    cluster.decide()
    assert cluster.last["descheduling.hot"].tombstone


def test_an_empty_configuration_is_the_default() -> None:
    core = DEFINITION.make_core(DEFINITION.config_from("{}"))
    assert core.policy.low_node_load.pools[0].high_thresholds == {"cpu": 75.0, "memory": 80.0}  # type: ignore[attr-defined]
