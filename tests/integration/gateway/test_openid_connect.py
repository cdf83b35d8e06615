"""Users of an OpenID issuer: a real one over HTTPS, in a process of its own, and a gateway that takes its tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from cotenant_console.api.credentials import Credentials
from cotenant_gateway.access.tokens.bearer_tokens import TokenError, digest
from cotenant_gateway.access.tokens.issuer_keys import RETRY_SECONDS, IssuerKeys
from cotenant_gateway.access.tokens.jwts import SigningKey
from cotenant_gateway.access.tokens.oidc import Oidc, OidcError, OidcTokens, oidc_of, user_of_claims
from cotenant_verification.http_sessions import http_session
from tests.integration.gateway.gateway_process import WAIT_SECONDS, GatewayProcess, body_of, refusal_to_start
from tests.integration.gateway.openid_issuer import CLIENT, Issuer, rsa_key
from tests.integration.gateway.test_service_accounts import TOKEN_REVIEWS, WHO, WHO_AM_I, hmac_signed
from tests.nats_server import NatsServer


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    made = Issuer(tmp_path_factory.mktemp("issuer"))
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer, issuer: Issuer) -> Iterator[GatewayProcess]:
    process = GatewayProcess(shared_nats_server.url, "g1", *flags_of(issuer))
    asyncio.run(process.ready())
    yield process
    process.close()


def flags_of(issuer: Issuer) -> tuple[str, ...]:
    flags = ("--oidc-issuer-url", issuer.url, "--oidc-client-id", CLIENT, "--oidc-ca-file", str(issuer.identity.ca))
    names = ("--oidc-groups-claim", "groups", "--oidc-groups-prefix", "corp:", "--oidc-username-prefix", "corp:")
    return (*flags, *names, "--oidc-required-claim", "hd=example.org")


async def who(gateway: GatewayProcess, token: str) -> tuple[int, dict[str, Any]]:
    async with http_session(Credentials(ca=gateway.credentials.ca, token=token), gateway.url) as session:
        answer = await session.post(WHO, json=WHO_AM_I)
        return answer.status, await answer.json(content_type=None)


async def metric(gateway: GatewayProcess, name: str, label: str = "") -> float:
    async with gateway.session() as session:
        text = await (await session.get("/metrics")).text()
    found = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")) and label in line]
    assert len(found) == 1, text
    return float(found[0].rpartition(" ")[2])


async def test_an_issuer_that_cannot_be_reached_closes_the_way_for_its_tokens_alone(
    shared_nats_server: NatsServer, tmp_path: Path
) -> None:
    issuer = Issuer(tmp_path)
    token = issuer.key.signed(issuer.claims(hd="example.org"))
    gateway = GatewayProcess(shared_nats_server.url, "g2", *flags_of(issuer))
    try:
        await gateway.ready()
        status, said = await who(gateway, token)
        assert status == 401
        assert f"the keys of {issuer.url} cannot be fetched" in said["message"]
        assert (await who(gateway, gateway.credentials.token))[0] == 201
        assert await metric(gateway, "cotenant_gateway_oidc_keys") == 0
        assert await metric(gateway, "cotenant_gateway_oidc_key_fetches_total", 'outcome="failed"') >= 1
        assert await metric(gateway, "cotenant_gateway_oidc_tokens_refused_total") >= 1
        issuer.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while (await who(gateway, token))[0] != 201:  # noqa: ASYNC110 - keys are asked for every RETRY_SECONDS
                await asyncio.sleep(0.2)
        assert await metric(gateway, "cotenant_gateway_oidc_keys") == 1
        user = (await who(gateway, token))[1]["status"]["userInfo"]
        assert user == {"username": "corp:carl", "groups": ["corp:team", "system:authenticated"]}
    finally:
        gateway.close()
        issuer.close()


async def test_forged_and_spoilt_tokens_are_refused(gateway: GatewayProcess, issuer: Issuer, tmp_path: Path) -> None:
    def claims(**others: Any) -> dict[str, Any]:
        return issuer.claims(hd="example.org", **others)

    key, now = issuer.key, int(time.time())
    assert (await who(gateway, key.signed(claims())))[0] == 201
    assert (await who(gateway, key.signed(claims(aud=["other", CLIENT]))))[0] == 201
    other = SigningKey(rsa_key(tmp_path, "other").private, key.key)
    public = (issuer.served / "jwks").read_text()
    spoilt = {
        "expired": key.signed(claims(exp=now - 1)),
        "never ends": key.signed(claims(exp=None)),
        "not valid yet": key.signed(claims(nbf=now + 3600)),
        "for others": key.signed(claims(aud="other")),
        "for nobody": key.signed(claims(aud=None)),
        "another organisation": key.signed(issuer.claims(hd="example.com")),
        "nobody": key.signed(claims(sub="")),
        "a number": key.signed(claims(sub=7)),
        "groups are a number": key.signed(claims(groups=7)),
        "another issuer": key.signed(claims(iss="https://evil.example")),
        "another key": other.signed(claims()),
        "none": jwt.encode(claims(), "", algorithm="none", headers={"kid": key.key.kid}),
        "hmac with the public key": hmac_signed(claims(), public, key.key.kid),
        "another algorithm": jwt.encode(claims(), key.private, algorithm="RS512", headers={"kid": key.key.kid}),
        "no signature": key.signed(claims()).rpartition(".")[0] + ".",
    }
    for what, each in spoilt.items():
        assert (await who(gateway, each))[0] == 401, what


async def test_whose_a_token_is_can_be_asked(gateway: GatewayProcess, issuer: Issuer) -> None:
    async with gateway.session() as session:
        review = {"spec": {"token": issuer.key.signed(issuer.claims(hd="example.org"))}}
        status = (await body_of(await session.post(TOKEN_REVIEWS, json=review), 201))["status"]
        assert (status["authenticated"], status["user"]["username"]) == (True, "corp:carl")
        review = {"spec": {"token": issuer.key.signed(issuer.claims(hd="example.com"))}}
        status = (await body_of(await session.post(TOKEN_REVIEWS, json=review), 201))["status"]
        assert not status["authenticated"]
        assert "claim hd" in status["error"]


class Clock:
    """Seconds that a test lets pass."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def own_issuer(tmp_path: Path) -> AsyncIterator[Issuer]:
    made = Issuer(tmp_path)
    made.start()
    yield made
    made.close()


async def test_an_unknown_key_is_looked_up_at_a_bounded_rate(own_issuer: Issuer, tmp_path: Path) -> None:
    clock = Clock()
    keys = IssuerKeys(own_issuer.url, ("RS256",), own_issuer.identity.ca, clock)
    tokens = OidcTokens(Oidc(issuer=own_issuer.url, client_id=CLIENT), keys, time.time)
    assert await keys.fetch()
    old = own_issuer.key.signed(own_issuer.claims())
    verified = tokens.verified(old, digest(old))
    assert verified is not None
    assert verified.name == f"{own_issuer.url}#carl"
    second = rsa_key(tmp_path, "second")
    own_issuer.publish(second)
    new = second.signed(own_issuer.claims())
    with pytest.raises(TokenError, match="not signed by a key that") as refused:
        tokens.verified(new, digest(new))
    assert refused.value.fetch is not None
    assert not await refused.value.fetch()
    assert keys.fetched == 1
    clock.now += RETRY_SECONDS
    # All who wait share one look.
    assert await asyncio.gather(*(keys.fetch() for _ in range(50))) == [True] * 50
    assert keys.fetched == 2
    assert tokens.verified(new, digest(new)) is not None
    assert tokens.known(digest(old)) is None, "the key is gone, and what was verified by it"
    with pytest.raises(TokenError):
        tokens.verified(old, digest(old))


async def test_what_an_issuer_may_send_is_bounded(own_issuer: Issuer) -> None:
    clock = Clock()
    keys = IssuerKeys(own_issuer.url, ("RS256",), own_issuer.identity.ca, clock)
    jwks = own_issuer.served / "jwks"
    for text, said in (
        ("{", "cannot be fetched"),
        ("[" * 100_000, "cannot be fetched"),
        ('{"keys":[]}', "has no key for RS256"),
        ('{"keys":[{"kty":"oct","k":"c2VjcmV0"},{"kty":"RSA","n":"AQ","e":"AQAB"},{"kty":"EC"},{}]}', "has no key for RS256"),
        (" " * (2 << 20), "sends more than"),
    ):
        jwks.write_text(text)
        clock.now += RETRY_SECONDS
        assert not await keys.fetch()
        assert said in keys.problem
    (own_issuer.served / ".well-known/openid-configuration").write_text('{"issuer":"https://evil.example"}')
    clock.now += RETRY_SECONDS
    assert not await keys.fetch()
    assert "is of the issuer 'https://evil.example'" in keys.problem
    assert keys.failed == 6
    strangers = IssuerKeys(own_issuer.url, ("RS256",))
    assert not await strangers.fetch()
    assert "certificate" in strangers.problem.lower()


CLAIMS = {"aud": CLIENT, "sub": "carl", "email": "carl@example.org"}


@pytest.mark.parametrize(
    ("options", "claims", "name"),
    [
        ({}, CLAIMS, "https://issuer#carl"),
        ({"username_prefix": "-"}, CLAIMS, "carl"),
        ({"username_claim": "email"}, CLAIMS, "carl@example.org"),
        ({"username_claim": "email"}, {**CLAIMS, "email_verified": True}, "carl@example.org"),
        ({"username_claim": "email", "username_prefix": "x:"}, CLAIMS, "x:carl@example.org"),
    ],
)
def test_names_have_their_prefix(options: dict[str, str], claims: dict[str, Any], name: str) -> None:
    assert user_of_claims(Oidc(issuer="https://issuer", client_id=CLIENT, **options), claims).name == name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "claims", "said"),
    [
        ({"username_prefix": "-"}, {**CLAIMS, "sub": "system:admin"}, "reserved name"),
        ({"username_prefix": "system:"}, CLAIMS, "reserved name"),
        ({"username_prefix": "-"}, {**CLAIMS, "sub": "unix:root"}, "reserved name"),
        ({"groups_claim": "g"}, {**CLAIMS, "g": ["system:masters"]}, "--oidc-groups-prefix"),
        ({"username_claim": "email"}, {**CLAIMS, "email_verified": False}, "not verified"),
        ({"username_claim": "email"}, {**CLAIMS, "email_verified": "true"}, "not verified"),
    ],
)
def test_names_of_the_system_come_from_no_issuer(options: dict[str, str], claims: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenError, match=said):
        user_of_claims(Oidc(issuer="https://issuer", client_id=CLIENT, **options), claims)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("https://issuer", "", (), ("RS256",)), "together"),
        (("", "id", (), ("RS256",)), "together"),
        (("http://issuer", "id", (), ("RS256",)), "https"),
        (("https://issuer", "id", ("hd",), ("RS256",)), "CLAIM=VALUE"),
        (("https://issuer", "id", (), ("HS256",)), "HS256"),
        (("https://issuer", "id", (), ("none",)), "none"),
        (("https://issuer", "id", (), ()), "must be of"),
    ],
)
def test_flags_that_do_not_fit_are_named(arguments: tuple[Any, Any, Any, Any], said: str) -> None:
    with pytest.raises(OidcError, match=said):
        oidc_of(*arguments)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--oidc-issuer-url", "https://x", "--oidc-client-id", "c", "--oidc-ca-file", "/none"), "--oidc-ca-file /none"),
        (("--oidc-issuer-url", "https://x"), "--oidc-client-id are given together"),
        (("--service-account-signing-key-file", "/none"), "/none"),
        (("--service-account-key-file", "/none"), "--service-account-signing-key-file"),
    ],
)
def test_a_gateway_whose_flags_do_not_fit_does_not_start(nats_server: NatsServer, flags: tuple[str, ...], said: str) -> None:
    assert said in refusal_to_start(nats_server.url, flags)


async def test_a_stranger_that_asks_too_often_is_seen_in_the_metrics(gateway: GatewayProcess) -> None:
    connector = aiohttp.TCPConnector(ssl=gateway.credentials.context())
    headers = {"Authorization": "Bearer wrong-wrong-wrong-wrong"}
    async with aiohttp.ClientSession(gateway.url, connector=connector, headers=headers) as stranger:
        statuses = [(await stranger.get("/version")).status for _ in range(200)]
    assert 429 in statuses
    limited = await metric(gateway, "cotenant_gateway_requests_limited_total", 'of="strangers"')
    assert limited >= statuses.count(429)
    assert await metric(gateway, "cotenant_gateway_tls_handshakes_refused_total") == 0
