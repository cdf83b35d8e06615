"""What pods ask of devices: written in its parts when they are created, refused where no device gives it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.builders import container
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind, manifest

PREFIX = "koordinator.sh/"


def pod(amounts: dict[str, str], **spec: Any) -> dict[str, Any]:
    named = {name if "/" in name else PREFIX + name: amount for name, amount in amounts.items()}
    return manifest(containers=[container(image="app:1", requests=named, limits=named)], **spec)


def asked(world: World, section: str = "requests") -> dict[str, str]:
    found: dict[str, str] = world.show("pods", "web")["spec"]["containers"][0]["resources"][section]
    return {name.removeprefix(PREFIX): amount for name, amount in found.items()}


def applied(world: World, containers: list[dict[str, Any]]) -> None:
    """Patch the pod as `kubectl apply` does; nothing is left to be stored."""
    patch = as_json({"spec": {"containers": containers}})
    planned = plan_patch(world.core, kind("pods"), "default", "web", "application/strategic-merge-patch+json", patch)
    assert planned.plan is None


def refusals(amounts: dict[str, str]) -> dict[str, str]:
    """Resource to message of what is refused."""
    try:
        World().create("pods", pod(amounts))
    except ApiError as error:
        return {field.partition("[koordinator.sh/")[2].rstrip("]"): message for field, message in causes(error).items()}
    return {}


@pytest.mark.parametrize(
    ("given_amounts", "written"),
    [
        ({"gpu": "50"}, {"gpu-core": "50", "gpu-memory-ratio": "50"}),
        ({"gpu": "100"}, {"gpu-core": "100", "gpu-memory-ratio": "100"}),
        ({"gpu": "200"}, {"gpu-core": "200", "gpu-memory-ratio": "200", "gpu.shared": "2"}),
        ({"gpu-memory-ratio": "400"}, {"gpu-memory-ratio": "400", "gpu.shared": "4"}),
        ({"gpu-core": "200", "gpu-memory": "32Gi"}, {"gpu-core": "200", "gpu-memory": "32Gi", "gpu.shared": "2"}),
        ({"gpu-core": "50", "gpu-memory": "8Gi"}, {"gpu-core": "50", "gpu-memory": "8Gi"}),
        (
            {"gpu-core": "100", "gpu-memory": "64Gi", "gpu.shared": "2"},
            {"gpu-core": "100", "gpu-memory": "64Gi", "gpu.shared": "2"},
        ),
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}),
        ({"rdma": "100"}, {"rdma": "100"}),
    ],
)
def test_gpus_are_written_in_their_parts(given_amounts: dict[str, str], written: dict[str, str]) -> None:
    world = World()
    world.create("pods", pod(given_amounts))
    assert asked(world) == asked(world, "limits") == written


def test_init_containers_too() -> None:
    world = World()
    amounts = {"koordinator.sh/gpu": "100"}
    first = container("first", image="app:1", requests=amounts, limits=amounts)
    world.create("pods", pod({"cpu": "1"}, initContainers=[first]))
    requests = world.show("pods", "web")["spec"]["initContainers"][0]["resources"]["requests"]
    assert requests == {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def test_the_manifest_of_a_live_pod_can_be_applied_again() -> None:
    world = World()
    world.create("pods", pod({"gpu": "200"}))
    again = as_json(pod({"gpu": "200"}, activeDeadlineSeconds=60))
    world.store(plan_replacement(world.core, kind("pods"), "default", "web", again).plan)
    assert asked(world) == {"gpu-core": "200", "gpu-memory-ratio": "200", "gpu.shared": "2"}


def test_a_patch_that_adds_the_gpus_of_the_manifest_changes_nothing() -> None:
    world = World()
    world.create("pods", pod({"gpu": "200"}))
    before = asked(world)
    amounts = {"koordinator.sh/gpu": "200"}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    applied(world, containers)
    assert asked(world) == before
    more = {"koordinator.sh/gpu": "300"}
    with pytest.raises(ApiError, match="may not change"):
        applied(world, [{"name": "main", "resources": {"limits": more, "requests": more}}])


@pytest.mark.parametrize(
    ("amounts", "refused"),
    [
        ({"gpu": "150"}, ["gpu"]),
        ({"gpu": "0"}, ["gpu"]),
        ({"gpu": "100", "gpu.shared": "1"}, ["gpu.shared"]),
        ({"gpu": "150", "gpu-core": "100"}, ["gpu", "gpu-core"]),
        ({"rdma": "201"}, ["rdma"]),
        ({"fpga": "150"}, ["fpga"]),
        ({"gpu-core": "100"}, ["gpu-memory-ratio"]),
        ({"gpu.shared": "2"}, ["gpu-memory-ratio"]),
        ({"gpu-memory": "8Gi", "gpu-memory-ratio": "50"}, ["gpu-memory"]),
        ({"gpu-core": "101", "gpu-memory": "64Gi", "gpu.shared": "1"}, ["gpu-core"]),
        ({"gpu-memory-ratio": "101", "gpu.shared": "1"}, ["gpu-memory-ratio"]),
        ({"gpu-memory-ratio": "101", "gpu.shared": "2"}, ["gpu-memory-ratio"]),
        ({"gpu-memory-ratio": "150"}, ["gpu-memory-ratio"]),
        ({"gpu-memory-ratio": "50", "gpu.shared": "0"}, ["gpu.shared"]),
    ],
)
def test_what_no_device_gives_is_refused_with_its_resource(amounts: dict[str, str], refused: list[str]) -> None:
    assert [*refusals(amounts)] == refused


@pytest.mark.parametrize(
    "amounts",
    [
        {"gpu-memory": "8Gi"},
        {"gpu-memory-ratio": "200"},
        {"gpu-memory-ratio": "100", "gpu.shared": "2"},
        {"huawei.com/npu-core": "40", "gpu-memory-ratio": "200"},
        {"gpu.shared": "1", "huawei.com/npu-core": "10", "huawei.com/npu-cpu": "3", "gpu-memory": "16Gi"},
        {"fpga": "50"},
        {"rdma": "200"},
    ],
)
def test_what_a_device_gives_is_taken(amounts: dict[str, str]) -> None:
    assert not refusals(amounts)


def test_a_quantity_that_cannot_be_read_is_told_once() -> None:
    assert all("quantity" in message.lower() for message in refusals({"gpu": "many"}).values())
    assert refusals({"gpu": "many"})


def test_a_live_pod_from_before_can_still_be_changed() -> None:
    world = World()
    world.create("pods", pod({"cpu": "1"}))
    world.patch("pods", "web", {"metadata": {"labels": {"a": "b"}}})
    assert world.show("pods", "web")["metadata"]["labels"]["a"] == "b"


AMOUNTS = st.dictionaries(
    st.sampled_from(["gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared", "rdma", "fpga"]),
    st.integers(0, 500) | st.just(2**63 - 1),
    min_size=1,
)


@given(AMOUNTS)
def test_what_is_taken_can_be_split_over_whole_or_shared_cards(amounts: dict[str, int]) -> None:
    world = World()
    try:
        world.create("pods", pod({name: str(amount) for name, amount in amounts.items()}))
    except ApiError:
        return
    found = {name: int(amount) for name, amount in asked(world).items()}
    assert "gpu" not in found
    cards = found.get("gpu.shared", 1)
    for name in ("gpu-core", "gpu-memory-ratio"):
        assert found.get(name, 0) % cards == 0
        assert found.get(name, 0) // cards <= 100
