"""The status of a PodGroup: how many of its pods have a node, run and have ended. Written by the scheduler."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Payload
from cotenant.model.bounds import Count


class PodGroupStatus(Payload, frozen=True, kw_only=True):
    """Subject `podgroups.<namespace>.<name>`. `uid`: of the PodGroup's object. `phase`: as in Koordinator; `scheduled`: pods
    with a node; `schedule_start_time`: when fewer than the minimum first had one. It is stored at most once a second.
    """

    TYPE = "cotenant.podgroup.v1"
    SUBJECT = "podgroups.{namespace}.{name}"

    namespace: str
    name: str
    uid: str = ""
    phase: str = ""
    min_member: Count = 0
    pods: Count = 0
    scheduled: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    schedule_start_time: datetime | None = None
    occupied_by: str = ""
