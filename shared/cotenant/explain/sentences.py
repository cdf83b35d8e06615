"""What an event says, in one sentence, and the figures that it was made from.

In: a typed event of any stream. Out: a sentence for people (command line, web page, `kubectl get events`), and named
figures as text with their units. Every event has a sentence; those of little interest by themselves have a short
one.

Over 300 lines: one short function for each type of event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.events.audit import Audited
from cotenant.events.commits import Commit, CommitRefused, LogDeclared, ServiceStarted
from cotenant.events.configurations import ConfigurationRejected
from cotenant.events.deadletters import DeadLetter
from cotenant.events.envelope import Event
from cotenant.events.gangs import PodGroupStatus
from cotenant.events.migrations import Migration, NodeLoadJudged
from cotenant.events.node.conditions import NodeCondition, disruption_text
from cotenant.events.node.execution import Execution
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus, RunStatus, reports_stop
from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.usage import Series, UsageSample
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting, waiting_line
from cotenant.events.quotas import ProfiledQuota, QuotaRuntime
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.explain.descheduling import DESCHEDULING
from cotenant.explain.predictions import cores, mebibytes, prediction_figures, window_figures
from cotenant.model.quantities import format_amount
from cotenant.model.subjects import tokens

MAX_FIGURES = 40


def amounts(resources: Mapping[str, int]) -> str:
    """Return a resource list as one text."""
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in sorted(resources.items())) or "nothing"


def _mean(values: Sequence[int]) -> int:
    return sum(values) // len(values) if values else 0


def _series(series: Series) -> str:
    return f"cpu {cores(_mean(series.cpu_milli))}, memory {mebibytes(_mean(series.memory_bytes))}"


def _object_name(subject: str) -> str:
    _, _, plural, namespace, name = tokens(subject)
    return f"{plural} {name}" if namespace == "_" else f"{plural} {namespace}/{name}"


def _stored(data: ObjectStored, event: Event) -> str:
    by = f" by {event.actor}" if event.actor else ""
    notes = f" ({'; '.join(data.admission)})" if data.admission else ""
    return f"{_object_name(event.subject)} stored{by}{notes}"


def _deleted(data: ObjectDeleted, event: Event) -> str:
    by = f" by {event.actor}" if event.actor else ""
    return f"{_object_name(event.subject)} deleted{by}" + (f": {data.reason}" if data.reason else "")


def _placement(data: Placement, _: Event) -> str:
    pod = f"pod {data.namespace}/{data.name}"
    if data.phase is PlacementPhase.TERMINATING:
        return f"{pod} shall end on {data.node}" + (f": {data.reason}" if data.reason else "")
    if data.phase is PlacementPhase.GONE:
        return f"{pod} is gone from {data.node}" + (f": {data.reason}" if data.reason else "")
    shares = data.allocation.volumes if data.allocation is not None else ()
    given = [f", claim {s.claim} gets {f'volume {s.volume}' if s.volume else 'a volume to be made there'}" for s in shares]
    placed = f"{pod} placed on {data.node}, counted as {amounts(data.requests)}"
    return f"{placed}{''.join(given)}{_of_reservation(data)}{_gathered(data)}"


def _of_reservation(data: Placement) -> str:
    used = data.allocation.reservation if data.allocation is not None else None
    if used is None:
        return ""
    if used.uid != data.uid:
        return f", in pod {used.name}, which acts as a reservation" if "/" in used.name else f", in Reservation {used.name}"
    user = data.used_by
    return f", acting as a reservation; pod {user.namespace}/{user.name} uses it" if user else ", acting as a reservation"


def _gathered(data: Placement) -> str:
    found = data.allocation.gathered if data.allocation is not None else None
    if found is None:
        return ""
    if not found.domain:
        return ", with its gang across domains of the network: only the whole cluster has room for it"
    where = f", with its gang in {found.layer} {found.domain}: in no nearer layer is there room for its {found.pods} pods"
    if found.domains == 1:
        return f"{where}, and in no other domain of this one"
    return f"{where}, and of the {found.domains} domains of this one that have it, this has the least ({found.slots})"


def _waiting(data: Waiting, event: Event) -> str:
    pod = f"pod {data.namespace}/{data.name}"
    return f"{pod} waits no longer" if event.tombstone else f"{pod} waits: {waiting_line(data)}"


def _pod_group(data: PodGroupStatus, event: Event) -> str:
    if event.tombstone:
        return f"PodGroup {data.namespace}/{data.name} is gone"
    counts = f"{data.scheduled} of at least {data.min_member} pods have a node, {data.running} run"
    return f"PodGroup {data.namespace}/{data.name} is {data.phase}: {counts}"


def _configuration(data: ConfigurationRejected, event: Event) -> str:
    config = f"ConfigMap {data.namespace}/{data.name}"
    if event.tombstone:
        return f"{config}: no section is rejected any more"
    return f"{config} has rejected sections: {'; '.join(section.message for section in data.sections)}"


def _share(data: ReservationShare, event: Event) -> str:
    if event.tombstone:
        return f"Reservation {data.name} holds nothing on {data.node} any more" + (f": {data.reason}" if data.reason else "")
    used = f"{data.owner_count} pods use {amounts(data.allocated)} of it" if data.owner_count else "no pod uses it"
    return f"Reservation {data.name} holds {amounts(data.allocatable)} on {data.node}; {used}"


def _reservation(data: ReservationStatus, event: Event) -> str:
    if event.tombstone:
        return f"Reservation {data.name} waits no longer" if not data.ended else f"Reservation {data.name} is gone"
    why = f": {data.message}" if data.message else f" ({data.reason})" if data.reason else ""
    return f"Reservation {data.name} is {data.phase.value}{why}"


def _run(data: RunStatus, event: Event) -> str:
    pod = f"pod {data.namespace}/{data.name}"
    if event.tombstone and not reports_stop(event):
        return f"{pod}: nothing of it is left on {data.node}"
    codes = [str(container.exit_code) for container in data.containers if container.exit_code is not None]
    ended = f", exit status {', '.join(codes)}" if codes and data.phase.terminal else ""
    why = data.message or data.reason
    return f"{pod} {data.phase.value} on {data.node}{ended}" + (f": {why}" if why else "")


def _executor(data: ExecutorStatus, _: Event) -> str:
    sandbox = ", in a sandboxed tree" if data.sandbox else ""
    return f"executor of node {data.node} reports {amounts(data.capacity)}{sandbox}" + (
        f": {data.message}" if data.message else ""
    ) + (f"; {data.unknown_log}: pods without a placement run on" if data.unknown_log else "") + (
        f"; no further best-effort pods: {data.memory_pressure}" if data.memory_pressure else ""
    )


def _topology(data: MachineTopology, _: Event) -> str:
    sockets = len({cpu.socket for cpu in data.cpus})
    return (
        f"node {data.node} has {len(data.cpus)} CPUs on {sockets} sockets and {len(data.numa_nodes)} NUMA nodes"
        + (f", {data.cpu.cpu_model}" if data.cpu.cpu_model else "")
    )


def _condition(data: NodeCondition, event: Event) -> str:
    if event.tombstone or data.ready:
        return f"node {data.node} is ready"
    text = f"node {data.node} is not ready: {data.message or data.reason}"
    return text if data.disruption is None else f"{text}; {disruption_text(data.disruption)}"


def _resources(data: NodeResources, _: Event) -> str:
    if data.withdrawn:
        return f"node {data.node} offers no batch or mid resources: {data.message or data.reason}"
    offers = f"batch-cpu {data.batch_cpu_milli}m, batch-memory {mebibytes(data.batch_memory_bytes)}"
    offers += f", mid-cpu {data.mid_cpu_milli}m, mid-memory {mebibytes(data.mid_memory_bytes)}"
    return f"node {data.node} offers {offers}" + (f" ({data.message})" if data.message else "")


def _metric(data: NodeMetricComputed, _: Event) -> str:
    usage = f"cpu {cores(data.node_usage.cpu_milli)}, memory {mebibytes(data.node_usage.memory_bytes)}"
    if data.unknown_since is not None:
        return f"node {data.node} is not heard of since {data.unknown_since.isoformat()}; last known {usage}"
    unneeded = data.prod_reclaimable
    text = f"node {data.node} uses {usage}, of it the system {cores(data.system_usage.cpu_milli)}"
    if unneeded is None:
        return text
    return f"{text}; prod pods are predicted not to need {cores(unneeded.cpu_milli)} and {mebibytes(unneeded.memory_bytes)}"


def _prediction(data: PredictionState, event: Event) -> str:
    if event.tombstone:
        return f"the predictions of node {data.node} are gone"
    dropped = f", without its {data.dropped} smallest pods" if data.dropped else ""
    pods = len(data.packed_pods) // 16 + len(data.pods)
    return f"the prediction models of node {data.node} were stored: {pods} pods{dropped}"


def _usage(data: UsageSample, _: Event) -> str:
    count = len(data.offsets_ms)
    return f"node {data.node} measured {count} samples: {_series(data.node_usage)}, {len(data.pods)} pods"


def _slo(data: NodeSLORendered, _: Event) -> str:
    reason = f" ({data.reason})" if data.reason else ""
    if not data.enable:
        return f"node {data.node}: batch work is not suppressed{reason}"
    policy = data.cpu_suppress_policy
    return f"node {data.node}: batch work is suppressed by {policy} above {data.cpu_suppress_threshold_percent}% CPU{reason}"


def _quota(data: QuotaRuntime, event: Event) -> str:
    if event.tombstone:
        return f"quota {data.quota} is gone"
    over = f", above it in {', '.join(data.overused)}" if data.overused else ""
    ends = f"; {len(data.revoke)} of its pods shall end" if data.revoke else ""
    return f"quota {data.quota} may use {amounts(data.runtime)} and uses {amounts(data.used)}{over}{ends}"


def _profiled(data: ProfiledQuota, event: Event) -> str:
    if event.tombstone:
        return f"profile {data.namespace}/{data.profile} makes no quota any more"
    return f"profile {data.namespace}/{data.profile} gives quota {data.quota} of tree {data.tree} {amounts(data.total)}"


def _execution(data: Execution, _: Event) -> str:
    """The summary states from what to what and why; what the kernel refused is in the changes."""
    errors = [change.error for change in data.changes if change.error and change.error not in data.summary]
    return f"{data.node}: {data.summary}" + (f" (refused: {errors[0]})" if errors else "")


def _commit(data: Commit, event: Event) -> str:
    replica = f"{tokens(event.subject)[1]} (replica {data.replica})"
    if not data.count:
        return f"{replica} decides from here on"
    return f"{replica} decided {data.count} events from what was folded up to LOG:{data.folded}"


def _refused(data: CommitRefused, _: Event) -> str:
    return f"{data.service} (replica {data.replica}) was refused, another replica committed first: {data.reason}"


def _started(data: ServiceStarted, _: Event) -> str:
    return f"{data.service} started (replica {data.replica})"


def _log_declared(data: LogDeclared, _: Event) -> str:
    return f"LOG is the one that was created at {data.created}"


def _dead_letter(data: DeadLetter, _: Event) -> str:
    return f"message {data.stream}:{data.sequence} on {data.subject} became a dead letter: {data.reason}"


def _audited(data: Audited, _: Event) -> str:
    refused = sum(record.code >= 400 for record in data.records)
    users = sorted({record.user or "nobody" for record in data.records})
    named = ", ".join(users[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
    dropped = f"; {data.dropped} more are not recorded" if data.dropped else ""
    return f"{data.gateway} answered {len(data.records)} requests of {named}, {refused} of them with a refusal{dropped}"


def _yarn(data: YarnNode, _: Event) -> str:
    given = f"{cores(data.given.cpu_milli)}, {mebibytes(data.given.memory_bytes)}"
    reason = f" ({data.reason})" if data.reason else ""
    return f"YARN was given {given} on {data.node or data.node_id} and uses {cores(data.used.cpu_milli)}{reason}"


# Each function takes the payload type that it is listed with.
_SENTENCES: dict[type, Callable[[Any, Event], str]] = {
    ObjectStored: _stored,
    ObjectDeleted: _deleted,
    Placement: _placement,
    Waiting: _waiting,
    PodGroupStatus: _pod_group,
    ConfigurationRejected: _configuration,
    ReservationShare: _share,
    ReservationStatus: _reservation,
    RunStatus: _run,
    ExecutorStatus: _executor,
    MachineTopology: _topology,
    NodeCondition: _condition,
    NodeResources: _resources,
    NodeMetricComputed: _metric,
    PredictionState: _prediction,
    UsageSample: _usage,
    NodeSLORendered: _slo,
    ProfiledQuota: _profiled,
    QuotaRuntime: _quota,
    **DESCHEDULING,
    Execution: _execution,
    Commit: _commit,
    CommitRefused: _refused,
    ServiceStarted: _started,
    LogDeclared: _log_declared,
    DeadLetter: _dead_letter,
    Audited: _audited,
    YarnNode: _yarn,
}


def sentence(event: Event) -> str:
    """Return the sentence of an event."""
    say = _SENTENCES.get(type(event.data))
    return say(event.data, event) if say is not None else f"{event.data.TYPE} on {event.subject}"


def figures(event: Event) -> dict[str, str]:
    """Return the figures that the event carries, at most MAX_FIGURES, in the order in which it names them."""
    data = event.data
    found: dict[str, str] = {}
    if isinstance(data, (Placement, Migration, NodeLoadJudged)):
        found = {figure.name: str(figure.value) for figure in data.figures}
    elif isinstance(data, NodeResources):
        for term in data.terms:
            source = f" from {term.source}" if term.source else ""
            found[term.name] = f"cpu {term.cpu_milli}m, memory {mebibytes(term.memory_bytes)}{source}"
        if data.cpu_normalization:
            found["cpu-normalization-ratio"] = data.cpu_normalization
        for resource, ratio in data.amplification.items():
            found[f"amplification of {resource}"] = f"{ratio:.2f}"
        for resource, amount in data.devices.items():
            found[resource] = format_amount(resource, amount)
    elif isinstance(data, NodeMetricComputed):
        found = window_figures(data)
        if data.prediction is not None:
            found |= prediction_figures(data.prediction)
        for pod in data.pods:
            found[f"pod {pod.namespace}/{pod.name}"] = f"{cores(pod.usage.cpu_milli)}, {mebibytes(pod.usage.memory_bytes)}"
    elif isinstance(data, UsageSample):
        found = {"node": _series(data.node_usage), "system": _series(data.system_usage)}
        for usage in data.pods:
            found[f"pod {usage.namespace}/{usage.name}"] = _series(usage.series)
    elif isinstance(data, QuotaRuntime):
        for name in ("min", "max", "runtime", "request", "used"):
            listed: dict[str, int] = getattr(data, name)
            found[name] = amounts(listed)
    elif isinstance(data, Waiting):
        for reason in data.reasons:
            nodes = f"{reason.count} nodes" if reason.count else ""
            found[" ".join(filter(None, (reason.code, reason.resource)))] = ", ".join(filter(None, (nodes, reason.detail)))
    elif isinstance(data, Execution):
        found = {name: str(value) for name, value in data.figures.items()}
    elif isinstance(data, Commit):
        found = {"events": str(data.count), "replica": data.replica}
    elif isinstance(data, ExecutorStatus):
        found = {"allocatable": amounts(data.allocatable)}
    return dict(list(found.items())[:MAX_FIGURES])
