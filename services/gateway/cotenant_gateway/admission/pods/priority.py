"""`spec.priorityClassName` becomes `spec.priority` and `spec.preemptionPolicy`, as Kubernetes' Priority admission does.

Without a class the global default class (if there is one) applies. A pod that gives a priority of its own and no
class keeps it: the priority tier follows from the value, and manifests for tests and simulations set it directly.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.policies import PriorityClassObject
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import member_object, members, raw
from cotenant.kinds.priority_classes import PRIORITY_CLASSES, decode_priority_class
from cotenant_gateway.admission.review import Mutation, ObjectSource, Review


def find_priority_class(objects: ObjectSource, name: str) -> PriorityClassObject | None:
    """Return a PriorityClass by name."""
    return _view(objects.get(PRIORITY_CLASSES, "", name))


def _view(found: Snapshot | None) -> PriorityClassObject | None:
    """A snapshot is decoded once."""
    if found is None or found.stored is None:
        return None
    view = found.view(decode_priority_class)
    assert isinstance(view, PriorityClassObject)
    return view


def _global_default(objects: ObjectSource) -> PriorityClassObject | None:
    for snapshot in objects.objects(PRIORITY_CLASSES):
        found = _view(snapshot)
        if found is not None and found.global_default:
            return found
    return None


def resolve_priority(review: Review) -> Mutation | None:
    """Set the fields that follow from the pod's priority class."""
    pod = review.view
    if not isinstance(pod, Pod):
        return None
    spec = pod.spec
    if spec.priority_class_name:
        found = find_priority_class(review.objects, spec.priority_class_name)
    elif spec.priority is None and review.old is None:
        found = review.objects.derived(PRIORITY_CLASSES, _global_default)
    else:
        return None
    if found is None:
        return None
    wanted: dict[str, object] = {}
    if spec.priority is None:
        wanted["priority"] = found.value
    if spec.preemption_policy is None:
        wanted["preemptionPolicy"] = found.preemption_policy
    if not spec.priority_class_name:
        wanted["priorityClassName"] = found.metadata.name
    if not wanted:
        return None
    top = members(review.document)
    edited = member_object(top, "spec")
    edited.update((name, raw(value)) for name, value in wanted.items())
    top["spec"] = raw(edited)
    return Mutation(raw(top), (f"priority {found.value} from PriorityClass {found.metadata.name}",))
