"""Configuration of the queue: the order in which jobs are tried, and how long the first waits before room is held for it.

    priority  by priority, then creation time, then namespace and name
    fifo      by creation time, then namespace and name
    fair      between tenants the one with the smallest dominant share (`cycle.ordering.shares`), within a tenant as by priority
Priorities decide about preemption in every order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

MAX_HOLD_SECONDS = 86_400 * 365


class QueueOrder(StrEnum):
    PRIORITY = "priority"
    FIFO = "fifo"
    FAIR = "fair"


class QueueArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Configuration of the queue."""

    order: QueueOrder = QueueOrder.PRIORITY
    hold_after_seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_HOLD_SECONDS)] = 30
    """Room is held for the first job of the queue once it has waited this long (`cycle.ordering.queue_head`); 0: never."""
