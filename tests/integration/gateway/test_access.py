"""Who gets in: a real gateway over TLS and on a unix socket, kubectl with its kubeconfig, pages and machines that must not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant_console.api.credentials import Credentials
from cotenant_console.pki.identity import prepared
from cotenant_verification.http_sessions import http_session
from tests.integration.gateway.gateway_process import (
    PODS,
    WAIT_SECONDS,
    GatewayProcess,
    body_of,
    pod,
    refusal_to_start,
    shared_identity,
    with_kubectl,
)
from tests.nats_server import NatsServer

ANNA = "annas-token-of-some-length"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens.csv"
    path.write_text(f'{ANNA},anna,,"team"\n')
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    socket = tmp_path_factory.mktemp("socket") / "gateway.sock"
    options = ("--token-auth-file", str(tokens), "--unix-socket", str(socket), "--allowed-host", "cell.example")
    process = GatewayProcess(shared_nats_server.url, "g1", *options)
    asyncio.run(process.ready())
    yield process
    process.close()


@pytest.fixture(scope="module")
def socket(gateway: GatewayProcess) -> Path:
    arguments = [str(argument) for argument in gateway.process.args]  # type: ignore[union-attr]
    return Path(arguments[arguments.index("--unix-socket") + 1])


@pytest.fixture
async def boss(gateway: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateway.session() as session:
        yield session


@pytest.fixture
async def anna(gateway: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with http_session(Credentials(ca=gateway.credentials.ca, token=ANNA), gateway.url) as session:
        yield session


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, role_name: str, user: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"kind": "Role", "name": role_name},
    }


async def test_without_credentials_nothing_but_health_is_answered(gateway: GatewayProcess) -> None:
    for token in ("", "wrong-wrong-wrong-wrong"):
        async with http_session(Credentials(ca=gateway.credentials.ca, token=token), gateway.url) as nobody:
            for path in (PODS, "/api", "/version", "/metrics", "/apis/cotenant.io/v1/events", "/openapi/v3", "/nothing"):
                answer = await nobody.get(path)
                assert (await body_of(answer, 401))["reason"] == "Unauthorized", path
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert (await nobody.post(PODS, json=pod("stranger"))).status == 401
            assert (await nobody.get("/readyz")).status == 200
            assert (await nobody.get("/healthz")).status == 200


async def test_plain_http_is_not_spoken(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in await reader.read()
    writer.close()
    with pytest.raises(aiohttp.ClientSSLError):
        async with aiohttp.ClientSession() as session:
            await session.get(f"{gateway.url}/version")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8001"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "cell.example"}, 200),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Host": "[::1]:8001"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_pages_of_others_get_nothing(gateway: GatewayProcess, headers: dict[str, str], status: int) -> None:
    async with gateway.session() as session:
        answer = await session.get(PODS, headers=headers)
        assert answer.status == status, await answer.text()
        if status == 403:
            assert (await answer.json())["reason"] == "Forbidden"


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "application/octet-stream"]
)
async def test_a_verb_takes_its_own_content_types(boss: aiohttp.ClientSession, content_type: str) -> None:
    body, headers = json.dumps(pod("form")).encode(), {"Content-Type": content_type}
    assert (await boss.post(PODS, data=body, headers=headers)).status == 415
    assert (await boss.put(f"{PODS}/form", data=body, headers=headers)).status == 415
    assert (await boss.patch(f"{PODS}/form", data=body, headers=headers)).status == 415
    assert (await boss.post(f"{PODS}/form/eviction", data=b"{}", headers=headers)).status == 415
    assert (await boss.delete(f"{PODS}/form", data=b"{}", headers=headers)).status == 415
    assert (await boss.patch(f"{PODS}/form", data=b"{}", headers={"Content-Type": "application/json"})).status == 415


async def test_roles_open_what_they_say_and_closing_them_takes_effect_at_once(
    boss: aiohttp.ClientSession, anna: aiohttp.ClientSession
) -> None:
    refused = await body_of(await anna.get(PODS), 403)
    assert refused["message"] == (
        'pods is forbidden: User "anna" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    reading = role("reader", {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]})
    await body_of(await boss.post(f"{RBAC}/namespaces/default/roles", json=reading), 201)
    await body_of(await boss.post(f"{RBAC}/namespaces/default/rolebindings", json=binding("r", "reader", "anna")), 201)
    await body_of(await anna.get(PODS), 200)
    assert (await anna.get("/api/v1/pods")).status == 403
    assert (await anna.get("/api/v1/nodes")).status == 403
    assert (await anna.post(PODS, json=pod("annas"))).status == 403
    assert (await anna.get("/apis/cotenant.io/v1/events")).status == 403
    assert (await anna.get("/metrics")).status == 403
    assert (await anna.get("/apis")).status == 200
    await body_of(await boss.delete(f"{RBAC}/namespaces/default/rolebindings/r"), 200)
    assert (await anna.get(PODS)).status == 403
    await body_of(await boss.delete(f"{RBAC}/namespaces/default/roles/reader"), 200)


async def test_nobody_gives_themselves_more(boss: aiohttp.ClientSession, anna: aiohttp.ClientSession) -> None:
    roles, bindings = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
    groups = ["rbac.authorization.k8s.io"]
    written = ["roles", "rolebindings"]
    writing = role("rbac-writer", {"verbs": ["create", "update", "patch"], "apiGroups": groups, "resources": written})
    await body_of(await boss.post(roles, json=writing), 201)
    await body_of(await boss.post(bindings, json=binding("w", "rbac-writer", "anna")), 201)
    more = {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}
    said = (await body_of(await anna.post(roles, json=role("more", more)), 403))["message"]
    assert '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}' in said
    merge = {"Content-Type": "application/merge-patch+json"}
    patched = await anna.patch(f"{roles}/rbac-writer", data=json.dumps({"rules": [more]}), headers=merge)
    assert patched.status == 403
    assert (await anna.put(f"{roles}/rbac-writer", json=role("rbac-writer", more))).status == 403
    labelled = await anna.patch(f"{roles}/rbac-writer", data=b'{"metadata":{"labels":{"a":"b"}}}', headers=merge)
    assert labelled.status == 200
    most = binding("most", "x", "anna") | {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}
    assert (await anna.post(bindings, json=most)).status == 403
    await body_of(await boss.delete(f"{bindings}/w"), 200)
    await body_of(await boss.delete(f"{roles}/rbac-writer"), 200)


async def test_who_writes_is_who_was_let_in(boss: aiohttp.ClientSession) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "signed"}}
    await body_of(await boss.post(f"{CONFIG_MAPS}?fieldManager=somebody-else", json=document), 201)
    async with boss.get("/apis/cotenant.io/v1/events", params={"for": "ConfigMap/signed"}) as answer:
        assert "somebody-else" not in await answer.text()


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_token_that_is_taken_away_ends(gateway: GatewayProcess, tokens: Path) -> None:
    more = "another-token-for-a-while"
    before = f'{ANNA},anna,,"team"\n'
    rewrite(tokens, f'{before}{more},carl,,"system:masters"\n')
    credentials = Credentials(ca=gateway.credentials.ca, token=more)
    async with http_session(credentials, gateway.url) as carl, asyncio.timeout(WAIT_SECONDS):
        while (await carl.get(PODS)).status != 200:  # noqa: ASYNC110 - the file is looked at once a second
            await asyncio.sleep(0.1)
        rewrite(tokens, before)
        while (await carl.get(PODS)).status != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_the_process_at_the_other_end_of_a_unix_socket_is_the_user(socket: Path) -> None:
    assert mode_of(socket) == 0o600
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with aiohttp.ClientSession("http://anything", connector=aiohttp.UnixConnector(str(socket))) as local:
        found = await body_of(await local.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review), 201)
        assert found["status"]["userInfo"]["username"] == "unix:root"
        await body_of(await local.get(PODS), 200)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a process as somebody else")
def test_another_user_of_this_machine_gets_nothing(gateway: GatewayProcess, socket: Path) -> None:
    ask = (
        "import socket, ssl\n"
        f"for family, address in ((socket.AF_INET, ('127.0.0.1', {gateway.port})), (socket.AF_UNIX, {str(socket)!r})):\n"
        "    s = socket.socket(family)\n"
        "    try:\n"
        "        s.connect(address)\n"
        "        if family == socket.AF_INET: s = ssl._create_unverified_context().wrap_socket(s)\n"
        "        s.sendall(b'GET /api/v1/pods HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "        print(s.recv(12).decode())\n"
        "    except PermissionError: print('refused')\n"
    )
    command = ["/usr/bin/env", "python3", "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True, user=65534, check=True, cwd="/")
    assert done.stdout.split("\n")[:2] == ["HTTP/1.1 401", "refused"]
    identity = shared_identity()
    for path in (identity.tokens, identity.key, gateway.kubeconfig):
        read = subprocess.run(["cat", str(path)], capture_output=True, user=65534, check=False)
        assert read.returncode != 0


@with_kubectl
async def test_kubectl_asks_who_it_is_and_what_it_may(gateway: GatewayProcess, tmp_path: Path) -> None:
    assert "cotenant-admin" in await gateway.kubectl(tmp_path, "auth", "whoami")
    assert await gateway.kubectl(tmp_path, "auth", "can-i", "delete", "pods") == "yes\n"
    listed = await gateway.kubectl(tmp_path, "auth", "can-i", "--list")
    assert "*.*" in listed
    await gateway.kubectl(tmp_path, "create", "role", "looker", "--verb=get,list", "--resource=pods,configmaps")
    await gateway.kubectl(tmp_path, "create", "rolebinding", "anna-looks", "--role=looker", "--user=anna")
    await gateway.kubectl(tmp_path, "create", "clusterrole", "paths", "--verb=get", "--non-resource-url=/metrics")
    await gateway.kubectl(tmp_path, "create", "clusterrolebinding", "paths", "--clusterrole=paths", "--group=team")
    assert await gateway.kubectl(tmp_path, "auth", "can-i", "list", "pods", "--as=anna") == "yes\n"
    assert await gateway.kubectl(tmp_path, "auth", "can-i", "delete", "pods", "--as=anna", status=1) == "no\n"
    assert "anna" in await gateway.kubectl(tmp_path, "auth", "whoami", "--as=anna")
    table = await gateway.kubectl(tmp_path, "get", "roles,rolebindings")
    assert "role.rbac.authorization.k8s.io/looker" in table
    assert "Role/looker" in table
    async with http_session(Credentials(ca=gateway.credentials.ca, token=ANNA), gateway.url) as anna:
        assert (await anna.get(CONFIG_MAPS)).status == 200
        assert (await anna.get("/metrics")).status == 200
    for what in ("role/looker", "rolebinding/anna-looks", "clusterrole/paths", "clusterrolebinding/paths"):
        await gateway.kubectl(tmp_path, "delete", what)


async def test_a_client_certificate_is_a_user(gateway: GatewayProcess, tmp_path: Path) -> None:
    identity = shared_identity()
    certificate, key = client_certificate(identity.ca, identity.ca.with_name("ca.key"), "carl", "system:masters", tmp_path)
    credentials = Credentials(ca=identity.ca_text, certificate=certificate, key=key)
    async with http_session(credentials, gateway.url) as carl:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = await body_of(await carl.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review), 201)
        assert found["status"]["userInfo"]["username"] == "carl"
        await body_of(await carl.get(PODS), 200)
    other = prepared(tmp_path / "other", ("localhost",))
    certificate, key = client_certificate(other.ca, other.ca.with_name("ca.key"), "carl", "system:masters", tmp_path)
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        async with http_session(Credentials(ca=identity.ca_text, certificate=certificate, key=key), gateway.url) as forger:
            await (await forger.get(PODS)).read()


def client_certificate(ca: Path, ca_key: Path, name: str, group: str, folder: Path) -> tuple[str, str]:
    """Sign a client's certificate, as an administrator does; returns it and its key."""
    key, request, signed = folder / "client.key", folder / "client.csr", folder / "client.crt"
    new = ("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run([*new, "-keyout", key, "-out", request, "-subj", f"/O={group}/CN={name}"], check=True, capture_output=True)
    sign = ("openssl", "x509", "-req", "-days", "1", "-CAcreateserial", "-CA", ca, "-CAkey", ca_key)
    subprocess.run([*sign, "-in", request, "-out", signed], check=True, capture_output=True)
    return signed.read_text(), key.read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "plain HTTP is served on a unix socket only"),
        (("--tls-cert-file", "/none", "--tls-private-key-file", "/none"), "the certificate cannot be loaded"),
        (("--token-auth-file", "/none"), "/none"),
    ],
)
def test_a_gateway_that_cannot_be_safe_does_not_start(nats_server: NatsServer, flags: tuple[str, ...], said: str) -> None:
    assert said in refusal_to_start(nats_server.url, flags)
