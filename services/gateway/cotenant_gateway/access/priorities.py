"""Who sets a pod's priority: its PriorityClass. A number of its own is for users who may `use` priority classes altogether.

As Kubernetes' Priority admission, but for the exception: there nobody may give a number. Benchmarks and simulations do, and
tiers follow from it, so it is a right: the verb `use` on `priorityclasses` of `scheduling.k8s.io`.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.kinds.priority_classes import PRIORITY_CLASSES, decode_priority_class
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.escalation import Written
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


def refuse_priority(core: GatewayCore, user: User, written: Written) -> None:
    """Raise ApiError 403 where a pod's priority does not follow from its class and its writer may not set it."""
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
    return decode_priority_class(found.document).value if found is not None else None
