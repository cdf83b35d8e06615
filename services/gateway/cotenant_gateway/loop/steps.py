"""The steps of a request: a driver executes them and replies.

A request is a generator. It yields one step at a time, is sent the reply, and returns its result or raises ApiError. The
process answers with the writer and the follower, the simulator with the simulated log; the request depends on neither.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from cotenant.log.contract import Head
from cotenant.log.plans import Outcome, Plan

T = TypeVar("T")


class Store(msgspec.Struct, frozen=True):
    """Store a plan, and fold it. Reply: its outcome."""

    plan: Plan


class Reach(msgspec.Struct, frozen=True):
    """Wait a bounded time until a sequence is folded. Reply: the sequence, or 0 if it was not reached."""

    sequence: int


class MoveOn(msgspec.Struct, frozen=True):
    """Wait a short time until the fold has left this sequence. Reply: the sequence that it has reached."""

    sequence: int


class GetLast(msgspec.Struct, frozen=True):
    """Ask LOG for the last message of a subject. Reply: its head, None where it has none."""

    subject: str


Step = Store | Reach | MoveOn | GetLast
Request = Generator[Step, Outcome | int | Head | None, T]
