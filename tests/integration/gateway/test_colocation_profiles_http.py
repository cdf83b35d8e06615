"""ClusterColocationProfiles over HTTP, with two gateways beside each other on a real nats-server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.integration.gateway.gateway_process import MERGE, PODS, WAIT_SECONDS, GatewayProcess, body_of, pod, with_kubectl
from tests.nats_server import NatsServer

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
APPLIED = "cotenant.io/colocation-profiles"


def profile(name: str, **spec: object) -> dict[str, object]:
    api_version = "config.koordinator.sh/v1alpha1"
    return {"apiVersion": api_version, "kind": "ClusterColocationProfile", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def gateways(shared_nats_server: NatsServer) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    both = GatewayProcess(shared_nats_server.url, "one"), GatewayProcess(shared_nats_server.url, "two")
    for gateway in both:
        asyncio.run(gateway.ready())
    yield both
    for gateway in both:
        gateway.close()


@pytest.fixture
async def one(gateways: tuple[GatewayProcess, GatewayProcess]) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateways[0].session(timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS)) as session:
        yield session


@pytest.fixture
async def two(gateways: tuple[GatewayProcess, GatewayProcess]) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateways[1].session(timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS)) as session:
        yield session


async def knows(session: aiohttp.ClientSession, stored: dict[str, Any]) -> None:
    """Wait until the other gateway has folded this object."""
    query = {"resourceVersion": stored["metadata"]["resourceVersion"]}
    async with asyncio.timeout(WAIT_SECONDS):
        # A gateway waits two seconds for a version that it has not reached; then the client may ask again.
        while (await session.get(PROFILES, params=query)).status == 504:
            continue


async def test_a_pod_is_changed_alike_by_both_gateways_in_a_dry_run_and_when_it_is_stored(
    one: aiohttp.ClientSession, two: aiohttp.ClientSession
) -> None:
    selector = {"matchLabels": {"kind": "batch"}}
    declared = profile(
        "to-batch", selector=selector, qosClass="BE", priorityClassName="koord-batch", labels={"colocated": "yes"}
    )
    stored = await body_of(await one.post(PROFILES, json=declared), 201)
    await knows(two, stored)
    dry = await body_of(await one.post(PODS, params={"dryRun": "All"}, json=pod("crunch", kind="batch")), 201)
    assert (await one.get(f"{PODS}/crunch")).status == 404
    real = await body_of(await two.post(PODS, json=pod("crunch", kind="batch")), 201)
    for shown in (dry, real):
        assert shown["metadata"]["labels"] == {"kind": "batch", "colocated": "yes", "koordinator.sh/qosClass": "BE"}
        assert shown["metadata"]["annotations"][APPLIED] == "to-batch"
        assert shown["spec"]["priority"] == 5000
        assert shown["spec"]["containers"][0]["resources"] == {"requests": {"kubernetes.io/batch-cpu": "100"}}
    plain = await body_of(await two.post(PODS, json=pod("plain")), 201)
    assert plain["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}


async def test_explain_leads_from_the_pod_to_the_profile(one: aiohttp.ClientSession) -> None:
    declared = profile("explained", selector={"matchLabels": {"kind": "explained"}}, schedulerName="cotenant")
    stored = await body_of(await one.post(PROFILES, json=declared), 201)
    created = await body_of(await one.post(PODS, json=pod("explained", kind="explained")), 201)
    explained = await body_of(await one.get("/apis/cotenant.io/v1/explain/pod/default/explained"), 200)
    of_pod, of_profile = explained["links"][:2]
    assert (of_pod["depth"], of_pod["ref"]) == (0, f"LOG:{created['metadata']['resourceVersion']}")
    assert "ClusterColocationProfile explained: schedulerName cotenant" in of_pod["sentence"]
    assert (of_profile["depth"], of_profile["ref"]) == (1, f"LOG:{stored['metadata']['resourceVersion']}")


async def test_an_invalid_profile_is_refused_and_the_one_that_is_stored_stays_in_force(one: aiohttp.ClientSession) -> None:
    await body_of(
        await one.post(PROFILES, json=profile("kept", selector={"matchLabels": {"kind": "kept"}}, labels={"v": "1"})), 201
    )
    for spec, field in (({"qosClass": "NONSENSE"}, "spec.qosClass"), ({"patch": {"kind": "Node"}}, "spec.patch.kind")):
        for answer in (
            await one.post(PROFILES, json=profile("broken", **spec)),
            await one.patch(f"{PROFILES}/kept", json={"spec": spec}, headers=MERGE),
        ):
            status = await body_of(answer, 422)
            assert [cause["field"] for cause in status["details"]["causes"]] == [field]
    created = await body_of(await one.post(PODS, json=pod("kept", kind="kept")), 201)
    assert created["metadata"]["labels"]["v"] == "1"


async def test_both_gateways_draw_the_same_pods(one: aiohttp.ClientSession, two: aiohttp.ClientSession) -> None:
    half = profile("half", selector={"matchLabels": {"kind": "drawn"}}, probability="50%", labels={"drawn": "yes"})
    await knows(two, await body_of(await one.post(PROFILES, json=half), 201))

    async def drawn(session: aiohttp.ClientSession) -> list[bool]:
        shown = [
            await body_of(await session.post(PODS, params={"dryRun": "All"}, json=pod(f"drawn-{number}", kind="drawn")), 201)
            for number in range(20)
        ]
        return ["drawn" in each["metadata"]["labels"] for each in shown]

    by_one = await drawn(one)
    assert by_one == await drawn(two)
    assert {*by_one} == {True, False}


@with_kubectl
async def test_kubectl_applies_profile_and_pod_and_applies_them_again(
    gateways: tuple[GatewayProcess, GatewayProcess], tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests.yaml"
    declared = profile(
        "by-kubectl", selector={"matchLabels": {"by": "kubectl"}}, qosClass="BE", priorityClassName="koord-batch"
    )
    manifests.write_text(yaml.safe_dump_all([declared, pod("by-kubectl", by="kubectl")]))

    kubectl = partial(gateways[0].kubectl, tmp_path)

    assert "pod/by-kubectl created" in await kubectl("apply", "-f", str(manifests))
    before = json.loads(await kubectl("get", "pod", "by-kubectl", "-o", "json"))
    assert before["metadata"]["annotations"][APPLIED] == "by-kubectl"
    await kubectl("apply", "-f", str(manifests))
    assert json.loads(await kubectl("get", "pod", "by-kubectl", "-o", "json")) == before
