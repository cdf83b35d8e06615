"""The gateway's process: wiring only."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from pathlib import Path

import msgspec
from nats.errors import NoRespondersError

from cotenant.engine.commit import Identity
from cotenant.events.migrations import EVICT_ENDPOINT, EvictionRequest
from cotenant.kinds.pods import PODS
from cotenant.runtime.process import VERSION, Host, RequestError, run_program, status_routes
from cotenant.runtime.settings import clock_of, parser
from cotenant_gateway.http.app import refuse_other_addresses, request_handler
from cotenant_gateway.http.app import serve as serve_http
from cotenant_gateway.http.client_metrics import register_clients
from cotenant_gateway.http.facts import FactHandlers
from cotenant_gateway.http.limits import Limits, within_open_files
from cotenant_gateway.http.logs import ANSWER_SECONDS, LogReader
from cotenant_gateway.http.resources import ResourceHandlers
from cotenant_gateway.http.streams import OpenStreams
from cotenant_gateway.planning.pod_collection import TERMINATED_POD_THRESHOLD
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.shell.telemetry import GatewayTelemetry
from cotenant_gateway.statuses import ApiError

NAME = "gateway"
SUMMARY = "Admission, object writes and the Kubernetes-shaped HTTP API over the log."
CORE_VERSION = "1"


async def serve(host: Host, arguments: argparse.Namespace) -> None:
    """Run the gateway until `host.stopping` is set."""
    settings = host.settings
    refuse_other_addresses(settings.http_host)
    identity = Identity(service=NAME, cell=settings.cell, replica=settings.replica, version=VERSION, core=CORE_VERSION)
    gateway = Gateway(
        host.log,
        identity,
        clock_of(settings),
        terminated_pods=arguments.terminated_pod_gc_threshold,
        store=arguments.store_dir,
    )

    def warn(text: str) -> None:
        host.health.warning = text

    gateway.space.on_change = warn
    telemetry = GatewayTelemetry(host, gateway)

    async def ask(subject: str, body: bytes) -> tuple[bytes, int, str]:
        try:
            reply = await host.log.client.request(subject, body, timeout=ANSWER_SECONDS)
        except NoRespondersError as error:
            raise TimeoutError from error
        headers = reply.headers or {}
        code = headers.get("Nats-Service-Error-Code", "0")
        return reply.data, int(code) if code.isdigit() else 500, headers.get("Nats-Service-Error", "")

    def is_live(namespace: str, name: str, uid: str) -> bool:
        pod = gateway.core.get(PODS, namespace, name)
        return pod is not None and pod.uid == uid and pod.fields.get("status.phase") in ("Pending", "Running")

    async def evict(body: bytes) -> bytes:
        try:
            eviction = msgspec.json.decode(body, type=EvictionRequest)
            return msgspec.json.encode(await gateway.evict(eviction, eviction.job or "descheduler-arbiter"))
        except msgspec.MsgspecError as error:
            raise RequestError(400, f"an EvictionRequest cannot be read: {error}") from error
        except ApiError as error:
            raise RequestError(error.code, str(error)) from error

    running = asyncio.ensure_future(gateway.run())
    loaded = asyncio.ensure_future(gateway.ready.wait())
    stopped = asyncio.ensure_future(host.stopping.wait())
    limits = within_open_files(Limits())
    streams = OpenStreams(limits)
    resources = ResourceHandlers(gateway, LogReader(ask, is_live, streams, host.stopping), streams, host.stopping)
    facts = FactHandlers(gateway, host.log, ask, streams, host.stopping)
    handler = request_handler(resources, facts, status_routes(host), telemetry.observe)
    runner, host.http_url, connections = await serve_http(handler, settings.http_host, max(settings.http_port, 0), limits)
    register_clients(host.telemetry.meter, connections, streams)
    looking = asyncio.ensure_future(connections.keep_looking())
    try:
        await asyncio.wait({running, loaded, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            await host.endpoint("evict", evict, subject=EVICT_ENDPOINT)
            host.health.ready, host.health.detail = True, "ok"
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        await runner.cleanup()
        for task in (running, loaded, stopped, looking):
            task.cancel()
        await asyncio.gather(running, loaded, stopped, looking, return_exceptions=True)


def main() -> None:
    """Entry point of `cotenant-gateway`."""
    # The read model is large, long-lived and free of cycles: frequent full collections would only cost time.
    gc.set_threshold(50_000, 50, 100)
    made = parser(NAME, SUMMARY)
    made.add_argument(
        "--terminated-pod-gc-threshold",
        type=int,
        default=TERMINATED_POD_THRESHOLD,
        help="so many finished pods are kept before the oldest are deleted; 0: all are kept",
    )
    store = os.environ.get("COTENANT_STORE_DIR")
    made.add_argument(
        "--store-dir",
        type=Path,
        default=Path(store) if store else None,
        metavar="DIR",
        help="the folder that nats-server stores in, where it is on this machine: its disk's free space is watched",
    )
    run_program(NAME, made, serve, own_http=True)


if __name__ == "__main__":
    main()
