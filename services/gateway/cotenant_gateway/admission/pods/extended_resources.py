"""The annotation `node.koordinator.sh/extended-resource-spec` of a new pod: its containers' batch resources.

In: any pod. Out: the annotation as Koordinator's pod webhook writes it, `{"containers":{"a":{"limits":{..},"requests":{..}}}}`
with batch-cpu and batch-memory alone: what a runtime without support for extended resources applies. Containers without
them are left out, init containers and mid resources too. An annotation with the same meaning stays as it is written. On a
live pod it follows the containers too: it can neither be changed to differ from them, nor be lost by `kubectl replace`. Pods of
namespaces with the label `control-plane` are skipped.
"""

from __future__ import annotations

import msgspec

from cotenant.api.edits import with_annotation
from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.validation.fields import invalid
from cotenant.model.names import ANNOTATION_EXTENDED_RESOURCE_SPEC, BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import QuantityError, Scalar, parse_nanos
from cotenant_gateway.admission.namespaces import is_of_control_plane
from cotenant_gateway.admission.review import Mutation, Review
from cotenant_gateway.statuses import invalid_object

Amounts = dict[str, Scalar]
_FIELD = f"metadata.annotations[{ANNOTATION_EXTENDED_RESOURCE_SPEC}]"


class _Container(msgspec.Struct, frozen=True, omit_defaults=True):
    limits: Amounts = {}
    requests: Amounts = {}


class _Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    containers: dict[str, _Container] = {}


_DECODER = msgspec.json.Decoder(_Spec)


def write_extended_resource_spec(review: Review) -> Mutation | None:
    """Set the annotation of a pod with batch resources. Raises ApiError if it exists and cannot be read."""
    pod = review.view
    if not isinstance(pod, Pod):
        return None
    if review.objects.settings.disable_extended_resource_spec or is_of_control_plane(review.objects, pod.metadata.namespace):
        return None
    text = pod.metadata.annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    wanted = _batch_resources(pod.spec)
    if text is None and not wanted:
        return None
    if text is not None:
        try:
            given = _amounts(_DECODER.decode(text).containers) if text else {}
        except (msgspec.MsgspecError, QuantityError) as error:
            detail = f"cannot be read ({error}): leave it out, it is written from the containers' batch resources"
            raise invalid_object(review.kind, pod.metadata.name, [invalid(_FIELD, text, detail)]) from error
        try:
            if given == _amounts(wanted):
                return None
        except QuantityError:
            # The validators report the invalid quantity, with its container.
            return None
    written = msgspec.json.encode(_Spec(wanted)).decode()
    document = with_annotation(review.document, ANNOTATION_EXTENDED_RESOURCE_SPEC, written)
    return Mutation(document, (f"annotation {ANNOTATION_EXTENDED_RESOURCE_SPEC} from the containers' batch resources",))


def renew_extended_resource_spec(review: Review) -> Mutation | None:
    """On a live pod: if the annotation changes, or a replacing manifest lacks it, it is written again."""
    old = review.old
    if old is None or old.stored is None:
        return None
    before, now = (meta.annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC) for meta in (old.stored.meta, review.view.metadata))
    return write_extended_resource_spec(review) if before != now else None


def _batch_resources(spec: PodSpec) -> dict[str, _Container]:
    found: dict[str, _Container] = {}
    for container in spec.containers:
        limits, requests = container.resources.limits, container.resources.requests
        if BATCH_CPU in requests or BATCH_MEMORY in requests or BATCH_CPU in limits or BATCH_MEMORY in limits:
            found[container.name] = _Container(_batch(limits), _batch(requests))
    return found


def _batch(amounts: Amounts) -> Amounts:
    return {name: amounts[name] for name in (BATCH_CPU, BATCH_MEMORY) if name in amounts}


def _amounts(containers: dict[str, _Container]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Quantities as values: another spelling of the same amount is the same."""
    return {
        name: (
            {resource: parse_nanos(amount) for resource, amount in container.limits.items()},
            {resource: parse_nanos(amount) for resource, amount in container.requests.items()},
        )
        for name, container in containers.items()
    }
