"""The node's bandwidth and each class's part of it, from the NodeSLO and pods' annotations.

In: `systemStrategy.totalNetworkBandwidth` (bits a second), `resourceQOSStrategy.policies.netQOSPolicy` (`tc`, the default, or
`terway-qos`), `networkQOS` of `lsClass` and `beClass` (`enable`, `ingressRequest`, `ingressLimit`, `egressRequest`,
`egressLimit`: a number is a percentage of the total, a text a quantity of bits a second), pods' annotation
`koordinator.sh/networkQOS` (`ingressLimit`, `egressLimit`, quantities). Out: bits a second. Raises ValueError that names the
field. Source: Koordinator network QoS.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant.model.quantities import QuantityError, parse_value
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import (
    QOS,
    SYSTEM,
    SectionError,
    SectionShape,
    class_part,
    fitted,
    lower_name,
    object_of,
    of_classes,
    raw_section,
    section,
)

ANNOTATION = "koordinator.sh/networkQOS"
PART = "networkQOS"
TC, TERWAY = "tc", "terway-qos"
MOST_BITS = 10**14


class Network(Struct, frozen=True):
    """One class; 0 is unset."""

    ingress_request: int = 0
    ingress_limit: int = 0
    egress_request: int = 0
    egress_limit: int = 0


class Bandwidth(Struct, frozen=True):
    """`total`: of the node, 0 where it is not stated; a class is None where it is not enabled."""

    policy: str = TC
    total: int = 0
    ls: Network | None = None
    be: Network | None = None


class _Stated(Struct, frozen=True, rename=lower_name):
    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class _System(Struct, frozen=True, rename=lower_name):
    total_network_bandwidth: int | str | None = None


class _Policies(Struct, frozen=True, rename=lower_name):
    net_qos_policy: str | None = None


SHAPES = (
    SectionShape((SYSTEM,), _System),
    SectionShape((QOS, "policies"), _Policies),
    *of_classes(PART, _Stated, classes=("lsClass", "beClass")),
)
"""The parts of the NodeSLO that are read here."""


class _PodLimits(Struct, frozen=True, rename="camel"):
    ingress_limit: str = "0"
    egress_limit: str = "0"


@by_identity
def bandwidth(slo: NodeSLORendered) -> Bandwidth:
    """The bandwidths of a NodeSLO. Raises ValueError."""
    total = _bits(section(slo, SYSTEM, _System).total_network_bandwidth or 0, 0, "totalNetworkBandwidth", percent=False)
    strategy = raw_section(slo, QOS)
    policy = str(object_of(strategy, "policies").get("netqospolicy") or TC)
    ls, be = (
        _network(fitted(class_part(strategy, each, PART, {}, {}), _Stated, f"{each}.{PART}"), total)
        for each in ("lsclass", "beclass")
    )
    return Bandwidth(policy, total, ls, be)


def _network(stated: _Stated, total: int) -> Network | None:
    if not stated.enable:
        return None
    values = {name: getattr(stated, name) or 0 for name in Network.__struct_fields__}
    return Network(**{name: _bits(value, total, name) for name, value in values.items()})


def _bits(value: int | str, total: int, name: str, *, percent: bool = True) -> int:
    """Bits a second."""
    try:
        found = value * total // 100 if percent and isinstance(value, int) else parse_value(value)
    except QuantityError as error:
        raise SectionError(f"{name}: {error}") from error
    if not 0 <= found <= MOST_BITS:
        raise SectionError(f"{name}: {found} bits a second are not between 0 and {MOST_BITS}")
    return found


def pod_limits(pod: PodView) -> tuple[int, int]:
    """The ingress and egress limit of a pod, 0 without one. Raises ValueError on an unreadable annotation."""
    text = pod.annotations.get(ANNOTATION)
    if not text:
        return 0, 0
    try:
        limits = msgspec.json.decode(text, type=_PodLimits)
        return _bits(limits.ingress_limit, 0, "ingressLimit"), _bits(limits.egress_limit, 0, "egressLimit")
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"pod {pod.namespace}/{pod.name}: annotation {ANNOTATION}: {error}") from error


def is_best_effort(pod: PodView) -> bool:
    """Whether a pod's traffic is best-effort: by its label, else by its Kubernetes QoS."""
    return pod.qos is QoSClass.BE or (pod.qos is QoSClass.NONE and pod.kube_qos is KubeQoS.BEST_EFFORT)
