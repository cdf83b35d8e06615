"""The cycle of a deciding service, without I/O: fold, propose a batch, learn whether it was stored.

The asyncio shell (`service`) and the simulator drive the same class, so what the simulator proves holds in production.

A proposal is one atomic batch. Its first message is the commit record on `commits.<service>.<partition>`, expecting the
sequence of the service's own previous commit record: a stale or second writer is refused by the server and refolds. That is
the whole fencing. A replica that lost the last race holds back HOLD_BACK and commits only if nobody else did.

State decided on = foreign messages up to `folded` plus own messages up to the end of `prior`'s batch. A proposal is made
only when both are true of the core: the start marker has been delivered, and every own message up to the end of the last
known commit's batch has been folded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec

from cotenant.core import MAX_EVENTS_PER_DECISION, Core
from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event, traceparent_of
from cotenant.log import LOG, Stored, Write
from cotenant.subjects import commit_subject, marker_subject

HOLD_BACK = timedelta(seconds=2)
REMEMBERED_BATCHES = 1024
"""Own batches whose messages may still be delivered: a reader further behind than that has started over long before."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DecisionError(RuntimeError):
    """A core broke its contract; the text says how."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who decides: all replicas of one partition share everything but `replica`."""

    service: str
    cell: str = "cell"
    partition: str = "0"
    replica: str = "0"
    version: str = "0.1.0"
    core: str = "1"

    @property
    def source(self) -> str:
        """CloudEvents source, and the mark by which own messages are known."""
        return f"/{self.cell}/{self.service}/{self.partition}"

    @property
    def commit_subject(self) -> str:
        return commit_subject(self.service, self.partition)

    @property
    def marker_subject(self) -> str:
        return marker_subject(self.service, self.replica)


class Batch(msgspec.Struct, frozen=True):
    """A proposal: the commit record and what was decided, ready to be stored."""

    prior: int
    events: tuple[Event, ...]

    def writes(self) -> list[Write]:
        """Return the messages with the one expectation that fences them."""
        first, *rest = self.events
        return [Write(event=first, expected=self.prior), *(Write(event=event) for event in rest)]


def config_digest(config_text: str) -> str:
    """Return the digest that commit records carry for a configuration text."""
    return blake2b(config_text.encode(), digest_size=8).hexdigest()


class Cycle:
    """Fold, propose, settle. Not thread-safe; one proposal at a time."""

    def __init__(
        self,
        core: Core,
        identity: Identity,
        config_text: str = "{}",
        *,
        timer: Callable[[], int] = lambda: 0,
    ) -> None:
        self.core = core
        self.identity = identity
        self.config_text = config_text
        self.config = config_digest(config_text)
        self.loaded = False
        self.folded = 0
        self.prior = 0
        self.conflicts = 0
        self._timer = timer
        self._prior_end = 0
        self._own_through = 0
        self._applied: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        self._unread: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """Ranges of own messages that a reader may leave out."""
        self._floor = _EPOCH
        self._lost = False
        self._rival_seen: datetime | None = None
        self._marker_id = ""

    # -- reading -------------------------------------------------------------------------------------------------

    def start_marker(self, now: datetime, filters: Sequence[str], load: int = 0) -> Event:
        """Return the marker to store once the consumer exists; its delivery ends the load."""
        identity = self.identity
        self._marker_id = f"{identity.cell}/{identity.service}/{identity.replica}/start/{now.timestamp():.6f}/{load}"
        return Event(
            subject=identity.marker_subject,
            data=ServiceStarted(
                service=identity.service,
                partition=identity.partition,
                replica=identity.replica,
                version=identity.version,
                core=identity.core,
                config=self.config,
                config_text=self.config_text,
                filters=tuple(filters),
                load=load,
            ),
            time=now,
            id=self._marker_id,
            source=identity.source,
            traceparent=traceparent_of((), self._marker_id),
        )

    def fold(self, event: Event, now: datetime) -> None:
        """Fold one delivered message. Repeats and own messages that were applied when stored change nothing."""
        data = event.data
        if isinstance(data, ServiceStarted):
            if event.id == self._marker_id:
                self.loaded = True
            self._advance(event)
            return
        own = event.source == self.identity.source and event.stream == LOG
        if own and isinstance(data, Commit):
            if event.sequence > self.prior:
                self._saw_commit(event.sequence, data, now)
            self._advance(event)
            return
        if own:
            if not self._was_applied(event.sequence):
                self.core.apply(event)
        else:
            self.core.apply(event)
            if event.stream == LOG:
                self.folded = max(self.folded, event.sequence)
        self._advance(event)

    def _was_applied(self, sequence: int) -> bool:
        """Tell whether an own message was already applied when it was stored. Delivery is in order, so old ranges can go."""
        while self._applied and self._applied[0][1] < sequence:
            self._applied.popleft()
        return bool(self._applied) and self._applied[0][0] <= sequence

    def was_stored(self, sequence: int) -> bool:
        """Tell whether a message is an own one that was applied when it was stored, so that nobody need read it. To be asked
        in the order of delivery."""
        while self._unread and self._unread[0][1] < sequence:
            self._unread.popleft()
        return bool(self._unread) and self._unread[0][0] <= sequence

    def _advance(self, event: Event) -> None:
        if event.stream == LOG:
            self._own_through = max(self._own_through, event.sequence)

    def _saw_commit(self, sequence: int, record: Commit, now: datetime) -> None:
        self.prior = sequence
        self._prior_end = sequence + record.count
        self._floor = max(self._floor, record.now)
        if record.replica != self.identity.replica:
            self._rival_seen = now

    # -- deciding ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """The core holds a state that may be decided on."""
        return self.loaded and self._own_through >= self._prior_end

    @property
    def holding_back(self) -> bool:
        """This replica lost the last race."""
        return self._lost

    def propose(self, now: datetime) -> Batch | None:
        """Return the next batch, None if nothing follows from the state (or it may not be decided on yet)."""
        if not self.ready:
            return None
        if self._lost and self._rival_seen is not None and now - self._rival_seen < HOLD_BACK:
            return None
        now = max(now, self._floor)
        started = self._timer()
        decided = self.core.decide(now)
        if not decided:
            return None
        if len(decided) > MAX_EVENTS_PER_DECISION:
            raise DecisionError(
                f"{self.identity.service} decided {len(decided)} events at once; at most {MAX_EVENTS_PER_DECISION} fit a batch"
            )
        took_us = (self._timer() - started) // 1000
        record = Event(
            subject=self.identity.commit_subject,
            data=Commit(
                prior=self.prior,
                folded=self.folded,
                now=now,
                count=len(decided),
                config=self.config,
                core=self.identity.core,
                replica=self.identity.replica,
                took_us=took_us,
            ),
        )
        return Batch(self.prior, tuple(self._seal(event, index, now) for index, event in enumerate((record, *decided))))

    def _seal(self, event: Event, index: int, now: datetime) -> Event:
        identity = self.identity
        event_id = f"{identity.cell}/{identity.service}/{identity.partition}/{self.prior}/{index}"
        return msgspec.structs.replace(
            event, id=event_id, source=identity.source, time=now, traceparent=traceparent_of(event.causes, event_id)
        )

    # -- settling ------------------------------------------------------------------------------------------------

    def stored(self, batch: Batch, outcome: Stored) -> tuple[Event, ...]:
        """Apply what was stored; its sequences follow from the acknowledgement. Returns the events as stored."""
        record, *decided = batch.events
        assert isinstance(record.data, Commit)
        stored = tuple(
            msgspec.structs.replace(event, sequence=outcome.first + 1 + index) for index, event in enumerate(decided)
        )
        # A rival may have committed behind this batch, and its record have been folded before the acknowledgement came.
        if outcome.first > self.prior:
            self.prior = outcome.first
            self._prior_end = outcome.last
        self._floor = max(self._floor, record.data.now)
        for event in stored:
            self.core.apply(event)
        self._applied.append((outcome.first, outcome.last))
        self._unread.append((outcome.first, outcome.last))
        self._own_through = max(self._own_through, outcome.last)
        self._lost = False
        return stored

    def refused(self, now: datetime) -> bool:
        """Another replica committed first: the core was not touched, the rival's messages follow. True if that is news."""
        self.conflicts += 1
        self._rival_seen = now
        news = not self._lost
        self._lost = True
        return news
