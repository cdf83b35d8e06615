"""The deletion of a collection over HTTP, against a real nats-server."""

from __future__ import annotations

import asyncio

import aiohttp
import nats

from cotenant.log.contract import LOG
from tests.integration.gateway.gateway_process import body_of
from tests.nats_server import NatsServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
MAPS = 250
LABELS = {"of": "collection"}
SELECTED = {"labelSelector": "of=collection"}


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": LABELS}}


def quota(name: str, parent: str, *, is_parent: bool) -> dict[str, object]:
    group = "quota.scheduling.koordinator.sh"
    labels = {**LABELS, f"{group}/parent": parent, f"{group}/is-parent": str(is_parent).lower()}
    spec = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


async def test_a_collection_is_deleted_in_batches_and_what_is_not_selected_stays(
    session: aiohttp.ClientSession, nats_server: NatsServer
) -> None:
    names = [f"map-{number:03}" for number in range(MAPS)]
    await body_of(await session.post(CONFIG_MAPS, json={**config_map("other"), "metadata": {"name": "other"}}), 201)
    for answer in await asyncio.gather(*(session.post(CONFIG_MAPS, json=config_map(name)) for name in names)):
        await body_of(answer, 201)
    answered = await body_of(await session.delete(CONFIG_MAPS, params=SELECTED), 200)
    assert [item["metadata"]["name"] for item in answered["items"]] == names
    left = await body_of(await session.get(CONFIG_MAPS), 200)
    assert [item["metadata"]["name"] for item in left["items"] if item["metadata"].get("labels") == LABELS] == []
    assert "other" in [item["metadata"]["name"] for item in left["items"]]
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    headers = [
        (await stream.get_last_msg(LOG, f"objects.core.configmaps.default.{name}")).headers or {} for name in names
    ]
    await client.close()
    assert {header["Nats-Rollup"] for header in headers} == {"sub"}
    batches = {header.get("Nats-Batch-Id", f"alone {number}") for number, header in enumerate(headers)}
    assert len(batches) <= MAPS // 10


async def test_a_quota_is_deleted_with_its_children_whichever_comes_first(session: aiohttp.ClientSession) -> None:
    await body_of(await session.post(QUOTAS, json=quota("a-parent", "koordinator-root-quota", is_parent=True)), 201)
    await body_of(await session.post(QUOTAS, json=quota("b-child", "a-parent", is_parent=False)), 201)
    await body_of(await session.delete(f"{QUOTAS}/a-parent"), 403)
    await body_of(await session.delete(QUOTAS, params=SELECTED), 200)
    left = await body_of(await session.get(QUOTAS, params=SELECTED), 200)
    assert left["items"] == []


async def test_a_dry_run_of_a_collection_deletes_nothing(session: aiohttp.ClientSession) -> None:
    for name in ("one", "two"):
        await body_of(await session.post(CONFIG_MAPS, json=config_map(name)), 201)
    answered = await body_of(await session.delete(CONFIG_MAPS, params={**SELECTED, "dryRun": "All"}), 200)
    assert len(answered["items"]) == 2
    left = await body_of(await session.get(CONFIG_MAPS, params=SELECTED), 200)
    assert [item["metadata"]["name"] for item in left["items"]] == ["one", "two"]
