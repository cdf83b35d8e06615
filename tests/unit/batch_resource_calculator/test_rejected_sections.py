"""Which sections of the ConfigMap were rejected, as an event: one a version, and a tombstone when all can be used again."""

from __future__ import annotations

import json

import pytest

from cotenant.events.configurations import ConfigurationRejected
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted
from cotenant_batch_resource_calculator.config.in_force import KEYS
from cotenant_batch_resource_calculator.config.rejections import MAX_MESSAGE, SUBJECT
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import CONFIG_SUBJECT, ENABLED, NOON, Bench


def configured(bench: Bench, **sections: str) -> Event:
    """Store the ConfigMap with a uid."""
    data = {key.replace("_", "-"): text for key, text in sections.items()}
    return bench.store_object(CONFIG_SUBJECT, {"metadata": {"name": "slo-controller-config", "uid": "u1"}, "data": data})


def rejections(events: list[Event]) -> list[Event]:
    return [event for event in events if event.subject == SUBJECT]


def test_each_rejected_section_has_koordinators_reason_and_what_is_wrong() -> None:
    bench = Bench()
    config = configured(bench, **dict.fromkeys(KEYS, "["))
    (event,) = bench.core.decide(NOON)
    data = event.data
    assert isinstance(data, ConfigurationRejected)
    assert (event.subject, event.causes) == ("configmaps.koordinator-system.slo-controller-config", (config.ref,))
    assert (data.namespace, data.name) == ("koordinator-system", "slo-controller-config")
    assert (data.uid, data.config) == ("u1", config.ref)
    assert {section.key: section.reason for section in data.sections} == {
        "colocation-config": "ColocationCfgUnmarshalFailed",
        "resource-threshold-config": "SLOCfgUnmarshalFailed",
        "resource-qos-config": "SLOCfgUnmarshalFailed",
        "cpu-burst-config": "SLOCfgUnmarshalFailed",
        "system-config": "SLOCfgUnmarshalFailed",
        "host-application-config": "SLOCfgUnmarshalFailed",
        "cpu-normalization-config": "CPUNormalizationCfgUnmarshalFailed",
        "resource-amplification-config": "ResourceAmplificationCfgUnmarshalFailed",
    }
    assert all(section.message.startswith(section.key) for section in data.sections)


def test_a_version_is_reported_once_and_the_next_one_again() -> None:
    bench = Bench()
    configured(bench, colocation_config=ENABLED, cpu_burst_config="[")
    assert len(rejections(bench.decide())) == 1
    bench.node()
    assert rejections(bench.decide()) == []
    configured(bench, colocation_config='{"degradeTimeMinutes": 0}', cpu_burst_config="[")
    (event,) = rejections(bench.decide())
    assert isinstance(event.data, ConfigurationRejected)
    assert [section.key for section in event.data.sections] == ["colocation-config", "cpu-burst-config"]


def test_a_usable_configuration_is_not_reported() -> None:
    bench = Bench()
    assert bench.decide() == []
    configured(bench, colocation_config=ENABLED)
    assert bench.decide() == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_tombstone_follows_once_no_section_is_rejected(deleted: bool) -> None:
    bench = Bench()
    configured(bench, colocation_config="[")
    bench.decide()
    if deleted:
        bench.store(CONFIG_SUBJECT, ObjectDeleted(), tombstone=True)
    else:
        configured(bench, colocation_config=ENABLED)
    (event,) = bench.decide()
    assert event.subject == SUBJECT
    assert event.tombstone
    assert bench.decide() == []
    configured(bench, colocation_config="[")
    assert len(bench.decide()) == 1


def test_a_restarted_service_does_not_repeat_it() -> None:
    bench = Bench()
    configured(bench, colocation_config="[")
    bench.decide()
    fresh = BatchResourceCalculator()
    for event in reversed(list({event.subject: event for event in bench.log}.values())):
        fresh.apply(event)
    assert fresh.decide(NOON) == []


def test_a_long_message_is_cut() -> None:
    bench = Bench()
    configured(bench, cpu_burst_config=json.dumps({"clusterStrategy": {"policy": "x" * 100_000}}))
    (event,) = bench.decide()
    assert isinstance(event.data, ConfigurationRejected)
    (section,) = event.data.sections
    assert len(section.message) == MAX_MESSAGE
    assert section.message.startswith("cpu-burst-config: clusterStrategy.policy is 'xxx")
