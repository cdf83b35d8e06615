"""Typed views of pods with their Kubernetes QoS class, as the read model and admission need them.

In: a pod's document, or its spec. Out: the typed view, which replicas of one workload share (see `cotenant.objects.pod`), and
the QoS class of the spec.
"""

from __future__ import annotations

import msgspec

from cotenant.by_identity import ByIdentity
from cotenant.objects.pod import REMEMBERED_SPEC_BYTES, REMEMBERED_SPECS, Pod, PodSpec, decode_pod, decode_spec
from cotenant.qos import KubeQoS, kube_qos
from cotenant.quantities import QuantityError

__all__ = ["REMEMBERED_SPECS", "REMEMBERED_SPEC_BYTES", "pod_view", "spec_view"]


def pod_view(document: msgspec.Raw) -> tuple[Pod, str]:
    """Return the typed view and the QoS class of the spec. Raises msgspec.ValidationError with the field's path."""
    pod = decode_pod(document)
    return pod, _qos_class(pod.spec)


def spec_view(spec: bytes) -> tuple[PodSpec, str]:
    """Return the typed view of a spec and its QoS class. Raises msgspec.ValidationError."""
    view = decode_spec(spec)
    return view, _qos_class(view)


@ByIdentity
def _qos_class(spec: PodSpec) -> str:
    """BestEffort where quantities cannot be read."""
    try:
        return kube_qos(Pod(spec=spec)).value
    except QuantityError:
        return KubeQoS.BEST_EFFORT.value
