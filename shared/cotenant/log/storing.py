"""Stores a batch, and determines its outcome without an answer. The same code runs on every log, in memory and on NATS.

Bound: `tries` attempts.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.log.contract import LOG, Log, LogUnavailableError, NoAnswer, Pausing, Refused, Stored, Write


async def store_batch(log: Log, writes: Sequence[Write], *, tries: int = 5) -> Stored | Refused | NoAnswer:
    """Store a batch whose first message carries an expectation, and find out what happened when no answer came. At most `tries`
    attempts."""
    outcome = await log.append(writes)
    return await find_out(log, writes, tries=tries - 1) if isinstance(outcome, NoAnswer) else outcome


async def find_out(log: Log, writes: Sequence[Write], *, tries: int = 4) -> Stored | Refused | NoAnswer:
    """Determine the outcome of an unanswered batch.

    The same messages go out as a new batch with the same expectation. If that is refused, the message that followed on the
    expected one decides: our own id and data mean that the unanswered batch was stored, another writer's that it was not.
    Where none followed, the server that refused knows of a write that is in progress, ours or another, or leads no more; where
    one that removes others did, ours may have been among them: then the refusal proves nothing. At most `tries` attempts.

    A message whose expectation concerns another subject has an id: sent again, it counts as stored if it was. If it is refused,
    another writer has taken over, and what is delivered shows whether it was stored before.
    """
    outcome: Stored | Refused | NoAnswer = NoAnswer("no attempt was answered")
    for number in range(tries):
        if isinstance(log, Pausing):
            await log.pause(number)
        outcome = await log.append(writes)
        if isinstance(outcome, Refused) and outcome.wrong_sequence and not writes[0].expected_subject:
            outcome = await _why_refused(log, writes, outcome)
        if not isinstance(outcome, NoAnswer):
            return outcome
    return outcome


async def _why_refused(log: Log, writes: Sequence[Write], refused: Refused) -> Stored | Refused | NoAnswer:
    """Distinguish the refusal of a batch that was stored before from one that never was."""
    event, expected = writes[0].event, writes[0].expected
    try:
        head = await (log.head(event.subject) if expected is None else log.next_head(event.subject, expected))
        if head is not None and head.event_id == event.id and await _is_there(log, head.sequence, writes[0]):
            return Stored(head.sequence, head.sequence + len(writes) - 1)
        if expected is None:
            return refused
        if head is None:
            last = await log.head(event.subject)
            # What was expected may have expired; then nothing can follow on it.
            return refused if last is None and expected else NoAnswer(f"{refused.reason}, and nothing follows on {expected}")
    except LogUnavailableError as error:
        return NoAnswer(f"{refused.reason}; {error}")
    if head.tombstone or head.replaces:
        return NoAnswer(f"{refused.reason}; what was stored on {event.subject} before is removed")
    return refused


async def _is_there(log: Log, sequence: int, write: Write) -> bool:
    """Return whether a stored message is this write, and not another replica's decision after the same commit. All replicas
    of a service give the events that follow one commit the same ids; the commit record names the replica."""
    stored = await log.get(LOG, sequence)
    return stored is not None and stored.data == write.event.data
