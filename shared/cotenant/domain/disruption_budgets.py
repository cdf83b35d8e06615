"""PodDisruptionBudgets as services read them: the pods that a budget covers, its bounds, its last status.

In: the budget's document. Out: a `DisruptionBudget`; one that cannot be decoded is a msgspec.MsgspecError. The status is
written by the gateway, with every eviction that it allows; its figures are -1 where it has never been written. Readers
differ on what an empty selector covers: for the disruption controller all pods of the namespace, for the preemption of
kube-scheduler none.

Source: Kubernetes policy/v1.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import LabelSelector, View
from cotenant.api.objects.policies import PodDisruptionBudgetSpec


class DisruptionBudgetSpec(PodDisruptionBudgetSpec, frozen=True, kw_only=True):
    """The bounds, and whether pods that are not ready may end although too few are."""

    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class DisruptionBudgetStatus(View, frozen=True, kw_only=True):
    """Counts of pods; `disrupted_pods`: when (RFC 3339) an eviction was allowed that has not shown yet, by pod."""

    disrupted_pods: dict[str, str] = {}
    current_healthy: int = -1
    desired_healthy: int = -1
    disruptions_allowed: int = -1
    expected_pods: int = -1
    observed_generation: int = 0


class DisruptionBudget(View, frozen=True, kw_only=True):
    """A budget's spec and status."""

    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()

    @property
    def selector(self) -> LabelSelector | None:
        """Which pods of the budget's namespace it covers."""
        return self.spec.selector


_DECODER = msgspec.json.Decoder(DisruptionBudget)


def decode_budget(document: msgspec.Raw) -> DisruptionBudget:
    """Return a budget's view. Raises msgspec.MsgspecError."""
    return _DECODER.decode(document)
