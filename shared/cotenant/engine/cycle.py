"""The cycle of a deciding service, without I/O: fold, propose a batch, learn whether it was stored.

The asyncio shell (`service`) and the simulator drive the same class, so simulated results hold in production.

A proposal is one atomic batch. Its first message is the commit record on `commits.<service>.<partition>`, expecting the
sequence of the last such record, the fence: a stale or second writer is refused by the server and refolds. A decision of one
event is one message, with its record in it; it expects the same, and leaves the fence where it is. So a replica decides only
behind a fence of its own: before its first decision, and after a race that it lost, it stores a record alone, and waits until
that is delivered. What the replica before it stored is folded by then, and what that one still has on its way is refused. There
is no other fencing. A replica that lost a race or learns of another's commit holds back HOLD_BACK, and takes over only if no
other replica committed meanwhile.

State decided on = foreign messages up to `folded` plus own messages up to the end of `prior`'s commit. A proposal is made
only when both hold: the start marker has been delivered, and every own message up to the end of the last
known commit has been folded.

While a batch is being stored, a core that can assume it (`cotenant.engine.core.Assuming`) decides the next one: `decide_next`.
At most one batch is being stored and one decided behind it. The next batch is built once the first one's sequences are known;
it is dropped, and the assumed batch withdrawn, if the first one is refused or another replica's commit is delivered instead.

Over 300 lines: all methods maintain the same few positions of what is folded, assumed and stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec

from cotenant.engine.ahead import DecidedAhead
from cotenant.engine.commit import Batch, CommitPlace, Decision, Identity, commit_batch
from cotenant.engine.core import MAX_EVENTS_TOGETHER, Assuming, Core
from cotenant.engine.load import RELOAD_PAUSE, Load
from cotenant.engine.quarantine import Quarantine
from cotenant.events.commits import Commit, ServiceStarted, record_of
from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, Stored
from cotenant.log.traces import Traces

HOLD_BACK = timedelta(seconds=2)
REMEMBERED_BATCHES = 1024
"""Own batches whose messages may still be delivered: a reader further behind than that has started over long before."""
AHEAD_FROM = 100
"""Behind a batch of so many events the next one is decided while it is stored. Behind a smaller one that would save little
time, and keep what arrives meanwhile waiting for one batch more."""
FULL_FROM = 900
"""A batch of so many events is one of several: pace saves small batches, so the next one need not wait for it, and what fills
one while urgent events are looked for is not held back."""
FENCE_AGE = 2_000
"""Messages of LOG after which the next decision stores a record of its own again: the server looks the fence up for each
commit, and finds it in the block that it is writing."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DecisionError(RuntimeError):
    """A core broke its contract; the text says how."""


def config_digest(config_text: str) -> str:
    """Return the digest that commit records carry for a configuration text."""
    return blake2b(config_text.encode(), digest_size=8).hexdigest()


class Cycle:
    """Fold, propose, settle. Not thread-safe; one proposal at a time, and one decided behind it."""

    def __init__(
        self,
        core: Core,
        identity: Identity,
        config_text: str = "{}",
        *,
        timer: Callable[[], int] = int,
        ahead_from: int = AHEAD_FROM,
        pace: timedelta = timedelta(0),
        urgent: Callable[[Event], bool] | None = None,
        quarantine: Quarantine | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`quarantine` None: what a core raises is raised, as in tests and in the simulator. `traces`: of what is folded, kept
        by who drives the cycle; None: events begin traces of their own."""
        self.core = core
        self.identity = identity
        self._source = identity.source
        self.config_text = config_text
        self.config = config_digest(config_text)
        self.folded = 0
        self.behind = False
        """Folded messages may be missing (`log.contract.Lagging`). Set by the caller of `fold`."""
        self.prior = 0
        self.conflicts = 0
        self._timer = timer
        self._ahead_from = ahead_from
        self._pace = pace
        self._urgent = urgent
        self.quarantine = quarantine
        self._traces = traces
        self._next_due: datetime | None = None
        """Before this time only urgent and full batches are stored."""
        self._assuming = core if isinstance(core, Assuming) else None
        self._proposed: Batch | None = None
        """The last proposed batch, until its outcome is known."""
        self._settled: Batch | None = None
        """The last batch known to be stored."""
        self._assumed = False
        """The core has assumed the proposed batch, which is still being stored."""
        self._ahead = DecidedAhead()
        self._prior_is_single = False
        self._fence = 0
        """Sequence of the last record that is a message of its own."""
        self._fence_is_own = False
        """This cycle stored it, so no other writer has decided since."""
        self._prior_end = 0
        self._own_through = 0
        self._applied: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        self._unread: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """Ranges of own messages that a reader may leave out."""
        self._floor = _EPOCH
        self._rival_seen: datetime | None = None
        """When another replica committed last, None: since this one's last record none did. `_knew_rival`: so it was when the
        last batch was proposed."""
        self._knew_rival = False
        self._load: Load | None = None

    # -- reading -------------------------------------------------------------------------------------------------

    def start_marker(self, now: datetime, filters: Sequence[str], load: int = 0) -> Event:
        """Return the marker to store once the reader is there; its delivery ends the load. `load` numbers the incarnations."""
        self._load = Load(self.identity, filters, load, config=self.config, config_text=self.config_text)
        return self._load.marker(now)

    @property
    def loaded(self) -> bool:
        """The start marker was delivered: everything before it is folded."""
        return self._load is not None and self._load.over

    @property
    def pause(self) -> timedelta:
        """Return how long to wait before the next incarnation, should this one break off."""
        return self._load.pause if self._load is not None else RELOAD_PAUSE

    def fold(self, events: Sequence[Event], now: datetime) -> None:
        """Fold delivered messages. Repeats and own messages that were applied when stored change nothing."""
        if self.quarantine is None:
            self._fold(iter(events), now)
        else:
            self.quarantine.fold_with(events, lambda remaining: self._fold(remaining, now))

    def _fold(self, events: Iterator[Event], now: datetime) -> None:
        """Fold each message; one that raises counts as delivered, too."""
        apply, source, folded = self.core.apply, self._source, self.folded
        try:
            for event in events:
                if event.source == source:
                    self._fold_own(event, now)
                else:
                    if event.sequence > folded and event.stream == LOG:
                        folded = event.sequence
                    apply(event)
        finally:
            self.folded = folded

    def apply(self, event: Event, now: datetime) -> None:
        """Fold one message; it counts as delivered even if it raises."""
        self._fold(iter((event,)), now)

    def _fold_own(self, event: Event, now: datetime) -> None:
        """Fold an own message, unless it was applied when it was stored. Delivery is in order, so old ranges can go."""
        sequence, applied = event.sequence if event.stream == LOG else 0, self._applied
        self._own_through = max(self._own_through, sequence)
        while applied and applied[0][1] < sequence:
            applied.popleft()
        if applied and applied[0][0] <= sequence:
            return
        data = event.data
        if isinstance(data, ServiceStarted):
            if self._load is not None:
                self._load.ends_with(event)
            return
        record = record_of(event) if sequence > self.prior else None
        if record is not None and self._saw_commit(event, record, now):
            return
        if not isinstance(data, Commit):
            self.core.apply(event)
        elif sequence > self._fence:
            # A load may deliver it behind later commits of one event.
            self._fence, self._fence_is_own = sequence, False

    def was_stored(self, sequence: int) -> bool:
        """Return whether a message is an own one that was applied when it was stored, so that it need not be decoded. To be
        called in the order of delivery."""
        while self._unread and self._unread[0][1] < sequence:
            self._unread.popleft()
        return bool(self._unread) and self._unread[0][0] <= sequence

    def _saw_commit(self, event: Event, record: Commit, now: datetime) -> bool:
        """Learn of a commit by its first message. True: it is the proposed one, and applied."""
        sequence = event.sequence
        if self._proposed is not None and self._proposed.is_begun_by(event):
            # Delivered before the acknowledgement: a batch is stored whole, so the delivery implies the outcome.
            self._settle(self._proposed, Stored(sequence, sequence + record.count))
            return True
        self._withdraw()
        self.prior, self._prior_is_single = sequence, event.commit is not None
        self._prior_end = sequence + record.count
        self._floor = max(self._floor, record.now)
        if record.replica != self.identity.replica and self.loaded:
            self._rival_seen = now
        return False

    # -- deciding ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the core holds a state that may be decided on, and nothing beside it."""
        load, end = self._load, self._prior_end
        return (
            load is not None and load.over and not self._assumed and (self.folded >= end or self._own_through >= end)
        )

    @property
    def holding_back(self) -> bool:
        """Whether another replica decides, and this one holds back."""
        return self._rival_seen is not None

    def due(self, now: datetime) -> datetime | None:
        """Return when a batch that is not urgent may be stored, None: now."""
        due = self._next_due
        return due if due is not None and due - self._pace <= now < due else None

    @property
    def has_next(self) -> bool:
        """Whether the next batch is decided already and large enough to be stored as it is, whatever arrived since."""
        ahead = self._ahead.decision
        return ahead is not None and len(ahead.events) >= self._ahead_from

    def propose(self, now: datetime) -> Batch | None:
        """Return the next batch, None if nothing follows from the state (or it may not be decided on yet)."""
        if not self.ready:
            return None
        # A clock that was set back does not lengthen the wait.
        if self._rival_seen is not None and timedelta(0) <= now - self._rival_seen < HOLD_BACK:
            return None
        held_back = self._next_due is not None and self.due(now) is not None and not self.has_next
        if held_back and self._urgent is None:
            return None
        decision = self._ahead.take(self.prior) if self._ahead.decision is not None else None
        if decision is None or not self._holds(decision):
            decision = self._decide(max(now, self._floor))
        if held_back and not self._passes(decision):
            return None
        if not decision.events:
            self._proposed = None
            return None
        self._knew_rival = self._rival_seen is not None
        place = CommitPlace(self.prior, self._fence, follows_single=self._prior_is_single)
        if not self._fence_is_own:
            decision = msgspec.structs.replace(decision, events=())
        elif self._pace:
            self._next_due = now + self._pace if len(decision.events) < FULL_FROM else None
        single = self.folded - self._fence < FENCE_AGE
        self._proposed = commit_batch(decision, self.identity, self.config, place, self._traces, single=single)
        return self._proposed

    def _passes(self, decision: Decision) -> bool:
        """Whether a decision is stored before its time: it has an urgent event, or fills a batch by itself."""
        return len(decision.events) >= FULL_FROM or (self._urgent is not None and any(map(self._urgent, decision.events)))

    def decide_next(self, batch: Batch, now: datetime) -> bool:
        """Decide what follows `batch`, which is being stored; return whether anything does. Call it again after more was
        folded: a small decision is made again."""
        if self._assuming is None or len(batch.decided) < self._ahead_from:
            return False
        if not self._assumed:
            if batch is not self._proposed or not self.ready:
                return False  # settled already, or bound to be refused
            self._assuming.assume(batch.decided)
            self._assumed = True
        ahead = self._ahead.decision
        if ahead is None or not self._holds(ahead):
            ahead = self._decide(max(now, self._floor, batch.record.now))
            self._ahead.keep(ahead)
        return bool(ahead.events)

    def _holds(self, decision: Decision) -> bool:
        """Whether a decision is stored unchanged: it is large, or nothing arrived since."""
        return len(decision.events) >= self._ahead_from or decision.folded == self.folded

    def _decide(self, now: datetime) -> Decision:
        started = self._timer()
        decided = self.core.decide(now)
        if len(decided) > MAX_EVENTS_TOGETHER:
            raise DecisionError(
                f"{self.identity.service} decided {len(decided)} events at once; at most {MAX_EVENTS_TOGETHER} fit a batch"
            )
        took_us = (self._timer() - started) // 1000
        return Decision(events=decided, folded=self.folded, now=now, took_us=took_us, behind=self.behind)

    # -- settling ------------------------------------------------------------------------------------------------

    def stored(self, batch: Batch, outcome: Stored) -> None:
        """Apply what was stored; its sequences follow from the acknowledgement."""
        if self._settled is not batch:
            self._settle(batch, outcome)

    def _settle(self, batch: Batch, outcome: Stored) -> None:
        # Another replica may have committed behind this batch, and its record been folded before the acknowledgement came.
        if outcome.first > self.prior:
            self.prior, self._prior_is_single = outcome.first, batch.is_single
            self._prior_end = outcome.last
            if not batch.is_single:
                self._fence, self._fence_is_own, self._rival_seen = outcome.first, True, None
        self._floor = max(self._floor, batch.record.now)
        if self._assumed and self._assuming is not None and batch is self._proposed:
            self._assuming.confirm(outcome.first if batch.is_single else outcome.first + 1)
            self._assumed = False
            self._ahead.follows(outcome.first)
        else:
            for event in batch.as_stored(outcome.first):
                self.core.apply(event)
        self._proposed, self._settled = None, batch
        if batch.takes_over:
            return  # Its delivery shows that what was stored before it is folded.
        self._applied.append((outcome.first, outcome.last))
        self._unread.append((outcome.first, outcome.last))
        self._own_through = max(self._own_through, outcome.last)

    def refused(self, now: datetime) -> bool:
        """Take back the whole batch: another replica committed first, and its messages follow. Returns True unless one was
        known to decide when the batch was proposed."""
        self._withdraw()
        self._fence_is_own = False
        self.conflicts += 1
        news, self._rival_seen, self._knew_rival = not self._knew_rival, now, True
        return news

    def not_stored(self) -> None:
        """The log had no room for the batch: it is removed from the core, and decided again later."""
        self._withdraw()

    def _withdraw(self) -> None:
        """Withdraw the batch being stored and the one decided behind it: they are not stored."""
        self._proposed = None
        self._ahead.drop()
        if self._assumed and self._assuming is not None:
            self._assumed = False
            self._assuming.withdraw()
