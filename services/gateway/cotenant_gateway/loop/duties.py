"""Writes of the gateway without a request: endings, registrations, budgets' statuses, built-in objects, service accounts of
namespaces, root quotas of quota profiles, profiles of waiting pods, finished pods that are to be deleted, and facts that other
services left behind.

Level-triggered: each pass yields what the read model lacks at that moment. The caller stores the plans of one yield before it
takes the next, unless it does not wait for them; a plan that the log refuses is yielded again after a later fold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.api.edits import with_metadata
from cotenant.api.times import rfc3339
from cotenant.events.objects import ObjectStored
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.pod_disruption_budgets import BUDGETS
from cotenant.log.plans import Plan, PlannedWrite
from cotenant_gateway.loop.waiting_pods import ProfilePasses
from cotenant_gateway.planning.budgets import budget_updates
from cotenant_gateway.planning.built_in import missing_built_ins
from cotenant_gateway.planning.declared import documents_of_no_node
from cotenant_gateway.planning.default_accounts import Seen, missing_default_accounts, seen_accounts
from cotenant_gateway.planning.endings import endings, registrations
from cotenant_gateway.planning.leftovers import ended_runs, leftovers
from cotenant_gateway.planning.pod_collection import TERMINATED_POD_THRESHOLD, collected_pods
from cotenant_gateway.planning.profiled_quotas import QuotaRefused, profiled_quotas
from cotenant_gateway.planning.reservation_collection import collected_reservations
from cotenant_gateway.read_model.core import GatewayCore

logger = logging.getLogger(__name__)

BUILT_INS_EVERY = timedelta(seconds=1)
ACCOUNTS_EVERY = timedelta(seconds=1)
COLLECTED_EVERY = timedelta(seconds=1)
PROFILED_EVERY = timedelta(seconds=1)
DECLARED_EVERY = timedelta(seconds=1)
RESERVATIONS_EVERY = timedelta(seconds=60)
GATHERED_ENDINGS = timedelta(milliseconds=250)
"""The first tombstone is stored at once, those within this time after it together: a tombstone by itself costs the
server more than one of many."""
GATHERED_RUNS = timedelta(seconds=1)
"""The same for tombstones of run reports, which nobody waits for; MANY_RUNS of them wait for GATHERED_ENDINGS only."""
MANY_RUNS = 100


class Cadence(msgspec.Struct, frozen=True):
    """How often budgets are checked: after every fold if `after_folds`, and once per `every` in any case (a disruption becomes
    old). `every` None: never."""

    every: timedelta | None
    after_folds: bool = False


class Duties:
    """The duties of one gateway."""

    def __init__(
        self,
        core: Callable[[], GatewayCore],
        new_uid: Callable[[], str],
        budgets: Cadence,
        terminated_pods: int = TERMINATED_POD_THRESHOLD,
    ) -> None:
        """`terminated_pods`: how many finished pods are kept; 0: all."""
        self._core = core
        self._terminated_pods = terminated_pods
        self._waiting_pods = ProfilePasses(core)
        self._ended: datetime | None = None
        self._runs_ended: datetime | None = None
        self._collected: datetime | None = None
        self._declared_seen: datetime | None = None
        self._reservations_seen: datetime | None = None
        self._new_uid = new_uid
        self._budgets = budgets
        self._budgets_seen: tuple[int, datetime] | None = None
        self._built_ins_seen: datetime | None = None
        self._accounts_seen: tuple[datetime, Seen | None] = (datetime.min.replace(tzinfo=UTC), None)
        self._profiled: datetime | None = None
        self._refused: dict[str, str] = {}
        """By profile, why its quota cannot be stored, as last reported."""
        self.complete = False
        """Whether a pass has found every built-in object."""

    def built_ins(self, now: datetime) -> Iterator[Sequence[Plan]]:
        """Yield the built-in objects that are missing: at every pass until there are none, then once a second."""
        seen = self._built_ins_seen
        if self.complete and seen is not None and seen <= now < seen + BUILT_INS_EVERY:
            return
        self._built_ins_seen = now
        missing = self._identified(missing_built_ins(self._core()), now)
        self.complete = self.complete or not missing
        if missing:
            yield missing

    def default_accounts(self, now: datetime) -> Iterator[Sequence[Plan]]:
        """Yield the service accounts that namespaces lack: when namespaces or accounts have changed, and once a second."""
        core, (at, before) = self._core(), self._accounts_seen
        seen = seen_accounts(core)
        unchanged = before is not None and before[0] is seen[0] and before[1] is seen[1]
        if unchanged and at <= now < at + ACCOUNTS_EVERY:
            return
        self._accounts_seen = (now, seen)
        missing = self._identified(missing_default_accounts(core), now)
        if missing:
            yield missing

    def profiled_quotas(self, now: datetime) -> Iterator[Sequence[Plan]]:
        """Yield the root quotas that profiles lack or that have changed, once a second. A refusal is reported once."""
        core, seen = self._core(), self._profiled
        if not core.collections[QUOTA_PROFILES].slots or (seen is not None and seen <= now < seen + PROFILED_EVERY):
            return
        self._profiled = now
        plans: list[Plan] = []
        refused: dict[str, str] = {}
        for found in profiled_quotas(core):
            if isinstance(found, QuotaRefused):
                refused[found.profile] = found.message
                if self._refused.get(found.profile) != found.message:
                    logger.warning("ElasticQuotaProfile %s: %s", found.profile, found.message)
            else:
                plans.append(self._with_identity(found, now) if found.creates else found)
        self._refused = refused
        if plans:
            yield plans

    def due(self, now: datetime) -> Iterator[Sequence[Plan]]:
        """Yield the writes that are due: endings, then registrations, then budgets, then once a second documents of nodes that
        are gone, pods that wait for profiles, finished pods and leftovers of pods."""
        core = self._core()
        ended: list[Plan] = []
        if (core.may_end or core.orphaned) and self._endings_are_due(now):
            ended = list(endings(core, now))
            self._ended = now if ended else self._ended
        if core.pod_ends.left and self._runs_are_due(core, now):
            runs = list(ended_runs(core))
            self._runs_ended = now if runs else self._runs_ended
            ended += runs
        if ended:
            yield ended
        if core.unregistered:
            yield self._identified(registrations(core), now)
        if self._budgets.every is not None and core.collections[BUDGETS].slots and self._budgets_are_due(core, now):
            self._budgets_seen = (core.folded, now)
            yield list(budget_updates(core, now))
        if core.declared and not _within(self._declared_seen, now, DECLARED_EVERY):
            self._declared_seen = now
            gone = list(documents_of_no_node(core))
            if gone:
                yield gone
        waiting = self._waiting_pods.due(now)
        if waiting:
            yield waiting
        if core.collections[RESERVATIONS].slots and not _within(self._reservations_seen, now, RESERVATIONS_EVERY):
            self._reservations_seen = now
            yield list(collected_reservations(core, now))
        ends, collected = core.pod_ends, self._collected
        if (ends.finished or ends.deserted or ends.outcomes) and not (
            collected is not None and collected <= now < collected + COLLECTED_EVERY
        ):
            self._collected = now
            yield list(collected_pods(core, now, self._terminated_pods))
            yield list(leftovers(core, now))

    def wait(self, now: datetime) -> timedelta | None:
        """Return how long ending objects have to wait for the next pass; None if none waits."""
        core = self._core()
        waits = []
        if core.may_end and self._ended is not None and not self._endings_are_due(now):
            waits.append(self._ended + GATHERED_ENDINGS - now)
        if core.pod_ends.left and self._runs_ended is not None and not self._runs_are_due(core, now):
            waits.append(self._runs_ended + _runs_wait(core) - now)
        return min(waits, default=None)

    def _endings_are_due(self, now: datetime) -> bool:
        return not _within(self._ended, now, GATHERED_ENDINGS)

    def _runs_are_due(self, core: GatewayCore, now: datetime) -> bool:
        return not _within(self._runs_ended, now, _runs_wait(core))

    def _budgets_are_due(self, core: GatewayCore, now: datetime) -> bool:
        if self._budgets_seen is None or self._budgets.every is None:
            return True
        folded, seen = self._budgets_seen
        return (self._budgets.after_folds and core.folded != folded) or not seen <= now < seen + self._budgets.every

    def _identified(self, plans: Iterable[Plan], now: datetime) -> list[Plan]:
        """The gateway's own objects get uid and creation time here: planning uses neither randomness nor a clock."""
        return [self._with_identity(plan, now) for plan in plans]

    def _with_identity(self, plan: Plan, now: datetime) -> Plan:
        writes = []
        for write in plan.writes:
            assert isinstance(write.payload, ObjectStored)
            given = {"uid": self._new_uid(), "creationTimestamp": rfc3339(now), "generation": 1}
            payload = ObjectStored(object=with_metadata(write.payload.object, given), admission=write.payload.admission)
            writes.append(PlannedWrite(write.subject, payload, write.expected, write.tombstone, write.causes))
        return Plan(tuple(writes), plan.creates)


def _runs_wait(core: GatewayCore) -> timedelta:
    return GATHERED_ENDINGS if len(core.pod_ends.left) >= MANY_RUNS else GATHERED_RUNS


def _within(seen: datetime | None, now: datetime, every: timedelta) -> bool:
    return seen is not None and seen <= now < seen + every
