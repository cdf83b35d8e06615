"""Times and identities in composed objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

MOST_SECONDS = 2**31 - 1


def rfc3339(time: datetime) -> str:
    """Return the time as Kubernetes writes it: whole seconds, UTC, `Z`."""
    return _of_second(int(time.timestamp()))


@lru_cache(maxsize=4096)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_rfc3339(text: str | None) -> datetime | None:
    """Return the time of a text; None where it is absent or not a time."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def whole_seconds(text: str) -> int | None:
    """Return the seconds in a text; None if it is not a whole number from 0 to MOST_SECONDS."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(MOST_SECONDS)):
        return None
    seconds = int(text)
    return seconds if seconds <= MOST_SECONDS else None


def derived_uid(*parts: str) -> str:
    """Return a stable uid for an object that has no document: a digest of its identity."""
    return str(UUID(bytes=blake2b("/".join(parts).encode(), digest_size=16).digest(), version=4))


def go_duration(seconds: int) -> str:
    """Return a duration as Go prints it: 300 -> 5m0s."""
    text = ""
    rest = timedelta(seconds=seconds).total_seconds()
    hours, rest = divmod(int(rest), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        text += f"{hours}h"
    if hours or minutes:
        text += f"{minutes}m"
    return f"{text}{rest}s"
