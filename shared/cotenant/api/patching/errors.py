"""Errors of patches of any type, their depth limit, and a bound on their work.

A patch of a few hundred bytes can copy a document onto itself repeatedly, or name one element a thousand times: the
bound is not on its length, but on the bytes that the server has to read and write.
"""

from __future__ import annotations

MAX_DEPTH = 100
MAX_WORK_BYTES = 64 * 1024 * 1024
"""Far more than a patch of the largest object needs, and processed in about a second."""


class PatchError(ValueError):
    """The patch cannot be applied; the message says which part."""


class PatchTestError(PatchError):
    """A JSON patch's `test` did not hold, or a path that it needs does not exist."""


class PatchTooLargeError(PatchError):
    """Applying the patch would read and copy more than MAX_WORK_BYTES."""


class Work:
    """Bytes that one patch has read and copied so far."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, count: int) -> None:
        """Count bytes before they are read or copied. Raises PatchTooLargeError."""
        self.spent += count
        if self.spent > MAX_WORK_BYTES:
            raise PatchTooLargeError(f"it would read and copy more than {MAX_WORK_BYTES} bytes: send it in parts")
