"""A pod's traits from labels and annotations, besides its shape: its quota, its gang, reservations.

In: labels and annotations. Out: `PodTraits`, read once for all pods that have the same, so that an unused feature
costs a pod only the check of a flag.
"""

from __future__ import annotations

from cotenant.domain.gangs import gang_name
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.reservations.affinity import ignores_reservations
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.domain.reservations.operating import acts_as_reservation
from cotenant.model.names import LABEL_PREEMPTION_POLICY, LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS, LABEL_SCHEDULER_NAME
from cotenant.model.values import Value

LABEL_DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"


class PodTraits(Value, frozen=True, eq=False):
    """Read-only labels and annotations, and what follows from them. Compared by identity."""

    labels: dict[str, str]
    annotations: dict[str, str]
    classes: tuple[str | None, str | None, str | None, str | None]
    """Labels that pods of one spec may differ by: priority class, QoS class, preemption policy, scheduler."""
    quota_label: str
    """The quota that it names; empty: none."""
    preemptible: bool
    protected: bool
    """It may never be preempted."""
    gang: str
    """The name of its gang in its namespace; empty: it is in none."""
    of_reservations: bool
    """Whether it mentions reservations, even if only to ignore them, or acts as one."""
    acts: bool
    """Whether it acts as a reservation while it runs and is ready."""


def traits_of(labels: dict[str, str], annotations: dict[str, str]) -> PodTraits:
    """Return the traits of labels and annotations."""
    preemptible, acts = is_preemptible(labels), acts_as_reservation(labels)
    return PodTraits(
        labels,
        annotations,
        (
            labels.get(LABEL_PRIORITY_CLASS),
            labels.get(LABEL_QOS_CLASS),
            labels.get(LABEL_PREEMPTION_POLICY),
            labels.get(LABEL_SCHEDULER_NAME),
        ),
        labels.get(LABEL_QUOTA, ""),
        preemptible,
        not preemptible or labels.get(LABEL_DISABLE_PREEMPTIBLE) == "true",
        gang_name(labels, annotations),
        acts or ignores_reservations(labels) or bool(annotations.get(ANNOTATION_AFFINITY)),
        acts,
    )
