"""The state of one node: its object, its windows, its last report, and the time of its next evaluation.

Bound: one NodeWindows per declared node (see `slots` and `means`: about 100 KiB with 30 pods), MAX_CAUSES references.
"""

from collections import deque
from datetime import datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant_metrics_ingest.node_windows import NodeWindows

MAX_CAUSES = 4


class NodeState(msgspec.Struct):
    """The state of one node; `heard` is in log time."""

    declared_at: datetime | None = None
    declared: int = 0
    windows: NodeWindows | None = None
    heard: datetime | None = None
    news: bool = False
    refused: int = 0
    refused_reason: str = ""
    causes: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_CAUSES))
    published: NodeMetricComputed | None = None
    published_at: datetime | None = None

    def accepted(self, event: Event, log_time: datetime | None) -> None:
        """A sample of the node was accepted: it was heard at this time of the log, whatever its own clock says."""
        self.news = True
        self.heard = log_time
        self.causes.appendleft(event.sequence)

    def last_sign(self) -> datetime | None:
        """Return the time of the node's last sample, else of its last metric, else of its object."""
        return self.heard or (self.published.update_time if self.published is not None else None) or self.declared_at
