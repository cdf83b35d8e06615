"""Which volumes an unbound claim could have, and on which nodes.

In: claims whose class waits for a first pod, volumes, labels of nodes. Out: by row the volume of each claim, or that one is
to be made there. The rule, claim by claim, the smallest claim first:

    a volume that is meant for the claim (`claimRef`) is the only one; else the smallest, then the first by name, of those
    that are free, have the class, the volume mode and all access modes of the claim, are large enough, are selected by its
    selector, and whose node affinity holds; no volume twice
    without one, and with a provisioner: made where the class' `allowedTopologies` allow it, and only on the node that the
    claim's annotation `volume.kubernetes.io/selected-node` names, if it names one

Source: kube-scheduler's volume binding (`FindMatchingVolume`); what drivers publish of their capacity (CSIStorageCapacity)
is not modelled.

Bounds: the volumes of one class; their rows are kept until labels or nodes change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cotenant.api.objects.metadata import LabelSelectorRequirement
from cotenant.api.objects.pod import NodeSelectorTerm
from cotenant.api.objects.selectors import selector_holds
from cotenant.api.objects.storage import (
    BIND_MODE_WAIT,
    NO_PROVISIONER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    storage_of,
)
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.label_columns import LabelColumns
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_volumes import ClaimKey
from cotenant_scheduler.state.volumes.volumes import Volumes

NOTHING, MADE = -1, -2
"""In place of the number of a volume: there is none for the claim; one is made."""


class VolumeRows:
    """On which rows volumes can be used."""

    def __init__(self, labels: LabelColumns) -> None:
        self._labels = labels
        self._stamp = (-1, -1)
        self._rows: dict[str, tuple[PersistentVolume, BoolArray]] = {}

    def of(self, nodes: NodeTable, name: str, volume: PersistentVolume) -> BoolArray:
        """Return for each row whether the volume's node affinity holds."""
        stamp = self._labels.stamp(nodes)
        if stamp != self._stamp:
            self._stamp = stamp
            self._rows.clear()
        known = self._rows.get(name)
        if known is None or known[0] is not volume:
            affinity = volume.spec.node_affinity
            required = affinity.required if affinity is not None else None
            rows = (
                np.ones(nodes.size, dtype=np.bool_)
                if required is None
                else self._labels.any_term(nodes, required.node_selector_terms)
            )
            known = self._rows[name] = volume, rows
        return known[1]


class Choices:
    """What unbound claims of one pod would get on each row: per claim the candidates and the number of one, NOTHING or MADE."""

    def __init__(self, claims: Sequence[ClaimKey], size: int) -> None:
        self.claims = tuple(claims)
        self.candidates: list[list[str]] = []
        self.picked: list[IntArray] = []
        self.fits: BoolArray = np.ones(size, dtype=np.bool_)

    def on(self, row: int) -> Iterator[tuple[ClaimKey, str]]:
        """Yield each claim with its volume on a row; empty: one is made."""
        for claim, candidates, picked in zip(self.claims, self.candidates, self.picked, strict=True):
            number = picked.item(row)
            yield claim, candidates[number] if number >= 0 else ""


def waits_for_pod(found: StorageClass | None) -> bool:
    """Return whether claims of a class are bound once a pod that uses them has a node."""
    return found is not None and found.volume_binding_mode == BIND_MODE_WAIT


def choose(
    nodes: NodeTable, volumes: Volumes, rows: VolumeRows, labels: LabelColumns, unbound: Sequence[ClaimKey]
) -> Choices:
    """Return what claims whose class waits for a pod would get on each row."""
    order = sorted(unbound, key=lambda key: (storage_of(volumes.claims[key].spec.resources.requests), key))
    choices = Choices(order, nodes.size)
    given = volumes.given_volumes()
    for key in order:
        claim = volumes.claims[key]
        found = volumes.class_of(claim)
        names, meant = _candidates(key, claim, volumes, given)
        picked = np.full(nodes.size, NOTHING, dtype=np.int64)
        for number, name in enumerate(names):
            usable = rows.of(nodes, name, volumes.volumes[name]) & (picked == NOTHING)
            for other, chosen in zip(choices.candidates, choices.picked, strict=True):
                if name in other:
                    usable &= chosen != other.index(name)
            picked[usable] = number
        if not meant and found is not None and found.provisioner != NO_PROVISIONER:
            picked[(picked == NOTHING) & _makeable(nodes, labels, claim, found)] = MADE
        choices.candidates.append(names)
        choices.picked.append(picked)
        choices.fits &= picked != NOTHING
    return choices


def _candidates(
    key: ClaimKey, claim: PersistentVolumeClaim, volumes: Volumes, given: dict[str, ClaimKey]
) -> tuple[list[str], bool]:
    """The volumes that the claim can have, the best first, and whether one of them is meant for it."""
    wanted = storage_of(claim.spec.resources.requests)
    found = volumes.class_of(claim)
    class_name = claim.class_name if claim.class_name or found is None else found.metadata.name
    free: list[tuple[int, str]] = []
    for name, volume in volumes.volumes.items():
        spec = volume.spec
        if volume.metadata.deletion_timestamp is not None or given.get(name, key) != key:
            continue
        size = storage_of(spec.capacity)
        if size < wanted or (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        if spec.claim_ref is not None:
            meant = (spec.claim_ref.namespace, spec.claim_ref.name) == key
            if meant and spec.claim_ref.uid in ("", claim.metadata.uid):
                return [name], True
            continue
        if volume.class_name != class_name or not set(claim.spec.access_modes) <= set(spec.access_modes):
            continue
        if volume.status.phase not in ("", "Available"):
            continue
        if claim.spec.selector is None or selector_holds(claim.spec.selector, volume.metadata.labels):
            free.append((size, name))
    return [name for _, name in sorted(free)], False


def _makeable(nodes: NodeTable, labels: LabelColumns, claim: PersistentVolumeClaim, found: StorageClass) -> BoolArray:
    rows = np.ones(nodes.size, dtype=np.bool_)
    if found.allowed_topologies:
        terms = [
            NodeSelectorTerm(
                match_expressions=[
                    LabelSelectorRequirement(key=expression.key, operator="In", values=expression.values)
                    for expression in term.match_label_expressions
                ]
            )
            for term in found.allowed_topologies
        ]
        rows = labels.any_term(nodes, terms)
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if selected:
        only = np.zeros(nodes.size, dtype=np.bool_)
        row = nodes.rows.get(selected)
        if row is not None:
            only[row] = True
        rows = rows & only
    return rows
