"""Applies profiles to waiting pods that are older than the profile or its last change.

In: a pod without a placement, and the profiles with the label `config.koordinator.sh/controller-managed: "true"`. Out: the
plan that stores the pod as these profiles make it now, with its resources, or why it cannot be stored. No service has
counted such a pod yet, so it is checked as a new one. A pod is checked if a matching profile is newer than the pod, or
is not among those that it records; changes by a profile that is deleted or no longer matches stay. Source:
Koordinator's ColocationProfile controller, which may change labels and annotations alone.
"""

from __future__ import annotations

import msgspec

from cotenant.api.edits import same_json
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.process_runtime import root_fields
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.log.plans import Plan, object_write
from cotenant.model.names import ANNOTATION_COLOCATION_PROFILES, RUNTIME_PROCESS
from cotenant_gateway.access.pods import refuse_priority, refuse_root
from cotenant_gateway.access.users import User
from cotenant_gateway.admission.chain import WAITING, admit
from cotenant_gateway.admission.profiles.selection import ready_profiles
from cotenant_gateway.admission.review import Review
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.updates import with_generation
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError

NOBODY = User("")


def waits(pod: Snapshot) -> bool:
    """Return whether the pod has never been placed and is not ending."""
    stored = pod.stored
    if stored is None or stored.meta.deletion_timestamp is not None or pod.pod.spec.node_name:
        return False
    return not any(isinstance(event.data, (Placement, RunStatus)) for event in pod.parts.values())


def lacks_profile(core: GatewayCore, pod: Snapshot) -> bool:
    """Return whether a managed profile that matches the pod may not have been applied as it is now."""
    stored = pod.stored
    assert stored is not None
    namespace = core.get(NAMESPACES, "", pod.address.namespace)
    labels = {} if namespace is None else namespace.labels
    matching = core.derived(PROFILES, ready_profiles).matching(stored.meta.labels, lambda: labels)
    recorded = stored.meta.annotations.get(ANNOTATION_COLOCATION_PROFILES, "").split(",")
    return any(
        profile.managed and profile.percent and (profile.sequence > stored.sequence or profile.name not in recorded)
        for profile in matching
    )


def plan_profiles(core: GatewayCore, pod: Snapshot) -> Plan | str | None:
    """Return the plan that stores the pod with its profiles; a text if that is refused; None if nothing changes."""
    stored = pod.stored
    assert stored is not None
    definition = core.kinds.of(pod.address.kind)
    review = Review(definition, stored.raw, pod.pod, None, core)
    try:
        errors = admit(review, WAITING)
    except ApiError as refusal:
        return str(refusal)
    except msgspec.ValidationError as error:
        return str(error)
    if same_json(review.document, stored.raw):
        return None
    if errors:
        return "; ".join(map(str, errors[:5]))
    try:
        _check_rights(core, pod, review.document)
    except ApiError as refusal:
        return str(refusal)
    document = with_generation(review.document, stored.raw, stored.meta.generation)
    payload = ObjectStored(object=document, admission=review.notes)
    causes = (f"LOG:{stored.sequence}", *review.causes)
    return Plan((object_write(pod.address, payload, stored.sequence, causes=causes),))


def _check_rights(core: GatewayCore, pod: Snapshot, document: msgspec.Raw) -> None:
    """This change has no requesting user, so restricted fields are refused. Raises ApiError if it makes a process run as
    root, or gives the pod a priority that is not its class's."""
    was_root = pod.pod.spec.runtime_class_name == RUNTIME_PROCESS and bool(root_fields(pod.pod))
    if not was_root:
        refuse_root(Planned(pod.address, document, None))
    refuse_priority(core, NOBODY, Planned(pod.address, document, None, pod))
