"""Documents derived from a node, NodeSLO and NodeMetric: they have the node's name, and rendered members take precedence.

In: the object. Out: a field error if no node has its name; warnings about members that are written and will not be shown.
"""

from __future__ import annotations

from cotenant.api.splices import DocumentError, member_object, members
from cotenant.api.validation.fields import FieldError, not_found
from cotenant.kinds.nodes import NODES
from cotenant_gateway.admission.review import Review

MAX_NAMED = 10


def node_exists(review: Review) -> list[FieldError]:
    """A document ends with its node, so there must be one."""
    name = review.view.metadata.name
    if review.old is not None or review.objects.get(NODES, "", name) is not None:
        return []
    return [not_found("metadata.name", name, f"a {review.kind.kind} has the name of its node; create the node first")]


def rendered_members_warnings(review: Review) -> list[str]:
    """Name the members that other services render: values written there are stored and not shown."""
    return [*_members(review, "spec", _OF_CONFIGURATION, {"extensions"}), *_members(review, "status", _OF_SAMPLES, set())]


_OF_CONFIGURATION = "is rendered from the configuration, which takes precedence over what is written here"
_OF_SAMPLES = "is computed from the node's samples, which take precedence over what is written here"


def _members(review: Review, part: str, why: str, kept: set[str]) -> list[str]:
    try:
        written = member_object(members(review.document), part)
    except DocumentError:
        return []
    return [f"{part}.{name}: {why}" for name in sorted(written.keys() - kept)[:MAX_NAMED]]
