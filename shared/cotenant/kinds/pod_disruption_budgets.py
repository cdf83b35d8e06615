"""policy/v1 PodDisruptionBudget: its rules and columns. Source: Kubernetes' validation. The figures are the gateway's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.policies import PodDisruptionBudget
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, invalid
from cotenant.api.validation.metadata import selector_errors

BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",))
_PERCENT = re.compile(r"[0-9]{1,9}%")


def budget_errors(budget: PodDisruptionBudget) -> list[FieldError]:
    """At most one of minAvailable and maxUnavailable, each a count or a percentage."""
    spec = budget.spec
    found = selector_errors("spec.selector", spec.selector)
    if spec.min_available is not None and spec.max_unavailable is not None:
        found.append(invalid("spec", "both", "minAvailable and maxUnavailable cannot be both set"))
    for field, bound in (("spec.minAvailable", spec.min_available), ("spec.maxUnavailable", spec.max_unavailable)):
        if isinstance(bound, int):
            if bound < 0:
                found.append(invalid(field, bound, "must be greater than or equal to 0"))
        elif bound is not None and not _PERCENT.fullmatch(bound):
            found.append(invalid(field, bound, "must be an integer or a percentage such as '50%'"))
        elif bound is not None and int(bound[:-1]) > 100:
            found.append(invalid(field, bound, "must not be greater than 100%"))
    return found


class _Spec(View, frozen=True, kw_only=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class _Status(View, frozen=True, kw_only=True):
    disruptions_allowed: int = 0


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    minimum, maximum = shown.spec.min_available, shown.spec.max_unavailable
    return (
        snapshot.address.name,
        "N/A" if minimum is None else str(minimum),
        "N/A" if maximum is None else str(maximum),
        shown.status.disruptions_allowed,
        age(shown.metadata.creation_timestamp, now),
    )


DEFINITION = KindDefinition(
    BUDGETS,
    decode=msgspec.json.Decoder(PodDisruptionBudget).decode,
    errors=lambda budget, _: budget_errors(budget),
    layout=Layout(
        (NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), AGE), _cells
    ),
    has_status=True,
)
