"""Claims, volumes, storage classes and CSI drivers of nodes as the log has them, and who uses them.

In: the objects; pods counted on rows. Out: which volume a claim has, how many pods use a claim and where, how many volumes of
each CSI driver a node has, which volumes are given to claims that nobody has bound yet.

A claim has the volume that its `spec.volumeName` names; else the one that the scheduler gave it when it placed its first pod
(`allocation.volumes`), as long as a pod with it is placed. Two pods of a node with one claim use one volume of it.

Bounds: the objects, and the pods that use claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from cotenant.api.objects.storage import (
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    decode_claim,
    decode_csi_node,
    decode_storage_class,
    decode_volume,
)
from cotenant_scheduler.state.counting import CountedPod, PodCounter, PodKey, is_held, is_reserve
from cotenant_scheduler.state.reading.pod_volumes import ClaimKey, VolumesAsked
from cotenant_scheduler.state.reading.shapes import Shape

K = TypeVar("K")
V = TypeVar("V")

READER = "VolumeBinding"
"""The reader whose results say what a shape uses."""


def asked_of(shape: Shape) -> VolumesAsked | None:
    """Return the volumes that a shape uses."""
    asked = shape.asks.get(READER) if shape.asks else None
    return asked if isinstance(asked, VolumesAsked) else None


class Volumes(PodCounter):
    """Mutable; a fold over objects, and a counter of pods."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.users: dict[ClaimKey, dict[int, int]] = {}
        """By claim and row, how many pods use it; without zeros."""
        self._given: dict[ClaimKey, dict[str, int]] = {}
        """By claim, the volumes that placements gave it, each with the number of pods."""
        self._inline: dict[str, dict[int, int]] = {}
        self._counted: dict[ClaimKey, str] = {}
        """Of claims in use, the driver that they are counted under."""
        self._by_driver: dict[str, dict[int, int]] = {}
        """By driver and row, the claims in use there."""

    # -- objects -------------------------------------------------------------------------------------------------

    def put_claim(self, key: ClaimKey, document: msgspec.Raw | None) -> None:
        """Take over a claim; None: it is gone. Raises msgspec.DecodeError; the claim then counts as absent."""
        self._put(self.claims, key, document, decode_claim, lambda: (key,))

    def put_volume(self, name: str, document: msgspec.Raw | None) -> None:
        """Take over a volume; as for a claim."""
        self._put(
            self.volumes, name, document, decode_volume, lambda: [key for key in self.users if self.volume_of(key) == name]
        )

    def put_class(self, name: str, document: msgspec.Raw | None) -> None:
        """Take over a storage class; as for a claim."""
        self._put(self.classes, name, document, decode_storage_class, lambda: self.users)

    def put_csi_node(self, name: str, document: msgspec.Raw | None) -> None:
        """Take over what CSI drivers say of a node; as for a claim."""
        self._put(self.csi_nodes, name, document, decode_csi_node, lambda: ())

    def _put(
        self,
        table: dict[K, V],
        key: K,
        document: msgspec.Raw | None,
        decode: Callable[[msgspec.Raw], V],
        affected: Callable[[], Iterable[ClaimKey]],
    ) -> None:
        """Take over an object, or its end; `affected`: the claims that may be counted under another driver then."""
        table.pop(key, None)
        try:
            if document is not None:
                table[key] = decode(document)
        finally:
            self.version += 1
            for claim in list(affected()):
                self._count_anew(claim)

    # -- questions -----------------------------------------------------------------------------------------------

    def volume_of(self, key: ClaimKey) -> str:
        """Return the name of the volume that a claim has; empty: none."""
        claim = self.claims.get(key)
        if claim is not None and claim.spec.volume_name:
            return claim.spec.volume_name
        given = self._given.get(key)
        return min(given) if given else ""

    def given_volumes(self) -> dict[str, ClaimKey]:
        """Return the volumes that placements gave to claims."""
        return {volume: key for key, given in self._given.items() for volume in given}

    def class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Return the storage class of a claim: the one that it names, else the default one."""
        if claim.spec.storage_class_name is None and not claim.class_name:
            defaults = [name for name, found in self.classes.items() if found.is_default]
            return self.classes[min(defaults)] if defaults else None
        return self.classes.get(claim.class_name)

    def driver_of(self, key: ClaimKey) -> str:
        """Return the CSI driver that attaches a claim's volume, or would make it; empty: none is known."""
        volume = self.volumes.get(self.volume_of(key))
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        claim = self.claims.get(key)
        found = self.class_of(claim) if claim is not None else None
        return found.provisioner if found is not None else ""

    def attached(self, driver: str) -> dict[int, int]:
        """Return by row how many volumes of a driver pods use there."""
        by_claims, inline = self._by_driver.get(driver, {}), self._inline.get(driver, {})
        if not inline:
            return by_claims
        return {row: by_claims.get(row, 0) + inline.get(row, 0) for row in sorted({*by_claims, *inline})}

    # -- pods ----------------------------------------------------------------------------------------------------

    def counts(self, shape: Shape) -> bool:
        return bool(shape.asks) and READER in shape.asks

    def count(self, row: int, key: PodKey, pod: CountedPod) -> None:
        self._add(row, key, pod, 1)

    def uncount(self, row: int, key: PodKey, pod: CountedPod) -> None:
        self._add(row, key, pod, -1)

    def _add(self, row: int, key: PodKey, pod: CountedPod, sign: int) -> None:
        asked = asked_of(pod.shape)
        if asked is None or is_held(key) or is_reserve(key):
            return
        self.version += 1
        for driver in asked.inline:
            _step(self._inline.setdefault(driver, {}), row, sign)
        for share in pod.allocation.volumes if pod.allocation is not None else ():
            if share.volume:
                claim = (key[0], share.claim)
                given = self._given.setdefault(claim, {})
                _step(given, share.volume, sign)
                if not given:
                    del self._given[claim]
                self._count_anew(claim)
        for claim in asked.claims:
            rows = self.users.setdefault(claim, {})
            known = row in rows
            _step(rows, row, sign)
            if known is not (row in rows):
                driver = self._counted.setdefault(claim, self.driver_of(claim))
                _step(self._by_driver.setdefault(driver, {}), row, sign)
            if not rows:
                del self.users[claim]
                self._counted.pop(claim, None)

    def _count_anew(self, claim: ClaimKey) -> None:
        """Count a claim in use under the driver that it has now."""
        before = self._counted.get(claim)
        if before is None or before == (now := self.driver_of(claim)):
            return
        for row in self.users[claim]:
            _step(self._by_driver[before], row, -1)
            _step(self._by_driver.setdefault(now, {}), row, 1)
        self._counted[claim] = now


def _step(counts: dict[K, int], key: K, sign: int) -> None:
    """Add to a count, which is left out while it is 0."""
    left = counts.get(key, 0) + sign
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def volumes_among(counters: Iterable[PodCounter]) -> Volumes:
    """Return the one that a profile counts by; a new one where it has none."""
    return next((counter for counter in counters if isinstance(counter, Volumes)), None) or Volumes()
