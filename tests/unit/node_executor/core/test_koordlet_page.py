"""The page that shows koordlet's metrics, and their way through OpenTelemetry where metrics are exported."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cotenant.events.envelope import Event
from cotenant.events.node.runs import ExecutorStatus
from cotenant.log.memory.log import MemoryLog
from cotenant.model.subjects import executor_subject
from cotenant_node_executor.koordlet_metrics.registry import METRICS, register
from cotenant_node_executor.shell import ExecutorShell
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from tests.unit.node_executor.builders_node_executor import NODE, START


@pytest.fixture
def shell() -> ExecutorShell:
    """Of a loaded node with one sample."""
    node = simulated_node(NODE, NodeSize(cpu_milli=8000), boot="boot")
    marker = ExecutorStatus(node=NODE, boot="boot")
    node.apply(Event(subject=executor_subject(NODE), data=marker, time=START, sequence=1))
    node.step(START)
    return ExecutorShell(MemoryLog(), node, cell="cell", period_seconds=1.0, stopping=asyncio.Event())


def test_the_page_has_each_metric_that_has_a_value_with_koordlets_labels(shell: ExecutorShell) -> None:
    registry = CollectorRegistry(auto_describe=True)
    register(shell, None, registry)
    families = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}
    with_a_value = {f"koordlet_{name}" for name, _, read in METRICS if list(read(shell.node.core))}
    assert set(families) == with_a_value | {"koordlet_start_time"}
    assert {each.type for each in families.values()} == {"gauge"}
    (pool,) = families["koordlet_cpuset_share_pool_cpu_cores"].samples
    assert (pool.labels, pool.value) == ({"node": NODE}, 8)


def test_exported_metrics_are_those_of_the_page(shell: ExecutorShell) -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    register(shell, None, registry)
    register(shell, MeterProvider(metric_readers=[reader]).get_meter("cotenant"))
    exported = reader.get_metrics_data()
    assert exported is not None
    found = {
        (metric.name, frozenset((point.attributes or {}).items()))
        for of_resource in exported.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    }
    shown = {(sample.name, frozenset(sample.labels.items())) for family in registry.collect() for sample in family.samples}
    assert found == shown
