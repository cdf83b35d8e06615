"""What pods require, read once per version of a pod, in the terms of the bench's independent check; and their scheduling gates.

In: manifests. Out: `PodRequirements`s, and the names of gates.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.resizing import counted_pod
from cotenant.events.placements import Placement
from cotenant_verification.bench.audit.rooms import PodRequirements, need_of


class _Gate(msgspec.Struct, frozen=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[_Gate, ...] = ()


class _Gated(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_GATED = msgspec.json.Decoder(_Gated)
_NEEDS_KEPT = 4096


class RequirementsCache:
    """Requirements of pods, read once per version of a pod."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], PodRequirements] = {}

    def of(self, document: msgspec.Raw, uid: str, sequence: int) -> PodRequirements:
        """Return what a pod requires by its manifest, which is the message `sequence`."""
        known = self._known.get((uid, sequence))
        if known is None:
            if len(self._known) >= _NEEDS_KEPT:
                self._known.clear()
            known = self._known[uid, sequence] = need_of(decode_pod(document), "")
        return known

    def placed(self, placement: Placement) -> PodRequirements:
        """Return what a placed pod requires; while it is resized in place, what is counted for it."""
        if placement.resize is not None:
            return need_of(counted_pod(placement), "")
        return self.of(placement.pod, placement.uid, placement.object_sequence)


def gates_of(document: msgspec.Raw) -> tuple[str, ...]:
    """The scheduling gates that a pod still has."""
    return tuple(gate.name for gate in _GATED.decode(document).spec.scheduling_gates)
