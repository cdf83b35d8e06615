"""A pod that is resized in place: on its node it counts with the requests that the scheduler counts."""

from __future__ import annotations

import msgspec

from cotenant.events.placements import Placement
from cotenant.events.resizes import PlacementResize
from cotenant.model.subjects import placement_subject
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.node_views import node_facts
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration


def place(cluster: Cluster, *, uid: str = "uid-web", resized: bool = True, object_sequence: int = 0, cpu: int = 6000) -> None:
    """Store the placement of the pod `web` on node `a`, which counts so many milli-CPUs."""
    placed = Placement(
        node="a",
        namespace="default",
        name="web",
        uid=uid,
        requests={"cpu": cpu},
        object_sequence=object_sequence,
        resize=PlacementResize(sequence=1) if resized else None,
    )
    cluster.publish(placement_subject("a", "default", "web"), placed)


def cluster_of_two() -> Cluster:
    cluster = Cluster(configuration())
    cluster.node("a", cpu="8")
    cluster.node("b", cpu="8")
    cluster.pod("web", "a", cpu="2")
    cluster.pod("other", "b", cpu="4")
    return cluster


def facts(cluster: Cluster, name: str = "web") -> PodFacts:
    found = cluster.core.fold.pods.facts(f"default/{name}")
    assert found is not None
    return found


def requested(cluster: Cluster, node: str) -> int:
    return node_facts(cluster.core.fold, node, cluster.core.fold.pods.on(node)).requested.get("cpu", 0)


def test_a_node_counts_what_the_scheduler_counts_until_the_resize_is_done() -> None:
    cluster = cluster_of_two()
    assert requested(cluster, "a") == 2000
    place(cluster)
    assert requested(cluster, "a") == 6000
    place(cluster, resized=False, cpu=2000)
    assert requested(cluster, "a") == 2000


def test_no_pod_is_moved_into_the_room_that_a_shrinking_pod_still_has() -> None:
    cluster = cluster_of_two()
    other, fold = facts(cluster, "other"), cluster.core.fold
    assert misfit(other, node_facts(fold, "a", fold.pods.on("a"))) is None
    place(cluster)
    assert misfit(other, node_facts(fold, "a", fold.pods.on("a"))) == "requests 4000 of cpu, 2000 free"


def test_a_pod_whose_object_changed_counts_as_placed_until_its_placement_follows() -> None:
    cluster = cluster_of_two()
    sequence = cluster.last["objects.core.pods.default.web"].sequence
    place(cluster, resized=False, object_sequence=sequence, cpu=2000)
    changed = msgspec.json.decode(cluster.last["objects.core.pods.default.web"].data.object)  # type: ignore[attr-defined]
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    stored = cluster.store("objects.core.pods.default.web", changed)
    assert facts(cluster).requests["cpu"] == 2000
    place(cluster, resized=True, object_sequence=stored.sequence, cpu=3000)
    assert facts(cluster).requests["cpu"] == 3000


def test_the_placement_of_another_pod_of_that_name_changes_nothing() -> None:
    cluster = cluster_of_two()
    place(cluster, uid="earlier")
    assert facts(cluster).requests["cpu"] == 2000
