"""What it costs to find out who asks and whether they may: 1,000 bindings, the caller in five of them.

One check by itself in microseconds (token, user, RBAC); and pod creations a second of that caller beside those of a member of
`system:masters`, whom no role is looked up for: in turns, on one gateway. `python -m tests.bench access`.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from cotenant.kinds.pods import PODS
from cotenant.kinds.rbac.bindings import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from cotenant_gateway.access.attributes import of_resource
from cotenant_gateway.access.authentication import Authenticator, Peer
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.tokens import TokenFile
from cotenant_verification.http_sessions import http_session
from tests.bench.bench_gateway import CREDENTIALS, create_pods, wait_ready
from tests.integration.gateway.gateway_process import shared_identity
from tests.nats_server import NatsServer, free_port
from tests.streams import declare_streams
from tests.unit.gateway.builders_gateway import World

BINDINGS = 1_000
OWN = 5
CHECKS = 50_000
ROUNDS = 5
CREATIONS = 3_000
TOKEN = "the-token-of-the-loader"
LOADER = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"


def bindings() -> list[tuple[bool, dict[str, Any]]]:
    """Bindings, and whether each is one of the cluster: half are; the loader is in OWN, the last of which lets it in."""
    found = []
    for number in range(BINDINGS):
        own = number % (BINDINGS // OWN) == BINDINGS // OWN - 1
        of_cluster = number % 2 == 1
        kind = CLUSTER_ROLE_BINDINGS if of_cluster else ROLE_BINDINGS
        role = "cotenant-admin" if number == BINDINGS - 1 else "cotenant-node"
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": f"b{number}"},
            "subjects": [{"kind": "User", "name": "loader" if own else f"user-{number}"}],
            "roleRef": {"kind": "ClusterRole", "name": role},
        }
        found.append((of_cluster, document))
    return found


def check_microseconds(tokens: Path) -> float:
    """The median of five runs."""
    world = World()
    for of_cluster, document in bindings():
        world.create(CLUSTER_ROLE_BINDINGS if of_cluster else ROLE_BINDINGS, document)
    authenticator, core, peer = Authenticator([TokenFile(tokens)], lambda: 0), world.core, Peer()
    header, runs = f"Bearer {TOKEN}", []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(CHECKS):
            user = authenticator.user(peer, header)
            assert authorize(core, user, of_resource("POST", PODS, "default", "", "", {})).allowed
        runs.append((time.perf_counter() - started) / CHECKS)
    return statistics.median(runs) * 1e6


async def creations(port: int) -> tuple[list[float], list[float]]:
    """Creations a second of the administrator and of the loader, in turns."""
    await wait_ready(port)
    async with http_session(CREDENTIALS, f"https://127.0.0.1:{port}") as session:
        for of_cluster, document in bindings():
            path = CLUSTER_ROLE_BINDINGS.path() if of_cluster else ROLE_BINDINGS.path("default")
            async with session.post(path, json=document) as answer:
                if answer.status != 201:
                    raise RuntimeError(await answer.text())
    first, by = 0, ([], [])  # type: tuple[int, tuple[list[float], list[float]]]
    for round_number in range(ROUNDS + 1):
        for rates, head_lines in zip(by, ("", LOADER), strict=True):
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
        print(f"access_check {check_microseconds(tokens):.1f} us  # goal <= 50")
        server, port = NatsServer(), free_port()
        server.start()
        program = Path(sys.executable).parent / "cotenant-gateway"
        flags = (*shared_identity().gateway_flags(), "--token-auth-file", str(tokens), "--requests-per-second", "0")
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
