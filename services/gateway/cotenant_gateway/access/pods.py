"""Restricted fields of a pod: an explicit priority, and running as root.

A pod's priority is its PriorityClass's. An explicit number is for users who may `use` all priority classes: as
in Kubernetes' Priority admission, except for this verb. Benchmarks and simulations set numbers, and tiers follow from them, so
it needs a permission.

A process of user 0 is root of its node. It is refused unless the gateway was started to admit root pods.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.pod import decode_pod
from cotenant.api.objects.policies import PriorityClassObject
from cotenant.api.validation.process_runtime import root_fields
from cotenant.kinds.priority_classes import PRIORITY_CLASSES, decode_priority_class
from cotenant.model.names import RUNTIME_PROCESS
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.escalation import ObjectWrite
from cotenant_gateway.access.users import MASTERS, User
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError, StatusDetails


class _Spec(View, frozen=True, kw_only=True):
    priority: int | None = None
    priority_class_name: str = ""


class _Pod(View, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


_POD = msgspec.json.Decoder(_Pod)
_USE = RequestAttributes("use", PRIORITY_CLASSES.group, PRIORITY_CLASSES.plural)


def check_pod(core: GatewayCore, user: User, written: ObjectWrite, *, root_pods: bool) -> None:
    """Raise ApiError 403 for fields that the pod's writer, or any writer, may not set."""
    if written.was is None and not root_pods and _maybe_root(written.document):
        refuse_root(written)
    refuse_priority(core, user, written)


def refuse_root(written: ObjectWrite) -> None:
    """Raise ApiError 403 if a pod of the process runtime runs as root."""
    pod = decode_pod(written.document)
    fields = root_fields(pod) if pod.spec.runtime_class_name == RUNTIME_PROCESS else []
    if fields:
        name = written.address.name
        raise ApiError(
            403,
            "Forbidden",
            f'pods "{name}" is forbidden: {fields[0]}: processes run as root only where gateway and executor were started '
            "with --allow-root-pods",
            StatusDetails(name=name, kind="pods"),
        )


def _maybe_root(document: msgspec.Raw) -> bool:
    return b"runAsUser" in bytes(document)


def refuse_priority(core: GatewayCore, user: User, written: ObjectWrite) -> None:
    """Raise ApiError 403 if a pod's priority differs from its class's and its writer may not set it."""
    if MASTERS in user.groups:
        return
    spec = _POD.decode(written.document).spec
    if spec.priority is None or spec.priority == _class_value(core, spec.priority_class_name):
        return
    was = written.was.stored if written.was is not None else None
    if was is not None and _POD.decode(was.raw).spec == spec:
        return
    if authorize(core, user, _USE).allowed:
        return
    name = written.address.name
    raise ApiError(
        403,
        "Forbidden",
        f'pods "{name}" is forbidden: the integer value of priority ({spec.priority}) must not be provided in pod spec; name a '
        f"priorityClassName, or have the right to use priorityclasses",
        StatusDetails(name=name, kind="pods"),
    )


def _class_value(core: GatewayCore, name: str) -> int | None:
    found = core.get(PRIORITY_CLASSES, "", name) if name else None
    if found is None:
        return None
    view = found.view(decode_priority_class)
    assert isinstance(view, PriorityClassObject)
    return view.value
