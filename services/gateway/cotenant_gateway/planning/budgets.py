"""PodDisruptionBudgets: how many of the selected pods may be disrupted now, and whether this one may.

In: a budget and the pods of its namespace. Out: the figures of the budget's status, the answer to an eviction, and the
status to store. Rules of Kubernetes' disruption controller and eviction subresource, with one difference: the
expected number of pods is the number of selected pods that have not finished (there are no controllers whose scale
could be read).

    desired healthy = minAvailable (percentages of expected, rounded up) or expected - maxUnavailable, at least 0
    allowed         = max(current healthy - desired healthy, 0); 0 where nothing is expected
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.api.edits import with_status
from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.snapshots import Snapshot
from cotenant.api.times import parse_rfc3339, rfc3339
from cotenant.domain.disruption_budgets import DisruptionBudget, decode_budget
from cotenant.domain.selectors import Predicate, SelectorError, predicate
from cotenant.events.objects import ObjectStored
from cotenant.kinds.pod_disruption_budgets import BUDGETS
from cotenant.kinds.pods import PODS
from cotenant.log.plans import Plan, object_write
from cotenant_gateway.read_model.core import GatewayCore

DISRUPTED_FOR = timedelta(minutes=2)
"""How long an evicted pod without a deletionTimestamp still counts as disrupted."""

MAX_DISRUPTED = 2000
"""Disrupted pods that a status can name; beyond it evictions are refused, as in Kubernetes."""


class _Read(msgspec.Struct, frozen=True):
    """A budget and its selector's test. One that cannot be read (stored by another writer) covers no pod."""

    budget: DisruptionBudget
    matches: Predicate
    readable: bool = True


def _read(raw: msgspec.Raw) -> _Read:
    try:
        budget = decode_budget(raw)
    except msgspec.MsgspecError:
        return _Read(DisruptionBudget(), predicate(None, absent=False), readable=False)
    try:
        return _Read(budget, predicate(budget.selector, absent=False))
    except SelectorError:
        return _Read(DisruptionBudget(), predicate(None, absent=False), readable=False)


def _view(budget: Snapshot) -> _Read:
    read = budget.view(_read)
    assert isinstance(read, _Read)
    return read


class BudgetFigures(msgspec.Struct, frozen=True):
    """A budget's figures now."""

    expected: int
    desired: int
    healthy: int
    disrupted: Mapping[str, str]
    full: bool = False

    @property
    def allowed(self) -> int:
        if self.expected <= 0 or self.full:
            return 0
        return max(self.healthy - self.desired, 0)


def _share(bound: int | str, expected: int) -> int:
    """Return a count, or a percentage of `expected` rounded up; a malformed text counts as 0."""
    if isinstance(bound, int):
        return bound
    match = re.fullmatch(r"(\d{1,9})%", bound)
    return -(-int(match.group(1)) * expected // 100) if match else 0


def selects(budget: Snapshot, pod: Snapshot) -> bool:
    """Return whether the budget covers the pod."""
    if budget.address.namespace != pod.address.namespace:
        return False
    return _view(budget).matches(pod.labels)


def is_healthy(pod: Snapshot) -> bool:
    """Return whether the pod is ready and not being deleted."""
    if pod.meta.deletion_timestamp is not None:
        return False
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod.overlay.conditions)


def has_finished(pod: Snapshot) -> bool:
    """Return whether the pod has run to its end."""
    return pod.fields.get("status.phase") in ("Succeeded", "Failed")


def figures(core: GatewayCore, budget: Snapshot, now: datetime) -> BudgetFigures:
    """Return the budget's figures over the pods that it selects."""
    known = core.derived(PODS, _none_yet)
    found = known.get(budget)
    if found is None:
        found = _counted(core, budget, now)
        if not _view(budget).budget.status.disrupted_pods:  # otherwise they change with time
            known[budget] = found
    return found


def _none_yet(_: GatewayCore) -> dict[Snapshot, BudgetFigures]:
    """Budgets' figures that are valid until a pod changes."""
    return {}


class _Covered(msgspec.Struct):
    """What one budget covers: its selector, and the pods by name."""

    selector: LabelSelector | None
    matches: Predicate
    pods: dict[str, Snapshot] = {}

    def look_at(self, name: str, pod: Snapshot | None) -> None:
        if pod is not None and self.matches(pod.labels) and not has_finished(pod):
            self.pods[name] = pod
        else:
            self.pods.pop(name, None)


class Coverage:
    """The unfinished pods of each budget, updated as pods change. Bound: the budgets, and their pods as
    of when a budget was first seen."""

    def __init__(self) -> None:
        self._budgets: dict[tuple[str, str], _Covered] = {}

    def pods(self, core: GatewayCore, budget: Snapshot) -> Mapping[str, Snapshot]:
        """Return the pods that a budget covers as they are."""
        for namespace, name in core.touched(PODS):
            for (home, _), covered in self._budgets.items():
                if home == namespace:
                    covered.look_at(name, core.get(PODS, namespace, name))
        key, read = (budget.address.namespace, budget.address.name), _view(budget)
        found = self._budgets.get(key)
        if found is None or found.selector != read.budget.selector:
            self._budgets = {key: known for key, known in self._budgets.items() if core.get(BUDGETS, *key) is not None}
            found = self._budgets[key] = _Covered(read.budget.selector, read.matches)
            for pod in core.objects(PODS, budget.address.namespace):
                found.look_at(pod.address.name, pod)
        return found.pods


def _counted(core: GatewayCore, budget: Snapshot, now: datetime) -> BudgetFigures:
    view = _view(budget).budget
    pods = core.cached(Coverage).pods(core, budget)
    disrupted = {
        name: time
        for name, time in sorted(view.status.disrupted_pods.items())
        if name in pods and pods[name].meta.deletion_timestamp is None and now - (parse_rfc3339(time) or now) < DISRUPTED_FOR
    }
    expected = len(pods)
    if view.spec.max_unavailable is not None:
        desired = max(expected - _share(view.spec.max_unavailable, expected), 0)
    else:
        desired = _share(view.spec.min_available if view.spec.min_available is not None else 1, expected)
    healthy = sum(1 for name, pod in pods.items() if name not in disrupted and is_healthy(pod))
    return BudgetFigures(expected, desired, healthy, disrupted, len(disrupted) >= MAX_DISRUPTED)


class EvictionVerdict(msgspec.Struct, frozen=True):
    """Whether a pod may be evicted. `budgets`: those whose status must be written with it."""

    allowed: bool
    message: str = ""
    budget: str = ""
    budgets: tuple[tuple[Snapshot, BudgetFigures], ...] = ()


def judge(core: GatewayCore, pod: Snapshot, now: datetime) -> EvictionVerdict:
    """Return whether the budgets that cover the pod allow its eviction; all of them must."""
    if pod.meta.deletion_timestamp is not None or pod.fields.get("status.phase") != "Running":
        return EvictionVerdict(True)
    charged: list[tuple[Snapshot, BudgetFigures]] = []
    for budget in core.objects(BUDGETS, pod.address.namespace):
        if budget.stored is None or not selects(budget, pod):
            continue
        now_figures = figures(core, budget, now)
        policy = _view(budget).budget.spec.unhealthy_pod_eviction_policy
        if not is_healthy(pod):
            enough = now_figures.healthy >= now_figures.desired > 0
            if policy == "AlwaysAllow" or enough:
                continue
        if now_figures.allowed <= 0:
            name = budget.address.name
            message = (
                f"The disruption budget {name} needs {now_figures.desired} healthy pods and has {now_figures.healthy} currently"
            )
            return EvictionVerdict(False, message, name)
        charged.append((budget, now_figures))
    return EvictionVerdict(True, budgets=tuple(charged))


def charged_status(budget: Snapshot, before: BudgetFigures, pod_name: str, now: datetime) -> ObjectStored:
    """Return the budget with one more disruption in its status."""
    after = msgspec.structs.replace(
        before, healthy=max(before.healthy - 1, 0), disrupted={**before.disrupted, pod_name: rfc3339(now)}
    )
    return _with_figures(budget, after)


def _with_figures(budget: Snapshot, now_figures: BudgetFigures) -> ObjectStored:
    assert budget.stored is not None
    return ObjectStored(
        object=with_status(
            budget.stored.raw,
            {
                "disruptionsAllowed": now_figures.allowed,
                "currentHealthy": now_figures.healthy,
                "desiredHealthy": now_figures.desired,
                "expectedPods": now_figures.expected,
                "disruptedPods": dict(now_figures.disrupted) or None,
                "observedGeneration": budget.stored.meta.generation,
            },
        )
    )


def budget_updates(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    """Yield the statuses that are out of date: level-triggered, one plan a budget."""
    for budget in core.objects(BUDGETS):
        if budget.stored is None or not _view(budget).readable:
            continue
        now_figures = figures(core, budget, now)
        status = _view(budget).budget.status
        shown = (
            status.disruptions_allowed,
            status.current_healthy,
            status.desired_healthy,
            status.expected_pods,
            status.disrupted_pods,
            status.observed_generation,
        )
        wanted = (
            now_figures.allowed,
            now_figures.healthy,
            now_figures.desired,
            now_figures.expected,
            dict(now_figures.disrupted),
            budget.stored.meta.generation,
        )
        if shown != wanted:
            yield Plan((object_write(budget.address, _with_figures(budget, now_figures), budget.stored.sequence),))
