"""The manifests of overcommitment, as a platform engineer applies them with kubectl: taken, or refused with the field."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import nats
import pytest
from nats.aio.msg import Msg

from cotenant.events.requests import CONFIG_DRY_RUN
from tests.builders import node_document
from tests.integration.gateway.gateway_process import PODS, WAIT_SECONDS, GatewayProcess, body_of, pod, with_kubectl
from tests.nats_server import NatsServer

EXAMPLES = Path(__file__).parents[3] / "examples" / "overcommitment"
CONFIGURATIONS = ("colocation", "mid", "normalization", "host-applications")
SYSTEM = "--namespace=koordinator-system"
CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
NODE_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
NODES = "/api/v1/nodes"
pytestmark = with_kubectl


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    process = GatewayProcess(shared_nats_server.url)
    asyncio.run(process.ready())
    yield process
    process.close()


@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_each_configuration_is_taken_and_taken_again_as_it_is(gateway: GatewayProcess, tmp_path: Path, name: str) -> None:
    manifest = str(EXAMPLES / f"{name}.yaml")
    assert "warning" not in (await gateway.kubectl(tmp_path, "apply", "-f", manifest)).lower()
    assert "unchanged" in await gateway.kubectl(tmp_path, "apply", "-f", manifest)


async def test_the_other_manifests_are_taken(gateway: GatewayProcess, session: aiohttp.ClientSession, tmp_path: Path) -> None:
    for name in ("node-reservation", "profiles", "required-labels"):
        said = await gateway.kubectl(tmp_path, "apply", "-f", str(EXAMPLES / f"{name}.yaml"))
        assert said.count("created") == (3 if name == "profiles" else 1)
    refused = await body_of(await session.post(PODS, json=pod("nobodys")), 422)
    assert refused["details"]["causes"][0]["field"] == "metadata.labels[team]"
    await gateway.kubectl(tmp_path, "delete", "configmap", "pod-enhanced-validator-config", SYSTEM)
    await body_of(await session.post(PODS, json=pod("nobodys")), 201)


async def test_what_is_wrong_is_refused_with_its_field(gateway: GatewayProcess, tmp_path: Path) -> None:
    broken = (EXAMPLES / "mid.yaml").read_text().replace('"midCPUThresholdPercent": 45', '"midCPUThresholdPercent": 145')
    manifest = tmp_path / "broken.yaml"
    manifest.write_text(broken)
    said = await gateway.kubectl(tmp_path, "apply", "-f", str(manifest), status=1)
    assert "data[colocation-config].midCPUThresholdPercent: Invalid value: \"145\"" in said
    manifest.write_text(broken.replace("koordinator.sh/configmap-type", "example.com/type"))
    await gateway.kubectl(tmp_path, "delete", "configmap", "slo-controller-config", SYSTEM, "--ignore-not-found")
    said = await gateway.kubectl(tmp_path, "apply", "-f", str(manifest))
    assert "Warning: data[colocation-config].midCPUThresholdPercent" in said
    assert "configmap/slo-controller-config created" in said


async def test_two_entries_for_one_node_are_refused(gateway: GatewayProcess, tmp_path: Path) -> None:
    twice = (EXAMPLES / "mid.yaml").read_text().replace(
        '"nodeConfigs": [', '"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}},'
    )
    manifest = tmp_path / "twice.yaml"
    manifest.write_text(twice)
    said = await gateway.kubectl(tmp_path, "apply", "-f", str(manifest), status=1)
    assert "data[colocation-config].nodeConfigs: Forbidden: entries 0 and 1 can select the same node" in said


async def test_a_configuration_that_is_tried_says_what_it_would_change(
    gateway: GatewayProcess, shared_nats_server: NatsServer, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await gateway.kubectl(tmp_path, "delete", "configmap", "slo-controller-config", SYSTEM, "--ignore-not-found")
    manifest = str(EXAMPLES / "colocation.yaml")
    apply = ("apply", "--dry-run=server", "-f", manifest)
    said = await gateway.kubectl(tmp_path, *apply)
    assert "Warning: what this would change is unknown: batch-resource-calculator does not answer" in said
    assert "created (server dry run)" in said
    asked: list[dict[str, str]] = []

    async def answer(request: Msg) -> None:
        asked.append(json.loads(request.data))
        await request.respond(json.dumps({"nodes": 17, "changes": {"batch-cpu": -12.0}, "error": ""}).encode())

    client = await nats.connect(shared_nats_server.url)
    try:
        await client.subscribe(CONFIG_DRY_RUN, cb=answer)
        await client.flush()
        said = await gateway.kubectl(tmp_path, *apply)
    finally:
        await client.close()
    assert "Warning: 17 nodes: batch-cpu -12 %" in said
    assert json.loads(asked[0]["colocation-config"])["enable"] is True
    assert (await session.get(f"{CONFIG_MAPS}/slo-controller-config")).status == 404


async def test_a_profile_that_is_tried_counts_the_pods_that_it_matches_and_is_applied_to_those_that_wait(
    gateway: GatewayProcess, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await body_of(await session.post(PODS, json=pod("tried", tier="tried")), 201)
    labels = {"config.koordinator.sh/controller-managed": "true"}
    document = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "tried", "labels": labels},
        "spec": {"selector": {"matchLabels": {"tier": "tried"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
    }
    manifest = tmp_path / "profile.json"
    manifest.write_text(json.dumps(document))
    said = await gateway.kubectl(tmp_path, "apply", "--dry-run=server", "-f", str(manifest))
    assert "Warning: ClusterColocationProfile tried: 1 pod of" in said
    assert "it would change 1: 1 waiting to be placed would be changed now" in said
    await gateway.kubectl(tmp_path, "apply", "-f", str(manifest))

    async def is_batch() -> bool:
        found = await body_of(await session.get(f"{PODS}/tried"), 200)
        return bool(found["spec"].get("priority") == 5000)

    await until(is_batch)
    shown = await body_of(await session.get(f"{PODS}/tried"), 200)
    assert shown["spec"]["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "100"}


async def test_a_node_slo_is_written_with_kubectl_and_ends_with_its_node(
    gateway: GatewayProcess, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await body_of(await session.post(NODES, json=node_document("written-1")), 201)
    document = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": "written-1"},
        "spec": {"extensions": {"third-party": {"ratio": 2}}},
    }
    manifest = tmp_path / "slo.json"
    manifest.write_text(json.dumps(document))
    assert "created" in await gateway.kubectl(tmp_path, "apply", "-f", str(manifest))
    patch = '{"spec":{"extensions":{"other":{"on":true}}}}'
    await gateway.kubectl(tmp_path, "patch", "nodeslo", "written-1", "--type=merge", "-p", patch)
    shown = await body_of(await session.get(f"{NODE_SLOS}/written-1"), 200)
    assert shown["spec"]["extensions"] == {"third-party": {"ratio": 2}, "other": {"on": True}}
    await gateway.kubectl(tmp_path, "delete", "node", "written-1")

    async def is_gone() -> bool:
        return (await session.get(f"{NODE_SLOS}/written-1")).status == 404

    await until(is_gone)


RUBBISH = (
    "[" * 700_000,
    "9" * 700_000,
    '"\\ud800"',
    "\x00",
    '{"nodeConfigs":[' + "{}," * 200_000 + "{}]}",
    '{"ratioModel":{' + ",".join(f'"{number}":{{"baseRatio":9}}' for number in range(25_000)) + "}}",
    "null",
)


@pytest.mark.parametrize("number", range(len(RUBBISH)))
async def test_rubbish_of_a_megabyte_is_answered(session: aiohttp.ClientSession, number: int) -> None:
    for name, member in (("slo-controller-config", "colocation-config"), ("pod-enhanced-validator-config", "rules")):
        for labels in ({}, {"koordinator.sh/configmap-type": "slo-controller-config"}):
            document = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "labels": labels},
                "data": {member: RUBBISH[number]},
            }
            async with session.post(CONFIG_MAPS, json=document, params={"dryRun": "All"}) as answer:
                assert answer.status < 500, await answer.text()
    async with session.get("/readyz") as answer:
        assert answer.status == 200
