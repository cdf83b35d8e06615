"""Subjects of the streams: one subject is one entity.

A subject token cannot hold `.`, `*`, `>`, blanks or `%`: such characters are percent-encoded (UTF-8), so that names such
as `node-1.example` survive. Cluster-scoped objects have the namespace token `_`, the empty API group is `core`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

PREDICTIONS = "predictions"
"""First token of subjects whose messages only their writer uses: HISTORY does not copy them."""

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~/:@=+,;!$&'()")
_SAFE_TOKEN = re.compile(r"[a-zA-Z0-9\-_~/:@=+,;!$&'()]*")


@lru_cache(maxsize=65536)
def encode_token(text: str) -> str:
    """Return the text as one subject token. Raises ValueError on an empty text."""
    if not text:
        raise ValueError("a subject token cannot be empty")
    if _SAFE_TOKEN.fullmatch(text):
        return text
    return "".join(char if char in _SAFE else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text)


def decode_token(token: str) -> str:
    """Return the text that `encode_token` encoded."""
    return unquote(token) if "%" in token else token


def object_subject(group: str, plural: str, namespace: str, name: str) -> str:
    """`objects.<group>.<plural>.<namespace>.<name>`."""
    return (
        f"objects.{encode_token(group or 'core')}.{plural}.{encode_token(namespace) if namespace else '_'}"
        f".{encode_token(name)}"
    )


def pod_subject(namespace: str, name: str) -> str:
    """The subject of a pod's object."""
    return f"objects.core.pods.{encode_token(namespace)}.{encode_token(name)}"


def node_subject(name: str) -> str:
    """The subject of a node's object."""
    return f"objects.core.nodes._.{encode_token(name)}"


def metrics_subject(node: str) -> str:
    """NodeMetric of a node."""
    return f"metrics.{encode_token(node)}"


def predictions_subject(node: str) -> str:
    """State of a node's prediction models."""
    return f"{PREDICTIONS}.{encode_token(node)}"


def resources_subject(node: str) -> str:
    """Batch, mid and normalised resources of a node."""
    return f"node.{encode_token(node)}.resources"


def slo_subject(node: str) -> str:
    """The rendered NodeSLO of a node."""
    return f"node.{encode_token(node)}.slo"


def config_map_subject(namespace: str, name: str) -> str:
    """The sections of a ConfigMap that were rejected."""
    return f"configmaps.{encode_token(namespace)}.{encode_token(name)}"


def condition_subject(node: str) -> str:
    """Readiness and the taints that follow from it."""
    return f"node.{encode_token(node)}.condition"


def executor_subject(node: str) -> str:
    """The executor's own report: capacity, capabilities, versions."""
    return f"node.{encode_token(node)}.executor"


def topology_subject(node: str) -> str:
    """The hardware of the node's machine, by its executor."""
    return f"node.{encode_token(node)}.topology"


def placement_subject(node: str, namespace: str, pod: str) -> str:
    """The pod as it shall run on this node."""
    return f"node.{encode_token(node)}.placement.{encode_token(namespace)}.{encode_token(pod)}"


def run_subject(node: str, namespace: str, pod: str) -> str:
    """The pod's state on its node."""
    return f"node.{encode_token(node)}.run.{encode_token(namespace)}.{encode_token(pod)}"


def waiting_subject(namespace: str, pod: str) -> str:
    """Why a pod is not placed."""
    return f"waiting.{encode_token(namespace)}.{encode_token(pod)}"


def pod_group_subject(namespace: str, name: str) -> str:
    """The status of a PodGroup."""
    return f"podgroups.{encode_token(namespace)}.{encode_token(name)}"


def reservation_subject(node: str, name: str) -> str:
    """The room that a reservation holds on a node."""
    return f"node.{encode_token(node)}.reservation.{encode_token(name)}"


def reservation_status_subject(name: str) -> str:
    """The status of a reservation without a share of a node."""
    return f"reservations.{encode_token(name)}"


def quota_subject(tree: str, quota: str) -> str:
    """Runtime quota of one quota in a tree; the default tree is `_`."""
    return f"quotas.{encode_token(tree) if tree else '_'}.{encode_token(quota)}"


def profiled_quota_subject(tree: str, quota: str) -> str:
    """The root quota of a tree as its profile defines it."""
    return f"{quota_subject(tree, quota)}.profile"


def migration_subject(job: str) -> str:
    """A migration job."""
    return f"migrations.{encode_token(job)}"


def descheduling_subject(node: str) -> str:
    """The evaluation of a node's load, and its streaks."""
    return f"descheduling.{encode_token(node)}"


def descheduling_cycle_subject(profile: str) -> str:
    """The last cycle of a profile's plugins."""
    return f"descheduling.cycles.{encode_token(profile)}"


def eviction_subject(namespace: str, pod: str) -> str:
    """The gateway's answer to the last eviction request for a pod."""
    return f"evictions.{encode_token(namespace)}.{encode_token(pod)}"


def yarn_subject(node: str) -> str:
    """YARN's total on a node, and its usage."""
    return f"yarn.{encode_token(node)}"


def commit_subject(service: str, partition: str) -> str:
    """Commit records of one partition of a deciding service."""
    return f"commits.{encode_token(service)}.{encode_token(partition)}"


def marker_subject(service: str, replica: str) -> str:
    """Start markers of one replica."""
    return f"services.{encode_token(service)}.{encode_token(replica)}"


LOG_IDENTITY = "services.streams.log"
"""The identity of LOG; stored when the streams are declared, and readable by every node."""


def usage_subject(node: str) -> str:
    """Raw samples of a node (stream USAGE)."""
    return f"usage.{encode_token(node)}"


def execution_subject(node: str, topic: str) -> str:
    """Actions carried out on a node (stream EXECUTION)."""
    return f"execution.{encode_token(node)}.{encode_token(topic)}"


def deadletter_subject(stream: str, writer: str) -> str:
    """Messages of a stream that `writer` could not use (stream EXECUTION): a service, or a node's executor
    (`executor_writer`)."""
    return f"deadletter.{encode_token(stream)}.{encode_token(writer)}"


def executor_writer(node: str) -> str:
    """A node's executor as the writer of dead letters."""
    return f"node-{node}"


@lru_cache(maxsize=4096)
def tokens(subject: str) -> tuple[str, ...]:
    """Return the decoded tokens of a subject; those of recent subjects are cached, as several readers decode each subject."""
    if "%" not in subject:
        return tuple(subject.split("."))
    return tuple(decode_token(token) for token in subject.split("."))


def matches(filter_subject: str, subject: str) -> bool:
    """Tell whether a subject is selected by a filter with NATS' wildcards (`*` one token, `>` the rest)."""
    wanted, given = filter_subject.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or (token != "*" and token != given[index]):
            return False
    return len(wanted) == len(given)


def selecting(filters: Sequence[str]) -> re.Pattern[bytes]:
    """Return the expression that matches the subjects which any of the filters selects, by the rule of `matches`."""
    wildcards = {"*": r"[^.]+", ">": r".+"}
    return re.compile(
        "|".join(r"\.".join(wildcards.get(token, re.escape(token)) for token in one.split(".")) for one in filters).encode()
    )
