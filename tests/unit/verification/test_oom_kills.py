"""Promise 18: which limit counts for a pod that is killed while it is resized in place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.resizing import Stated, stated
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement
from cotenant.events.resizes import PlacementResize, ResizeState, ResizeStatus
from cotenant.model.subjects import placement_subject, run_subject
from cotenant_node_executor.sampling.snapshot import GroupUsage, PodSample, PressureSet
from cotenant_node_executor.simulated.sampler import OutOfMemory
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.oom_kills import MIB, OomKills
from tests.builders import encoded, pod_document

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = 1024 * MIB
DEFERRED, INFEASIBLE, IN_PROGRESS = ResizeState.DEFERRED, ResizeState.INFEASIBLE, ResizeState.IN_PROGRESS


def manifest(mib: int, name: str = "p") -> Any:
    amounts = {"cpu": "1", "memory": f"{mib}Mi"}
    return pod_document(name, uid=f"uid-{name}", requests=amounts, limits=amounts)


def of(mib: int) -> Stated:
    return stated(decode_pod(encoded(manifest(mib))).spec)


def killed(
    held: int, asked: int, state: ResizeState | None, admitted: int, applied: int = 0, used: int = 0, *, machine: bool = False
) -> list[str]:
    """What is wrong with the kill of a pod that held and, at the sample before, used this many MiB. `state`: what its node said
    of the resize to `asked`; None: nothing yet. `machine`: it was the machine's memory that lacked, while pod q held 500 MiB
    beyond its request of 100."""
    view = LogView()

    def see(subject: str, data: Payload) -> None:
        view.see(Event(subject=subject, data=data, sequence=view.seen + 1, time=BEGAN))

    resize = PlacementResize(sequence=1, admitted=of(admitted), counted=of(max(asked, admitted)))
    placement = Placement(
        node="a", namespace="default", name="p", uid="uid-p", pod=encoded(manifest(asked)), bound_at=BEGAN, resize=resize
    )
    see(placement_subject("a", "default", "p"), placement)
    other = Placement(node="a", namespace="default", name="q", uid="uid-q", pod=encoded(manifest(100, "q")), bound_at=BEGAN)
    see(placement_subject("a", "default", "q"), other)
    if state is not None:
        status = ResizeStatus(sequence=1, state=state, admitted=of(admitted), applied=of(applied) if applied else ())
        run = RunStatus(node="a", namespace="default", name="p", uid="uid-p", phase=RunPhase.RUNNING, resize=status)
        see(run_subject("a", "default", "p"), run)
    usage = GroupUsage("", 0, used * MIB, used * MIB, None, PressureSet())
    kills = OomKills(view)
    end = OutOfMemory("uid-p", {"uid-p": held * MIB, "uid-q": 500 * MIB}, machine)
    kills.killed("a", MACHINE, end, {"uid-p": PodSample("uid-p", "burstable", usage)} if used else {})
    return [text for _, text in kills.wrong]


@pytest.mark.parametrize(
    ("held", "asked", "state", "admitted", "applied"),
    [
        (101, 150, DEFERRED, 100, 0),
        (101, 150, INFEASIBLE, 100, 0),
        (101, 150, None, 100, 0),
        (101, 150, IN_PROGRESS, 150, 100),
        (151, 150, IN_PROGRESS, 150, 100),
        (101, 100, IN_PROGRESS, 100, 150),
    ],
)
def test_a_kill_at_a_limit_that_may_be_in_force_is_right(
    held: int, asked: int, state: ResizeState | None, admitted: int, applied: int
) -> None:
    assert killed(held, asked, state, admitted, applied) == []
    assert killed(held, asked, state, admitted, applied, used=99) == [], "it grew beyond the limit"


@pytest.mark.parametrize(
    ("held", "asked", "state", "admitted", "applied"),
    [
        (100, 150, DEFERRED, 100, 0),
        (140, 100, INFEASIBLE, 150, 0),
        (100, 150, None, 100, 0),
        (140, 150, IN_PROGRESS, 150, 0),
    ],
)
def test_a_kill_within_every_limit_that_may_be_in_force_is_wrong(
    held: int, asked: int, state: ResizeState | None, admitted: int, applied: int
) -> None:
    (text,) = killed(held, asked, state, admitted, applied)
    assert "was killed at a limit of" in text


@pytest.mark.parametrize(
    ("asked", "state", "admitted", "applied"),
    [
        (100, IN_PROGRESS, 100, 150),
        (150, DEFERRED, 100, 0),
        (160, INFEASIBLE, 100, 150),
        (100, None, 150, 0),
        (100, ResizeState.DONE, 100, 0),
    ],
)
def test_a_limit_that_is_lowered_below_what_is_used_kills_wrongly(
    asked: int, state: ResizeState | None, admitted: int, applied: int
) -> None:
    (text,) = killed(140, asked, state, admitted, applied, used=140)
    assert text.endswith("at a limit of 100 MiB, which was written while it used 140 MiB")


def test_the_request_of_a_resized_pod_is_the_smaller_one_when_the_machine_lacks_memory() -> None:
    assert killed(101, 150, DEFERRED, 100, machine=True) == []
    (text,) = killed(100, 150, DEFERRED, 100, machine=True)
    assert text.endswith("within its request, while q ran with 500 MiB, beyond its own")
