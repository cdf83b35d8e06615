"""The checker: receives every event of a run and calls the invariants when they are due.

In: the harness, the invariants. Out: BrokenInvariantError at the first promise that is broken, and how many checks were made.
Event and commit checks run at once; moment checks, and the folds of one service at a time, at moments that the seed chooses,
because they cost more; checks of the idle phase at the end. Comparisons of folds have a budget in messages, so that they stay
cheaper than the run itself, however large the cluster. Commits are verified as they come, differences reported at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from cotenant.engine.replay import Verifier
from cotenant.events.envelope import Event
from cotenant.log.contract import LOG
from cotenant.simulation import ServiceParticipant, World
from cotenant_verification.checks.invariants import Invariant, Moment, MomentCheck
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.oom_kills import OomKills
from cotenant_verification.checks.reference_cores import ReferenceCores
from cotenant_verification.checks.suppression import SuppressionWatch
from cotenant_verification.checks.violations import BrokenInvariantError, Violation
from cotenant_verification.harness.harness import Harness
from cotenant_verification.harness.nodes import ChaosNode

FoldCheck = Callable[[ServiceParticipant, World, ReferenceCores, int], Iterable[tuple[str, str]]]

IDLE_WITHIN = timedelta(minutes=8)
"""After the faults: a lost node's pods are evicted after 5 minutes and the 30 s until it counts as lost; a refused eviction
is requested again after at most 60 s, and a budget may allow only one pod at a time.
"""
EARLIER_BY = timedelta(seconds=3)
"""When idle: services decide at once, and publish changes of requests alone once a second."""
DecideCheck = Callable[[ServiceParticipant, World, int], Iterable[tuple[str, str]]]

QuotaCheck = Callable[[Any, Any, datetime], Iterable[tuple[str, str]]]

QUOTA_NUMBER = 3
FOLD_NUMBER = 10
DECIDE_NUMBER = 19
DECIDE_EVERY = 50
"""One in this many decisions is preceded by a check, on copies, that deciding changes nothing, within this budget:"""
DECIDE_FREE = 20_000
"""two copies of a core take twice as many messages as the log has subjects, at most this many in total"""
DECIDE_SHARE = 1
"""and this many more for each message stored on LOG."""
FOLD_EVERY = 400
"""One in this many steps of an idle service is followed by a comparison with fresh cores, within the budget."""
FOLD_SHARE = 2
"""The budget: a comparison loads as many messages as the log has subjects, and all comparisons together may load at most so
many per message stored on LOG,"""
FOLD_FREE = 20_000
"""and this many in addition."""
VERIFIED = 500
"""The first commits of a run are all recomputed, up to this many,"""
VERIFIED_OF = 4
"""and later ones with this probability, drawn from the seed."""


class Checker:
    """Watches one run."""

    def __init__(
        self,
        invariants: Sequence[Invariant],
        fold_check: FoldCheck | None,
        decide_check: DecideCheck | None = None,
        quota_check: QuotaCheck | None = None,
    ) -> None:
        """`quota_check`: compares the scheduler's core and quota-tree's."""
        self.view = LogView()
        self.suppressions = SuppressionWatch()
        self.oom_kills = OomKills(self.view)
        self.references = ReferenceCores()
        self.verifier = Verifier({})
        self.counts: Counter[str] = Counter()
        """Checks made, by invariant's number."""
        self._invariants = invariants
        self._on_event = [(each, str(each.number), check) for each in invariants for check in each.on_event]
        self._fold_check = fold_check
        self._decide_check = decide_check
        self._quota_check = quota_check
        self._spent = self._spent_on_decisions = 0
        """Messages that comparisons have loaded."""
        self._chance = self._lot = self._decisions = Random(0)
        self._harness: Harness | None = None
        self._early: Collection[tuple[str, str]] = ()
        """Findings of the last early check: check and subject."""
        self._left: Collection[tuple[str, str]] = ()
        """Findings of the last idle check: check and subject."""

    def watch(self, harness: Harness) -> None:
        """Join a harness before it opens."""
        self._harness = harness
        self._chance = Random(f"checks/{harness.schedule.header.seed}")
        self._lot = Random(f"commits/{harness.schedule.header.seed}")
        self._decisions = Random(f"decisions/{harness.schedule.header.seed}")
        harness.world.watchers.append(self._see)
        harness.node_listeners.append(self._sampled)

    def listen(self, harness: Harness) -> None:
        """Subscribe to the services' steps, once they are started."""
        recomputed = [
            service.service for service in harness.services.values() if service.service.definition.recomputed
        ]
        self.verifier = Verifier({each.definition.name: each.definition for each in recomputed}, chosen=self._is_chosen)
        for participant in recomputed:
            participant.listeners.append(self._while_idle)
            if self._decide_check is not None:
                participant.before_deciding.append(self._before_deciding)
            if self._fold_check is not None:
                self.references.begin(participant)

    def _is_chosen(self, _: Event) -> bool:
        """Whether a commit is recomputed."""
        return self.verifier.report.commits < VERIFIED or not self._lot.randrange(VERIFIED_OF)

    def _see(self, event: Event) -> None:
        harness = self._harness
        assert harness is not None
        view = self.view
        view.now = harness.world.now
        if event.stream != LOG:
            self.suppressions.see(event)
            return
        commit = view.see(event)
        self.references.see(event)
        self.verifier.read(event)
        for invariant, number, check in self._on_event:
            self.counts[number] += 1
            for subject, text in check(view, event):
                self._break(invariant.number, invariant.name, subject, text)
        if commit is None:
            return
        for invariant in self._invariants:
            for commit_check in invariant.on_commit:
                self.counts[str(invariant.number)] += 1
                self._raise(invariant, commit_check(view, commit))

    def _sampled(self, node: ChaosNode, now: datetime) -> None:
        self.oom_kills.ended(node)
        control = node.control(now)
        if control is not None:
            self.suppressions.sampled(node.node_name, control, node.cpu_milli, now)

    def _while_idle(self, participant: ServiceParticipant, world: World) -> None:
        """A service decided nothing: sometimes compare it with fresh cores, if it has folded everything."""
        check = self._fold_check
        if check is None or not participant.cycle.ready or self._chance.randrange(FOLD_EVERY):
            return
        if world.waiting_for(participant.name) or world.interrupted(participant.name):
            return
        self._spent += len(self.view.last)
        if self._spent > FOLD_FREE + FOLD_SHARE * self.view.seen:
            self._spent -= len(self.view.last)
            return
        self.counts[str(FOLD_NUMBER)] += 1
        for subject, text in check(participant, world, self.references, self.counts[str(FOLD_NUMBER)]):
            self._break(FOLD_NUMBER, "state_is_the_fold", subject, text)
        if self._quota_check is not None and participant.definition.name == "scheduler":
            self.counts[str(QUOTA_NUMBER)] += 1
            quota_tree = self.references.of("quota-tree")
            for subject, text in self._quota_check(participant.cycle.core, quota_tree, world.now):
                self._break(QUOTA_NUMBER, "runtimes_agree", subject, text)

    def _before_deciding(self, participant: ServiceParticipant, world: World) -> None:
        """A service is about to decide: sometimes check on copies of its core that deciding changes nothing."""
        check = self._decide_check
        if check is None or not participant.cycle.ready or self._decisions.randrange(DECIDE_EVERY):
            return
        cost = 2 * len(self.view.last)
        if self._spent_on_decisions + cost > DECIDE_FREE + DECIDE_SHARE * self.view.seen:
            return
        self._spent_on_decisions += cost
        self.counts[str(DECIDE_NUMBER)] += 1
        for subject, text in check(participant, world, self.counts[str(DECIDE_NUMBER)]):
            self._break(DECIDE_NUMBER, "deciding_changes_nothing", subject, text)

    # -- moments ---------------------------------------------------------------------------------------------------

    def look(self, *, idle: bool = False) -> None:
        """Run the checks of a moment."""
        moment = self._moment()
        for invariant in self._invariants:
            checks: tuple[MomentCheck, ...] = (*invariant.at_moments, *(invariant.when_idle if idle else ()))
            for check in checks:
                self.counts[str(invariant.number)] += 1
                self._raise(invariant, check(moment), check.__name__)

    def _moment(self) -> Moment:
        harness = self._harness
        assert harness is not None
        return Moment(
            harness, self.view, harness.world.now, self._chance, self.counts, self.suppressions, self.oom_kills, self.verifier
        )

    def look_early(self) -> None:
        """Look for unfinished work, EARLIER_BY before `check_idle` does."""
        self._early = self._left_to_do().keys()

    def check_idle(self, since: timedelta, *, last: bool = False) -> None:
        """Look for unfinished work `since` the faults ended. A finding that the last early check did not have is too new to be
        reported. A finding at two consecutive checks is real: it must be gone within IDLE_WITHIN, and at the `last` check
        nothing may be found."""
        found = self._left_to_do() if self._early else {}
        left = {key: what for key, what in found.items() if key in self._early}
        lasting = sorted(left.keys() & self._left)
        if lasting:
            self.counts["seconds to idle"] = round(since.total_seconds())
        for name, subject in lasting if since > IDLE_WITHIN else sorted(left) if last else ():
            invariant, text = left[name, subject]
            self._break(invariant.number, name, subject, f"{text}, {since} after the faults")
        self._left = left.keys()

    def _left_to_do(self) -> dict[tuple[str, str], tuple[Invariant, str]]:
        """The findings of the convergence checks, by check and subject."""
        moment = self._moment()
        left: dict[tuple[str, str], tuple[Invariant, str]] = {}
        for invariant in self._invariants:
            for check in invariant.at_rest:
                self.counts[str(invariant.number)] += 1
                for subject, text in check(moment):
                    left[check.__name__, subject] = (invariant, text)
        return left

    def _raise(self, invariant: Invariant, wrong: Iterable[tuple[str, str]], name: str = "") -> None:
        for subject, text in wrong:
            self._break(invariant.number, name or invariant.name, subject, text)

    def _break(self, number: int, name: str, subject: str, text: str) -> None:
        last = self.view.log[-1].sequence if self.view.log else 0
        assert self._harness is not None
        raise BrokenInvariantError(Violation(number, name, subject, text, last, self._harness.world.now))
