"""Promise 11: every decision names its causes, and they lead back to a sample or an object."""

from __future__ import annotations

from collections import deque

from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectStored
from cotenant.log.contract import USAGE
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen

WALKS = 20
"""Decisions whose causes are followed at a moment."""
DEPTH = 60


def causes_are_earlier(view: LogView, seen: CommitSeen) -> Wrong:
    """Every event of a commit has causes; those on LOG exist and come before it."""
    if not seen.events:
        return
    for event in seen.events:
        if not event.causes and not event.tombstone:
            yield event.subject, f"{event.ref} ({event.data.TYPE}) names no cause"
        for cause in event.causes:
            stream, _, number = cause.partition(":")
            if not number.isdigit():
                yield event.subject, f"{event.ref} names {cause!r} as a cause, which is not a position of a stream"
            elif stream == "LOG" and (int(number) >= event.sequence or not view.was_there(int(number))):
                yield event.subject, f"{event.ref} names {cause} as a cause, which does not exist before it"


def causes_lead_to_a_fact(moment: Moment) -> Wrong:
    """From decisions chosen at random the causes lead back to a sample, an object or a report, as `explain` walks them, or
    further back than the log is kept.
    """
    log = moment.view.log
    for _ in range(min(WALKS, len(log))):
        event = log[moment.chance.randrange(max(0, len(log) - 5_000), len(log))]
        if isinstance(event.data, Commit | ServiceStarted) or event.tombstone:
            continue
        if not _reaches(moment.view, event):
            yield event.subject, f"the causes of {event.ref} ({event.data.TYPE}) lead to no sample, object or report"


def _reaches(view: LogView, event: Event) -> bool:
    waiting = deque([event])
    seen: set[int] = set()
    while waiting and len(seen) < DEPTH:
        here = waiting.popleft()
        if isinstance(here.data, ObjectStored | ExecutorStatus | MachineTopology | RunStatus | YarnNode):
            return True
        seen.add(here.sequence)
        for cause in here.causes:
            if cause.startswith(USAGE):
                return True
            found = view.by_reference(cause)
            if found is None and view.is_forgotten(int(cause.partition(":")[2])):
                return True
            if found is not None and found.sequence not in seen:
                waiting.append(found)
    return False
