"""Loading a stream: the last message of each subject at one sequence, without a consumer.

In: a stream and filters. Out: `through`, the stream's last sequence when the load began, and chunks of stored messages: of
every selected subject its last message, unless that is younger than `through`: then a consumer from `through + 1` delivers it.
So snapshot and consumer together are exact whatever is written, replaced or removed meanwhile, and a request that failed can
be repeated.

A consumer with `deliver_policy: last_per_subject` is not exact: nats-server 2.15 loses one message of its list for each pull
that expires meanwhile, without a gap in the consumer's sequence, and stalls at messages that were removed meanwhile.

How: the subjects from STREAM.INFO, their last messages by direct gets of SUBJECTS_A_GET literal subjects. Subjects are paged
by offset in sorted order, and those that end between two pages move the others up: pages overlap, and where they do not the
listing starts over. A direct get may be answered by a replica that is behind; the end of its answer names the sequence that it
was at, and one below `through` is asked again. (With `up_to_seq` in the request the server repeats that number instead, so it
is not used.)

Bounds: GETS_AHEAD gets in progress, each of at most MAX_GET_BYTES (and one message); TRIES tries of each request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from cotenant.log.contract import Behind
from cotenant.log.nats.direct import MAX_GET_BYTES, Message, direct_get
from cotenant.log.nats.jetstream import API_ERRORS, JetStream
from cotenant.log.nats.wire import BusClient

SUBJECTS_A_GET = 1000
"""The server answers at most 1,024 subjects at once."""
GETS_AHEAD = 2
PAGE_OVERLAP = 1000
TRIES = 20
PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0


class _IncompleteError(Exception):
    """An answer is not (yet) usable; the text states why."""


_TRY_AGAIN = (*API_ERRORS, _IncompleteError)


class StreamSnapshot:
    """One load of one stream: `begin` once, then `take` until nothing comes."""

    def __init__(self, client: BusClient, stream: str, filters: Sequence[str]) -> None:
        self._client = client
        self._api = JetStream(client)
        self._stream = stream
        self._filters = tuple(filters)
        self.through = 0
        self.created = ""
        """When the stream was created."""
        self._subjects: list[str] = []
        self._chunk: deque[Message] = deque()
        self._chunks = self._gets()
        self._complete = False
        """Whether everything was yielded. A generator that was cancelled ends as well."""

    async def begin(self) -> None:
        """Fix `through` and list the subjects. Raises API_ERRORS."""
        info = await self._api.info(self._stream)
        self.through, self.created = info.state.last_seq, info.created
        subjects: dict[str, None] = {}
        for selected in self._filters:
            subjects.update(dict.fromkeys(await self._list(selected)))
        self._subjects = sorted(subjects)

    async def _list(self, selected: str) -> list[str]:
        """Return the subjects that a filter selects, sorted. Raises Behind where they change too fast to be listed."""
        for _ in range(TRIES):
            found = await self._list_once(selected)
            if found is not None:
                return found
        raise Behind(f"the subjects of {self._stream} end faster than they are listed")

    async def _list_once(self, selected: str) -> list[str] | None:
        """List page by page; None if two pages do not overlap, so that subjects between them may be missing."""
        found: list[str] = []
        offset = 0
        while True:
            page = await self._api.subjects(self._stream, selected, offset)
            names = sorted(page.subjects)
            if found and (not names or names[0] > found[-1]):
                return None
            found += [name for name in names if not found or name > found[-1]]
            if offset + len(names) >= page.total:
                return found
            offset += len(names) - PAGE_OVERLAP

    async def take(self, limit: int) -> list[Message]:
        """Return the next messages, at most `limit`; none at the end. Raises Behind if the server cannot be reached for long,
        or an earlier call was cancelled."""
        while not self._chunk:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                if not self._complete:
                    raise Behind("the load broke off")
                return []
            self._chunk.extend(chunk)
        return [self._chunk.popleft() for _ in range(min(limit, len(self._chunk)))]

    async def close(self) -> None:
        """Cancel what is in progress."""
        await self._chunks.aclose()

    async def _gets(self) -> AsyncGenerator[list[Message], None]:
        """Yield the messages, in order of sequence within one get."""
        gets: deque[asyncio.Task[list[Message]]] = deque()
        starts = iter(range(0, len(self._subjects), SUBJECTS_A_GET))
        try:
            while True:
                while len(gets) < GETS_AHEAD and (start := next(starts, None)) is not None:
                    gets.append(asyncio.ensure_future(self._get(self._subjects[start : start + SUBJECTS_A_GET])))
                if not gets:
                    self._complete = True
                    return
                messages = await gets[0]
                gets.popleft()
                yield messages
        finally:
            for task in gets:
                task.cancel()
            await asyncio.gather(*gets, return_exceptions=True)

    async def _get(self, subjects: Sequence[str]) -> list[Message]:
        """Return the last messages of some subjects that are not younger than `through`."""
        found: list[Message] = []
        waiting = list(subjects)
        while waiting:
            messages, more = await self._try(waiting)
            found += messages
            if not more:
                break
            # The answer was cut at MAX_GET_BYTES; what came is no longer waited for.
            known = {subject for subject, _, _, _ in messages}
            waiting = [subject for subject in waiting if subject.encode() not in known]
        return [message for message in found if message[1] <= self.through]

    async def _try(self, subjects: list[str]) -> tuple[list[Message], bool]:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(_TRY_AGAIN),
            wait=wait_exponential_jitter(multiplier=PAUSE_SECONDS, max=MAX_PAUSE_SECONDS, jitter=PAUSE_SECONDS),
            stop=stop_after_attempt(TRIES),
            retry_error_callback=_give_up,
        ):
            with attempt:
                return await self._ask(subjects)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _ask(self, subjects: list[str]) -> tuple[list[Message], bool]:
        """One direct get. Returns the messages, and whether the answer was cut."""
        answer = await direct_get(self._client, self._stream, {"multi_last": subjects, "max_bytes": MAX_GET_BYTES})
        if answer.status == "404":
            # One replica answers that nothing is there, without its own position: the leader is asked.
            return await self._ask_leader(subjects), False
        if answer.status != "204":
            raise _IncompleteError(f"direct get of {len(subjects)} subjects: {answer.status_text}")
        if answer.up_to < self.through:
            raise _IncompleteError(f"a replica is at {answer.up_to}, the load at {self.through}")
        return answer.messages, answer.pending > 0

    async def _ask_leader(self, subjects: Sequence[str]) -> list[Message]:
        found: list[Message] = []
        for subject in subjects:
            message = await self._api.last_raw(self._stream, subject)
            if message is not None:
                found.append(message)
        return sorted(found, key=lambda message: message[1])


def _give_up(state: RetryCallState) -> tuple[list[Message], bool]:
    error = state.outcome.exception() if state.outcome is not None else None
    raise Behind(f"the load broke off: {type(error).__name__}: {error}") from error
