"""Sentinel times."""

from datetime import UTC, datetime

NEVER = datetime(9999, 1, 1, tzinfo=UTC)
"""Later than any time that a decision waits for."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Earlier than any time that a decision looks back to."""
