"""Promises 8, 9 and 13: overcommitted CPU is reclaimed at once and without flapping; queues and state are bounded."""

from __future__ import annotations

from cotenant.log.contract import KEEP_PER_SUBJECT, LOG
from cotenant.model.subjects import execution_subject, selecting
from cotenant_verification.checks.core_size import core_size
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.promises.log.replay import last_messages

QUEUE = 5_000
"""A reader that is further behind starts over."""
ENTRIES = 4
"""The scheduler holds most: up to 4.8 at the end of runs with about 400 subjects, for which five times SLACK is another 2.5."""
LOOKED_AT_ONCE_IN = 4
SLACK = 200
"""Entries that a live core may hold beyond a fresh one's and a quarter."""


def queues_stay_short(moment: Moment) -> Wrong:
    """No more than QUEUE messages wait for a service that is up and connected."""
    for name, service in moment.harness.services.items():
        link = moment.harness.world.link(name)
        if link is not None and link.severed(moment.now):
            continue
        waiting = moment.harness.world.waiting_for(name)
        if service.service.deciding and waiting > QUEUE:
            yield name, f"{waiting} messages wait for {name}"


def the_log_is_bounded(moment: Moment) -> Wrong:
    """No subject holds more versions than the stream keeps."""
    stream = moment.harness.world.streams.log
    for subject in stream.subjects():
        if (count := stream.count_of(subject)) > KEEP_PER_SUBJECT:
            yield subject, f"{subject} holds {count} versions on {LOG}"


def cores_are_bounded(moment: Moment) -> Wrong:
    """Checked for one core at a time: it holds at most ENTRIES per subject that it reads and that has a message, and five times
    SLACK."""
    if moment.chance.randrange(LOOKED_AT_ONCE_IN):
        return
    name = moment.chance.choice(sorted(moment.harness.services))
    process = moment.harness.services[name].service
    if not process.definition.recomputed or not process.deciding:
        return
    selects = selecting(process.definition.filters).fullmatch
    alive = sum(selects(subject.encode()) is not None for subject in moment.harness.world.streams.log.subjects())
    held = core_size(process.cycle.core)
    if held > ENTRIES * alive + 5 * SLACK:
        yield name, f"{name} holds {held} entries for {alive} subjects"


def cores_hold_what_is_alive(moment: Moment) -> Wrong:
    """A live core holds at most a quarter more, and SLACK, than a fresh one that loads the last message of each subject."""
    stream = moment.harness.world.streams.log
    for name, service in sorted(moment.harness.services.items()):
        process = service.service
        if not process.definition.recomputed or not process.deciding:
            continue
        fresh = process.definition.make_core(process.config)
        for event in last_messages(stream, process):
            fresh.apply(event)
        fresh.decide(moment.now)
        live, needed = core_size(process.cycle.core), core_size(fresh)
        if live > needed * 5 // 4 + SLACK:
            yield name, f"{name} holds {live} entries; a fresh core of the same state needs {needed}"


def suppression_settles(moment: Moment) -> Wrong:
    """A node reverses its best-effort bound at most FEW times in a stretch beyond the reversals of its services' load, and
    changes it at most FEW times once that is constant and it had time to settle."""
    for name, text in moment.suppressions.unsettled:
        yield execution_subject(name, "suppress"), text
    for name, changes in sorted(moment.suppressions.flutter(moment.now).items()):
        text = f"node {name} reversed its best-effort bound {changes} times more often than its load"
        yield execution_subject(name, "suppress"), text


def services_keep_their_latency(moment: Moment) -> Wrong:
    """Two control periods after a spike no service's p99 is longer than with the most that best-effort work may use."""
    for name, text in moment.suppressions.slowed:
        yield execution_subject(name, "suppress"), text


def kernels_refuse_nothing(moment: Moment) -> Wrong:
    """No kernel refuses a write: parents are widened before their children, and narrowed after them."""
    for name, text in moment.suppressions.refused:
        yield execution_subject(name, "refusals"), text


def overcommitted_cpu_is_reclaimed(moment: Moment) -> Wrong:
    """Two control periods after a spike of the services the best-effort bound of a node is the rest below the threshold."""
    for name, text in moment.suppressions.late:
        yield execution_subject(name, "suppress"), text
