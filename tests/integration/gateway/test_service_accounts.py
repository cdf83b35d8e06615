"""Tokens of service accounts, on a real gateway and with the real kubectl."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from cotenant_console.api.credentials import Credentials
from cotenant_console.pki.account_keys import prepared_account_keys
from cotenant_gateway.access.tokens.jwts import read_signing_key
from cotenant_verification.http_sessions import http_session
from tests.integration.gateway.gateway_process import (
    PODS,
    WAIT_SECONDS,
    GatewayProcess,
    body_of,
    pod,
    shared_identity,
    with_kubectl,
)
from tests.nats_server import NatsServer

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO_AM_I = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
ISSUER = "https://cell.cotenant.internal"


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    process = GatewayProcess(shared_nats_server.url, "g1")
    asyncio.run(ready_with_accounts(process))
    yield process
    process.close()


async def ready_with_accounts(process: GatewayProcess) -> None:
    await process.ready()
    async with process.session() as session, asyncio.timeout(WAIT_SECONDS):
        while (await session.get(f"{ACCOUNTS}/default")).status != 200:  # noqa: ASYNC110 - it is made behind the namespace
            await asyncio.sleep(0.05)


@pytest.fixture
async def boss(gateway: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateway.session() as session:
        yield session


def account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


async def made_token(boss: aiohttp.ClientSession, name: str, **spec: Any) -> str:
    answer = await body_of(await boss.post(f"{ACCOUNTS}/{name}/token", json={"spec": spec}), 201)
    token: str = answer["status"]["token"]
    return token


async def status_of(gateway: GatewayProcess, token: str, path: str = WHO) -> int:
    async with http_session(Credentials(ca=gateway.credentials.ca, token=token), gateway.url) as session:
        answer = await (session.post(path, json=WHO_AM_I) if path == WHO else session.get(path))
        return answer.status


async def user_of(gateway: GatewayProcess, token: str) -> dict[str, Any]:
    async with http_session(Credentials(ca=gateway.credentials.ca, token=token), gateway.url) as session:
        user: dict[str, Any] = (await body_of(await session.post(WHO, json=WHO_AM_I), 201))["status"]["userInfo"]
        return user


async def test_a_token_has_kubernetes_claims_and_names_its_account(
    gateway: GatewayProcess, boss: aiohttp.ClientSession
) -> None:
    made = await body_of(await boss.post(ACCOUNTS, json=account("reporter")), 201)
    before = int(time.time())
    token = await made_token(boss, "reporter", expirationSeconds=900)
    claims = jwt.decode(token, options={"verify_signature": False})
    uid = made["metadata"]["uid"]
    assert claims["iss"] == ISSUER
    assert claims["aud"] == [ISSUER]
    assert claims["sub"] == "system:serviceaccount:default:reporter"
    assert claims["kubernetes.io"] == {"namespace": "default", "serviceaccount": {"name": "reporter", "uid": uid}}
    assert claims["iat"] == claims["nbf"] >= before
    assert claims["exp"] == claims["iat"] + 900
    user = await user_of(gateway, token)
    assert (user["username"], user["uid"]) == (claims["sub"], uid)
    assert user["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    assert user["extra"] == {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}


async def test_a_token_ends_with_its_account_and_another_of_its_name_does_not_revive_it(
    gateway: GatewayProcess, boss: aiohttp.ClientSession
) -> None:
    await body_of(await boss.post(ACCOUNTS, json=account("brief")), 201)
    token = await made_token(boss, "brief")
    assert await status_of(gateway, token) == 201
    await body_of(await boss.delete(f"{ACCOUNTS}/brief"), 200)
    assert await status_of(gateway, token) == 401
    await body_of(await boss.post(ACCOUNTS, json=account("brief")), 201)
    assert await status_of(gateway, token) == 401
    assert await status_of(gateway, await made_token(boss, "brief")) == 201


async def test_a_bound_token_ends_with_its_pod(gateway: GatewayProcess, boss: aiohttp.ClientSession) -> None:
    await body_of(await boss.post(ACCOUNTS, json=account("runner")), 201)
    document = pod("bound-to")
    document["spec"]["serviceAccountName"] = "runner"  # type: ignore[index]
    uid = (await body_of(await boss.post(PODS, json=document), 201))["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "bound-to"}
    token = await made_token(boss, "runner", boundObjectRef=bound)
    user = await user_of(gateway, token)
    assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [uid]
    wrong = await boss.post(f"{ACCOUNTS}/default/token", json={"spec": {"boundObjectRef": bound}})
    assert "different serviceaccount name" in (await body_of(wrong, 403))["message"]
    other = await boss.post(f"{ACCOUNTS}/runner/token", json={"spec": {"boundObjectRef": {**bound, "uid": "another"}}})
    assert other.status == 409
    await body_of(await boss.delete(f"{PODS}/bound-to?gracePeriodSeconds=0"), 200)
    assert await status_of(gateway, token) == 401


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**32 + 1}, 422, "larger than 2^32 seconds"),
        ({"audiences": [""]}, 422, "spec.audiences[0]: Required value"),
        ({"audiences": ["x" * 20_000]}, 400, "spec.audiences"),
        ({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "x"}}, 422, "spec.boundObjectRef.kind"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}, 404, 'pods "none" not found'),
        ({"expirationSeconds": "soon"}, 400, "a TokenRequest cannot be read"),
    ],
)
async def test_a_request_for_a_token_that_makes_no_sense_is_refused(
    boss: aiohttp.ClientSession, spec: dict[str, Any], status: int, said: str
) -> None:
    answer = await body_of(await boss.post(f"{ACCOUNTS}/default/token", json={"spec": spec}), status)
    assert said in answer["message"]


async def test_who_may_create_nothing_gets_no_tokens(gateway: GatewayProcess, boss: aiohttp.ClientSession) -> None:
    await body_of(await boss.post(ACCOUNTS, json=account("nobody")), 201)
    token = await made_token(boss, "nobody")
    async with http_session(Credentials(ca=gateway.credentials.ca, token=token), gateway.url) as session:
        assert (await session.post(f"{ACCOUNTS}/nobody/token", json={})).status == 403
        assert (await session.get(PODS)).status == 403
    assert (await boss.post(f"{ACCOUNTS}/none/token", json={})).status == 404


async def test_forged_and_spoilt_tokens_are_refused(gateway: GatewayProcess, boss: aiohttp.ClientSession) -> None:
    token = await made_token(boss, "default")
    claims = jwt.decode(token, options={"verify_signature": False})
    signing = read_signing_key(shared_identity().account_keys.signing)
    public = shared_identity().account_keys.verifying.read_text()
    assert await status_of(gateway, signing.signed(claims)) == 201
    now = int(time.time())
    later = {**claims, "nbf": now + 3600}
    of_others = {**claims, "kubernetes.io": {**claims["kubernetes.io"], "namespace": "kube-system"}}
    spoilt = {
        "expired": signing.signed({**claims, "exp": now - 1}),
        "not valid yet": signing.signed(later),
        "never ends": signing.signed({name: value for name, value in claims.items() if name != "exp"}),
        "for others": signing.signed({**claims, "aud": ["somebody-else"]}),
        "of another namespace": signing.signed(of_others),
        "absurd time": signing.signed({**claims, "exp": 1e300}),
        "no private claims": signing.signed({**claims, "kubernetes.io": None}),
        "none": jwt.encode(claims, "", algorithm="none", headers={"kid": signing.key.kid}),
        "no signature": token.rpartition(".")[0] + ".",
        "hmac with the public key": hmac_signed(claims, public, signing.key.kid),
        "garbage": "eyJhbGciOiJFUzI1NiJ9.%%%.x",
        "deep": "e30." + "W1tb" * 2000 + ".e30",
    }
    for what, each in spoilt.items():
        assert await status_of(gateway, each) == 401, what
    assert await status_of(gateway, token + "A" * 20_000) == 431
    long = await made_token(boss, "default", audiences=[ISSUER, "x" * 5000])
    assert len(long) > 7000
    assert await status_of(gateway, long) == 201


def hmac_signed(claims: dict[str, Any], secret: str, kid: str) -> str:
    """Sign with a public key as if it were a secret, which PyJWT itself does not do."""
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": kid}).encode()) + "." + part(json.dumps(claims).encode())
    return head + "." + part(hmac.new(secret.encode(), head.encode(), hashlib.sha256).digest())


async def test_every_namespace_has_a_default_account_and_lets_it_go(boss: aiohttp.ClientSession) -> None:
    await body_of(
        await boss.post("/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}), 201
    )
    path = "/api/v1/namespaces/shop/serviceaccounts/default"
    async with asyncio.timeout(WAIT_SECONDS):
        while (await boss.get(path)).status != 200:  # noqa: ASYNC110 - namespaces are looked at once a second
            await asyncio.sleep(0.1)
        await body_of(await boss.delete("/api/v1/namespaces/shop"), 200)
        while (await boss.get("/api/v1/namespaces/shop")).status != 404:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (await boss.get(path)).status == 404


async def test_whose_a_token_is_can_be_asked(gateway: GatewayProcess, boss: aiohttp.ClientSession) -> None:
    async def reviewed(token: str, *audiences: str) -> dict[str, Any]:
        spec = {"token": token, "audiences": list(audiences)}
        answer = await body_of(await boss.post(TOKEN_REVIEWS, json={"spec": spec}), 201)
        assert token not in json.dumps(answer)
        status: dict[str, Any] = answer["status"]
        return status

    for_vault = await made_token(boss, "default", audiences=["vault", "other"])
    assert await status_of(gateway, for_vault) == 401
    assert "none of" in (await reviewed(for_vault))["error"]
    found = await reviewed(for_vault, "vault")
    assert (found["authenticated"], found["audiences"]) == (True, ["vault"])
    assert found["user"]["username"] == "system:serviceaccount:default:default"
    from_file = await reviewed(gateway.credentials.token)
    assert from_file["user"]["username"] == "cotenant-admin"
    assert from_file["audiences"] == [ISSUER]
    assert not (await reviewed(gateway.credentials.token, "vault"))["authenticated"]
    assert not (await reviewed("wrong-wrong-wrong-wrong"))["authenticated"]


async def test_others_can_verify_tokens_by_what_the_gateway_publishes(
    gateway: GatewayProcess, boss: aiohttp.ClientSession
) -> None:
    token = await made_token(boss, "default", audiences=["vault"])
    async with http_session(Credentials(ca=gateway.credentials.ca, token=await made_token(boss, "default")), gateway.url) as of:
        document = await body_of(await of.get("/.well-known/openid-configuration"), 200)
        assert (document["issuer"], document["jwks_uri"]) == (ISSUER, f"{ISSUER}/openid/v1/jwks")
        answer = await of.get("/openid/v1/jwks")
        assert answer.content_type == "application/jwk-set+json"
        keys = jwt.PyJWKSet.from_dict(await body_of(answer, 200))
    kid = jwt.get_unverified_header(token)["kid"]
    assert jwt.decode(token, keys[kid], audience="vault", issuer=ISSUER, algorithms=["ES256"])["aud"] == ["vault"]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=gateway.credentials.context())) as stranger:
        assert (await stranger.get(f"{gateway.url}/openid/v1/jwks")).status == 401


@with_kubectl
async def test_kubectl_makes_accounts_and_tokens_and_acts_as_them(gateway: GatewayProcess, tmp_path: Path) -> None:
    async def kubectl(*arguments: str, status: int = 0) -> str:
        return await gateway.kubectl(tmp_path, *arguments, status=status)

    assert "serviceaccount/x created" in await kubectl("create", "serviceaccount", "x")
    assert "SECRETS" in await kubectl("get", "sa")
    await kubectl("create", "role", "sees-pods", "--verb=get,list", "--resource=pods")
    await kubectl("create", "rolebinding", "x-sees", "--role=sees-pods", "--serviceaccount=default:x")
    who = "--as=system:serviceaccount:default:x"
    assert await kubectl("auth", "can-i", "list", "pods", who) == "yes\n"
    assert await kubectl("auth", "can-i", "delete", "pods", who, status=1) == "no\n"
    token = (await kubectl("create", "token", "x", "--duration=15m", "--audience", ISSUER)).strip()
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["aud"], claims["exp"] - claims["iat"]) == ([ISSUER], 900)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(gateway.kubeconfig.read_text().replace(gateway.credentials.token, token))
    assert "system:serviceaccounts:default" in await kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami")
    assert "No resources" in await kubectl(f"--kubeconfig={kubeconfig}", "get", "pods", "-l", "none=such")
    assert "forbidden" in await kubectl(f"--kubeconfig={kubeconfig}", "get", "configmaps", status=1)
    await kubectl("run", "bearer", "--image=app", "--overrides", '{"spec":{"serviceAccountName":"x"}}')
    bound = ("--bound-object-kind=Pod", "--bound-object-name=bearer")
    claims = jwt.decode((await kubectl("create", "token", "x", *bound)).strip(), options={"verify_signature": False})
    assert claims["kubernetes.io"]["pod"]["name"] == "bearer"
    for what in ("pod/bearer", "sa/x", "role/sees-pods", "rolebinding/x-sees"):
        await kubectl("delete", what, "--wait=false")
    assert "does not exist any more" in await kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", status=1)


async def test_keys_are_changed_without_a_restart(
    shared_nats_server: NatsServer, boss: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files = prepared_account_keys(tmp_path)
    gateway = GatewayProcess(shared_nats_server.url, "g2", *files.gateway_flags())
    try:
        await gateway.ready()
        async with gateway.session() as session:
            old = await made_token(session, "default")
            files.signing.unlink()
            prepared_account_keys(tmp_path)
            new = read_signing_key(files.signing)
            async with asyncio.timeout(WAIT_SECONDS):
                while jwt.get_unverified_header(await made_token(session, "default"))["kid"] != new.key.kid:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert await status_of(gateway, old) == 201
            files.verifying.write_text(files.verifying.read_text().split("-----END PUBLIC KEY-----\n", 1)[1])
            async with asyncio.timeout(WAIT_SECONDS):
                while await status_of(gateway, old) != 401:  # noqa: ASYNC110 - the files are looked at once a second
                    await asyncio.sleep(0.1)
            assert await status_of(gateway, await made_token(session, "default")) == 201
    finally:
        gateway.close()
