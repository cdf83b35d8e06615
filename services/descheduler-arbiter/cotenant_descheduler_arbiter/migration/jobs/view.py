"""The inputs of a step of a migration job, and the pause after a refusal.

Source of the pause: koord-descheduler's requeue after 3 s; here it doubles up to a minute.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.events.migrations import Migration
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.reservations import ReservationFacts

REQUEUE = timedelta(seconds=3)
MAX_RETRY = timedelta(seconds=60)


class Answer(msgspec.Struct, frozen=True):
    """The gateway's answer to a request for an eviction, or for the reservation before it."""

    ref: str
    allowed: bool
    reason: str = ""


class JobView(msgspec.Struct, frozen=True):
    """A job's inputs. `pod`: the pod that has the name now; `hold`: why no eviction may be ordered at the moment.

    `bound_pod`: the pod with the name of the one that has taken the place; `template_name`: how the job's template names its
    reservation.
    """

    pod: PodFacts | None
    answer: Answer | None = None
    hold: str | None = None
    reservation: ReservationFacts | None = None
    bound_pod: PodFacts | None = None
    template_name: str = ""


def back_off(job: Migration, answer: Answer, now: datetime) -> Migration:
    """Return the job that retries after a pause: 3, 6, 12, ... at most 60 s."""
    return msgspec.structs.replace(
        job,
        answer=answer.ref,
        attempts=job.attempts + 1,
        retry_at=now + min(REQUEUE * 2 ** min(job.attempts, 10), MAX_RETRY),
    )
