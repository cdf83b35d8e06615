"""node.k8s.io/v1 RuntimeClass: its rules and columns. Source: Kubernetes' validation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.pod import Resources
from cotenant.api.objects.policies import RuntimeClass
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, dns_label, invalid, labels, required
from cotenant.api.validation.pod_scheduling import toleration_errors
from cotenant.api.validation.resources import resource_errors

RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
decode_runtime_class = msgspec.json.Decoder(RuntimeClass).decode


def runtime_class_errors(runtime: RuntimeClass, old: RuntimeClass | None = None) -> list[FieldError]:
    """The handler is a DNS label and never changes."""
    found = [required("handler")] if not runtime.handler else dns_label("handler", runtime.handler)
    if old is not None and old.handler != runtime.handler:
        found.append(invalid("handler", runtime.handler, "field is immutable"))
    if runtime.scheduling is not None:
        found += labels("scheduling.nodeSelector", runtime.scheduling.node_selector)
        for index, toleration in enumerate(runtime.scheduling.tolerations):
            found += toleration_errors(f"scheduling.tolerations[{index}]", toleration)
    if runtime.overhead is not None:
        found += resource_errors("overhead.podFixed", Resources(requests=runtime.overhead.pod_fixed))
    return found


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return snapshot.address.name, shown.handler, age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(
    RUNTIME_CLASSES,
    decode=decode_runtime_class,
    decode_when_folded=True,
    errors=lambda new, old: runtime_class_errors(new, old()),
    layout=Layout((NAME, Column("Handler"), AGE), _cells),
)
