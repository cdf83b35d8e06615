"""Progress of a load, logged every few seconds.

In: how many messages were folded. Out: a line every PROGRESS_SECONDS, and the same text for the line at the end of the load.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 2.0


class LoadProgress:
    """One load."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._messages = 0
        self._started = self._told = time.monotonic()

    def add(self, messages: int) -> None:
        """So many more are folded."""
        self._messages += messages
        now = time.monotonic()
        if now - self._told >= PROGRESS_SECONDS:
            self._told = now
            logger.info("%s: loading, %s", self._service, self)

    def __str__(self) -> str:
        return f"{self._messages} messages in {time.monotonic() - self._started:.1f} s"
