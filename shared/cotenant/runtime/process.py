"""The process around a service: connection, streams, micro endpoints, /metrics /healthz /readyz, signals, clean stop.

`run_program` is for every process; `cotenant.runtime.deciding.run_service` builds the deciding services on it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import nats.micro
import uvloop
from aiohttp import web
from nats.micro.request import Request as MicroRequest
from nats.micro.service import Service as MicroService
from nats.micro.service import ServiceConfig

from cotenant.log.nats.access import AccessError
from cotenant.log.nats.declaring import StreamUnfitError
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import matches
from cotenant.runtime.figures import by_label, show
from cotenant.runtime.last_tasks import end_last_tasks
from cotenant.runtime.settings import Settings, settings_from
from cotenant.runtime.telemetry import Telemetry, configure_logging

logger = logging.getLogger(__name__)

VERSION = "0.1.0"

STREAMS_LOOK_SECONDS = 0.2
STREAMS_LINE_SECONDS = 10.0
"""How often a process logs that it waits for the streams."""
GC_THRESHOLDS = (100_000, 50, 100)
"""Allocations between collections of the youngest objects, and how many of those between the larger ones."""

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

EndpointHandler = Callable[[bytes], Awaitable[bytes]]
SubjectHandler = Callable[[str, bytes], Awaitable[bytes]]
"""Subject and body of a request."""


def is_request(request: MicroRequest, subject: str) -> bool:
    """Return whether a message is a request, and not one that JetStream sent here: whoever asks JetStream for a message chooses
    its destination. Such a message has the subject that it is stored under, or the server's header."""
    return matches(subject, request.subject) and "Nats-Stream" not in (request.headers or {})


class RequestError(Exception):
    """A request that is refused; code is an HTTP status, the text says what, where and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Health(msgspec.Struct):
    """What /healthz and /readyz return. `alive` is turned off by a loop that has stopped for good."""

    alive: bool = True
    ready: bool = False
    detail: str = "starting"
    warning: str = ""
    """What /readyz adds while the service is ready nevertheless."""


class Host:
    """One process' surroundings. Made by `open_host`."""

    def __init__(self, name: str, settings: Settings, log: NatsLog, telemetry: Telemetry) -> None:
        self.name = name
        self.settings = settings
        self.log = log
        self.telemetry = telemetry
        self.health = Health()
        self.stopping = asyncio.Event()
        self.http_url = ""
        self._micro: MicroService | None = None

    async def endpoint(self, name: str, handler: EndpointHandler, *, subject: str = "") -> None:
        """Serve a NATS micro endpoint on `subject` (default `cotenant.<service>.<name>`). Errors are answered, never lost."""

        async def handle(_: str, data: bytes) -> bytes:
            return await handler(data)

        await self.endpoint_by_subject(name, handle, subject or f"cotenant.{self.name}.{name}")

    async def endpoint_by_subject(self, name: str, handler: SubjectHandler, subject: str) -> None:
        """Serve an endpoint whose handler gets the request's subject, where `subject` has wildcards."""
        assert self._micro is not None

        async def answer(request: MicroRequest) -> None:
            if not is_request(request, subject):
                logger.warning("endpoint %s: a message of %s is not a request", name, request.subject)
                return
            try:
                await request.respond(await handler(request.subject, request.data))
            except RequestError as refusal:
                await request.respond_error(str(refusal.code), refusal.message)
            except Exception as error:
                logger.exception("endpoint %s failed", name)
                await request.respond_error("500", f"{name}: {type(error).__name__}: {error}")

        await self._micro.add_endpoint(name=name, subject=subject, handler=answer)

    async def start_micro(self) -> None:
        """Register with NATS, so that `nats micro ls` finds the service: PING, INFO, STATS."""
        self._micro = await nats.micro.add_service(
            self.log.client,
            ServiceConfig(
                name=f"cotenant-{self.name}",
                version=VERSION,
                description=f"cotenant {self.name}, partition {self.settings.partition}",
                metadata={
                    "replica": self.settings.replica,
                    "partition": self.settings.partition,
                    "cell": self.settings.cell,
                    "http": self.http_url,
                },
            ),
        )

    async def stop_micro(self) -> None:
        """Deregister from NATS."""
        if self._micro is not None and self.log.client.is_connected:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._micro.stop()


def status_routes(host: Host) -> list[web.RouteDef]:
    """Return the routes that every service serves."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=host.telemetry.prometheus_text(), headers={"Content-Type": PROMETHEUS_TEXT})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n" if host.health.alive else host.health.detail, status=200 if host.health.alive else 500)

    async def readyz(_: web.Request) -> web.Response:
        ready = host.health.ready and host.log.client.is_connected
        warning = f": {host.health.warning}" if host.health.warning else ""
        detail = f"ok{warning}\n" if ready else f"not ready: {host.health.detail}\n"
        return web.Response(text=detail, status=200 if ready else 503)

    return [web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]


def show_host(host: Host) -> None:
    """Show the metrics that every process has."""
    meter, log, health = host.telemetry.meter, host.log, host.health
    show(meter, "cotenant_ready", "1 while /readyz says so", lambda: [(int(health.ready and log.client.is_connected), {})])
    show(meter, "cotenant_nats_connected", "1 while there is a connection", lambda: [(int(log.client.is_connected), {})])
    show(
        meter,
        "cotenant_refused_writes",
        "Writes that were not stored, or whose outcome is unknown, by reason",
        lambda: by_label("reason", log.refused),
        counter=True,
    )


async def serve_http(app: web.Application, address: str, port: int) -> tuple[web.AppRunner, str]:
    """Serve an application; returns its runner and its URL. Port 0 picks a free one."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, address, port)
    await site.start()
    server: Any = site._server
    bound = server.sockets[0].getsockname()[1]
    return runner, f"http://{address}:{bound}"


@contextlib.asynccontextmanager
async def open_host(name: str, settings: Settings, *, own_http: bool = False) -> AsyncIterator[Host]:
    """Connect, wait for the streams and serve status; take all of it down again at the end.

    With `own_http` the service serves HTTP itself and includes `status_routes`.
    """
    telemetry = Telemetry(name, settings.replica)
    try:
        log = await connect(settings.nats_url, name, settings.nats_access)
    except AccessError as error:
        raise SystemExit(f"cotenant-{name}: {error}") from error
    log.longest_ttl_seconds = settings.longest_ttl_seconds
    log.on_dead_letter = partial(telemetry.dead_letters.add, 1)
    host = Host(name, settings, log, telemetry)
    show_host(host)
    runner: web.AppRunner | None = None
    try:
        await streams_ready(log, name)
        if settings.http_port >= 0 and not own_http:
            app = web.Application()
            app.add_routes(status_routes(host))
            runner, host.http_url = await serve_http(app, settings.http_host, settings.http_port)
        await host.start_micro()
        yield host
    finally:
        await host.stop_micro()
        if runner is not None:
            await runner.cleanup()
        await log.close()
        telemetry.shutdown()


async def streams_ready(log: NatsLog, name: str) -> None:
    """Wait without a limit until the streams exist. Raises SystemExit if one of them lacks a required setting."""
    next_line, loop = 0.0, asyncio.get_running_loop()
    while True:
        try:
            await log.check_streams()
        except StreamUnfitError as error:
            raise SystemExit(f"cotenant-{name}: {error}") from error
        except (BusError, *API_ERRORS) as error:
            if loop.time() >= next_line:
                next_line = loop.time() + STREAMS_LINE_SECONDS
                logger.warning("waiting for the streams: %s", error if isinstance(error, BusError) else type(error).__name__)
        else:
            return
        await asyncio.sleep(STREAMS_LOOK_SECONDS)


def run_program(
    name: str,
    parser: argparse.ArgumentParser,
    program: Callable[[Host, argparse.Namespace], Awaitable[None]],
    *,
    own_http: bool = False,
) -> None:
    """Parse the command line, run the program on uvloop until it ends or SIGTERM/SIGINT sets `host.stopping`."""
    arguments = parser.parse_args()
    settings = settings_from(arguments)
    configure_logging(settings.log_level, settings.log_format)

    async def main() -> None:
        try:
            await until_stopped()
        finally:
            if left := await end_last_tasks():
                # Closing the loop would wait for them forever.
                logger.error("%s ends although these tasks still run: %s", name, ", ".join(left))
                logging.shutdown()
                os._exit(1)

    async def until_stopped() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        starting = asyncio.ensure_future(_serve(stop))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            # The program ends by itself once `host.stopping` is set; one that hangs is cancelled.
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(15):
                    await starting
        stopped.cancel()
        if starting.done() and not starting.cancelled():
            starting.result()

    async def _serve(stop: asyncio.Event) -> None:
        connecting = asyncio.ensure_future(_enter(stop))
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.wait({connecting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done() and not _entered:
            connecting.cancel()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connecting

    _entered: list[Host] = []

    async def _enter(stop: asyncio.Event) -> None:
        async with open_host(name, settings, own_http=own_http) as host:
            _entered.append(host)
            host.stopping = stop
            logger.info("%s %s started, replica %s, %s", name, VERSION, settings.replica, host.http_url)
            await program(host, arguments)
            logger.info("%s stopped", name)

    # Facts and events have no reference cycles; repeatedly traversing a large state to find none is most of a load's cost.
    gc.set_threshold(*GC_THRESHOLDS)
    uvloop.run(main())
