"""YARN's total and usage on a node, written by yarn-copilot on `yarn.<node>`."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Payload
from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import Count


class YarnNode(Payload, frozen=True, kw_only=True):
    """`node_id` is the ResourceManager's own id (host:port). `given` was read back from it; `used` is what YARN allocated.

    `wanted` is the node's offer to YARN, in whole vcores and MB; `confirmed`: the ResourceManager's own list shows the same.
    `state` is the ResourceManager's word for the NodeManager (RUNNING, LOST, ...; empty where it lists none).
    `update_time` is when the NodeManager was last seen running. `reason` is empty while all is well.
    A NodeManager that belongs to no node of ours is reported on `yarn.<host:port>`, with `node` empty.
    """
    TYPE = "cotenant.yarnnode.v1"

    node: str
    node_id: str = ""
    given: Usage = Usage()
    used: Usage = Usage()
    wanted: Usage = Usage()
    confirmed: bool = False
    reason: str = ""
    update_time: datetime | None = None
    cluster: str = ""
    state: str = ""
    containers: Count = 0
