"""A broken promise: what the run reports and stops at."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """The broken promise, its subject, a description, and the event; `trace`: where it raised."""

    invariant: int
    name: str
    subject: str
    text: str
    sequence: int
    at: datetime
    trace: str = ""


class BrokenInvariantError(Exception):
    """A check failed."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.text)
        self.violation = violation
