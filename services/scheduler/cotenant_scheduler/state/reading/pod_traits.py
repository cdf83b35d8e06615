"""What labels and annotations say of a pod besides its shape: its quota, its gang, reservations.

In: labels and annotations. Out: `PodTraits`, read once for all pods that have the same, so that a feature which a pod does not
use costs that pod one look at a flag.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.gangs import gang_name
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.affinity import ignores_reservations
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.domain.reservations.operating import acts_as_reservation


class PodTraits(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Labels and annotations, which nobody changes, and what follows from them. Compared by identity."""

    labels: dict[str, str]
    annotations: dict[str, str]
    quota_label: str
    """The quota that it names; empty: none."""
    preemptible: bool
    gang: str
    """The name of its gang in its namespace; empty: it is in none."""
    of_reservations: bool
    """Whether it says anything of reservations, be it that it ignores them or acts as one."""
    acts: bool
    """Whether it acts as a reservation while it runs and is ready."""


def traits_of(labels: dict[str, str], annotations: dict[str, str]) -> PodTraits:
    """Return what labels and annotations say."""
    acts = acts_as_reservation(labels)
    return PodTraits(
        labels,
        annotations,
        labels.get(LABEL_QUOTA, ""),
        is_preemptible(labels),
        gang_name(labels, annotations),
        acts or ignores_reservations(labels) or bool(annotations.get(ANNOTATION_AFFINITY)),
        acts,
    )
