"""The gateway's process: wiring only."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from pathlib import Path

from nats.errors import NoRespondersError

from cotenant.domain.quota.gates import GateError
from cotenant.engine.commit import Identity
from cotenant.events.migrations import EVICT_ENDPOINT, NODE_EVICT_ENDPOINT, RESERVE_ENDPOINT
from cotenant.kinds.pods import PODS
from cotenant.runtime.follower import LOG_ERRORS
from cotenant.runtime.process import VERSION, Host, run_program, status_routes
from cotenant.runtime.settings import clock_of, parser
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.rates import OF_USERS, Rate
from cotenant_gateway.http.app import request_handler
from cotenant_gateway.http.auth.access import AccessControl
from cotenant_gateway.http.auth.bus_evictions import BusEvictions
from cotenant_gateway.http.auth.bus_reservations import BusReservations
from cotenant_gateway.http.auth.credential_flags import CredentialError, CredentialSources, add_credential_flags
from cotenant_gateway.http.auth.metrics import register_access
from cotenant_gateway.http.auth.node_evictions import NodeEvictions
from cotenant_gateway.http.clients.limits import GatewayLimits, within_open_files
from cotenant_gateway.http.clients.metrics import register_clients
from cotenant_gateway.http.clients.streams import OpenStreams
from cotenant_gateway.http.debugging import Debugging
from cotenant_gateway.http.facts.handlers import FactHandlers
from cotenant_gateway.http.facts.node_actions import NodeActions
from cotenant_gateway.http.logs import ANSWER_SECONDS, LogReader
from cotenant_gateway.http.resources.handlers import ResourceHandlers
from cotenant_gateway.http.serving import ListenError, Listening
from cotenant_gateway.http.serving import serve as serve_http
from cotenant_gateway.http.tracing import traced
from cotenant_gateway.planning.pod_collection import TERMINATED_POD_THRESHOLD
from cotenant_gateway.read_model.settings import GATEWAY_GATES, FeatureGates, feature_gates, settings_of
from cotenant_gateway.shell.dry_run_advice import DryRunAdvice
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.shell.telemetry import GatewayTelemetry

NAME = "gateway"
SUMMARY = "Admission, object writes and the Kubernetes-shaped HTTP API over the log."
CORE_VERSION = "1"
LAST_WORDS_SECONDS = 2.0


def _gates(text: str) -> FeatureGates:
    """Parse feature gates. Raises ArgumentTypeError."""
    try:
        return feature_gates(text)
    except GateError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


async def serve(host: Host, arguments: argparse.Namespace) -> None:
    """Run the gateway until `host.stopping` is set."""
    settings = host.settings
    identity = Identity(service=NAME, cell=settings.cell, replica=settings.replica, version=VERSION, core=CORE_VERSION)
    gateway = Gateway(
        host.log,
        identity,
        clock_of(settings),
        terminated_pods=arguments.terminated_pod_gc_threshold,
        store=arguments.store_dir,
        figures=host.telemetry.figures,
        quota_gates=arguments.feature_gates.quotas,
        settings=settings_of(arguments.feature_gates, arguments.node_strategy_name_need_check),
    )

    try:
        credentials = CredentialSources(arguments, gateway, settings.cell)
    except CredentialError as error:
        raise SystemExit(f"cotenant-gateway: {error}") from error

    def warn(text: str) -> None:
        host.health.warning = text

    gateway.space.on_change = warn
    telemetry = GatewayTelemetry(host, gateway)

    async def ask(subject: str, body: bytes, seconds: float = ANSWER_SECONDS) -> tuple[bytes, int, str]:
        try:
            reply = await host.log.client.request(subject, body, timeout=seconds)
        except NoRespondersError as error:
            raise TimeoutError from error
        headers = reply.headers or {}
        code = headers.get("Nats-Service-Error-Code", "0")
        return reply.data, int(code) if code.isdigit() else 500, headers.get("Nats-Service-Error", "")

    gateway.advise = DryRunAdvice(lambda: gateway.core, ask)

    def is_live(namespace: str, name: str, uid: str) -> bool:
        pod = gateway.core.get(PODS, namespace, name)
        return pod is not None and pod.uid == uid and pod.fields.get("status.phase") in ("Pending", "Running")

    running = asyncio.ensure_future(gateway.run())
    loaded = asyncio.ensure_future(gateway.ready.wait())
    stopped = asyncio.ensure_future(host.stopping.wait())
    listening = Listening(
        address=settings.http_host,
        port=settings.http_port,
        certificate=arguments.tls_cert_file,
        key=arguments.tls_private_key_file,
        client_ca=arguments.client_ca_file,
        unix_socket=arguments.unix_socket,
    )
    limits = within_open_files(GatewayLimits())
    streams = OpenStreams(limits)
    logs = LogReader(ask, is_live, streams, host.stopping)
    resources = ResourceHandlers(
        gateway,
        logs,
        streams,
        host.stopping,
        credentials.reviews,
        credentials.accounts,
        root_pods=arguments.allow_root_pods,
        actions=NodeActions(host.log),
    )
    facts = FactHandlers(gateway, host.log, ask, streams, host.stopping)
    audit = Audit(host.log, identity, clock_of(settings))
    rates = Rate(arguments.requests_per_second, 5 * arguments.requests_per_second)
    hosts = (settings.http_host, *arguments.allowed_host)
    access = AccessControl(gateway, credentials.authenticator, hosts, audit=audit, rates=rates)
    plain = [*status_routes(host), *credentials.routes()]
    handler = request_handler(access, resources, facts, plain, telemetry.observe, Debugging(ask))
    handler = traced(handler, host.telemetry.tracing, resources.kinds)
    try:
        runner, host.http_url, connections, certificate = await serve_http(handler, listening, limits)
    except ListenError as error:
        raise SystemExit(f"cotenant-gateway: {error}") from error
    register_clients(host.telemetry.meter, connections, streams)
    register_access(host.telemetry.meter, access, connections.handshakes, credentials.oidc)
    renewing = [] if certificate is None else [certificate.keep_current()]
    looking = asyncio.gather(connections.keep_looking(), audit.run(), credentials.keep_current(), *renewing)
    try:
        await asyncio.wait({running, loaded, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            await host.endpoint_by_subject("evict", BusEvictions(gateway, audit).answer, EVICT_ENDPOINT)
            await host.endpoint_by_subject("node-evict", NodeEvictions(gateway, audit).answer, NODE_EVICT_ENDPOINT)
            await host.endpoint_by_subject("reserve", BusReservations(gateway, audit).answer, RESERVE_ENDPOINT)
            host.health.ready, host.health.detail = True, "ok"
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        await runner.cleanup()
        with contextlib.suppress(*LOG_ERRORS):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await audit.flush()
        for task in (running, loaded, stopped, looking):
            task.cancel()
        await asyncio.gather(running, loaded, stopped, looking, return_exceptions=True)


def main() -> None:
    """Entry point of `cotenant-gateway`."""
    made = parser(NAME, SUMMARY)
    made.add_argument(
        "--terminated-pod-gc-threshold",
        type=int,
        default=TERMINATED_POD_THRESHOLD,
        help="number of finished pods to keep; beyond it the oldest are deleted; 0: keep all",
    )
    store = os.environ.get("COTENANT_STORE_DIR")
    made.add_argument(
        "--store-dir",
        type=Path,
        default=Path(store) if store else None,
        metavar="DIR",
        help="the folder that nats-server stores in, where it is on this machine: its disk's free space is watched",
    )
    for flag, help_text in (
        ("--tls-cert-file", "the server's certificate, followed by intermediate certificates (PEM)"),
        ("--tls-private-key-file", "its key (PEM)"),
        ("--client-ca-file", "CA of client certificates (PEM): CN is the user, O its groups"),
        ("--unix-socket", "serve plain HTTP on this socket; the process at its other end is the user"),
    ):
        made.add_argument(flag, type=Path, metavar="FILE", help=help_text)
    add_credential_flags(made)
    made.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address by which clients reach this gateway, beside the loopback's and --http-host",
    )
    made.add_argument("--allow-root-pods", action="store_true", help="admit pods of the process runtime that run as user 0")
    made.add_argument(
        "--feature-gates",
        type=_gates,
        default=FeatureGates(),
        metavar="GATE=true,...",
        help=f"rules of quotas and pods that are off without their gate: {', '.join(GATEWAY_GATES)}",
    )
    made.add_argument(
        "--node-strategy-name-need-check",
        nargs="?",
        const="true",
        default="false",
        choices=("true", "false"),
        help="node entries of a section of the node configuration must have unique names",
    )
    made.add_argument(
        "--requests-per-second",
        type=float,
        default=OF_USERS.per_second,
        metavar="N",
        help="limit per user, on average; bursts of five times as many; 0: no limit. system:masters is not limited",
    )
    run_program(NAME, made, serve, own_http=True)


if __name__ == "__main__":
    main()
