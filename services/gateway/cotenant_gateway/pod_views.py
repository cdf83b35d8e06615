"""Typed views of pods: replicas of one workload share the view of their spec.

In: a pod's document. Out: its typed view and its Kubernetes QoS class. A spec is decoded once for all pods that have
the same bytes there; REMEMBERED_SPECS are remembered, none above REMEMBERED_SPEC_BYTES.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from cotenant.objects.metadata import ObjectMeta, View
from cotenant.objects.pod import Pod, PodSpec, PodStatus, decode_pod
from cotenant.qos import KubeQoS, kube_qos
from cotenant.quantities import QuantityError
from cotenant_gateway.splices import EMPTY_OBJECT

REMEMBERED_SPECS = 512
REMEMBERED_SPEC_BYTES = 16 * 1024


class _Parts(View, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY_OBJECT
    status: PodStatus = PodStatus()


_PARTS = msgspec.json.Decoder(_Parts)
_SPEC = msgspec.json.Decoder(PodSpec)


def pod_view(document: msgspec.Raw) -> tuple[Pod, str]:
    """Return the typed view and the QoS class of the spec. Raises msgspec.ValidationError with the field's path."""
    try:
        parts = _PARTS.decode(document)
        small = memoryview(parts.spec).nbytes <= REMEMBERED_SPEC_BYTES
        spec, qos = spec_view(bytes(parts.spec)) if small else _decoded(bytes(parts.spec))
    except msgspec.ValidationError:
        # Decoded as a whole the error names the path from the top.
        pod = decode_pod(document)
        return pod, _qos_class(pod.spec)
    pod = Pod(api_version=parts.api_version, kind=parts.kind, metadata=parts.metadata, spec=spec, status=parts.status)
    return pod, qos


@lru_cache(maxsize=REMEMBERED_SPECS)
def spec_view(spec: bytes) -> tuple[PodSpec, str]:
    """Return the typed view of a spec and its QoS class. Raises msgspec.ValidationError."""
    return _decoded(spec)


def _decoded(spec: bytes) -> tuple[PodSpec, str]:
    view = _SPEC.decode(spec)
    return view, _qos_class(view)


def _qos_class(spec: PodSpec) -> str:
    """BestEffort where quantities cannot be read."""
    try:
        return kube_qos(Pod(spec=spec)).value
    except QuantityError:
        return KubeQoS.BEST_EFFORT.value
