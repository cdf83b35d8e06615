"""What pods of one template share, so that little is read of each.

In: the head of a pod's document, the facts of the first pod of its template. Out: the pod's facts. The document that was read
last is compared as bytes first: a workload's pods come in a row, and comparing costs less than finding the template.
"""

from __future__ import annotations

import msgspec

from cotenant_scheduler.state.reading.pod_documents import HeadMetadata, PodHead
from cotenant_scheduler.state.reading.pod_traits import PodTraits
from cotenant_scheduler.state.reading.shapes import ParsedPod


class Template(msgspec.Struct, frozen=True):
    """The data that pods of one spec share: the facts of the first one that was read, and the grace period of those whose
    deletion has none of its own."""

    first: ParsedPod
    grace_seconds: int
    alone: bool
    """Its pods' volumes depend on their names and namespaces, too: they share no facts."""


class RecentDocument(msgspec.Struct, frozen=True):
    """The parts of a document that pods of one template have in common, with what was read of them."""

    spec: msgspec.Raw
    status: msgspec.Raw
    labels: msgspec.Raw
    annotations: msgspec.Raw
    owners: msgspec.Raw
    version: object
    """Of the values of priority classes."""
    template: Template
    traits: PodTraits

    def is_of(self, head: PodHead, version: object) -> bool:
        """Whether a document has the same parts."""
        metadata = head.metadata
        return (
            self.labels == metadata.labels
            and self.spec == head.spec
            and self.status == head.status
            and self.annotations == metadata.annotations
            and self.owners == metadata.owner_references
            and self.version == version
        )


def recent_document(head: PodHead, version: object, template: Template, traits: PodTraits) -> RecentDocument:
    """Return the common parts of a document; it need not be kept itself."""
    metadata = head.metadata
    return RecentDocument(
        head.spec.copy(),
        head.status.copy(),
        metadata.labels.copy(),
        metadata.annotations.copy(),
        metadata.owner_references.copy(),
        version,
        template,
        traits,
    )


def facts_of(metadata: HeadMetadata, template: Template, traits: PodTraits) -> ParsedPod:
    """The facts of a pod of a template."""
    first = template.first
    created = metadata.creation_timestamp or ""
    return ParsedPod(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        first.created if created == first.created else created,
        metadata.deletion_timestamp is not None,
        template.grace_seconds if metadata.deletion_grace_period_seconds is None else metadata.grace_seconds(None),
        traits,
        first.scheduler_name,
        first.node_name,
        first.priority,
        first.from_class,
        first.gated,
        first.shape,
        "",
        first.ended,
        first.ends,
        first.nominated,
    )
