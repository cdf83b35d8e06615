"""Typed view of scheduling.sigs.k8s.io/v1alpha1 PodGroup."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.model.bounds import Int32


class PodGroupSpec(View, frozen=True, kw_only=True):
    """How many members must be placed together, and how long they may wait for one another."""

    min_member: Int32 = 0
    schedule_timeout_seconds: Int32 | None = None


class PodGroup(View, frozen=True, kw_only=True):
    """The fields of a PodGroup that are read; its status is composed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()


_DECODER = msgspec.json.Decoder(PodGroup)


def decode_pod_group(document: bytes | memoryview | msgspec.Raw) -> PodGroup:
    """Decode a PodGroup. Raises msgspec.DecodeError."""
    return _DECODER.decode(document)
