"""The shell of a deciding service: incarnations on a log, each with a fresh core, until it is stopped.

In: a Definition, a log. Out: decisions on the log. `runtime.follower` reads and starts over, `runtime.deciding_loop` is what
one incarnation does. A message that cannot be decoded goes to the dead letters; one that the core cannot fold or decide on is
quarantined; an exception that no message causes ends the process (the supervisor restarts it and the crash is visible).

Bounds: QUEUE_PULLS pulls of PULL_LIMIT wait between reader and core.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from cotenant.engine.commit import Identity
from cotenant.engine.core import Core
from cotenant.engine.cycle import Cycle
from cotenant.engine.definition import Gauge, ServiceDefinition
from cotenant.engine.quarantine import Quarantine
from cotenant.log.contract import Log
from cotenant.log.traces import Traces
from cotenant.runtime.deciding_loop import QUEUE_PULLS, DecidingLoop, Surroundings
from cotenant.runtime.figures import Figures, Value, show
from cotenant.runtime.follower import Follower, utc_now
from cotenant.runtime.process import VERSION, Host, run_program
from cotenant.runtime.questions import serve_questions
from cotenant.runtime.settings import clock_of, parser
from cotenant.runtime.telemetry import Telemetry

PULL_LIMIT = 250
"""Messages that are decoded, or folded while a batch is being stored, before its answer is checked."""


class DecidingService:
    """Runs one Definition on a Log until `stopping` is set. Each incarnation starts with a fresh core and a new load."""

    def __init__(
        self,
        definition: ServiceDefinition,
        config: msgspec.Struct,
        identity: Identity,
        log: Log,
        host: Host | None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.definition = definition
        self.config = config
        self.identity = identity
        self.quarantine = Quarantine()
        figures = host.telemetry.figures if host is not None else Figures()
        figures.quarantines.append(self.quarantine)
        self.stopping = host.stopping if host is not None else asyncio.Event()
        self.cycle: Cycle | None = None
        self.ready = asyncio.Event()
        """The load of the present incarnation is over."""
        gather_seconds = definition.gather.total_seconds()
        self._around = Surroundings(
            identity, self.filters, log, host, clock, self.stopping, self.ready, self.quarantine, figures, gather_seconds
        )
        self._follower = Follower(
            log,
            self.filters,
            self.stopping,
            service=identity.service,
            usage_filters=definition.usage_filters,
            views=definition.views,
            pull_limit=PULL_LIMIT,
            queue_pulls=QUEUE_PULLS,
            gather_seconds=gather_seconds,
            hurried=definition.hurried,
            clock=clock,
            figures=figures,
        )

    @property
    def filters(self) -> tuple[str, ...]:
        """Everything that this service reads on LOG."""
        return (*self.definition.filters, self.identity.commit_subject, self.identity.marker_subject)

    @property
    def incarnations(self) -> int:
        """Number of loads begun."""
        return self._follower.incarnations

    @property
    def loaded_core(self) -> Core | None:
        """The present core; None while it loads."""
        return self.cycle.core if self.cycle is not None and self.ready.is_set() else None

    async def run(self) -> None:
        """Run until stopped."""
        await self._follower.run(self._begin)

    def _begin(self, number: int) -> DecidingLoop:
        core = self.definition.make_core(self.config)
        config_text = self.definition.config_text(self.config)
        traces = Traces(self.definition.traced)
        self.cycle = Cycle(
            core,
            self.identity,
            config_text,
            timer=time.perf_counter_ns,
            pace=self.definition.pace,
            urgent=self.definition.urgent,
            quarantine=self.quarantine,
            traces=traces,
        )
        self.ready.clear()
        return DecidingLoop(self._around, self.cycle, traces, number)


def show_gauges(telemetry: Telemetry, definition: ServiceDefinition, core: Callable[[], Core | None]) -> None:
    """Show the present core's figures as metrics; nothing before there is one."""

    def reading(gauge: Gauge) -> Callable[[], Iterable[Value]]:
        def read() -> Iterable[Value]:
            present = core()
            return gauge.read(present) if present is not None else []

        return read

    telemetry.of_deciding_service()
    telemetry.figures.register(telemetry.meter, decides=True)
    for gauge in definition.gauges:
        show(telemetry.meter, gauge.name, gauge.description, reading(gauge), counter=gauge.counts)


def run_service(definition: ServiceDefinition) -> None:
    """Run a deciding service as a process: the whole of a service's `__main__`."""

    async def program(host: Host, _: argparse.Namespace) -> None:
        try:
            config = definition.config_from(host.settings.config)
        except msgspec.ValidationError as error:
            raise SystemExit(f"cotenant-{definition.name}: configuration: {error}") from error
        identity = Identity(
            service=definition.name,
            cell=host.settings.cell,
            partition=host.settings.partition,
            replica=host.settings.replica,
            version=VERSION,
            core=definition.core_version,
        )
        service = DecidingService(definition, config, identity, host.log, host, clock_of(host.settings))
        await serve_questions(host, definition.questions, lambda: service.loaded_core, clock_of(host.settings))
        show_gauges(host.telemetry, definition, lambda: service.cycle.core if service.cycle is not None else None)
        await service.run()

    run_program(definition.name, parser(definition.name, definition.summary), program)
