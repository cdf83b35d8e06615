"""Where pods with claims go: bound volumes, zones, volumes that wait for their first pod, and the words of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.explain.sentences import sentence
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.builders_volumes import VolumeStory, on_nodes, using

BINDING = "VolumeBinding"


def story(**zones: str) -> VolumeStory:
    """Nodes a, b, c with their host names, some in zones; the class `local` without a provisioner, `made` with one."""
    found = VolumeStory()
    for name in "abc":
        labels = {"kubernetes.io/hostname": name}
        labels |= {"topology.kubernetes.io/zone": zones[name]} if name in zones else {}
        found.node(node(name, labels=labels))
    found.storage_class("local", provisioner="kubernetes.io/no-provisioner")
    found.storage_class("made")
    found.storage_class("now", wait=False)
    return found


def test_a_pod_follows_its_bound_volume() -> None:
    world = story()
    world.volume("pv", nodes=("b",))
    world.claim("data", volume="pv")
    world.ask_for("asked", volumes=using("x", "data")["spec"]["volumes"])
    assert world.refused(BINDING, "asked") == {"a", "c"}
    assert world.reason(BINDING, "asked", 4).text == "node(s) had volume node affinity conflict"
    world.pod(using("p", "data"))
    world.settle()
    assert world.node_of("p") == "b"
    assert world.given("p") == {}, "the claim says it"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (lambda world: None, 'persistentvolumeclaim "data" not found'),
        (lambda world: world.claim("data", of="now"), "pod has unbound immediate PersistentVolumeClaims"),
        (lambda world: world.claim("data", of="nowhere"), "pod has unbound immediate PersistentVolumeClaims"),
        (lambda world: world.claim("data", of=None), "pod has unbound immediate PersistentVolumeClaims"),
        (
            lambda world: world.claim("data", volume="gone"),
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        (
            lambda world: world.claim("data", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (lambda world: world.claim("data"), "node(s) didn't find available persistent volumes to bind"),
    ],
)
def test_a_claim_that_keeps_a_pod_waiting_is_named_in_kube_schedulers_words(told: Any, text: str) -> None:
    world = story()
    told(world)
    world.pod(using("p", "data"))
    world.settle()
    assert world.node_of("p") is None
    assert f"0/3 nodes are available: 3 {text}" in world.message("p")
    waiting = world.waiting("p")
    assert waiting is not None
    assert "objects.core.persistentvolumeclaims.>" in waiting.wakes_on


def test_a_waiting_pod_is_placed_once_its_claim_is_bound() -> None:
    world = story()
    world.claim("data", of="now")
    world.pod(using("p", "data"))
    world.settle()
    assert world.node_of("p") is None
    world.volume("pv", of="now", nodes=("c",))
    world.settle()
    assert world.node_of("p") is None
    world.claim("data", of="now", volume="pv")
    world.settle()
    assert world.node_of("p") == "c"


def test_a_volumes_zone_is_the_nodes_and_nodes_without_one_take_it() -> None:
    for key in ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"):
        world = story(a="x", b="y")
        world.volume("pv", labels={key: "x__z"})
        world.claim("data", volume="pv")
        world.ask_for("p", volumes=using("q", "data")["spec"]["volumes"])
        assert world.refused(BINDING, "p") == {"b"}
        assert world.reason(BINDING, "p", 5).text == "node(s) had no available volume zone"


def test_the_first_pod_gets_the_smallest_volume_that_fits_where_one_is() -> None:
    world = story()
    world.volume("large", size="50Gi", nodes=("a",))
    world.volume("small", size="500Mi", nodes=("b",))
    world.volume("right", size="2Gi", nodes=("a",))
    world.volume("other-class", of="else", nodes=("c",))
    world.volume("many", modes=("ReadOnlyMany",), nodes=("c",))
    world.volume("block", nodes=("c",), volumeMode="Block")
    world.volume("taken", nodes=("c",), claimRef={"namespace": "default", "name": "another"})
    world.volume("released", nodes=("c",), phase="Released")
    world.claim("data", size="1Gi")
    world.pod(using("p", "data"))
    world.settle()
    assert (world.node_of("p"), world.given("p")) == ("a", {"data": "right"})


def test_two_claims_of_a_pod_and_two_pods_of_one_decision_do_not_share_a_volume() -> None:
    world = story()
    for name, where in (("pv-a1", "a"), ("pv-a2", "a"), ("pv-b", "b")):
        world.volume(name, nodes=(where,))
    for claim in ("one", "two", "three"):
        world.claim(claim)
    world.pods(using("p", "one", "two"), using("q", "three"))
    world.settle()
    assert (world.node_of("p"), world.given("p")) == ("a", {"one": "pv-a1", "two": "pv-a2"})
    assert (world.node_of("q"), world.given("q")) == ("b", {"three": "pv-b"})
    world.claim("four")
    world.pod(using("r", "four"))
    world.settle()
    assert "didn't find available persistent volumes to bind" in world.message("r")
    world.pod_deleted("q")
    world.settle()
    assert world.given("r") == {"four": "pv-b"}, "a volume that nobody bound is free when its pod is gone"


def test_the_next_pod_of_a_claim_goes_where_the_first_ones_volume_is() -> None:
    world = story()
    world.volume("pv-c", nodes=("c",))
    world.claim("data", modes=("ReadWriteOnce",))
    world.pod(using("p", "data"))
    world.settle()
    world.volume("pv-a", nodes=("a",), size="1Gi")
    world.pod(using("q", "data"))
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("c", "c")
    assert world.given("q") == {}, "it has one"


def test_a_volume_that_is_meant_for_a_claim_is_its_only_one() -> None:
    world = story()
    world.volume("free", nodes=("a",), size="1Gi")
    world.volume("meant", nodes=("b",), claimRef={"namespace": "default", "name": "data"})
    world.claim("data")
    world.pod(using("p", "data"))
    world.settle()
    assert (world.node_of("p"), world.given("p")) == ("b", {"data": "meant"})


def test_a_selector_chooses_among_volumes() -> None:
    world = story()
    world.volume("slow", nodes=("a",), labels={"disk": "hdd"})
    world.volume("fast", nodes=("b",), labels={"disk": "ssd"})
    world.claim("data", selector={"matchLabels": {"disk": "ssd"}})
    world.pod(using("p", "data"))
    world.settle()
    assert world.given("p") == {"data": "fast"}


def test_a_provisioner_makes_a_volume_where_its_topologies_allow_one() -> None:
    world = story(a="x", b="y", c="y")
    topology = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["y"]}]}]
    world.storage_class("zonal", allowedTopologies=topology)
    world.claim("data", of="zonal")
    world.pod(using("p", "data"))
    world.settle()
    assert (world.node_of("p"), world.given("p")) == ("b", {"data": ""})
    world.claim("anywhere", of="made", metadata={"annotations": {"volume.kubernetes.io/selected-node": "c"}})
    world.pod(using("q", "anywhere"))
    world.settle()
    assert (world.node_of("q"), world.given("q")) == ("c", {"anywhere": ""})


def test_a_claim_without_a_class_is_of_the_default_one() -> None:
    world = story()
    world.claim("data", of=None)
    world.pod(using("p", "data"))
    world.settle()
    assert "unbound immediate" in world.message("p")
    world.storage_class("usual", metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}})
    world.settle()
    assert world.given("p") == {"data": ""}


def test_an_ephemeral_volume_waits_for_its_claim() -> None:
    world = story()
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    world.pods(pod("p", volumes=volumes), pod("q", volumes=volumes))
    world.settle()
    expected = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert expected in world.message("p")
    world.claim("q-scratch", of="made")
    world.settle()
    assert world.node_of("q") is not None
    assert world.node_of("p") is None


def test_pods_of_one_template_in_two_namespaces_use_two_claims() -> None:
    world = story()
    for namespace, where in (("red", "a"), ("blue", "b")):
        world.volume(f"pv-{namespace}", nodes=(where,))
        world.claim("data", volume=f"pv-{namespace}", namespace=namespace)
    world.pods(using("p", "data", namespace="red"), using("q", "data", namespace="blue"))
    world.settle()
    assert (world.node_of("p", "red"), world.node_of("q", "blue")) == ("a", "b")


def test_a_nodes_name_and_any_operator_place_a_volume() -> None:
    world = story()
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}
    absent = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "b", "c"]}]}
    world.volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": [absent, field, {}]}})
    world.claim("data", volume="pv")
    world.ask_for("p", volumes=using("q", "data")["spec"]["volumes"])
    assert world.refused(BINDING, "p") == {"a", "b"}
    world.node(node("d"))
    assert world.refused(BINDING, "p") == {"a", "b"}, "a node without the label is not in the list"
    world.volume("pv", nodeAffinity=on_nodes("b"))
    assert world.refused(BINDING, "p") == {"a", "c", "d"}


def test_nobody_is_preempted_where_the_volume_is_not() -> None:
    world = story()
    world.volume("pv", nodes=("b",))
    world.claim("data", volume="pv")
    for name in "abc":
        world.pod(pod(f"low-{name}", cpu="8", priority=0, nodeName=name))
        world.executor(name)
    world.settle()
    world.pod(using("p", "data", priority=1000))
    world.settle()
    waiting = world.waiting("p")
    assert waiting is not None
    assert waiting.nomination is not None
    assert waiting.nomination.node == "b"


def test_pods_without_claims_are_no_concern_of_volumes() -> None:
    world = story()
    world.ask_for("plain", volumes=[{"name": "v", "emptyDir": {}}])
    shape = world.shape("plain")
    assert not shape.asks
    assert not any(f.concerns(shape) for f in world.core.profile.filters if f.name.startswith(("Volume", "NodeVolume")))


def test_a_reloaded_scheduler_knows_which_volumes_were_given() -> None:
    world = story()
    world.volume("pv-a", nodes=("a",))
    world.claim("one")
    world.claim("two")
    world.pod(using("p", "one"))
    world.settle()
    world.pod(using("q", "two"))
    fresh = world.reloaded(sorted(world.last, reverse=True))
    assert list(fresh.decide(world.now)) == list(world.core.decide(world.now))
    assert fresh.pods.records["default", "q"].placements == {}


def test_the_sentence_of_a_placement_names_the_volumes() -> None:
    world = story()
    world.volume("pv-a", nodes=("a",))
    world.claim("data")
    world.claim("more", of="made")
    world.pod(using("p", "data", "more"))
    world.settle()
    said = sentence(world.placement_event("a", "p"))
    assert said.endswith(", claim data gets volume pv-a, claim more gets a volume to be made there")
