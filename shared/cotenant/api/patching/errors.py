"""What can be wrong with a patch of any type, and how deep one may go."""

from __future__ import annotations

MAX_DEPTH = 100


class PatchError(ValueError):
    """The patch cannot be applied; the message says which part."""


class PatchTestError(PatchError):
    """A JSON patch's `test` did not hold, or a path that it needs does not exist."""
