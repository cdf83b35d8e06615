"""How many volumes a node takes, and claims that one pod may use at a time."""

from __future__ import annotations

from cotenant.events.node.runs import RunPhase
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.builders_volumes import VolumeStory, using

LIMITS, RESTRICTIONS = "NodeVolumeLimits", "VolumeRestrictions"
DISK = "disk.example.com"


def story(*nodes: str, count: int | None = 2) -> VolumeStory:
    found = VolumeStory()
    for name in nodes:
        found.node(node(name))
        found.csi_node(name, disk_example_com=count)
    found.storage_class("disk", provisioner=DISK)
    return found


def bound(world: VolumeStory, *claims: str) -> None:
    """Claims with a volume of the driver each."""
    for claim in claims:
        world.volume(f"pv-{claim}", of="disk", driver=DISK)
        world.claim(claim, of="disk", volume=f"pv-{claim}")


def test_a_node_takes_as_many_volumes_as_its_driver_attaches() -> None:
    world = story("a")
    bound(world, "one", "two", "three")
    world.pods(using("p", "one"), using("q", "two"), using("r", "three"))
    world.settle()
    assert sorted(world.placed()) == ["p", "q"]
    assert "1 node(s) exceed max volume count" in world.message("r")
    world.csi_node("a", disk_example_com=3)
    world.settle()
    assert world.node_of("r") == "a"


def test_pods_of_a_node_that_share_a_claim_use_one_volume() -> None:
    world = story("a", count=1)
    bound(world, "one")
    world.pods(using("p", "one"), using("q", "one"))
    world.settle()
    assert sorted(world.placed()) == ["p", "q"]
    world.pod_deleted("p")
    world.settle()
    bound(world, "two")
    world.pod(using("r", "two"))
    world.settle()
    assert world.node_of("r") is None, "q still uses it"
    world.run("a", "q", RunPhase.SUCCEEDED)
    world.settle()
    assert world.node_of("r") == "a"


def test_claims_whose_volume_is_still_to_be_made_count_under_their_provisioner() -> None:
    world = story("a", count=1)
    world.claim("one", of="disk")
    world.claim("two", of="disk")
    world.pods(using("p", "one"), using("q", "two"))
    world.settle()
    assert list(world.placed()) == ["p"]
    # Its volume turns out to be of another driver: there is room for another one of this.
    world.volume("pv", of="disk", driver="other.example.com")
    world.claim("one", of="disk", volume="pv")
    world.settle()
    assert world.node_of("q") == "a"


def test_without_a_count_there_is_no_limit() -> None:
    unlimited, without_driver = story("a", count=None), story("a", count=2)
    without_driver.csi_node("a")
    for world in (unlimited, without_driver):
        bound(world, "one", "two", "three")
        world.pods(using("p", "one", "two", "three"))
        world.settle()
        assert world.node_of("p") == "a"


def test_volumes_that_are_part_of_the_pod_count_too() -> None:
    world = story("a", "b", count=2)
    inline = [{"name": f"v{i}", "csi": {"driver": DISK}} for i in range(2)]
    world.ask_for("asked", volumes=[*inline, {"name": "v9", "csi": {"driver": DISK}}])
    assert world.refused(LIMITS, "asked") == {"a", "b"}
    world.put("p", "a", volumes=inline, cpu="10m")
    world.ask_for("next", volumes=inline[:1])
    assert world.refused(LIMITS, "next") == {"a"}
    assert DISK in world.reason(LIMITS, "next", 1).detail


def test_room_for_volumes_can_be_preempted() -> None:
    world = story("a", count=1)
    world.executor("a")
    bound(world, "low", "high")
    world.pod(using("low", "low", priority=0))
    world.settle()
    world.pod(using("high", "high", priority=1000))
    world.settle()
    nominated = world.nominated()["high"]
    assert [victim.name for victim in nominated.victims] == ["low"]


def test_a_claim_of_one_pod_is_not_used_by_a_second_one_wherever() -> None:
    world = story("a", "b", count=None)
    world.volume("pv", of="disk", driver=DISK)
    world.claim("one", of="disk", volume="pv", modes=("ReadWriteOncePod",))
    world.pods(using("p", "one"), using("q", "one"))
    world.settle()
    assert list(world.placed()) == ["p"]
    text = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
    assert text in world.message("q")
    world.run(world.placed()["p"], "p", RunPhase.SUCCEEDED)
    world.settle()
    assert world.node_of("q") is not None, "a pod that has ended uses nothing"


def test_the_pod_that_uses_it_can_be_preempted() -> None:
    world = story("a", "b", count=None)
    for name in "ab":
        world.executor(name)
    world.volume("pv", of="disk", driver=DISK)
    world.claim("one", of="disk", volume="pv", modes=("ReadWriteOncePod",))
    world.pod(using("p", "one", priority=0, nodeName="b"))
    world.pod(pod("bystander", cpu="1", priority=0, nodeName="a"))
    world.settle()
    world.pod(using("q", "one", priority=1000))
    world.settle()
    nominated = world.nominated()["q"]
    assert (nominated.node, [victim.name for victim in nominated.victims]) == ("b", ["p"])


def test_other_access_modes_are_shared() -> None:
    world = story("a", count=None)
    bound(world, "one")
    world.put("p", "a", volumes=using("x", "one")["spec"]["volumes"])
    world.ask_for("q", volumes=using("x", "one")["spec"]["volumes"])
    assert world.refused(RESTRICTIONS, "q") == set()
