"""Rate limits: a token bucket for each user, and one for each address that sends wrong credentials.

Members of `system:masters` are not limited, so that a cell can be repaired. In: a key and the time. Out: whether it is too
fast.

Bounds: MAX_CALLERS buckets; the least recently used are evicted (a new caller starts with a full bucket anyway).
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

MAX_CALLERS = 10_000


class Rate(msgspec.Struct, frozen=True):
    """Requests a second on average, and burst; 0 a second: no limit."""

    per_second: float
    burst: float


OF_USERS = Rate(200.0, 1000.0)
OF_STRANGERS = Rate(10.0, 100.0)
"""Requests with wrong or missing credentials, by address."""


class TokenBuckets:
    """One bucket a key."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens left, and when."""
        self.refused = 0

    def take(self, key: str, now: float) -> bool:
        """Take a token; False if there is none. `now` in seconds of a monotonic clock."""
        rate = self.rate
        if not rate.per_second:
            return True
        left, since = self._left.get(key, (rate.burst, now))
        left = min(rate.burst, left + (now - since) * rate.per_second)
        taken = left >= 1.0
        self._left[key] = (left - 1.0 if taken else left, now)
        self._left.move_to_end(key)
        if len(self._left) > MAX_CALLERS:
            self._left.popitem(last=False)
        if not taken:
            self.refused += 1
        return taken
