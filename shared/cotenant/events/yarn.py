"""What YARN was given on a node and what it uses, written by yarn-copilot on `yarn.<node>`."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Payload
from cotenant.events.metrics import Usage


class YarnNode(Payload, frozen=True, kw_only=True):
    """`node_id` is the ResourceManager's own id (host:port). `given` was read back from it; `used` is what YARN allocated."""
    TYPE = "cotenant.yarnnode.v1"

    node: str
    node_id: str = ""
    given: Usage = Usage()
    used: Usage = Usage()
    wanted: Usage = Usage()
    confirmed: bool = False
    reason: str = ""
    update_time: datetime | None = None
