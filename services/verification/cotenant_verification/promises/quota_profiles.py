"""Promise 3 for quota profiles: when idle, a tree distributes what the nodes of its profile offer.

Read from profiles, nodes and quotas on the log. Compared are cpu and memory of the machines: what else nodes offer follows
their measured load, which moves on. A quota's object is as its profile says unless the quotas below have more min than that:
then admission refuses the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta
from cotenant.domain.quota.names import ANNOTATION_TOTAL, LABEL_PARENT
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.quotas import ProfiledQuota
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import executor_subject, object_subject, profiled_quota_subject, tokens
from cotenant_verification.bench.audit.rooms import selects
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView

COMPARED = (CPU, MEMORY)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    quota_name: str = ""
    resource_ratio: str = "1"
    node_selector: LabelSelector | None = None
    min: dict[str, str] = {}


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


_OBJECT = msgspec.json.Decoder(_Object)
_AMOUNTS = msgspec.json.Decoder(dict[str, str])


def trees_follow_their_nodes(moment: Moment) -> Wrong:
    """In the idle phase."""
    view = moment.view
    for subject, profile in _objects(view, "quota.koordinator.sh", "elasticquotaprofiles"):
        meta, spec = profile.metadata, profile.spec
        tree = meta.labels["quota.scheduling.koordinator.sh/tree-id"]
        event = view.last.get(profiled_quota_subject(tree, spec.quota_name))
        if event is None or not isinstance(event.data, ProfiledQuota):
            yield subject, f"profile {meta.name} has no quota"
            continue
        moment.counts["trees of profiles"] += 1
        offered = _offered(view, spec.node_selector)
        stated = event.data
        for resource in COMPARED:
            fair = int(float(offered[resource]) * float(spec.resource_ratio))
            if stated.total.get(resource, 0) != fair:
                text = f"the nodes of profile {meta.name} offer {fair} {resource}, its tree has {stated.total.get(resource, 0)}"
                yield subject, text
        yield from _is_kept(view, subject, stated)


def _is_kept(view: LogView, subject: str, stated: ProfiledQuota) -> Wrong:
    quota = view.last.get(object_subject("scheduling.sigs.k8s.io", "elasticquotas", stated.namespace, stated.quota))
    if quota is None or not isinstance(quota.data, ObjectStored):
        yield subject, f"quota {stated.quota} of profile {stated.profile} does not exist"
        return
    written = _OBJECT.decode(quota.data.object)
    total = _AMOUNTS.decode(written.metadata.annotations.get(ANNOTATION_TOTAL, "{}"))
    below = [
        other.spec
        for _, other in _objects(view, "scheduling.sigs.k8s.io", "elasticquotas")
        if other.metadata.labels.get(LABEL_PARENT) == stated.quota
    ]
    kept = {name: sum(resource_amount(name, each.min.get(name, "0")) for each in below) for name in COMPARED}
    if any(kept[name] > stated.min.get(name, 0) for name in COMPARED):
        return
    for name in COMPARED:
        has, wanted = resource_amount(name, total.get(name, "0")), stated.total.get(name, 0)
        if has != wanted:
            yield subject, f"quota {stated.quota} has a total of {has} {name}, its profile says {wanted}"


def _objects(view: LogView, group: str, plural: str) -> Iterator[tuple[str, _Object]]:
    """The objects of a kind that are not being deleted."""
    prefix = object_subject(group, plural, "default", "x").rpartition(".")[0] + "."
    for subject, event in sorted(view.last.items()):
        if subject.startswith(prefix) and isinstance(event.data, ObjectStored):
            found = _OBJECT.decode(event.data.object)
            if found.metadata.deletion_timestamp is None:
                yield subject, found


def _offered(view: LogView, selector: LabelSelector | None) -> Counter[str]:
    """What the nodes offer that a selector selects: by their labels, those of the object above those of the executor."""
    offered: Counter[str] = Counter()
    last = view.log[-1].sequence
    for subject in view.declared["nodes"]:
        event = view.last.get(subject)
        if event is None or not isinstance(event.data, ObjectStored):
            continue
        node = _OBJECT.decode(event.data.object).metadata
        if node.deletion_timestamp is not None:
            continue
        name = tokens(subject)[-1]
        executor = view.last.get(executor_subject(name))
        reported = executor.data.labels if executor is not None and isinstance(executor.data, ExecutorStatus) else {}
        if selects(selector, {**reported, **node.labels}):
            offered.update({each: amount for each, amount in view.offer(name, last).items() if each in COMPARED})
    return offered
