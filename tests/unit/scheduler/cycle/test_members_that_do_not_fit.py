"""The waiting events of a gang say which of its members do not fit, where, and what can change that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_MODE, ANNOTATION_GANG_NAME
from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_SPEC
from cotenant.events.placements import RefusedMembers, Waiting
from cotenant.explain.waking import short_line, why_waiting
from cotenant.model.subjects import object_subject
from cotenant_scheduler.cycle.groups import members as found_members
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.cycle.test_queue_head import job, kept, story_of
from tests.unit.scheduler.trials import tried_members


def member(
    name: str, least: int, *, gang: str = "g", cpu: str = "1", mode: str = "Strict", memory: str = "1Mi", **more: Any
) -> dict[str, Any]:
    annotations = {ANNOTATION_GANG_NAME: gang, ANNOTATION_GANG_MIN: str(least), ANNOTATION_GANG_MODE: mode}
    return pod(name, cpu=cpu, memory=memory, annotations=annotations | more.pop("annotations", {}), **more)


def waiting(story: Story, name: str) -> Waiting:
    found = story.waiting(name)
    assert found is not None
    return found


def told(members: RefusedMembers) -> tuple[tuple[str, ...], int, list[tuple[int, str, str, str]]]:
    reasons = [(reason.count, reason.resource, reason.detail, reason.node) for reason in members.reasons]
    return members.names, members.count, reasons


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_each_member_that_does_not_fit_is_named_with_the_node_nearest_to_taking_it(mode: str) -> None:
    story = Story()
    story.nodes(node("a", cpu="2"), node("b", cpu="1500m"))
    story.pods(*(member(f"p{i}", 5, mode=mode) for i in range(5)))
    story.settle()
    assert not story.placed()
    for name in ("p0", "p4"):
        found = waiting(story, name)
        assert found.member == "default/p3"
        assert [told(members) for members in found.members] == [
            (("default/p3", "default/p4"), 2, [(2, "cpu", "short by 500m", "b")])
        ]
        assert found.members_not_tried == 0
        assert found.members[0].wakes_on == (), "as those of the event"
        assert "node.*.placement.>" in found.wakes_on


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_a_member_behind_one_that_does_not_fit_is_tried(mode: str) -> None:
    story = Story()
    story.nodes(node("a", cpu="4", memory="8Gi"))
    story.pods(
        member("p0", 4, cpu="6", mode=mode),
        member("p1", 4, mode=mode),
        member("p2", 4, memory="10Gi", mode=mode),
        member("p3", 4, nodeSelector={"disk": "ssd"}, mode=mode),
    )
    story.settle()
    found = waiting(story, "p1")
    assert found.member == "default/p0"
    assert [told(members)[:2] for members in found.members] == [
        (("default/p0",), 1), (("default/p2",), 1), (("default/p3",), 1)
    ]
    cpu, memory, affinity = (members.reasons[0] for members in found.members)
    assert (cpu.resource, cpu.detail, cpu.node) == ("cpu", "short by 2", "a")
    # p1 and its 1 MiB fit: a member that does not fit takes no room from those behind it.
    assert (memory.resource, memory.detail, memory.node) == ("memory", "short by 2049Mi", "a")
    assert (affinity.code, affinity.node) == ("node-affinity", "a")
    assert found.members[2].wakes_on == ("objects.core.nodes._.*",)


def test_what_was_tried_for_the_reason_is_taken_back() -> None:
    story = Story()
    story.nodes(node("a", cpu="2"))
    story.pods(*(member(f"p{i}", 3) for i in range(3)))
    story.decide()
    assert waiting(story, "p0").members
    story.pod(pod("other", cpu="2", memory="1Mi"))
    story.settle()
    assert set(story.placed()) == {"other"}


def test_of_members_that_are_alike_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.nodes(node("a", cpu="100", pods="1000"), node("b", cpu="50"))
    story.pods(*(member(f"p{i:04}", 600, cpu="500m") for i in range(600)))
    tried = tried_members(monkeypatch)
    story.decide()
    # Of 300 that do not fit the first is tried once for the decision and once for the reason.
    assert tried == ["p0300", "p0300"]
    found = waiting(story, "p0599")
    assert [(members.count, members.names[0], len(members.names)) for members in found.members] == [(300, "default/p0300", 8)]
    tried.clear()
    story.settle()
    assert tried == [], "what was tried for the reason has changed nothing"
    story.later(60)
    story.node(node("a", cpu="100", pods="1000", labels={"some": "label"}))
    story.decide()
    assert tried == ["p0300"], "no reason is stored, as it is the same: the others are not looked for"


def test_kinds_and_tries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_members, "TRIED", 10)
    story = Story()
    story.nodes(node("a", cpu="4"))
    story.pods(*(member(f"p{i:02}", 12, cpu=str(10 + i)) for i in range(12)))
    story.settle()
    found = waiting(story, "p00")
    assert [members.names for members in found.members] == [(f"default/p{i:02}",) for i in range(6)]
    assert found.members_not_tried == 6
    fitting = Story()
    fitting.nodes(node("a", cpu="64"))
    fitting.pods(member("p00", 30, cpu="100"), *(member(f"p{i:02}", 30, cpu=f"{i}m") for i in range(1, 30)))
    fitting.settle()
    found = waiting(fitting, "p00")
    assert [members.names for members in found.members] == [("default/p00",)]
    assert found.members_not_tried == 20


def test_a_member_that_its_quota_refuses_is_named_beside_one_that_nodes_refuse() -> None:
    story = Story()
    story.quota("small", max={"cpu": 1000}, min={"cpu": 1000})
    story.nodes(node("a", cpu="4"))
    story.pods(
        member("p0", 3, cpu="8"),
        member("p1", 3, cpu="2", labels={"quota.scheduling.koordinator.sh/name": "small"}),
        member("p2", 3),
    )
    story.settle()
    found = waiting(story, "p2")
    assert [members.names for members in found.members] == [("default/p0",), ("default/p1",)]
    by_nodes, by_quota = found.members
    assert (by_nodes.nodes, by_nodes.reasons[0].code) == (1, "insufficient")
    assert (by_quota.nodes, by_quota.reasons[0].code, by_quota.reasons[0].resource) == (0, "quota", "cpu")
    assert any(subject.startswith("quotas.") for subject in by_quota.wakes_on)


BLOCKS = [
    {"topologyLayer": "BlockLayer", "labelKey": ["block"]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
]


def topology(story: Story, layers: list[dict[str, Any]] | None = None) -> None:
    document = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": layers or BLOCKS}}
    kind = ("scheduling.koordinator.sh", "clusternetworktopologies")
    story.say(object_subject(*kind, "", "default"), stored(document))


def test_a_gang_that_must_be_in_one_domain_says_who_does_not_fit_in_the_one_with_the_most_room() -> None:
    story = Story()
    topology(story)
    story.nodes(
        node("a", cpu="2", labels={"block": "b1"}),
        node("b", cpu="1500m", labels={"block": "b1"}),
        node("c", cpu="2", labels={"block": "b2"}),
    )
    spec = {"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}
    annotation = {ANNOTATION_TOPOLOGY_SPEC: msgspec.json.encode(spec).decode()}
    story.pods(*(member(f"p{i}", 5, annotations=annotation) for i in range(5)))
    story.settle()
    found = waiting(story, "p0")
    assert [reason.code for reason in found.reasons] == ["network-topology"]
    (members,) = found.members
    assert (members.where, members.nodes) == ("BlockLayer b1", 2)
    assert told(members) == (("default/p3", "default/p4"), 2, [(2, "cpu", "short by 500m", "b")])


def test_a_gang_for_which_no_domain_has_any_room_says_what_its_members_lack_there() -> None:
    story = Story()
    topology(story)
    story.nodes(node("a", cpu="2", labels={"block": "b1"}), node("b", cpu="3", labels={"block": "b1"}), node("c", cpu="64"))
    spec = {"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}
    annotation = {ANNOTATION_TOPOLOGY_SPEC: msgspec.json.encode(spec).decode()}
    story.pods(*(member(f"p{i}", 2, cpu="4", annotations=annotation) for i in range(2)))
    story.settle()
    (members,) = waiting(story, "p0").members
    assert (members.where, members.nodes) == ("BlockLayer b1", 2)
    assert told(members) == (("default/p0", "default/p1"), 2, [(2, "cpu", "short by 1", "b")])
    story.nodes(node("a", cpu="2"), node("b", cpu="3"))
    story.later(60)
    story.settle()
    found = waiting(story, "p0")
    assert found.message.endswith("no node is in a BlockLayer: the labels that name it are missing.")
    assert found.members == ()


@pytest.mark.parametrize(
    ("layer", "nodes", "least", "refused"),
    [
        # Room for 3 a node, of which each node or block gets 2.
        ("NodeTopologyLayer", {"a": "b1", "b": "b1"}, 6, ["default/p4", "default/p5"]),
        ("BlockLayer", {"a": "b1", "b": "b2"}, 6, ["default/p4", "default/p5"]),
        # Three nodes of one block have room for 9, of which it gets 8.
        ("BlockLayer", {"a": "b1", "b": "b1", "c": "b1"}, 9, ["default/p8"]),
    ],
)
def test_a_gang_of_which_domains_get_multiples_says_who_is_left_over(
    layer: str, nodes: dict[str, str], least: int, refused: list[str]
) -> None:
    story = Story()
    layers: list[dict[str, Any]] = [
        {"topologyLayer": "SpineLayer", "labelKey": ["spine"]},
        {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    topology(story, layers)
    story.nodes(*(node(name, cpu="3", labels={"spine": "s", "block": block}) for name, block in nodes.items()))
    spec = {
        "gatherStrategy": [
            {"layer": "SpineLayer", "strategy": "MustGather"},
            {"layer": layer, "strategy": "PreferGather", "podCountMultiple": 2},
        ]
    }
    annotation = {ANNOTATION_TOPOLOGY_SPEC: msgspec.json.encode(spec).decode()}
    story.pods(*(member(f"p{i}", least, annotations=annotation) for i in range(least)))
    story.settle()
    assert not story.placed()
    (members,) = waiting(story, "p0").members
    assert list(members.names) == refused
    (line, *_) = why_waiting(waiting(story, "p0"))
    does = "does" if len(refused) == 1 else "do"
    assert line.startswith(f"{', '.join(refused)} {does} not fit in SpineLayer s: 0/{len(nodes)} nodes: ")
    assert f"not for 2 more pods in one {layer} (podCountMultiple)" in line
    assert "a pod that is placed or leaves" in "".join(why_waiting(waiting(story, "p0")))


def test_room_of_the_head_keeps_members_out_of_a_gang_behind_it_and_of_none_before_it() -> None:
    """A CPU is left beside the job that runs, but the head is kept the node as soon as that ends."""
    story = story_of(node("a", cpu="4"))
    story.pod(job("running", "3", nodeName="a"))
    story.settle()
    before, behind = "2026-01-01T10:00:00Z", "2026-01-01T11:30:00Z"
    story.pods(
        member("p0", 2, cpu="500m", created=before),
        member("p1", 2, cpu="100", created=before),
        job("head", "4"),
        *(member(f"q{i}", 3, cpu="500m", gang="h", created=behind) for i in range(3)),
    )
    story.settle()
    assert kept(story, "head") == ["a"]
    assert [members.names for members in waiting(story, "p0").members] == [("default/p1",)]
    assert [members.names for members in waiting(story, "q0").members] == [("default/q0", "default/q1", "default/q2")]


def test_the_order_in_which_nodes_were_loaded_does_not_matter() -> None:
    """Of nodes that are equally near the first by name counts; the nodes of a domain are filled by name."""
    spec = {"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}
    gathered = {ANNOTATION_TOPOLOGY_SPEC: msgspec.json.encode(spec).decode()}
    for rules, most, nearest in (({}, "2", "a"), (gathered, "3", "c")):
        story = Story()
        topology(story)
        story.nodes(*(node(name, cpu=cpu, labels={"block": "b1"}) for name, cpu in (("c", "2"), ("a", "2"), ("b", most))))
        alike = [member(f"p{i}", 9, annotations=rules) for i in range(6)]
        story.pods(*alike, *(member(f"q{i}", 9, cpu="1500m", annotations=rules) for i in range(3)))
        decided = story.core.decide(story.now)
        told = [event.data.members[0].reasons[0].node for event in decided if isinstance(event.data, Waiting)]
        assert told == [nearest] * 9
        for order in (sorted(story.last), sorted(story.last, reverse=True)):
            assert story.reloaded(order).decide(story.now) == decided


def test_members_of_a_gang_that_waits_for_more_pods_are_not_looked_at() -> None:
    story = Story()
    story.nodes(node("a", cpu="4"))
    story.pods(member("p0", 3, cpu="8"), member("p1", 3))
    story.settle()
    assert waiting(story, "p0").members == ()


def test_a_waiting_event_without_members_is_read_and_written_as_before() -> None:
    before = b'{"namespace":"default","name":"p0","uid":"u","nodes":1,"member":"default/p1"}'
    found = msgspec.json.decode(before, type=Waiting)
    assert (found.members, found.members_not_tried) == ((), 0)
    assert msgspec.json.encode(found) == before


def test_an_explanation_names_them_and_what_can_change_it_for_each_where_that_differs() -> None:
    story = Story()
    story.nodes(node("a", cpu="4"))
    story.pods(
        *(member(f"p{i}", 4, cpu="6") for i in range(2)),
        member("p2", 4),
        member("p3", 4, nodeSelector={"disk": "ssd"}),
    )
    story.settle()
    placed = "a pod that is placed or leaves"
    first, changes, second, other = why_waiting(waiting(story, "p2"))
    assert first == "default/p0, default/p1 do not fit: 0/1 nodes: 1 cpu short by 2 on a"
    assert changes.startswith("  what can change that: ")
    assert placed in changes
    assert second.startswith("default/p3 does not fit: 0/1 nodes: 1 ")
    assert second.endswith(" on a")
    assert other == "  what can change that: a node that joins or changes"
    assert short_line(waiting(story, "p2")) == "3 pods of its gang do not fit"
