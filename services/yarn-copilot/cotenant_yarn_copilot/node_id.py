"""YARN's node id (`host:port`) of a node's NodeManager.

In: a node's name and the pods on it, in the order listed. Out: the id with its cluster, None without a NodeManager, or a
NodeIdError. Source: Koordinator YARN operator: the first pod on the node with the label `app.kubernetes.io/component:
node-manager` has the id in the annotation `yarn.hadoop.apache.org/node-id`, its cluster in `yarn.hadoop.apache.org/cluster-id`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

LABEL_COMPONENT = "app.kubernetes.io/component"
NODE_MANAGER = "node-manager"
ANNOTATION_NODE_ID = "yarn.hadoop.apache.org/node-id"
ANNOTATION_CLUSTER_ID = "yarn.hadoop.apache.org/cluster-id"
DEFAULT_CLUSTER = "__default_yarn_cluster__"

_PORT = re.compile(r"[+-]?[0-9]{1,9}\Z")


class NodeIdError(ValueError):
    """A NodeManager pod has no valid id; the message names the pod."""


class YarnNodeId(msgspec.Struct, frozen=True):
    """YARN's id of a NodeManager and the cluster that it belongs to."""

    host: str
    port: int
    cluster: str = DEFAULT_CLUSTER

    @property
    def text(self) -> str:
        """The id in the ResourceManager's format."""
        return f"{self.host}:{self.port}"

    @property
    def usable(self) -> bool:
        """Whether it has a host and a port."""
        return bool(self.host) and self.port > 0


class PodLabels(msgspec.Struct, frozen=True):
    """The fields that are read from a pod."""

    name: str
    node: str
    labels: dict[str, str]
    annotations: dict[str, str]


def parse_node_id(text: str, cluster: str = DEFAULT_CLUSTER) -> YarnNodeId:
    """Parse an id. Raises NodeIdError unless the text is exactly one host and one integer port."""
    parts = text.split(":")
    if len(parts) != 2:
        raise NodeIdError(f"{text!r} is not host:port (an IPv6 literal cannot be a YARN node id)")
    host, port = parts
    if not _PORT.match(port):
        raise NodeIdError(f"{text!r}: the port {port!r} is not an integer")
    return YarnNodeId(host, int(port), cluster)


def choose_nm_pod(node: str, pods: Sequence[PodLabels]) -> PodLabels | None:
    """Return the node's first NodeManager pod, or None."""
    return next((pod for pod in pods if node and pod.node == node and pod.labels.get(LABEL_COMPONENT) == NODE_MANAGER), None)


def cluster_of(pod: PodLabels) -> str:
    """Return the cluster of a NodeManager pod; an empty annotation means the default cluster."""
    return pod.annotations.get(ANNOTATION_CLUSTER_ID, "") or DEFAULT_CLUSTER


def yarn_node_of(node: str, pods: Sequence[PodLabels]) -> YarnNodeId | None:
    """Return the id in the annotation of the node's NodeManager pod. Raises NodeIdError if it is missing or malformed."""
    pod = choose_nm_pod(node, pods)
    if pod is None:
        return None
    text = pod.annotations.get(ANNOTATION_NODE_ID)
    if text is None:
        raise NodeIdError(f"pod {pod.name} on node {node} has no annotation {ANNOTATION_NODE_ID}")
    try:
        return parse_node_id(text, cluster_of(pod))
    except NodeIdError as error:
        raise NodeIdError(f"pod {pod.name} on node {node}, annotation {ANNOTATION_NODE_ID}: {error}") from error
