"""When a process that ended is started again.

In: how long it ran. Out: seconds to wait. A process that stayed up for twenty seconds is started again at once: it was killed,
or failed by chance. After each shorter run the pause doubles, from a quarter of a second to at most ten: a process that
cannot start does not use up the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0
HEALTHY_AFTER_SECONDS = 20.0


@dataclass(frozen=True)
class Backoff:
    """How often in a row a process ended without having been healthy."""

    failures: int = 0

    def after_exit(self, ran_seconds: float) -> Backoff:
        """The state after one more exit of a process that ran for this long."""
        return Backoff(0 if ran_seconds >= HEALTHY_AFTER_SECONDS else self.failures + 1)

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next start."""
        if self.failures == 0:
            return 0.0
        return float(min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 16), LONGEST_PAUSE_SECONDS))
