"""Executors for a trace: every node at once, event-driven.

In: placements on any node. Out: the nodes' executor reports at the start, and for each pod "running" when it is
placed and "stopped" when its placement is terminating. There are no samples: usage follows from placements, as
a trace of requests has no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cotenant.events.envelope import Event
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import TOMBSTONE_TTL_SECONDS, Write
from cotenant.model.subjects import executor_subject, run_subject
from cotenant.simulation import World


class TraceNodes:
    """One participant for all nodes of a trace."""

    name = "trace-nodes"
    filters: tuple[str, ...] = ("node.>",)
    usage_filters: tuple[str, ...] = ()

    def __init__(self, statuses: Sequence[ExecutorStatus]) -> None:
        self._statuses = tuple(statuses)
        self._reported = False
        self._seen: dict[str, int] = {}
        self._count = 0

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Report the nodes once, then answer every placement."""
        if not self._reported:
            self._reported = True
            for status in self._statuses:
                self._write(executor_subject(status.node), status, (), now, world)
        for event in inbox:
            if isinstance(event.data, Placement):
                self._answer(event, event.data, now, world)
        return None

    def _answer(self, event: Event, placement: Placement, now: datetime, world: World) -> None:
        subject = run_subject(placement.node, placement.namespace, placement.name)
        gone = event.tombstone or placement.phase is PlacementPhase.GONE
        if gone and subject not in self._seen:
            return
        ending = placement.phase is PlacementPhase.TERMINATING
        if not gone and not ending and subject in self._seen:
            return
        phase = RunPhase.STOPPED if gone or ending else RunPhase.RUNNING
        container = ContainerRun(
            name="main", state="terminated" if phase.terminal else "running", ready=not phase.terminal
        )
        status = RunStatus(
            node=placement.node,
            namespace=placement.namespace,
            name=placement.name,
            uid=placement.uid,
            phase=phase,
            finished_at=now if phase.terminal else None,
            containers=(container,),
        )
        self._write(subject, status, (event.ref,), now, world, tombstone=gone)
        if gone:
            del self._seen[subject]
        else:
            self._seen[subject] = event.sequence

    def _write(
        self,
        subject: str,
        data: ExecutorStatus | RunStatus,
        causes: tuple[str, ...],
        now: datetime,
        world: World,
        *,
        tombstone: bool = False,
    ) -> None:
        self._count += 1
        source = f"/cell/node-executor/{data.node}"
        event_id = f"{source}/{self._count}"
        world.append(
            [
                Write(
                    event=Event(
                        subject=subject,
                        data=data,
                        causes=causes,
                        time=now,
                        id=event_id,
                        source=source,
                        tombstone=tombstone,
                        ttl_seconds=TOMBSTONE_TTL_SECONDS if tombstone else 0,
                    )
                )
            ]
        )
