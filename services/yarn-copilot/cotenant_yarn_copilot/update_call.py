"""The order of calls that gives a node its total.

In: whether there is a node and a client, and how each call ended. Out: the next call, and at the end whether it
failed. Source: Koordinator YARN operator: a failed update looks for the active ResourceManager again, and the whole is
tried again later.

A generator, so that the order stands in one place and the caller does the I/O: it yields a step, is sent whether that
step went well, and returns whether the update failed.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum


class Step(StrEnum):
    """A call to make, by the name of what it does."""

    UPDATE = "updateNodeResource"
    REINITIALIZE = "reinitialize"


def update_steps(*, has_node: bool, has_client: bool) -> Generator[Step, bool, bool]:
    """Yield the calls to make; the value returned is whether the update failed. Without a node there is nothing to do."""
    if not has_node:
        return False
    if not has_client:
        return True
    went_well = yield Step.UPDATE
    if went_well:
        return False
    yield Step.REINITIALIZE
    return True
