"""The sequence of calls that sets a node's total.

In: whether there is a node and a client, and the result of each call. Out: the next call, and finally whether the update
failed. Source: Koordinator YARN operator: after a failed update the active ResourceManager is looked up again, the update is
retried later.

A generator keeps the sequence in one place while the caller does the I/O: it yields a step, receives whether that step
succeeded, and returns whether the update failed.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum


class UpdateCall(StrEnum):
    """A call to make."""

    UPDATE = "updateNodeResource"
    REINITIALIZE = "reinitialize"


def update_steps(*, has_node: bool, has_client: bool) -> Generator[UpdateCall, bool, bool]:
    """Yield the calls to make; return whether the update failed. Without a node there is nothing to do."""
    if not has_node:
        return False
    if not has_client:
        return True
    went_well = yield UpdateCall.UPDATE
    if went_well:
        return False
    yield UpdateCall.REINITIALIZE
    return True
