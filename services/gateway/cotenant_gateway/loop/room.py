"""How much room LOG has, and what the gateway refuses when it is short.

In: LOG's size and its bound (its stream refuses beyond it), and the free bytes of the disk that nats-server stores on, if
known. Out: whether creations and updates are refused, and why; how many versions of a subject LOG shall keep.

A tenth of LOG's bound is the reserve: once no more than that is left, of the bound or of the disk, only deletions,
decisions and reports of executors are stored. If the bound is short, LOG drops older versions of its subjects as
well: no reader needs them (a load takes the last message of each subject), and HISTORY has them.
"""

from __future__ import annotations

import msgspec

from cotenant.log.contract import KEEP_PER_SUBJECT, LogSpace

RESERVE_PART = 10
"""The reserve is LOG's bound divided by this."""
LEAST_BYTES = 4 << 20
"""Of the disk, however small LOG's bound is."""
LAST_BYTES = 1 << 20
"""With less on the disk no write is tried: one that fails there is the stream's last until nats-server is restarted."""
FEW_VERSIONS = 4
"""Versions of a subject that are kept as long as half of the reserve is left; with less, one."""
LEAST_RELAXED = 1 << 30
"""A smaller limit of LOG is always enforced."""
MIB = 1 << 20


class StorageSpace(msgspec.Struct, frozen=True):
    """The space. Bytes; `disk_free` None: unknown."""

    log: LogSpace
    disk_free: int | None = None
    store: str = ""
    """The folder of nats-server, for people."""

    @property
    def reserve(self) -> int:
        """The part of LOG's bound that is kept for deletions, decisions and reports."""
        return self.log.limit // RESERVE_PART

    @property
    def disk_reserve(self) -> int:
        """The part of the disk that is kept for them."""
        return max(self.reserve, LEAST_BYTES)

    @property
    def left_of_bound(self) -> int | None:
        """Room left on LOG; negative while it is extended, None without a limit."""
        return self.log.limit - self.log.used if self.log.limit else None

    @property
    def bound_is_short(self) -> bool:
        """No more than the reserve is left of LOG's bound."""
        left = self.left_of_bound
        return left is not None and left <= self.reserve

    @property
    def disk_is_short(self) -> bool:
        """No more than the reserve is free on the disk."""
        return self.disk_free is not None and self.disk_free <= self.disk_reserve

    @property
    def is_short(self) -> bool:
        """Creations and updates are refused."""
        return self.bound_is_short or self.disk_is_short

    @property
    def is_exhausted(self) -> bool:
        """No write is tried any more."""
        return self.disk_free is not None and self.disk_free < LAST_BYTES

    def versions(self) -> int:
        """Return how many versions of a subject LOG shall keep from now on."""
        kept, left = self.log.versions, self.left_of_bound
        if left is None:
            return kept
        if self.bound_is_short:
            # A quarter less at a time: the server removes messages one by one, some 30,000 a second.
            return min(kept, max(kept * 3 // 4, 1 if left <= self.reserve // 2 else FEW_VERSIONS))
        return KEEP_PER_SUBJECT if self.log.used <= self.log.limit // 2 else kept

    def is_enforced(self) -> bool:
        """Return whether the server shall enforce LOG's limit from now on. It need not while LOG is at most a quarter full and
        the limit is large compared with what is written between two checks; it must from half on, and in between nothing
        changes."""
        log = self.log
        if log.limit < LEAST_RELAXED or log.extended or self.disk_is_short or log.used > log.limit // 2:
            return True
        return log.enforced and log.used > log.limit // 4

    def __str__(self) -> str:
        """The shortage, where, and what to do; empty where there is room."""
        if self.disk_is_short:
            assert self.disk_free is not None
            refused = "all writes" if self.is_exhausted else "creations and updates, but no deletions,"
            return (
                f"the disk of nats-server ({self.store}) is full: {_mib(self.disk_free)} are free, the reserve is "
                f"{_mib(self.disk_reserve)}; {refused} are refused. Remove files from that disk, or give it "
                "more space; the rest is automatic"
            )
        if self.bound_is_short:
            return (
                f"LOG is full: it takes {_mib(self.log.used)} of {_mib(self.log.limit)}, a tenth of which is the reserve; "
                "creations and updates, but no deletions, are refused. Delete unused objects, or give nats-server "
                "more disk (max_file_store, then `cotenant admin streams`)"
            )
        return ""


def _mib(octets: int) -> str:
    return f"{octets / MIB:.1f} MiB"
