"""Whether and when an exited container restarts: the restart policy and the exponential back-off.

In: the policy, the exit code, how long the container ran, the previous back-off. Out: whether, and after how many seconds.

    first restart at once, then 10 s, 20 s, ... 300 s; a run of 600 s or more starts over

Source: kubelet's container back-off (initial 10 s, at most 5 min, reset after twice that).
"""

from __future__ import annotations

ALWAYS = "Always"
ON_FAILURE = "OnFailure"

INITIAL_SECONDS = 10
MAX_SECONDS = 300
RESET_SECONDS = 2 * MAX_SECONDS


def restarts(policy: str, exit_code: int) -> bool:
    """Whether the policy restarts a container that exited with this code."""
    return policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


def backoff_seconds(attempt: int, previous_seconds: int, ran_seconds: float) -> int:
    """Back-off in seconds after attempt number `attempt` (from 0) ended; `previous_seconds` is the back-off before it."""
    if attempt == 0 or ran_seconds >= RESET_SECONDS:
        return 0
    return min(max(previous_seconds * 2, INITIAL_SECONDS), MAX_SECONDS)
