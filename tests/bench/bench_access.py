"""What it costs to find out who asks and whether they may: 1,000 bindings, the caller in five of them.

One check by itself in microseconds (token, user, RBAC), for each kind of token: from a file, of a service account that is
bound to a pod, of an OpenID issuer; and what a token costs that was not checked before. Pod creations a second of a service
account beside those of a member of `system:masters`, whom no role is looked up for: in turns, on one gateway. `python -m
tests.bench access`.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from cotenant.kinds.pods import PODS
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from cotenant.kinds.service_accounts import SERVICE_ACCOUNTS
from cotenant_console.pki.account_keys import prepared_account_keys
from cotenant_gateway.access.attributes import of_resource
from cotenant_gateway.access.authentication import Authenticator, Peer
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.tokens.account_keys import AccountKeys
from cotenant_gateway.access.tokens.account_tokens import AccountTokens
from cotenant_gateway.access.tokens.issuer_keys import IssuerKeys
from cotenant_gateway.access.tokens.oidc import Oidc, OidcTokens
from cotenant_gateway.access.tokens.token_file import TokenFile
from cotenant_verification.http_sessions import http_session
from tests.bench.bench_gateway import CREDENTIALS, create_pods, wait_ready
from tests.integration.gateway.gateway_process import shared_identity
from tests.integration.gateway.openid_issuer import rsa_key
from tests.nats_server import NatsServer, free_port
from tests.streams import declare_streams
from tests.unit.gateway.builders_gateway import World, manifest

BINDINGS = 1_000
OWN = 5
CHECKS = 50_000
ROUNDS = 5
CREATIONS = 3_000
TOKEN = "the-token-of-the-loader"
FIRST_CHECKS = 500


def bindings() -> list[tuple[bool, dict[str, Any]]]:
    """Bindings, and whether each is one of the cluster: half are; the loader is in OWN, the last of which lets it in."""
    found = []
    for number in range(BINDINGS):
        own = number % (BINDINGS // OWN) == BINDINGS // OWN - 1
        of_cluster = number % 2 == 1
        kind = CLUSTER_ROLE_BINDINGS if of_cluster else ROLE_BINDINGS
        role = "cotenant-admin" if number == BINDINGS - 1 else "cotenant-node"
        me = {"kind": "ServiceAccount", "namespace": "default", "name": "loader"}
        subjects = [{"kind": "User", "name": "loader"}, me] if own else [{"kind": "User", "name": f"user-{number}"}]
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": f"b{number}"},
            "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": role},
        }
        found.append((of_cluster, document))
    return found


class Checked:
    """A caller's token beside the gateway's sources of tokens, on a read model with all bindings."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        for of_cluster, document in bindings():
            self.world.create(CLUSTER_ROLE_BINDINGS if of_cluster else ROLE_BINDINGS, document)
        self.world.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "loader"}})
        self.world.create(PODS, manifest("holder", serviceAccountName="loader"))
        core = self.world.core
        self.accounts = AccountTokens(
            AccountKeys(prepared_account_keys(folder).signing),
            ["https://cell"],
            ["https://cell"],
            lambda: core,
            lambda: datetime.now(UTC).timestamp(),
            lambda: str(uuid.uuid4()),
        )
        self.issuer_key = rsa_key(folder, "issuer")
        keys = IssuerKeys("https://issuer", ("RS256",))
        keys.keys = (self.issuer_key.key,)
        oidc = Oidc(issuer="https://issuer", client_id="cell", username_prefix="-")
        self.oidc = OidcTokens(oidc, keys, lambda: datetime.now(UTC).timestamp())
        tokens = folder / "tokens.csv"
        self.authenticator = Authenticator([TokenFile(tokens), self.accounts, self.oidc], lambda: 0)

    def account_token(self) -> str:
        """A new token, bound to a pod."""
        core = self.world.core
        account, pod = core.get(SERVICE_ACCOUNTS, "default", "loader"), core.get(PODS, "default", "holder")
        assert account is not None
        return self.accounts.issued(account, self.accounts.audiences, 3600, pod)[0]

    def issuers_token(self) -> str:
        """A new token of the issuer."""
        claims = {"iss": "https://issuer", "aud": "cell", "sub": "loader", "exp": time.time() + 3600, "jti": str(uuid.uuid4())}
        return self.issuer_key.signed(claims)

    def known_microseconds(self, token: str) -> float:
        """A check of a token that was checked before: the median of five runs."""
        core, peer, header, runs = self.world.core, Peer(), f"Bearer {token}", []
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(CHECKS):
                user = self.authenticator.user(peer, header)
                assert authorize(core, user, of_resource("POST", PODS, "default", "", "", {})).allowed
            runs.append((time.perf_counter() - started) / CHECKS)
        return statistics.median(runs) * 1e6

    def new_microseconds(self, made: Callable[[], str]) -> float:
        """The first check of a token: the median."""
        runs = []
        for header in [f"Bearer {made()}" for _ in range(FIRST_CHECKS)]:
            started = time.perf_counter()
            self.authenticator.user(Peer(), header)
            runs.append(time.perf_counter() - started)
        return statistics.median(runs) * 1e6


async def creations(port: int) -> tuple[list[float], list[float]]:
    """Creations a second of the administrator and of the service account, in turns."""
    await wait_ready(port)
    async with http_session(CREDENTIALS, f"https://127.0.0.1:{port}") as session:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "loader"}}
        async with session.post(SERVICE_ACCOUNTS.path("default"), json=account) as answer:
            answer.raise_for_status()
        async with session.post(SERVICE_ACCOUNTS.path("default", "loader", "token"), json={}) as answer:
            loader = f"Host: 127.0.0.1\r\nAuthorization: Bearer {(await answer.json())['status']['token']}\r\n"
        for of_cluster, document in bindings():
            path = CLUSTER_ROLE_BINDINGS.path() if of_cluster else ROLE_BINDINGS.path("default")
            async with session.post(path, json=document) as answer:
                if answer.status != 201:
                    raise RuntimeError(await answer.text())
    first, by = 0, ([], [])  # type: tuple[int, tuple[list[float], list[float]]]
    for round_number in range(ROUNDS + 1):
        for rates, head_lines in zip(by, ("", loader), strict=True):
            seconds, _ = await create_pods(port, first, CREATIONS, head_lines)
            first += CREATIONS
            if round_number:
                rates.append(CREATIONS / seconds)
    return by


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.csv"
        tokens.write_text(f"{TOKEN},loader\n")
        tokens.chmod(0o600)
        checked = Checked(Path(folder))
        of_kinds = (("file", TOKEN), ("service_account", checked.account_token()), ("oidc", checked.issuers_token()))
        for kind, token in of_kinds:
            print(f"access_check_{kind} {checked.known_microseconds(token):.1f} us  # goal <= 50")
        print(f"access_first_check_service_account {checked.new_microseconds(checked.account_token):.0f} us")
        print(f"access_first_check_oidc {checked.new_microseconds(checked.issuers_token):.0f} us")
        server, port = NatsServer(), free_port()
        server.start()
        program = Path(sys.executable).parent / "cotenant-gateway"
        flags = (*shared_identity().gateway_flags(), "--requests-per-second", "0")
        arguments = ("--nats", server.url, "--http-port", str(port), "--log-level", "WARNING")
        declare_streams(server.url)
        gateway = subprocess.Popen([program, *arguments, *flags])
        try:
            masters, loader = uvloop.run(asyncio.wait_for(creations(port), 300))
        finally:
            gateway.terminate()
            gateway.wait(20)
            server.close()
    print(f"access_creations_per_second_masters {statistics.median(masters):.0f} 1/s")
    print(f"access_creations_per_second_rbac {statistics.median(loader):.0f} 1/s")
    print(f"access_creations_ratio {statistics.median(loader) / statistics.median(masters):.2f} ratio  # goal >= 0.9")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
