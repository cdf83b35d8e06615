"""The quotas' runtimes in the state that each of the scheduler's decisions was made from, as quota-tree computes them: for
promise 3.

In: the messages that quota-tree reads, in the log's order, and the scheduler's commits. Out: the quotas as of a commit. A
core of quota-tree folds the messages behind a commit: foreign ones up to `folded`, the scheduler's own up to the end of
the batch before. Bound: the messages that are stored between two commits of the scheduler.
"""

from __future__ import annotations

from collections import deque

from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.subjects import selecting
from cotenant_quota_tree.core import FILTERS, QuotaTreeCore
from cotenant_verification.checks.records import CommitSeen

_READ = selecting(FILTERS)
Quotas = dict[str, dict[str, QuotaRuntime]]
"""By tree and name."""


class QuotasAsDecided:
    """See the module."""

    def __init__(self) -> None:
        self._core = QuotaTreeCore()
        self._own: deque[Event] = deque()
        self._foreign: deque[Event] = deque()
        self._folded = self._end = 0

    def see(self, event: Event) -> None:
        """Take in a message of LOG."""
        if _READ.fullmatch(event.subject.encode()):
            (self._own if isinstance(event.data, Placement) else self._foreign).append(event)

    def decided(self, seen: CommitSeen) -> Quotas | None:
        """Return the quotas that a commit of the scheduler was decided on, before the next one is asked for; None where it was
        decided on less than one before it, or may lack messages."""
        commit, last_end = seen.commit, self._end
        self._end = seen.record.sequence + commit.count
        _fold(self._core, self._own, last_end)
        if commit.behind or commit.folded < self._folded:
            return None
        self._folded = commit.folded
        _fold(self._core, self._foreign, commit.folded)
        self._core.decide(commit.now)
        found: Quotas = {}
        for quota in self._core.quotas():
            found.setdefault(quota.tree, {})[quota.quota] = quota
        return found


def _fold(core: QuotaTreeCore, messages: deque[Event], last: int) -> None:
    while messages and messages[0].sequence <= last:
        core.apply(messages.popleft())
