"""`cotenant get queue`: the jobs that wait for nodes, in the order in which the scheduler tries them.

In: pods without a node and PodGroups as the API shows them. Out: a table. A job is a gang group, or a pod that is in no gang;
its tenant is the quota of its first pod. Jobs stand in the order of their first pods, which is that of the scheduler's
configuration (`queue.order`): by priority, creation time, namespace and name; without the priority (fifo); or fair between
tenants: the next job is that of the tenant with the smallest dominant share, used / runtime of its quota's max, where the
jobs before it count as placed. Jobs behind one that does not fit are tried too: a position does not block later ones. The
start of a job is found by simulating the scheduler ahead (`cotenant_verification.simulate.queue_starts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from types import MappingProxyType

import msgspec

from cotenant.api.ages import age, human_duration
from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_group import PodGroup
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.gangs import GangError, GangSpec, gang_id, gang_name, of_pod, of_pod_group
from cotenant.domain.quota.names import DEFAULT, LABEL_QUOTA
from cotenant.model.amounts import Amounts, add_to
from cotenant.model.quantities import QuantityError
from cotenant_console.api.client import Document, list_at, mapping_at, text_at, value_at
from cotenant_console.commands.quota_tree import Drawn, drawn
from cotenant_console.tables import Table

NAME = "queue"
HEADINGS = ("POSITION", "JOB", "PODS", "QUOTA", "PRIORITY", "AGE", "STARTS", "WAITS FOR")
NOTHING = "No job waits for nodes."
UNKNOWN = "unknown"
NO_STARTS: Mapping[tuple[str, str], datetime] = MappingProxyType({})

PRIORITY, FIFO, FAIR = ORDERS = ("priority", "fifo", "fair")

Order = tuple[int, str, str, str]


@dataclass
class Job:
    """Pods that are placed together. `spec`: their gang's requirements, None for a pod in no gang."""

    name: str
    spec: GangSpec | None
    pods: list[tuple[Order, Document]] = field(default_factory=list)

    @property
    def tenant(self) -> str:
        """The quota that its first pod names; empty if it names none."""
        return _texts(self.first[1], "labels").get(LABEL_QUOTA, "")

    @property
    def first(self) -> tuple[Order, Document]:
        """The pod that determines the job's position in the queue."""
        return min(self.pods, key=lambda pod: pod[0])


def waits(pod: Document) -> bool:
    """Whether a pod waits for the scheduler: it has no node, and is neither finished nor ending, nor gated."""
    return (
        not text_at(pod, "spec", "nodeName")
        and not list_at(pod, "spec", "schedulingGates")
        and value_at(pod, "metadata", "deletionTimestamp") is None
        and text_at(pod, "status", "phase", default="Pending") == "Pending"
    )


def jobs(
    pods: Iterable[Document], pod_groups: Iterable[Document], order: str = PRIORITY, quotas: Iterable[Document] = ()
) -> list[Job]:
    """Return the jobs that wait, in queue order; `quotas` are for the fair one. PodGroups that cannot be read are
    ignored."""
    stated = {identity: spec for identity, spec in map(_of_pod_group, pod_groups) if spec is not None}
    found: dict[str, Job] = {}
    for pod in filter(waits, pods):
        namespace, name = text_at(pod, "metadata", "namespace"), text_at(pod, "metadata", "name")
        labels, annotations = _texts(pod, "labels"), _texts(pod, "annotations")
        gang = gang_name(labels, annotations)
        identity = gang_id(namespace, gang) if gang else ""
        spec = (stated.get(identity) or _of_pod(identity, labels, annotations)) if gang else None
        key = (spec.group_id if spec is not None else identity) or f"pod {namespace}/{name}"
        job = found.setdefault(key, Job(key.removeprefix("pod "), spec))
        priority = int(text_at(pod, "spec", "priority", default="0")) if order != FIFO else 0
        job.pods.append(((-priority, text_at(pod, "metadata", "creationTimestamp"), namespace, name), pod))
    ordered = sorted(found.values(), key=lambda job: job.first[0])
    return _by_share(ordered, quotas) if order == FAIR else ordered


def _by_share(ordered: Iterable[Job], quotas: Iterable[Document]) -> list[Job]:
    """Order by tenants' shares, as the scheduler does if every job fits."""
    known = {quota.name: quota for quota in map(drawn, quotas)}
    used = {name: dict(quota.used) for name, quota in known.items()}
    waiting: dict[str, list[Job]] = {}
    for job in ordered:
        tenant = job.tenant if job.tenant in known else DEFAULT
        waiting.setdefault(tenant, []).append(job)
    heads = [(_share(known.get(tenant), used.get(tenant, {})), of[0].first[0], tenant, 0) for tenant, of in waiting.items()]
    heapify(heads)
    found: list[Job] = []
    while heads:
        _, _, tenant, index = heappop(heads)
        job = waiting[tenant][index]
        found.append(job)
        for _, pod in job.pods:
            add_to(used.setdefault(tenant, {}), _requests(pod), 1)
        if index + 1 < len(waiting[tenant]):
            share = _share(known.get(tenant), used[tenant])
            heappush(heads, (share, waiting[tenant][index + 1].first[0], tenant, index + 1))
    return found


def _share(quota: Drawn | None, used: Amounts) -> int:
    """A tenant's dominant share in millionths; 0 where there is no quota."""
    share = 0
    for name in quota.maximum if quota is not None else ():
        runtime = quota.runtime.get(name, 0) if quota is not None else 0
        if used.get(name, 0) > 0:
            share = max(share, used[name] * 1_000_000 // runtime if runtime > 0 else 1 << 40)
    return share


def _requests(pod: Document) -> Amounts:
    """A pod's requests; empty if they cannot be read."""
    try:
        return pod_requests(msgspec.convert(pod, Pod, strict=False))
    except (msgspec.ValidationError, QuantityError):
        return {}


def queue_table(
    pods: Iterable[Document],
    pod_groups: Iterable[Document],
    now: datetime,
    order: str = PRIORITY,
    quotas: Iterable[Document] = (),
    starts: Mapping[tuple[str, str], datetime] = NO_STARTS,
) -> Table:
    """Return the table. `starts`: the moments at which pods are expected to be placed, where that is known."""
    table = Table(HEADINGS)
    for position, job in enumerate(jobs(pods, pod_groups, order, quotas), 1):
        _, pod = job.first
        least = f"/{job.spec.min_member}" if job.spec is not None else ""
        table.rows.append(
            (
                str(position),
                job.name,
                f"{len(job.pods)}{least}",
                job.tenant or "<none>",
                text_at(pod, "spec", "priority", default="0"),
                age(text_at(pod, "metadata", "creationTimestamp"), now),
                _start(job, starts, now),
                _reason(pod),
            )
        )
    return table


def _start(job: Job, starts: Mapping[tuple[str, str], datetime], now: datetime) -> str:
    """When a job is expected to start: with the first of its pods that does."""
    moments = [at for (_, _, namespace, name), _ in job.pods if (at := starts.get((namespace, name))) is not None]
    if not moments:
        return UNKNOWN
    wait = min(moments) - now
    if wait > timedelta(seconds=1):
        return f"in {human_duration(wait.total_seconds())}"
    # Refused though it fits: for a reason that the simulation does not know, such as measured load.
    return UNKNOWN if any(_is_refused(pod) for _, pod in job.pods) else "now"


def _is_refused(pod: Document) -> bool:
    return any(
        text_at(condition, "type") == "PodScheduled" and text_at(condition, "reason") == "Unschedulable"
        for condition in list_at(pod, "status", "conditions")
    )


def _reason(pod: Document) -> str:
    """Why a pod waits, in the scheduler's words."""
    nominated = text_at(pod, "status", "nominatedNodeName")
    for message in _messages(pod):
        return f"{message} (room is reserved on {nominated})" if nominated else message
    return "its turn"


def _messages(pod: Document) -> Iterator[str]:
    for condition in list_at(pod, "status", "conditions"):
        if text_at(condition, "type") == "PodScheduled" and text_at(condition, "message"):
            yield text_at(condition, "message")


def _texts(document: Document, *path: str) -> dict[str, str]:
    return {name: str(value) for name, value in mapping_at(document, "metadata", *path).items()}


def _of_pod(identity: str, labels: dict[str, str], annotations: dict[str, str]) -> GangSpec | None:
    try:
        return of_pod(identity, labels, annotations)
    except GangError:
        return None


def _of_pod_group(document: Document) -> tuple[str, GangSpec | None]:
    identity = gang_id(text_at(document, "metadata", "namespace"), text_at(document, "metadata", "name"))
    try:
        group = msgspec.convert(document, PodGroup, strict=False)
    except msgspec.ValidationError:
        return identity, None
    return identity, of_pod_group(
        identity, group.spec.min_member, group.spec.schedule_timeout_seconds, group.metadata.annotations
    )
