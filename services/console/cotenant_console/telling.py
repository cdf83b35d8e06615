"""What an event says, in words.

In: a typed event of LOG or EXECUTION. Out: one short sentence, or None where an event is of no interest to a reader
by itself (samples, commit records, start markers of readers).
"""

from __future__ import annotations

from cotenant.events.commits import CommitRefused, ServiceStarted
from cotenant.events.conditions import NodeCondition
from cotenant.events.deadletters import DeadLetter
from cotenant.events.envelope import Event
from cotenant.events.execution import Execution
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.subjects import tokens


def tell(event: Event) -> str | None:
    """The event in words."""
    data = event.data
    if isinstance(data, ObjectDeleted):
        _, _, plural, namespace, name = tokens(event.subject)
        return f"{plural} {name if namespace == '_' else f'{namespace}/{name}'} deleted"
    if isinstance(data, Placement):
        return _tell_placement(data)
    if isinstance(data, Waiting):
        return None if event.tombstone else f"pod {data.namespace}/{data.name} waits: {data.message}"
    if isinstance(data, RunStatus):
        return _tell_run(data, event.tombstone)
    if isinstance(data, EvictionOutcome):
        verdict = "evicted" if data.allowed else "not evicted"
        return f"pod {data.namespace}/{data.name} {verdict}: {data.message}"
    if isinstance(data, Migration):
        return f"migration {data.job}: {data.phase.lower()}{': ' + data.message if data.message else ''}"
    if isinstance(data, NodeCondition):
        state = "ready" if data.ready else f"not ready: {data.message or data.reason}"
        return None if event.tombstone else f"node {data.node} {state}"
    if isinstance(data, NodeResources):
        return f"node {data.node} lends {data.batch_cpu_milli}m batch-cpu, {data.batch_memory_bytes >> 20} MiB batch-memory"
    if isinstance(data, ExecutorStatus):
        return f"executor of node {data.node} started"
    if isinstance(data, Execution):
        return _tell_execution(data)
    if isinstance(data, CommitRefused):
        return f"{data.service} (replica {data.replica}) was refused: another replica committed first"
    if isinstance(data, DeadLetter):
        return f"a message was put aside: {data.reason}"
    if isinstance(data, ServiceStarted):
        return f"{data.service} started (replica {data.replica})"
    return None


def _tell_placement(placement: Placement) -> str:
    pod = f"pod {placement.namespace}/{placement.name}"
    if placement.phase is PlacementPhase.BOUND:
        return f"{pod} placed on {placement.node}"
    if placement.phase is PlacementPhase.TERMINATING:
        return f"{pod} shall end{': ' + placement.reason if placement.reason else ''}"
    return f"{pod} gone from {placement.node}"


def _tell_run(run: RunStatus, tombstone: bool) -> str | None:
    if tombstone:
        return None
    codes = [str(container.exit_code) for container in run.containers if container.exit_code is not None]
    ended = f", exit status {', '.join(codes)}" if codes and run.phase.terminal else ""
    why = f": {run.message or run.reason}" if run.message or run.reason else ""
    return f"pod {run.namespace}/{run.name} {run.phase.value}{ended}{why}"


def _tell_execution(execution: Execution) -> str:
    """What was done on a node, with the first file's old and new value."""
    changed = [change for change in execution.changes if change.old != change.new or change.error]
    if not changed:
        return f"{execution.node}: {execution.summary}"
    first = changed[0]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    refused = f" (refused: {first.error})" if first.error else ""
    file = first.target.rsplit("/", 1)[-1]
    return f"{execution.node}: {file} {first.old or '-'} -> {first.new}{more}{refused}: {execution.summary}"
