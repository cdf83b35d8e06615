"""Typed view of core/v1 Pod: the fields that services read. The raw document holds everything else.

The specs of a workload's replicas have the same bytes: a spec is decoded once for all of them, and values derived from it
alone are computed once. REMEMBERED_SPECS are cached, none above REMEMBERED_SPEC_BYTES. A document with several readers in
a row is decoded once too: the last REMEMBERED_PODS, none above REMEMBERED_POD_BYTES.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement, ObjectMeta, View
from cotenant.model.bounds import Int32, Int64
from cotenant.model.by_identity import by_identity
from cotenant.model.quantities import Scalar


class Resources(View, frozen=True, kw_only=True):
    """Requests and limits: resource name to quantity as written."""

    requests: dict[str, Scalar] = {}
    limits: dict[str, Scalar] = {}


class EnvVar(View, frozen=True, kw_only=True):
    """An environment variable; `value_from` is kept raw."""

    name: str
    value: str = ""
    value_from: msgspec.Raw = msgspec.Raw(b"")


class ContainerPort(View, frozen=True, kw_only=True):
    """A port; `host_port` 0 means none."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class Capabilities(View, frozen=True, kw_only=True):
    """Capabilities added to or dropped from the runtime's default."""

    add: list[str] = []
    drop: list[str] = []


class SeccompProfile(View, frozen=True, kw_only=True):
    """Which system calls are allowed."""

    type: str = ""


class SecurityContext(View, frozen=True, kw_only=True):
    """The user that the processes run as, and their privileges."""

    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    read_only_root_filesystem: bool | None = None
    capabilities: Capabilities | None = None
    supplemental_groups: list[Int64] = []
    fs_group: Int64 | None = None
    seccomp_profile: SeccompProfile | None = None
    sysctls: msgspec.Raw = msgspec.Raw(b"")
    se_linux_options: msgspec.Raw = msgspec.Raw(b"")
    app_armor_profile: msgspec.Raw = msgspec.Raw(b"")
    windows_options: msgspec.Raw = msgspec.Raw(b"")


class ResizePolicy(View, frozen=True, kw_only=True):
    """Whether a container is restarted when this resource is changed in place."""

    resource_name: str = ""
    restart_policy: str = "NotRequired"


class Container(View, frozen=True, kw_only=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    resources: Resources = Resources()
    ports: list[ContainerPort] = []
    security_context: SecurityContext | None = None
    restart_policy: str | None = None
    env_from: list[msgspec.Raw] = []
    volume_mounts: list[msgspec.Raw] = []
    liveness_probe: msgspec.Raw = msgspec.Raw(b"")
    readiness_probe: msgspec.Raw = msgspec.Raw(b"")
    startup_probe: msgspec.Raw = msgspec.Raw(b"")
    lifecycle: msgspec.Raw = msgspec.Raw(b"")
    resize_policy: list[ResizePolicy] = []


class NodeSelectorTerm(View, frozen=True, kw_only=True):
    """All expressions and fields must hold."""

    match_expressions: list[LabelSelectorRequirement] = []
    match_fields: list[LabelSelectorRequirement] = []


class NodeSelector(View, frozen=True, kw_only=True):
    """One of the terms must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(View, frozen=True, kw_only=True):
    """A preference with weight 1..100."""

    weight: Int32 = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(View, frozen=True, kw_only=True):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(View, frozen=True, kw_only=True):
    """Pods selected by label in namespaces, per topology."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(View, frozen=True, kw_only=True):
    """A preferred pod affinity term with weight 1..100."""

    weight: Int32 = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(View, frozen=True, kw_only=True):
    """Required and preferred (anti-)affinity to pods."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True, kw_only=True):
    """Affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True, kw_only=True):
    """A toleration; empty key with Exists tolerates everything; empty effect means every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(View, frozen=True, kw_only=True):
    """Spread of pods over topology domains."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    match_label_keys: list[str] = []
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class PodSpec(View, frozen=True, kw_only=True):
    """What the pod requests."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Scalar] = {}
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    host_network: bool = False
    security_context: SecurityContext | None = None
    volumes: list[msgspec.Raw] = []


class PodStatus(View, frozen=True, kw_only=True):
    """Only what users may set at creation and readers need."""

    phase: str = ""
    qos_class: str = ""


class Pod(View, frozen=True, kw_only=True):
    """A pod object."""

    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class _Parts(View, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = PodStatus()


REMEMBERED_PODS = 128
REMEMBERED_POD_BYTES = 32 * 1024
REMEMBERED_SPECS = 512
REMEMBERED_SPEC_BYTES = 16 * 1024
_DECODER = msgspec.json.Decoder(Pod)
_PARTS = msgspec.json.Decoder(_Parts)
_SPEC = msgspec.json.Decoder(PodSpec)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """Return the typed view; shared by all readers of the same document. Raises msgspec.ValidationError with the field's path,
    or DecodeError."""
    return _remembered_pod(raw) if len(raw) <= REMEMBERED_POD_BYTES else _decode_pod(raw)


def _decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    try:
        parts = _PARTS.decode(raw)
        spec = decode_spec(bytes(parts.spec))
    except msgspec.DecodeError:
        # Decoded as a whole the error names the path from the top.
        return _DECODER.decode(raw)
    return Pod(api_version=parts.api_version, kind=parts.kind, metadata=parts.metadata, spec=spec, status=parts.status)


_remembered_pod = by_identity(_decode_pod, remembered=REMEMBERED_PODS)


def decode_spec(spec: bytes) -> PodSpec:
    """Return the typed view of a pod's spec. Raises msgspec.DecodeError."""
    return _remembered_spec(spec) if len(spec) <= REMEMBERED_SPEC_BYTES else _SPEC.decode(spec)


@lru_cache(maxsize=REMEMBERED_SPECS)
def _remembered_spec(spec: bytes) -> PodSpec:
    return _SPEC.decode(spec)
