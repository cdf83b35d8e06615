"""One run from its schedule: build the harness, advance time, check, and report the result.

In: a schedule. Out: a Result, with the digest over every event of every stream in order: two runs of one schedule have the
same. After the span comes SETTLE_TIME without faults and new workload; at their end everything must be idle.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import msgspec

from cotenant.events.envelope import Event, encode_event
from cotenant.log.contract import TOMBSTONE_TTL_SECONDS
from cotenant.simulation import START, collecting_rarely
from cotenant_console.definitions import definition
from cotenant_verification.actions import ACTIONS
from cotenant_verification.checks.checker import EARLIER_BY, Checker
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.violations import BrokenInvariantError, Violation
from cotenant_verification.harness.gateways import ChaosGateway
from cotenant_verification.harness.harness import Definitions, Harness
from cotenant_verification.harness.nodes import ChaosNode
from cotenant_verification.harness.services import ChaosService
from cotenant_verification.harness.yarn import Copilot
from cotenant_verification.promises.log.replay import deciding_changes_nothing, state_is_the_fold
from cotenant_verification.promises.quotas import runtimes_agree
from cotenant_verification.promises.table import PROMISES
from cotenant_verification.simulate.openb import OpenbTrace
from cotenant_verification.workload import workload
from cotenant_verification.workload.faults import faults
from cotenant_verification.workload.schedule import Header, Schedule, ScheduleError, in_order
from cotenant_verification.workload.trace import trace_workload

SETTLE_TIME = timedelta(minutes=14)
"""Tolerations of lost nodes take 5 minutes, jobs end within 10, a silent executor's last report comes within 1."""
SLICE = timedelta(seconds=30)
MAX_NODES = 9
SHORT_TOMBSTONE_S = 120
"""More than twice as long as any reader is away: one that is away longer starts over."""


class Result(msgspec.Struct, kw_only=True):
    """The result of a run."""

    seed: int
    events: int
    steps: int
    faults: dict[str, int]
    asked: dict[str, int]
    """Requests of users and administrators, by kind."""
    checks: dict[str, int]
    digest: str
    virtual_seconds: float
    wall_seconds: float
    violation: Violation | None = None
    view: LogView | None = None

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.violation is None


class Progress(msgspec.Struct, frozen=True):
    """How far a run has come."""

    virtual_seconds: float
    total_seconds: float
    events: int
    wall_seconds: float
    faults: Counter[str]
    checks: Counter[str]


def schedule_of(seed: int, span_seconds: float, nodes: int = 0, trace: OpenbTrace | None = None) -> Schedule:
    """Return the schedule of a seed; nodes 0: the seed chooses how many. `trace`: its machines and pods, with the seed's
    faults."""
    header = Header(
        seed=seed,
        span_ms=round(span_seconds * 1000),
        nodes=nodes or 3 + seed * 7919 % (MAX_NODES - 2),
        hop_ms=(20, 5, 50, 20)[seed % 4],
        tombstone_s=(TOMBSTONE_TTL_SECONDS, SHORT_TOMBSTONE_S)[seed // 2 % 2],
    )
    work = workload(header) if trace is None else trace_workload(trace, header)
    return Schedule(header, in_order([*work, *faults(header)]))


def run(
    schedule: Schedule,
    progress: Callable[[Progress], None] = lambda _: None,
    definitions: Definitions = definition,
    prepare: Callable[[Harness], None] = lambda _: None,
    checked: bool = True,
) -> Result:
    """Run a schedule to its end, or to the first broken promise. `prepare` may change the harness before it opens; without
    `checked` no promise is checked."""
    with collecting_rarely():
        return _run(schedule, progress, definitions, prepare, checked)


def _run(
    schedule: Schedule,
    progress: Callable[[Progress], None],
    definitions: Definitions,
    prepare: Callable[[Harness], None],
    checked: bool,
) -> Result:
    began = time.monotonic()
    checker = Checker(PROMISES, state_is_the_fold, deciding_changes_nothing, runtimes_agree)
    harness = Harness(schedule, ACTIONS, checker.view, definitions)
    recorder = _Recorder()
    harness.world.watchers.append(recorder.add)
    if checked:
        checker.watch(harness)
    prepare(harness)
    harness.open()
    if checked:
        checker.listen(harness)
    span = timedelta(milliseconds=schedule.header.span_ms)
    total = span + SETTLE_TIME
    violation = None
    try:
        passed = timedelta(0)
        while passed < total:
            passed = min(passed + SLICE, total)
            if checked and passed > span:
                harness.world.run_until(START + passed - EARLIER_BY)
                checker.look_early()
            harness.world.run_until(START + passed)
            if checked:
                checker.look(idle=passed == total)
            if checked and passed > span:
                checker.check_idle(passed - span, last=passed == total)
            progress(
                Progress(
                    passed.total_seconds(),
                    total.total_seconds(),
                    harness.world.events,
                    time.monotonic() - began,
                    harness.happened,
                    checker.counts,
                )
            )
    except BrokenInvariantError as broken:
        violation = broken.violation
    except ScheduleError:
        raise
    except Exception as error:  # noqa: BLE001 - a core that raises ends its process; here it ends the run, and the report names the seed
        violation = _raised(error, harness, checker.view)
    checker.counts["8 periods"] = checker.suppressions.periods
    for reason, count in checker.oom_kills.reasons.items():
        checker.counts[f"ended {reason}"] = count
    checker.counts["worst p99 permille"] = checker.suppressions.worst_permille
    return Result(
        seed=schedule.header.seed,
        events=harness.world.events,
        steps=harness.world.steps,
        faults=dict(sorted(harness.happened.items())),
        asked=dict(sorted(harness.asked.items())),
        checks=dict(sorted(checker.counts.items())),
        digest=recorder.digest,
        virtual_seconds=(harness.world.now - START).total_seconds(),
        wall_seconds=time.monotonic() - began,
        violation=violation,
        view=checker.view,
    )


def _raised(error: Exception, harness: Harness, view: LogView) -> Violation:
    """Promise 0: no core raises."""
    where = traceback.extract_tb(error.__traceback__)[-3:]
    frames = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(where))
    selves = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    who = [one.name for one in selves if isinstance(one, ChaosService | ChaosNode | ChaosGateway | Copilot)]
    last = view.log[-1].sequence if view.log else 0
    text = f"{type(error).__name__}: {error} ({frames})"
    trace = "".join(traceback.format_exception(error))
    return Violation(0, "nothing_raises", who[0] if who else "simulation", text, last, harness.world.now, trace)


class _Recorder:
    """Hashes every event as it is stored."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def add(self, event: Event) -> None:
        """Take one event in."""
        self._digest.update(encode_event(event))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
