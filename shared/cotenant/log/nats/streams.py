"""The four streams, declared idempotently, with their limits.

| stream | bound |
|---|---|
| LOG | 8 GiB, less on a small disk (`StreamSizes`), where writes are refused (far from it: `contract.Bounded.enforce`);
KEEP_PER_SUBJECT versions a subject; tombstones and fleeting facts by message TTL; 1 MiB a message; MAX_LOG_CONSUMERS |
| HISTORY | 30 days and 1 GiB, less on a small disk (`StreamSizes`), compressed, asynchronous, from LOG but for PASSING |
| USAGE | 4 messages a subject, 10 minutes, asynchronous |
| EXECUTION | 1 day and 256 MiB, less on a small disk, asynchronous |

On three servers LOG, USAGE and EXECUTION are on all of them. HISTORY stays on one: it is a copy of LOG for explanations and
replays, no service decides by it, and three of it would double what a decision costs the servers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.log.contract import EXECUTION, HISTORY, KEEP_PER_SUBJECT, LOG, USAGE
from cotenant.model.subjects import PREDICTIONS

LOG_SUBJECTS = (
    "objects.>",
    "metrics.*",
    f"{PREDICTIONS}.*",
    "node.>",
    "configmaps.>",
    "quotas.>",
    "waiting.>",
    "podgroups.>",
    "reservations.*",
    "migrations.*",
    "evictions.>",
    "descheduling.>",
    "yarn.*",
    "commits.>",
    "services.>",
)
"""All facts of record."""
PASSING = (f"{PREDICTIONS}.*",)
"""Subjects that HISTORY does not copy: a state that only its writer reads, and that each message replaces."""

MAX_MESSAGE_BYTES = 1 << 20
REPUBLISHED_PREFIX = "republished."
"""Prefix under which LOG's messages about nodes are republished, for executors (see `republished`)."""
REPUBLISHED = "node.>"
MAX_LOG_CONSUMERS = 25_000
"""Those of services and users. A stream that names no number has 1,000 (nats-server 2.15)."""
_SECOND = 1_000_000_000


class StreamSizes(msgspec.Struct, frozen=True):
    """Bounds in bytes of the streams that have one."""

    history: int = 1 << 30
    execution: int = 256 << 20
    log: int = 8 << 30

    @classmethod
    def within(cls, store_bytes: int) -> StreamSizes:
        """Return the sizes on a server that has so many bytes of disk for all streams; 0 bytes: no limit is known.

        HISTORY gets at most a quarter of them, EXECUTION an eighth, and LOG what is left, at most 8 GiB, but for an eighth: it
        is for USAGE, and for deletions where LOG has reached its bound (`cotenant.log.contract.Bounded.extend`).
        """
        if not store_bytes:
            return cls()
        history, execution = min(cls().history, store_bytes // 4), min(cls().execution, store_bytes // 8)
        return cls(history, execution, min(cls().log, store_bytes - history - execution - store_bytes // 8))


DEFAULT_SIZES = StreamSizes()


def stream_configs(*, replicas: int = 1, sizes: StreamSizes = DEFAULT_SIZES) -> list[dict[str, Any]]:
    """Return the JetStream configuration of each stream, in the order in which they must exist."""
    shared: dict[str, Any] = {"storage": "file", "num_replicas": replicas, "discard": "old", "max_msg_size": MAX_MESSAGE_BYTES}
    # The server refuses asynchronous persistence on replicated streams.
    asynchronous = {"persist_mode": "async"} if replicas == 1 else {}
    return [
        {
            **shared,
            "name": LOG,
            "subjects": list(LOG_SUBJECTS),
            # LOG is the record: at its bound it refuses writes, and drops nothing.
            "discard": "new",
            "max_bytes": sizes.log,
            "max_msgs_per_subject": KEEP_PER_SUBJECT,
            "max_consumers": MAX_LOG_CONSUMERS,
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "republish": {"src": REPUBLISHED, "dest": REPUBLISHED_PREFIX + REPUBLISHED},
        },
        {
            **shared,
            "num_replicas": 1,
            "persist_mode": "async",
            "name": HISTORY,
            "sources": [
                {
                    "name": LOG,
                    "subject_transforms": [
                        {"src": subject, "dest": ""} for subject in LOG_SUBJECTS if subject not in PASSING
                    ],
                }
            ],
            "compression": "s2",
            "max_age": 30 * 86400 * _SECOND,
            "max_bytes": sizes.history,
            "allow_direct": True,
        },
        {
            **shared,
            **asynchronous,
            "name": USAGE,
            "subjects": ["usage.*"],
            "max_msgs_per_subject": 4,
            "max_age": 600 * _SECOND,
            "allow_direct": True,
        },
        {
            **shared,
            **asynchronous,
            "name": EXECUTION,
            "subjects": ["execution.>", "deadletter.>"],
            "max_age": 86400 * _SECOND,
            "max_bytes": sizes.execution,
            "allow_direct": True,
        },
    ]
