"""Heads of requests that no client library would send: each is answered, and the gateway goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from cotenant.log.nats.log import connect
from cotenant.model.subjects import object_subject
from tests.integration.gateway.gateway_process import MERGE, PODS, WAIT_SECONDS, GatewayProcess, pod, shared_identity
from tests.nats_server import NatsServer

JSON = b"application/json"


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    process = GatewayProcess(shared_nats_server.url)
    asyncio.run(process.ready())
    yield process
    process.close()


async def exchange(gateway: GatewayProcess, request: bytes) -> int:
    """Send bytes as they are; the status of the answer."""
    reader, writer = await gateway.connect()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            writer.write(request)
            await writer.drain()
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


def request(method: str, target: str, body: bytes = b"", content_type: bytes = JSON, **headers: bytes) -> bytes:
    authorization = f"Bearer {shared_identity().token}".encode()
    given = {b"Host": b"localhost", b"Authorization": authorization, b"Content-Type": content_type}
    given[b"Content-Length"] = str(len(body)).encode()
    given.update({name.replace("_", "-").encode(): value for name, value in headers.items()})
    head = b"".join(name + b": " + value + b"\r\n" for name, value in given.items())
    return f"{method} {target} HTTP/1.1\r\n".encode() + head + b"\r\n" + body


async def alive(gateway: GatewayProcess) -> bool:
    return gateway.process.poll() is None and await exchange(gateway, request("GET", PODS)) == 200


AGENTS = {"no-utf8": b"\xff", "half": b"kubectl\xc3/1.0", "long": b"x" * 5000, "empty": b"", "astral": "\U0001f600".encode()}


@pytest.mark.parametrize("name", AGENTS)
async def test_any_client_may_write_whatever_it_calls_itself(gateway: GatewayProcess, name: str) -> None:
    agent = AGENTS[name]
    body = json.dumps(pod(f"agent-{name}")).encode()
    assert await exchange(gateway, request("POST", PODS, body, User_Agent=agent)) == 201
    patch = b'{"metadata":{"labels":{"a":"b"}}}'
    patched = request("PATCH", f"{PODS}/agent-{name}", patch, MERGE["Content-Type"].encode(), User_Agent=agent)
    assert await exchange(gateway, patched) == 200
    assert await exchange(gateway, request("DELETE", f"{PODS}/agent-{name}", User_Agent=agent)) == 200
    assert await exchange(gateway, request("POST", PODS, body, User_Agent=agent)) == 201
    assert await exchange(gateway, request("POST", f"{PODS}/agent-{name}/eviction", b"{}", User_Agent=agent)) == 201
    assert await alive(gateway)


@pytest.mark.parametrize("manager", ["%ff", "%ed%a0%80", "x" * 3000, "%00", "a%0d%0ab"])
async def test_any_field_manager_is_taken(gateway: GatewayProcess, manager: str) -> None:
    body = json.dumps(pod("managed")).encode()
    assert await exchange(gateway, request("POST", f"{PODS}?fieldManager={manager}", body)) == 201
    assert await exchange(gateway, request("DELETE", f"{PODS}/managed?gracePeriodSeconds=0")) == 200
    assert await alive(gateway)


HEADS: dict[str, tuple[bytes, set[int]]] = {
    "content type no text": (request("POST", PODS, b"{}", b"\xff\xfe"), {400, 415}),
    "patch type no text": (request("PATCH", f"{PODS}/x", b"{}", b"application/\xff"), {415}),
    "charset unknown": (request("POST", PODS, b"{}", JSON + b"; charset=\xff"), {400}),
    "accept no text": (request("GET", PODS, Accept=b"\xff\xff;q=\xff"), {200}),
    "path no text": (request("GET", f"{PODS}/%ff%fe"), {404}),
    "path with a surrogate": (request("GET", f"{PODS}/%ed%a0%80"), {404}),
    "path with a zero": (request("GET", f"{PODS}/%00"), {404}),
    "path of dots": (request("GET", f"{PODS}/../../..//"), {404}),
    "selector no text": (request("GET", f"{PODS}?labelSelector=%ff%fe"), {200, 400}),
    "limit 1e18": (request("GET", f"{PODS}?limit=1000000000000000000"), {200, 400}),
    "limit of 5000 digits": (request("GET", f"{PODS}?limit={'9' * 5000}"), {400}),
    "timeout 1e30": (request("GET", f"{PODS}?timeoutSeconds={10**30}"), {200, 400}),
    "version of 5000 digits": (request("GET", f"{PODS}?resourceVersion={'9' * 5000}"), {400, 504}),
    "version 1e18": (request("GET", f"{PODS}?resourceVersion={10**18}"), {504}),
    "grace of 5000 digits": (request("DELETE", f"{PODS}/x?gracePeriodSeconds={'9' * 5000}"), {400, 404}),
    "grace 1e30": (request("DELETE", f"{PODS}/x", b'{"gracePeriodSeconds":1000000000000000000000000000000}'), {404}),
    "continue no text": (request("GET", f"{PODS}?limit=1&continue=%ff%fe"), {400}),
    "body no text": (request("POST", PODS, b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\xff"}}'), {400}),
    "lone surrogate": (request("POST", PODS, b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\\ud800"}}'), {400}),
    "deep": (request("POST", PODS, b"[" * 100_000), {400}),
    "protobuf rubbish": (request("POST", PODS, b"k8s\x00\xff\xff\xff\xff", b"application/vnd.kubernetes.protobuf"), {400, 415}),
    "trace no text": (request("GET", PODS, traceparent=b"\xff", tracestate=b"\xff"), {200}),
    "host no text": (request("GET", PODS, Host=b"\xff"), {400, 403}),
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_head_that_nobody_means_is_answered(gateway: GatewayProcess, name: str) -> None:
    sent, expected = HEADS[name]
    assert await exchange(gateway, sent) in expected
    assert await alive(gateway)


async def test_a_stored_object_that_is_none_of_its_kind_is_a_dead_letter_until_it_is_written_again(
    gateway: GatewayProcess, shared_nats_server: NatsServer
) -> None:
    spec = {"containers": [{"name": "a", "image": "b"}], "priority": 10**30}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old", "namespace": "default"}, "spec": spec}
    message = {"specversion": "1.0", "id": "old/1", "source": "/old", "type": "cotenant.object.v1"}
    subject = object_subject("", "pods", "default", "old")
    log = await connect(shared_nats_server.url, "test")
    await log.client.publish(subject, json.dumps({**message, "data": {"object": document}}).encode())
    await log.client.flush()
    await log.close()
    async with gateway.session() as session, asyncio.timeout(WAIT_SECONDS):

        async def letter(state: str) -> dict[str, str]:
            while True:
                async with session.get("/apis/cotenant.io/v1/deadletters") as answer:
                    items = (await answer.json())["items"]
                for item in items:
                    if item["subject"] == subject and item["state"] == state:
                        return dict(item)
                await asyncio.sleep(0.1)

        assert (await letter("Held"))["reason"].startswith("not a valid Pod: ")
        assert (await letter("Held"))["service"] == "gateway"
        async with session.post(PODS, json=pod("old")) as answer:
            assert answer.status == 201
        await letter("Superseded")
    assert await exchange(gateway, request("DELETE", f"{PODS}/old?gracePeriodSeconds=0")) == 200
