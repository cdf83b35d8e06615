"""Whether a pod is evictable at all: the first filter.

In: the pod and the arguments. Out: None, or the reason why it stays. The annotation `descheduler.alpha.kubernetes.io/evict`
(any value) makes a pod evictable unconditionally. Otherwise it stays if it: belongs to a DaemonSet; is a mirror or static pod;
is terminating; has no owner (unless failed bare pods or all bare pods are evictable); is system critical (priority >= 2e9, or
at least the priority threshold); uses hostPath or emptyDir; uses a persistent volume claim with `ignorePvcPods`; is not
selected. Gates in `skip_gates` are skipped.

Source: kubernetes-sigs descheduler DefaultEvictor, koord-descheduler's copy with skipEvictionGates.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.domain.selectors import selects
from cotenant_descheduler_arbiter.config.configuration import NamespaceRule
from cotenant_descheduler_arbiter.config.policy import EvictableRules
from cotenant_descheduler_arbiter.state.facts import PodFacts

ANNOTATION_EVICT = "descheduler.alpha.kubernetes.io/evict"
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"
ANNOTATION_SOURCE = "kubernetes.io/config.source"
ANNOTATION_EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
MAX_EVICTION_COST = 2**31 - 1
_MIN_COST = -(2**31)
_MAX_DIGITS = 10


_ABSENT = msgspec.Raw(b"")


class _Volume(msgspec.Struct, rename="camel"):
    host_path: msgspec.Raw = _ABSENT
    empty_dir: msgspec.Raw = _ABSENT
    persistent_volume_claim: msgspec.Raw = _ABSENT


_VOLUME_DECODER = msgspec.json.Decoder(_Volume)


_UNREADABLE = _Volume(host_path=msgspec.Raw(b"{}"))
"""Unreadable volumes count as local storage, so the pod stays."""


def _volumes(pod: Pod) -> Iterator[_Volume]:
    for raw in pod.spec.volumes:
        try:
            yield _VOLUME_DECODER.decode(raw)
        except msgspec.DecodeError:
            yield _UNREADABLE


def _given(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def forced(pod: Pod) -> bool:
    """Whether the evict annotation overrides every filter; its value does not matter."""
    return ANNOTATION_EVICT in pod.metadata.annotations


def parse_cost(text: str | None) -> int:
    """Return a cost annotation's value; 0 unless it is a decimal int32."""
    if text is None:
        return 0
    digits = text[1:] if text.startswith("-") else text
    if len(digits) > _MAX_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return 0
    if digits[0] == "0" and text != "0":
        return 0
    value = int(text)
    return value if _MIN_COST <= value <= MAX_EVICTION_COST else 0


def below_max_cost(pod: Pod) -> bool:
    """Whether the pod's eviction cost allows its eviction; the largest int32 means never."""
    return parse_cost(pod.metadata.annotations.get(ANNOTATION_EVICTION_COST)) != MAX_EVICTION_COST


def of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def is_static(pod: Pod) -> bool:
    """Whether the pod comes from its node and not through the API: a mirror pod, or one with another source."""
    annotations = pod.metadata.annotations
    return ANNOTATION_MIRROR in annotations or annotations.get(ANNOTATION_SOURCE, "api") != "api"


def namespace_refusal(rule: NamespaceRule, namespace: str) -> str | None:
    """Return why pods of the namespace stay."""
    if rule.include and namespace not in rule.include:
        return f"namespace {namespace} is not among those that may be evicted from"
    if namespace in rule.exclude:
        return f"namespace {namespace} is excluded from eviction"
    return None


def _ownership(facts: PodFacts, rules: EvictableRules) -> str | None:
    pod = facts.pod
    if of_daemon_set(pod):
        return "it belongs to a DaemonSet"
    if ANNOTATION_MIRROR in pod.metadata.annotations:
        return "it is a mirror pod"
    if is_static(pod):
        return "it is a static pod"
    if facts.terminating:
        return "it is terminating already"
    if (
        not pod.metadata.owner_references
        and "BarePods" not in rules.skip_gates
        and not rules.evict_all_bare_pods
        and not (rules.evict_failed_bare_pods and facts.phase == "Failed")
    ):
        return "it has no owner that would create it again"
    return None


def _importance(pod: Pod, rules: EvictableRules) -> str | None:
    if rules.evict_system_critical_pods:
        return None
    priority = pod.spec.priority
    if "SystemCritical" not in rules.skip_gates and priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY:
        return f"its priority {priority} is system critical"
    threshold = rules.priority_threshold
    if (
        "PriorityThreshold" not in rules.skip_gates
        and threshold is not None
        and priority is not None
        and priority >= threshold
    ):
        return f"its priority {priority} is at or above the threshold {threshold}"
    return None


def _storage(pod: Pod, rules: EvictableRules) -> str | None:
    for volume in _volumes(pod):
        local = _given(volume.host_path) or _given(volume.empty_dir)
        if local and not rules.evict_local_storage_pods and "LocalStorage" not in rules.skip_gates:
            return "it uses local storage"
        if _given(volume.persistent_volume_claim) and rules.ignore_pvc_pods and "PVC" not in rules.skip_gates:
            return "it uses a persistent volume claim"
    return None


def why_not_evictable(facts: PodFacts, rules: EvictableRules) -> str | None:
    """Return why the pod must stay, or None if it may be evicted."""
    pod = facts.pod
    if forced(pod):
        return None
    reason = _ownership(facts, rules) or _importance(pod, rules) or _storage(pod, rules)
    if reason is not None:
        return reason
    if "LabelSelector" not in rules.skip_gates and not selects(rules.label_selector, pod.metadata.labels, absent=True):
        return "the label selector does not select it"
    return None
