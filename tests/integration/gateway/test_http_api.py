"""The gateway over HTTP, against a real nats-server: what clients send and get, and what a restart leaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import nats
import pytest

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, EvictionRequest, evict_subject
from cotenant.events.node.execution import Execution
from cotenant.log.contract import EXECUTION
from cotenant.log.nats.log import connect, read_all
from cotenant.model.subjects import execution_subject
from cotenant_verification.http_sessions import http_session
from tests.integration.gateway.gateway_process import MERGE, PODS, WAIT_SECONDS, GatewayProcess, body_of, pod, with_kubectl
from tests.nats_server import NatsServer
from tests.streams import declare_streams

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def gateway_process(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(shared_nats_server.url)
    asyncio.run(gateway.ready())
    yield gateway
    gateway.close()


@pytest.fixture
async def http(gateway_process: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=WAIT_SECONDS)
    async with gateway_process.session(timeout=timeout) as session:
        yield session


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_a_client_reads_what_it_wrote_and_versions_are_sequences(http: aiohttp.ClientSession) -> None:
    created = await body_of(await http.post(PODS, json=pod("first")), 201)
    assert created["metadata"]["uid"]
    read = await body_of(await http.get(f"{PODS}/first"), 200)
    assert read == created
    listed = await body_of(await http.get(PODS), 200)
    assert int(listed["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


RUBBISH: list[tuple[str, str, bytes, int, str]] = [
    ("unknown kind", "/apis/example.com/v1/things", b"{}", 404, "NotFound"),
    ("truncated JSON", PODS, b'{"apiVersion":"v1","kind":"Pod","meta', 400, "BadRequest"),
    ("wrong type", PODS, json.dumps({**pod("a"), "spec": {"containers": "none"}}).encode(), 400, "BadRequest"),
    ("name beyond DNS", PODS, json.dumps(pod("Not_A_Name")).encode(), 422, "Invalid"),
    ("body of 10 MB", PODS, b'{"x":"' + b"y" * 10_000_000 + b'"}', 413, "RequestEntityTooLarge"),
    ("other kind", PODS, json.dumps(config_map("a")).encode(), 400, "BadRequest"),
]


@pytest.mark.parametrize(("path", "body", "code", "reason"), [item[1:] for item in RUBBISH], ids=[item[0] for item in RUBBISH])
async def test_rubbish_gets_a_status(http: aiohttp.ClientSession, path: str, body: bytes, code: int, reason: str) -> None:
    answer = await http.post(path, data=body, headers={"Content-Type": "application/json"})
    status = await body_of(answer, code)
    assert (status["kind"], status["reason"], status["code"]) == ("Status", reason, code)
    assert status["message"]
    assert (await http.get("/healthz")).status == 200


async def test_a_negative_quantity_names_field_and_reason(http: aiohttp.ClientSession) -> None:
    document = pod("negative")
    document["spec"] = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "-1"}}}]}
    status = await body_of(await http.post(PODS, json=document), 422)
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.containers[0].resources.requests[cpu]"
    assert cause["reason"] == "FieldValueInvalid"


async def test_creations_that_arrive_together_are_each_stored_once(http: aiohttp.ClientSession) -> None:
    answers = await asyncio.gather(*(http.post(PODS, json=pod(f"many-{number}", set="many")) for number in range(200)))
    assert {answer.status for answer in answers} == {201}
    listed = await body_of(await http.get(PODS, params={"labelSelector": "set=many"}), 200)
    assert len(listed["items"]) == 200
    versions = {item["metadata"]["resourceVersion"] for item in listed["items"]}
    assert len(versions) == 200


async def test_of_creations_of_one_name_one_wins(http: aiohttp.ClientSession) -> None:
    answers = await asyncio.gather(*(http.post(CONFIG_MAPS, json=config_map("one")) for _ in range(20)))
    codes = sorted(answer.status for answer in answers)
    assert codes == [201] + [409] * 19


async def test_patches_without_a_version_all_arrive_and_a_stale_replacement_conflicts(http: aiohttp.ClientSession) -> None:
    first = await body_of(await http.post(CONFIG_MAPS, json=config_map("patched")), 201)
    patches = (http.patch(f"{CONFIG_MAPS}/patched", json={"data": {f"k{n}": "v"}}, headers=MERGE) for n in range(4))
    assert {answer.status for answer in await asyncio.gather(*patches)} == {200}
    read = await body_of(await http.get(f"{CONFIG_MAPS}/patched"), 200)
    assert sorted(read["data"]) == ["k0", "k1", "k2", "k3"]
    status = await body_of(await http.put(f"{CONFIG_MAPS}/patched", json=first), 409)
    assert status["reason"] == "Conflict"
    read["data"]["k0"] = "new"
    assert (await body_of(await http.put(f"{CONFIG_MAPS}/patched", json=read), 200))["data"]["k0"] == "new"


async def test_a_version_that_nobody_has_seen_times_out(http: aiohttp.ClientSession) -> None:
    await body_of(await http.post(CONFIG_MAPS, json=config_map("ahead")), 201)
    ahead = config_map("ahead")
    ahead["metadata"] = {"name": "ahead", "resourceVersion": "99999999"}
    status = await body_of(await http.put(f"{CONFIG_MAPS}/ahead", json=ahead), 504)
    assert status["reason"] == "Timeout"


async def test_lists_page_select_and_print_tables(http: aiohttp.ClientSession) -> None:
    for number in range(5):
        await http.post(PODS, json=pod(f"page-{number}", set="page"))
    names: list[str] = []
    query = {"labelSelector": "set=page", "limit": "2"}
    while True:
        page = await body_of(await http.get(PODS, params=query), 200)
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        if not token:
            break
        query["continue"] = token
    assert names == [f"page-{number}" for number in range(5)]
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    table = await body_of(await http.get(f"{PODS}/page-0", headers=accept), 200)
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][:3] == ["page-0", "0/1", "Pending"]
    await body_of(await http.get(PODS, params={"labelSelector": "a in"}), 400)


async def read_events(response: aiohttp.ClientResponse, count: int) -> list[tuple[str, str]]:
    """The next events of a watch: type and name."""
    found: list[Any] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < count:
            line = json.loads(await response.content.readline())
            if line["type"] != "BOOKMARK":
                found.append((line["type"], line["object"]["metadata"]["name"]))
    return found


async def test_a_watch_shows_every_change_in_order_and_one_from_the_past_is_gone(http: aiohttp.ClientSession) -> None:
    listed = await body_of(await http.get(CONFIG_MAPS), 200)
    version = listed["metadata"]["resourceVersion"]
    async with http.get(CONFIG_MAPS, params={"watch": "1", "resourceVersion": version}) as response:
        await http.post(CONFIG_MAPS, json=config_map("watched"))
        await http.patch(f"{CONFIG_MAPS}/watched", json={"data": {"a": "b"}}, headers=MERGE)
        await http.delete(f"{CONFIG_MAPS}/watched")
        await http.post(CONFIG_MAPS, json=config_map("watched"))
        assert await read_events(response, 4) == [
            ("ADDED", "watched"),
            ("MODIFIED", "watched"),
            ("DELETED", "watched"),
            ("ADDED", "watched"),
        ]
    async with http.get("/api/v1/configmaps", params={"watch": "1", "resourceVersion": "1"}) as again:
        # Version 1 is the gateway's own start marker: everything since then is still held.
        assert again.status == 200
        ((kind, _),) = await read_events(again, 1)
    assert kind == "ADDED"


async def test_a_gateway_serves_the_log_that_its_server_was_set_up_with_again(nats_server: NatsServer) -> None:
    gateway = GatewayProcess(nats_server.url)
    await gateway.ready()
    timeout = aiohttp.ClientTimeout(total=WAIT_SECONDS)
    async with gateway.session(timeout=timeout) as session, asyncio.timeout(WAIT_SECONDS):
        await body_of(await session.post(PODS, json=pod("old")), 201)
        nats_server.kill()
        shutil.rmtree(nats_server.store)
        nats_server.start()
        await asyncio.to_thread(declare_streams, nats_server.url)
        while (await session.get(f"{PODS}/old")).status != 404:  # noqa: ASYNC110 - HTTP is all that tells
            await asyncio.sleep(0.1)
        # The namespace is a built-in object, which the gateway stores again.
        while (answer := await session.post(PODS, json=pod("new"))).status != 201:
            assert answer.status in (404, 503), await answer.text()
            await asyncio.sleep(0.1)
        listed = await body_of(await session.get(PODS), 200)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["new"]
    gateway.close()


async def test_a_watch_below_the_load_of_a_restarted_gateway_is_gone(nats_server: NatsServer) -> None:
    first = GatewayProcess(nats_server.url)
    await first.ready()
    async with http_session(first.credentials) as session:
        for number in range(30):
            await session.post(f"{first.url}{PODS}", json=pod(f"kept-{number}"))
        await session.delete(f"{first.url}{PODS}/kept-3")
        before = await body_of(await session.get(f"{first.url}{PODS}"), 200)
        first.kill()
        second = GatewayProcess(nats_server.url, "g2")
        await second.ready()
        after = await body_of(await session.get(f"{second.url}{PODS}"), 200)
        assert after["items"] == before["items"]
        assert len(after["items"]) == 29
        gone = await session.get(f"{second.url}{PODS}", params={"watch": "1", "resourceVersion": "2"})
        assert (await body_of(gone, 410))["reason"] == "Expired"
        recreated = await body_of(await session.post(f"{second.url}{PODS}", json=pod("kept-3")), 201)
        assert int(recreated["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    second.close()


async def test_two_gateways_show_the_same_versions(gateway_process: GatewayProcess, shared_nats_server: NatsServer) -> None:
    other = GatewayProcess(shared_nats_server.url, "g2")
    await other.ready()
    async with http_session(gateway_process.credentials) as session:
        created = await body_of(await session.post(f"{gateway_process.url}{PODS}", json=pod("shared")), 201)
        query = {"resourceVersion": created["metadata"]["resourceVersion"]}
        mine = await body_of(await session.get(f"{gateway_process.url}{PODS}", params=query), 200)
        async with asyncio.timeout(WAIT_SECONDS):
            # A gateway waits two seconds for a version that it has not reached; then the client may ask again.
            while (answer := await session.get(f"{other.url}{PODS}", params=query)).status == 504:
                continue
        theirs = await body_of(answer, 200)
        assert mine["items"] == theirs["items"]
    other.close()


async def test_budgets_bind_evictions_over_http_and_over_nats(
    http: aiohttp.ClientSession, shared_nats_server: NatsServer
) -> None:
    await body_of(await http.post(PODS, json=pod("evicted", set="e")), 201)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted", "namespace": "default"}}
    assert (await body_of(await http.post(f"{PODS}/evicted/eviction", json=eviction), 201))["status"] == "Success"
    assert (await http.get(f"{PODS}/evicted")).status == 404
    client = await nats.connect(shared_nats_server.url)
    request = EvictionRequest(namespace="default", name="evicted", uid="gone", job="job")
    arbiter, other = evict_subject("descheduler-arbiter"), evict_subject("somebody")
    reply = await client.request(arbiter, msgspec.json.encode(request), timeout=WAIT_SECONDS)
    outcome = msgspec.json.decode(reply.data, type=EvictionOutcome)
    assert (outcome.allowed, outcome.reason) == (True, "Gone")
    refused = await client.request(arbiter, b"not JSON", timeout=WAIT_SECONDS)
    assert (refused.headers or {})["Nats-Service-Error-Code"] == "400"
    refused = await client.request(other, msgspec.json.encode(request), timeout=WAIT_SECONDS)
    headers = refused.headers or {}
    assert headers["Nats-Service-Error-Code"] == "403"
    assert headers["Nats-Service-Error"] == (
        'pods "evicted" is forbidden: User "system:cotenant:somebody" cannot create resource "pods/eviction" '
        'in API group "" in the namespace "default"'
    )
    await client.close()


async def test_a_role_lets_a_user_on_nats_evict_and_the_audit_trail_says_who_did(
    http: aiohttp.ClientSession, shared_nats_server: NatsServer
) -> None:
    await body_of(await http.post(PODS, json=pod("guarded", set="g")), 201)
    client = await nats.connect(shared_nats_server.url)
    request = EvictionRequest(namespace="default", name="guarded", uid="gone", job="job")
    ask = evict_subject("operator")

    async def code(wanted: EvictionRequest) -> str:
        reply = await client.request(ask, msgspec.json.encode(wanted), timeout=WAIT_SECONDS)
        return (reply.headers or {}).get("Nats-Service-Error-Code", "201")

    assert await code(request) == "403"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "operator-evicts", "namespace": "default"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:cotenant:operator"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "evictor"},
    }  # fmt: skip
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "evictor", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}],
    }  # fmt: skip
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    await body_of(await http.post(f"{roles}/roles", json=role), 201)
    await body_of(await http.post(f"{roles}/rolebindings", json=binding), 201)
    assert await code(request) == "201"
    assert await code(msgspec.structs.replace(request, ignore_budgets=True)) == "403", "that is a deletion"
    assert await code(msgspec.structs.replace(request, policy="Delete")) == "403", "so is that"
    assert await code(msgspec.structs.replace(request, policy="SoftEviction")) == "403", "that is a patch"
    log = await connect(shared_nats_server.url, "test")
    found: list[tuple[str, str, int]] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < 5:
            events = await read_all(log, EXECUTION, ["execution._.audit"])
            records = [record for event in events for record in event.data.records]  # type: ignore[attr-defined]
            found = [(r.verb, r.subresource, r.code) for r in records if r.user == "system:cotenant:operator"]
    assert found == [("create", "eviction", code) for code in (403, 201, 403, 403, 403)]
    await log.close()
    await client.close()


async def test_messages_that_are_no_events_are_counted_and_stop_nothing(
    http: aiohttp.ClientSession, shared_nats_server: NatsServer
) -> None:
    client = await nats.connect(shared_nats_server.url)
    stream = client.jetstream()
    await stream.publish("objects.core.pods.default.rubbish", b"this is not JSON")
    unknown = {"specversion": "1.0", "id": "x", "source": "x", "type": "example.unknown.v1", "data": {}}
    await stream.publish("objects.core.pods.default.unknown", json.dumps(unknown).encode())
    wrong = {"specversion": "1.0", "id": "y", "source": "x", "type": "cotenant.object.v1", "data": {"object": 3}}
    await stream.publish("objects.core.pods.default.number", json.dumps(wrong).encode())
    await client.close()
    await body_of(await http.post(CONFIG_MAPS, json=config_map("still-alive")), 201)
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            status = await body_of(await http.get("/apis/cotenant.io/v1/status"), 200)
            if status["deadLetters"].get("LOG") and any(one["name"] == "cotenant-gateway" for one in status["services"]):
                break
    assert (await http.get(f"{PODS}/rubbish")).status == 404


async def test_the_log_is_told_in_words_and_a_pod_explained(http: aiohttp.ClientSession) -> None:
    created = await body_of(await http.post(PODS, json=pod("told")), 201)
    version = created["metadata"]["resourceVersion"]
    answer = await http.get("/apis/cotenant.io/v1/events", params={"since": str(int(version) - 1), "for": "pod/told"})
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [(line["sequence"], line["stream"]) for line in lines] == [(int(version), "LOG")]
    assert lines[0]["sentence"].startswith("pods default/told stored by")
    explained = await body_of(await http.get("/apis/cotenant.io/v1/explain/pod/default/told"), 200)
    assert explained["links"][0]["ref"] == f"LOG:{version}"
    await body_of(await http.get("/apis/cotenant.io/v1/explain/pod/default/nobody"), 404)


async def test_a_node_is_explained_with_what_its_executor_did_last_and_by_which_figure(
    http: aiohttp.ClientSession, shared_nats_server: NatsServer
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late.node"}}
    await body_of(await http.post("/api/v1/nodes", json=node), 201)
    log = await connect(shared_nats_server.url, "test")
    for text in ("one", "besteffort quota: 300 -> 200: default/web: oldest request 45.0 ms, goal 20 ms"):
        did = Execution(node="late.node", topic="suppress", summary=text, figures={"held-back.cpu-milli": 800})
        subject = execution_subject("late.node", "suppress")
        event = Event(subject=subject, data=did, time=datetime.now(UTC), id=text, source="/t", stream=EXECUTION)
        assert await log.publish(event)
    await log.close()
    explained = await body_of(await http.get("/apis/cotenant.io/v1/explain/node/late.node"), 200)
    (link,) = [each for each in explained["links"] if each["ref"].startswith("EXECUTION:")]
    assert "oldest request 45.0 ms, goal 20 ms" in link["sentence"]
    assert link["figures"]["held-back.cpu-milli"] == "800"


@with_kubectl
async def test_kubectl_applies_reads_patches_and_deletes(gateway_process: GatewayProcess, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(pod("by-kubectl", by="kubectl")))

    kubectl = partial(gateway_process.kubectl, tmp_path)

    assert "pod/by-kubectl created" in await kubectl("apply", "-f", str(manifest))
    assert "pod/by-kubectl unchanged" in await kubectl("apply", "-f", str(manifest))
    assert "Pending" in await kubectl("get", "pods", "-l", "by=kubectl")
    assert "labeled" in await kubectl("label", "pod", "by-kubectl", "more=yes")
    assert "Name:         by-kubectl" in await kubectl("describe", "pod", "by-kubectl")
    assert "ElasticQuota" in await kubectl("api-resources")
    assert "deleted" in await kubectl("delete", "pod", "by-kubectl", "--timeout=60s")
    # These commands send protobuf.
    assert "created" in await kubectl("create", "namespace", "team")
    assert "created" in await kubectl("-n", "team", "create", "configmap", "c", "--from-literal=a=b")
    assert "created" in await kubectl("-n", "team", "create", "pdb", "b", "--selector=app=x", "--min-available=50%")
    assert "created" in await kubectl("create", "priorityclass", "low", "--value=-7", "--description=low")
    read = json.loads(await kubectl("-n", "team", "get", "configmap/c", "pdb/b", "priorityclass/low", "-o", "json"))
    shown = {item["kind"]: item for item in read["items"]}
    assert shown["ConfigMap"]["data"] == {"a": "b"}
    assert shown["PodDisruptionBudget"]["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}}
    assert shown["PriorityClass"]["value"] == -7
    assert "deleted" in await kubectl("delete", "namespace", "team", "--timeout=60s")


@with_kubectl
async def test_kubectl_explains_and_validates(gateway_process: GatewayProcess, tmp_path: Path) -> None:
    kubectl = partial(gateway_process.kubectl, tmp_path)
    assert "containers\t<[]Container> -required-" in await kubectl("explain", "pods.spec")
    assert "max\t<map[string]Quantity>" in await kubectl("explain", "elasticquota.spec")
    wrong: dict[str, Any] = pod("by-strict-kubectl")
    wrong["spec"]["containers"][0]["imgae"] = "app:1"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(wrong))
    with pytest.raises(AssertionError, match=r'strict decoding error: unknown field "spec.containers\[0\].imgae"'):
        await kubectl("apply", "--validate=strict", "-f", str(manifest))
    warned = await kubectl("apply", "--validate=warn", "-f", str(manifest))
    assert 'Warning: unknown field "spec.containers[0].imgae"' in warned
    assert "pod/by-strict-kubectl created" in warned
    assert "pod/by-strict-kubectl unchanged" in await kubectl("apply", "--validate=ignore", "-f", str(manifest))
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod("of-a-list"), pod("of-a-list-too")]}))
    applied = await kubectl("apply", "-f", str(manifest))
    assert "pod/of-a-list created" in applied
    assert "pod/of-a-list-too created" in applied
