"""The NodeSLO of a node, rendered from the configuration.

In: the configuration, the node's name, labels and annotations, and its last NodeSLO event. Out: the NodeSLORendered payload:
the whole spec as JSON, and the fields that the executor uses in typed form. Source: Koordinator NodeSLO controller.

A rejected section keeps its value from the node's last event (the built-in default without one), with a `reason`. The node
annotation `node.koordinator.sh/network-bandwidth` overrides the system section's bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.domain.reservation import NodeReservation
from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant.model.names import ANNOTATION_NODE_RESERVATION, ANNOTATION_SYSTEM_QOS_RESOURCE, LABEL_NUMA_RESERVATION
from cotenant.model.quantities import QuantityError, parse_value
from cotenant_batch_resource_calculator.config.collecting import (
    NOTHING_KNOWN,
    CollectPolicy,
    collect_policy,
    policies_of,
)
from cotenant_batch_resource_calculator.config.in_force import Configuration
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, JsonObject, JsonValue, StructT, fit
from cotenant_batch_resource_calculator.config.qos import ClassQOS, ResourceQOSStrategy
from cotenant_batch_resource_calculator.config.sections import (
    HOST_APPLICATIONS_KEY,
    QOS,
    STRATEGIES,
    SYSTEM,
    THRESHOLD,
    SectionKind,
    ThresholdStrategy,
    matching,
    select_host_applications,
    select_strategy,
)

ANNOTATION_NETWORK_BANDWIDTH = "node.koordinator.sh/network-bandwidth"
_HOST_FIELD = "hostApplications"
KEYS_OF_SPEC = (*(kind.key for kind in STRATEGIES), HOST_APPLICATIONS_KEY)
SHARED = 1024


def render_spec(
    configuration: Configuration, labels: Mapping[str, str], annotations: Mapping[str, str], last: Mapping[str, JsonValue]
) -> JsonObject:
    """Return the NodeSLO spec; `last`: the spec of the node's last event, for rejected sections."""
    spec: JsonObject = {}
    for kind in STRATEGIES:
        section = configuration.strategies[kind.key]
        spec[kind.field] = select_strategy(section, labels) if section is not None else _kept(kind, last.get(kind.field))
    system = spec[SYSTEM.field]
    bandwidth = annotations.get(ANNOTATION_NETWORK_BANDWIDTH)
    if bandwidth is not None and _is_quantity(bandwidth) and isinstance(system, dict):
        spec[SYSTEM.field] = {**system, "totalNetworkBandwidth": bandwidth}
    hosts = configuration.host_applications
    if hosts is not None:
        spec[_HOST_FIELD] = msgspec.json.decode(msgspec.json.encode(select_host_applications(hosts, labels)))
    else:
        applications = last.get(_HOST_FIELD)
        spec[_HOST_FIELD] = applications if isinstance(applications, list) else []
    return spec


def _kept(kind: SectionKind, last: JsonValue) -> JsonObject:
    """Return a section of the last event; the default where it cannot be read, as that of another version of this service."""
    if not isinstance(last, dict):
        return kind.defaults
    try:
        fit(last, kind.shape, kind.field)
    except ConfigError:
        return kind.defaults
    return last


def _is_quantity(text: str) -> bool:
    try:
        parse_value(text)
    except QuantityError:
        return False
    return True


class Renderer:
    """Renders NodeSLOs from one configuration. Nodes of the same entries share the rendered part.

    Bound: one shared part for each set of entries that nodes match, at most SHARED of them.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._shared: dict[tuple[int, ...], NodeSLORendered] = {}
        strategies = [configuration.strategies[kind.key] for kind in STRATEGIES]
        sections = (*strategies, configuration.host_applications)
        self._entries = [section.entries for section in sections if section is not None and section.entries]
        """Of the sections whose nodes differ."""
        self._policies = policies_of(configuration.colocation) if configuration.colocation is not None else NOTHING_KNOWN

    def render(
        self,
        node: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        reservation: NodeReservation,
        last: NodeSLORendered | None,
    ) -> NodeSLORendered:
        """Return the node's SLO in published form."""
        configuration = self._configuration
        own = ANNOTATION_NETWORK_BANDWIDTH in annotations or bool(configuration.rejected)
        matched = () if own else tuple([matching(entries, labels) for entries in self._entries])
        common = self._shared.get(matched) if not own else None
        if common is None:
            common = _rendered(configuration, labels, annotations, last)
            if not own and len(self._shared) < SHARED:
                self._shared[matched] = common
        reasons = (configuration.rejection(*KEYS_OF_SPEC), reservation.error)
        return msgspec.structs.replace(
            common,
            node=node,
            reason="; ".join(reason for reason in reasons if reason),
            reserved_cpu_milli=reservation.resources.get("cpu", 0),
            reserved_cpus=cpu_list(reservation.reserved_cpus),
            reservation_annotation=annotations.get(ANNOTATION_NODE_RESERVATION, ""),
            system_qos_annotation=annotations.get(ANNOTATION_SYSTEM_QOS_RESOURCE, ""),
            numa_reservation=labels.get(LABEL_NUMA_RESERVATION) == "true",
            memory_collect_policy=self._memory_collect_policy(labels, annotations, last),
        )

    def _memory_collect_policy(
        self, labels: Mapping[str, str], annotations: Mapping[str, str], last: NodeSLORendered | None
    ) -> str:
        config = self._configuration.colocation if self._configuration.exists else None
        before = CollectPolicy(node_memory_collect_policy=last.memory_collect_policy) if last is not None else None
        return collect_policy(config, labels, annotations, before, self._policies).node_memory_collect_policy or ""


def _rendered(
    configuration: Configuration, labels: Mapping[str, str], annotations: Mapping[str, str], last: NodeSLORendered | None
) -> NodeSLORendered:
    """Return the part of a NodeSLO that follows from the sections."""
    kept: JsonValue = msgspec.json.decode(last.spec) if last is not None else {}
    spec = render_spec(configuration, labels, annotations, kept if isinstance(kept, dict) else {})
    threshold = _part(spec, THRESHOLD.field, ThresholdStrategy)
    qos = _part(spec, QOS.field, ResourceQOSStrategy)
    policy = qos.policies.cpu_policy if qos.policies is not None else None
    return NodeSLORendered(
        node="",
        enable=threshold.enable is True,
        cpu_suppress_threshold_percent=_or(threshold.cpu_suppress_threshold_percent, 65),
        cpu_suppress_min_percent=_or(threshold.cpu_suppress_min_percent, 0),
        cpu_suppress_policy=threshold.cpu_suppress_policy or "cpuset",
        cpu_policy=policy or "groupIdentity",
        lsr_identity=_identity(qos.lsr_class, 2),
        ls_identity=_identity(qos.ls_class, 2),
        be_identity=_identity(qos.be_class, -1),
        spec=msgspec.Raw(msgspec.json.encode(spec, order="deterministic")),
        config=configuration.source,
    )


def _part(spec: JsonObject, field: str, cls: type[StructT]) -> StructT:
    part = spec[field]
    if not isinstance(part, dict):
        raise ConfigError(f"NodeSLO {field}: expected an object")
    return fit(part, cls, field)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _identity(given: ClassQOS | None, default: int) -> CpuIdentity:
    qos = given.cpu_qos if given is not None else None
    if qos is None:
        return CpuIdentity(group_identity=default)
    return CpuIdentity(enable=qos.enable is True, group_identity=_or(qos.group_identity, default))


def cpu_list(cpus: frozenset[int]) -> str:
    """Return the CPUs as a kernel list: {0, 1, 2, 6} -> `0-2,6`."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
