"""Matching of NodeManagers to nodes, their totals, and the published events."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cotenant.events.node.metrics import Usage
from cotenant.model.subjects import node_subject
from cotenant_yarn_copilot.matching import HOLD_LOST
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from tests.builders import node_document, stored
from tests.unit.yarn_copilot.builders_yarn_copilot import GIB, NOON, Bench, manager


@pytest.fixture
def bench() -> Bench:
    """A node `a` with 8 CPUs and 16 GiB of batch resources, whose NodeManager pod has the id a:8041."""
    bench = Bench()
    bench.node("a")
    bench.has_batch("a", 8000, 16 * GIB)
    bench.place_node_manager("a", "a:8041")
    return bench


# -- totals --------------------------------------------------------------------------------------------------------


def test_the_total_is_the_origin_batch_in_whole_units(bench: Bench) -> None:
    bench.has_batch("a", 8999, 16 * GIB + 7)
    assert bench.settings(manager("a:8041")) == [("a:8041", 8, 16 * 1024)]


def test_batch_requests_are_subtracted_from_the_total(bench: Bench) -> None:
    bench.place("a", "job", requests={"kubernetes.io/batch-cpu": 3000, "kubernetes.io/batch-memory": 20 * GIB})
    assert bench.settings(manager("a:8041")) == [("a:8041", 5, 0)]


def test_nothing_is_set_while_the_resource_manager_reports_the_total(bench: Bench) -> None:
    assert bench.settings(manager("a:8041", vcores=8, memory_mb=16 * 1024)) == []


def test_a_total_that_was_reset_is_set_again(bench: Bench) -> None:
    bench.facts(manager("a:8041", vcores=8, memory_mb=16 * 1024))
    assert bench.settings(manager("a:8041", vcores=1, memory_mb=1024)) == [("a:8041", 8, 16 * 1024)]


def test_withdrawn_batch_sets_the_total_to_zero(bench: Bench) -> None:
    bench.has_batch("a", 8000, 16 * GIB, withdrawn=True)
    assert bench.settings(manager("a:8041")) == [("a:8041", 0, 0)]


def test_a_node_without_published_resources_keeps_its_total() -> None:
    bench = Bench()
    bench.node("a")
    bench.place_node_manager("a", "a:8041")
    assert bench.settings(manager("a:8041")) == []
    assert "does not say yet" in bench.facts(manager("a:8041"))["a"].reason


STATED = '{"resources": {"kubernetes.io/batch-cpu": "8k", "kubernetes.io/batch-memory": "16Gi"}}'
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


def stating(annotation: str, allocatable: dict[str, str] | None = None) -> Bench:
    """A node `a` with a NodeManager, whose object states its batch resources and which has no resources event."""
    bench = Bench()
    document = node_document("a", annotations={ORIGIN: annotation} if annotation else None, allocatable=allocatable)
    bench.store(node_subject("a"), stored(document))
    bench.place_node_manager("a", "a:8041")
    return bench


def test_without_a_resources_event_the_batch_resources_in_the_nodes_object_count() -> None:
    assert stating(STATED).settings(manager("a:8041")) == [("a:8041", 8, 16 * 1024)]
    shown = {"kubernetes.io/batch-cpu": "3000", "cpu": "16"}
    assert stating("", shown).settings(manager("a:8041")) == [("a:8041", 3, 0)]
    assert stating(STATED, shown).settings(manager("a:8041")) == [("a:8041", 8, 16 * 1024)]
    assert stating("", {"cpu": "16"}).settings(manager("a:8041")) == []


def test_batch_requests_are_subtracted_from_what_the_object_states() -> None:
    bench = stating(STATED)
    bench.place("a", "job", requests={"kubernetes.io/batch-cpu": 3000})
    assert bench.settings(manager("a:8041")) == [("a:8041", 5, 16 * 1024)]


def test_a_resources_event_overrides_what_the_object_states() -> None:
    bench = stating(STATED)
    bench.has_batch("a", 1000, GIB)
    assert bench.settings(manager("a:8041")) == [("a:8041", 1, 1024)]
    bench.has_batch("a", 1000, GIB, withdrawn=True)
    assert bench.settings(manager("a:8041")) == [("a:8041", 0, 0)]


@pytest.mark.parametrize("text", ["{", '{"resources": {"kubernetes.io/batch-cpu": "many"}}'])
def test_an_unreadable_figure_leaves_the_total_as_it_is_and_is_reported_with_yarns_usage(text: str) -> None:
    bench = stating(text, {"kubernetes.io/batch-cpu": "3000"})
    assert bench.settings(manager("a:8041")) == []
    published = bench.facts(manager("a:8041", used=(2, 1024)))["a"]
    assert published.reason.startswith(f"annotation {ORIGIN}: ")
    assert published.reason.endswith(": YARN keeps its total")
    assert published.used == Usage(cpu_milli=2000, memory_bytes=GIB)
    bench.node("a")
    assert "does not say yet" in bench.facts(manager("a:8041", used=(2, 1024)))["a"].reason


@pytest.mark.parametrize("state", ["LOST", "UNHEALTHY", "DECOMMISSIONED", "SHUTDOWN"])
def test_totals_are_set_for_running_node_managers_only(bench: Bench, state: str) -> None:
    assert bench.settings(manager("a:8041", state=state)) == []
    assert bench.facts(manager("a:8041", state=state))["a"].reason == f"the NodeManager is {state}"


# -- matching ------------------------------------------------------------------------------------------------------


def test_the_host_name_matches_without_a_declared_id() -> None:
    bench = Bench()
    bench.node("a")
    bench.node("b", labels={"kubernetes.io/hostname": "host-b"})
    bench.has_batch("a", 1000, GIB)
    bench.has_batch("b", 2000, GIB)
    assert bench.settings(manager("a:1"), manager("host-b:1")) == [("a:1", 1, 1024), ("host-b:1", 2, 1024)]


def test_several_node_managers_on_one_host_need_a_declared_id() -> None:
    bench = Bench()
    bench.node("a")
    bench.has_batch("a", 1000, GIB)
    assert bench.settings(manager("a:1"), manager("a:2")) == []
    assert "annotate the node" in bench.facts(manager("a:1"), manager("a:2"))["a"].reason
    bench.node("a", annotations={"yarn.hadoop.apache.org/node-id": "a:2"})
    assert bench.settings(manager("a:1"), manager("a:2")) == [("a:2", 1, 1024)]


def test_an_unlisted_id_is_reported_with_the_listed_ones(bench: Bench) -> None:
    facts = bench.facts(manager("a.example:8041"))
    assert "does not list a:8041; it lists: a.example:8041" in facts["a"].reason
    assert facts["a.example:8041"].node == ""
    assert "belongs to no node" in facts["a.example:8041"].reason


def test_a_malformed_id_is_reported(bench: Bench) -> None:
    bench.place_node_manager("a", "a-8041")
    assert "is not host:port" in bench.facts()["a"].reason
    bench.place_node_manager("a", None)
    assert "has no annotation" in bench.facts()["a"].reason


def test_one_node_manager_belongs_to_one_node(bench: Bench) -> None:
    bench.node("b")
    bench.has_batch("b", 1000, GIB)
    bench.place_node_manager("b", "a:8041")
    assert bench.settings(manager("a:8041")) == [("a:8041", 8, 16 * 1024)]
    assert "already belongs to another node" in bench.facts(manager("a:8041"))["b"].reason


def test_a_node_manager_of_another_cluster_is_looked_for_there(bench: Bench) -> None:
    bench.place_node_manager("a", "a:8041", cluster="blue")
    facts = bench.pass_over({DEFAULT_CLUSTER: [manager("a:8041")], "blue": [manager("a:8041", used=(1, 512))]})
    assert facts["a"].cluster == "blue"
    assert facts["a"].used == Usage(cpu_milli=1000, memory_bytes=512 << 20)


# -- events --------------------------------------------------------------------------------------------------------


def test_usage_is_published_in_batch_units_when_it_changes(bench: Bench) -> None:
    total = {"vcores": 8, "memory_mb": 16 * 1024}
    published = bench.facts(manager("a:8041", used=(2, 1024), **total))["a"]  # type: ignore[arg-type]
    assert published.used == Usage(cpu_milli=2000, memory_bytes=GIB)
    assert published.confirmed
    assert published.given == published.wanted == Usage(cpu_milli=8000, memory_bytes=16 * GIB)
    assert bench.facts(manager("a:8041", used=(2, 1024), **total)) == {}  # type: ignore[arg-type]
    assert bench.facts(manager("a:8041", used=(3, 1024), **total))["a"].used.cpu_milli == 3000  # type: ignore[arg-type]


def test_unchanged_usage_is_published_again_before_it_expires(bench: Bench) -> None:
    bench.facts(manager("a:8041"))
    assert bench.facts(manager("a:8041"), now=NOON + HOLD_LOST / 2 - timedelta(seconds=1)) == {}
    assert bench.facts(manager("a:8041"), now=NOON + HOLD_LOST / 2)["a"].update_time == NOON + HOLD_LOST / 2


def test_a_total_that_could_not_be_set_is_reported(bench: Bench) -> None:
    published = bench.facts(manager("a:8041"), failures={"a": "500 Failed to update"})["a"]
    assert (published.confirmed, published.reason) == (False, "500 Failed to update")


def test_a_lost_node_managers_containers_count_for_a_while(bench: Bench) -> None:
    bench.facts(manager("a:8041", used=(2, 1024)))
    lost = bench.facts(manager("a:8041", state="LOST"), now=NOON + timedelta(minutes=1))["a"]
    assert lost.used == Usage(cpu_milli=2000, memory_bytes=GIB)
    later = bench.facts(manager("a:8041", state="LOST"), now=NOON + HOLD_LOST + timedelta(seconds=1))["a"]
    assert later.used == Usage()


def test_an_unreachable_cluster_keeps_its_last_events(bench: Bench) -> None:
    bench.facts(manager("a:8041", used=(2, 1024)))
    published = bench.pass_over({}, now=NOON + timedelta(days=1))["a"]
    assert published.used == Usage(cpu_milli=2000, memory_bytes=GIB)
    assert "cannot be asked" in published.reason
    assert bench.pass_over({}, now=NOON + timedelta(days=2)) == {}


def test_an_unreachable_cluster_does_not_delay_another(bench: Bench) -> None:
    bench.node("b")
    bench.place_node_manager("b", "b:1", cluster="blue")
    bench.pass_over({DEFAULT_CLUSTER: [manager("a:8041")], "blue": [manager("b:1")]})
    facts = bench.pass_over({"blue": [manager("b:1", used=(1, 1))]})
    assert facts["b"].used.cpu_milli == 1000
    assert "cannot be asked" in facts["a"].reason


def test_an_unlisted_node_manager_ends_after_a_while() -> None:
    bench = Bench()
    bench.node("a")
    bench.has_batch("a", 1000, GIB)
    bench.facts(manager("a:1", used=(1, 512)))
    assert "any more" in bench.facts(now=NOON + timedelta(minutes=1))["a"].reason
    bench.facts(now=NOON + HOLD_LOST + timedelta(seconds=1))
    assert not bench.is_known("a")


def test_unmatched_node_managers_and_deleted_nodes_end(bench: Bench) -> None:
    bench.facts(manager("a:8041"), manager("x:1"))
    assert bench.is_known("x:1")
    bench.facts(manager("a:8041"))
    assert not bench.is_known("x:1")
    bench.delete_node("a")
    bench.facts(manager("a:8041"))
    assert not bench.is_known("a")
    assert bench.is_known("a:8041")
