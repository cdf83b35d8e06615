"""Pods that wait to be placed get the profiles that were declared or changed after them, where the profile asks for it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cotenant.events.objects import ObjectStored
from cotenant.kinds.pods import PODS
from cotenant_gateway.loop.waiting_pods import BURST, PASS, TRIED, ProfilePasses
from tests.unit.gateway.builders_gateway import World, manifest

MANAGED = {"config.koordinator.sh/controller-managed": "true"}
RECORD = "cotenant.io/colocation-profiles"


def profile(name: str = "managed", *, managed: bool = True, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name, "labels": MANAGED if managed else {}},
        "spec": spec,
    }


class Waiting:
    """A world, and the duty that looks at its pods."""

    def __init__(self, *names: str, before: tuple[dict[str, object], ...] = ()) -> None:
        self.world = World()
        for each in before:
            self.declare(each)
        for name in names:
            self.world.create("pods", manifest(name))
        self.duty = ProfilePasses(lambda: self.world.core)

    def declare(self, document: dict[str, object]) -> None:
        self.world.create("clustercolocationprofiles", document)

    def change(self, name: str, **spec: object) -> None:
        self.world.patch("clustercolocationprofiles", name, {"spec": spec})

    def look(self, seconds: float = 1.0) -> list[str]:
        """Let time pass, and store what is due; return the names of the pods that were changed."""
        self.world.pass_seconds(seconds)
        plans = self.duty.due(self.world.now)
        for plan in plans:
            self.world.store(plan)
        return [plan.writes[0].subject.rpartition(".")[2] for plan in plans]

    def labels(self, name: str = "web") -> dict[str, str]:
        found: dict[str, str] = self.world.show("pods", name)["metadata"]["labels"]
        return found


def test_a_pod_that_waits_becomes_what_a_new_profile_makes_of_it() -> None:
    waiting = Waiting("web")
    waiting.declare(profile(qosClass="BE", priorityClassName="koord-batch", labels={"colocated": "yes"}))
    assert waiting.look() == ["web"]
    shown = waiting.world.show("pods", "web")
    assert shown["metadata"]["labels"] == {"app": "web", "colocated": "yes", "koordinator.sh/qosClass": "BE"}
    assert shown["spec"]["priority"] == 5000
    assert shown["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "500"}
    assert shown["metadata"]["annotations"][RECORD] == "managed"
    assert shown["metadata"]["generation"] == 2
    assert "node.koordinator.sh/extended-resource-spec" in shown["metadata"]["annotations"]


def test_the_event_says_what_was_done_and_names_pod_and_profile_as_causes() -> None:
    waiting = Waiting("web")
    pod = waiting.world.sequence
    waiting.declare(profile(labels={"colocated": "yes"}))
    waiting.world.pass_seconds(1)
    (write,) = waiting.duty.due(waiting.world.now)[0].writes
    assert isinstance(write.payload, ObjectStored)
    assert write.payload.admission == ("ClusterColocationProfile managed: label colocated yes",)
    assert write.causes == (f"LOG:{pod}", f"LOG:{pod + 1}")
    assert write.expected == pod


def test_without_its_label_a_profile_leaves_pods_alone() -> None:
    waiting = Waiting("web")
    waiting.declare(profile(managed=False, labels={"colocated": "yes"}))
    assert not waiting.look()


def test_a_changed_profile_is_applied_again_and_settles() -> None:
    waiting = Waiting("web", before=(profile(labels={"step": "one"}),))
    assert not waiting.look()
    waiting.change("managed", labels={"step": "two"})
    assert waiting.look() == ["web"]
    assert waiting.labels()["step"] == "two"
    assert not waiting.look()
    assert not waiting.look(PASS.total_seconds())


def test_resources_that_a_profile_brings_become_those_of_a_new_pod_and_settle() -> None:
    waiting = Waiting("web")
    gpus = {"name": "main", "resources": {"limits": {"koordinator.sh/gpu": "200", "example.com/nic": "1"}}}
    replaced = {"pod.koordinator.sh/replace-resources": "example.com/nic:koordinator.sh/rdma"}
    waiting.declare(profile(annotations=replaced, patch={"spec": {"containers": [gpus]}}))
    for step in ("one", "two"):
        waiting.change("managed", labels={"step": step})
        assert waiting.look() == ["web"]
        limits = waiting.world.show("pods", "web")["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {
            "cpu": "1",
            "koordinator.sh/gpu-core": "200",
            "koordinator.sh/gpu-memory-ratio": "200",
            "koordinator.sh/gpu.shared": "2",
            "koordinator.sh/rdma": "1",
        }
        assert not waiting.look(PASS.total_seconds())


def test_a_suffix_is_not_appended_again() -> None:
    waiting = Waiting("web", before=(profile(labelSuffixes={"app": "-batch"}),))
    waiting.change("managed", labels={"new": "yes"})
    assert waiting.look() == ["web"]
    assert waiting.labels() == {"app": "web-batch", "new": "yes"}


def test_the_last_in_order_of_name_still_decides() -> None:
    last = profile("z-last", managed=False, labels={"who": "z"})
    waiting = Waiting("web", before=(profile("a-managed", labels={"who": "a"}), last))
    waiting.change("a-managed", labels={"who": "a2", "more": "yes"})
    assert waiting.look() == ["web"]
    assert waiting.labels() == {"app": "web", "who": "z", "more": "yes"}


def test_a_profile_without_the_label_that_came_later_is_not_dragged_along() -> None:
    waiting = Waiting("web", before=(profile("a-managed", labels={"who": "a"}),))
    waiting.declare(profile("z-later", managed=False, labels={"who": "z"}))
    waiting.change("a-managed", labels={"who": "a2"})
    assert waiting.look() == ["web"]
    assert waiting.labels()["who"] == "a2"


def test_a_pod_that_has_been_placed_or_is_ending_is_left_alone() -> None:
    waiting = Waiting("placed", "ending", "web")
    waiting.world.place("placed")
    waiting.world.patch("pods", "ending", {"metadata": {"finalizers": ["example.com/wait"]}})
    snapshot = waiting.world.core.get(PODS, "default", "ending")
    assert snapshot is not None
    waiting.world.delete("pods", "ending")
    waiting.declare(profile(labels={"colocated": "yes"}))
    assert waiting.look() == ["web"]


def test_a_pod_that_begins_to_match_is_found_within_a_pass() -> None:
    waiting = Waiting("web", before=(profile(selector={"matchLabels": {"batch": "yes"}}, labels={"colocated": "yes"}),))
    assert not waiting.look()
    waiting.world.patch("pods", "web", {"metadata": {"labels": {"batch": "yes"}}})
    assert not waiting.look()
    assert waiting.look(PASS.total_seconds()) == ["web"]


def test_a_pod_that_would_be_invalid_stays_as_it_is_and_this_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting("web")
    waiting.declare(profile(qosClass="LSR"))
    with caplog.at_level(logging.WARNING):
        assert not waiting.look()
        assert not waiting.look(PASS.total_seconds())
    assert len(caplog.records) == 1
    assert "waiting pod default/web does not get its profiles" in caplog.text


@pytest.mark.parametrize(
    "patch",
    [
        {
            "spec": {
                "runtimeClassName": "process",
                "securityContext": {"runAsUser": 0},
                "containers": [{"name": "main", "command": ["run"]}],
            }
        },
        {"spec": {"priority": 1_000_000}},
    ],
)
def test_no_profile_gives_a_pod_that_waits_what_its_writer_might_not_have(
    patch: object, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting("web")
    process = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "process"}, "handler": "process"}
    waiting.world.create("runtimeclasses", process)
    waiting.declare(profile(patch=patch))
    assert not waiting.look()
    assert "is forbidden" in caplog.text


def test_no_more_than_the_burst_is_changed_at_once_and_ten_a_second_after_it() -> None:
    waiting = Waiting(*(f"web-{number:03}" for number in range(BURST + 25)))
    waiting.declare(profile(labels={"colocated": "yes"}))
    counts = [len(waiting.look()) for _ in range(5)]
    assert counts == [BURST, 10, 10, 5, 0]


def test_pods_that_need_nothing_do_not_keep_the_others_waiting() -> None:
    waiting = Waiting(*(f"a-{number:03}" for number in range(TRIED)), "web")
    waiting.declare(profile(schedulerName="default-scheduler", labels={"colocated": "yes"}))
    while waiting.look(10):
        continue
    waiting.change("managed", labels={"colocated": "yes"}, selector={})
    waiting.declare(profile("then", selector={"matchLabels": {"app": "web"}}, labels={"more": "yes"}))
    assert [*waiting.look(), *waiting.look()] == ["web"]


def test_a_probability_draws_as_at_creation() -> None:
    half: Any = profile(probability="50%", labels={"drawn": "yes"})
    names = [f"web-{number}" for number in range(20)]
    at_creation, afterwards = Waiting(*names, before=(half,)), Waiting(*names)
    afterwards.declare(half)
    afterwards.look()
    assert [at_creation.labels(name) for name in names] == [afterwards.labels(name) for name in names]
    assert not afterwards.look(PASS.total_seconds())
