"""The gateway's inputs from outside the log: the time, and random names."""

from __future__ import annotations

import os
from datetime import UTC, datetime

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def utc_now() -> datetime:
    """Return the wall clock in UTC."""
    return datetime.now(UTC)


def new_uid() -> str:
    """Return a random uid. Bytes instead of `uuid4`, as every creation needs one."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def new_suffix() -> str:
    """Return five characters that complete a generateName."""
    return "".join(_SUFFIX_ALPHABET[byte % len(_SUFFIX_ALPHABET)] for byte in os.urandom(5))
