"""The grace period in a job's deleteOptions.

In: the document (metav1.DeleteOptions). Out: the grace period, None where it names none, or a ValueError that names the field.
Other fields are accepted and have no effect: the pod is identified by its uid anyway, and owns nothing here.

Source: Kubernetes DeleteOptions.
"""

from __future__ import annotations

import msgspec

from cotenant.model.bounds import MAX_SECONDS


class _DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None


def grace_period(options: msgspec.Raw) -> int | None:
    """Return gracePeriodSeconds. Raises ValueError."""
    if bytes(options) in (b"", b"null"):
        return None
    seconds = msgspec.json.decode(options, type=_DeleteOptions).grace_period_seconds
    if seconds is not None and not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"gracePeriodSeconds: {seconds} is not in 0 .. {MAX_SECONDS}")
    return seconds
