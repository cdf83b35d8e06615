"""The cycles of the descheduler's plugins."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Count


class PluginCycle(Part, frozen=True, kw_only=True):
    """One plugin's results in a cycle."""

    plugin: str
    evicted: Count = 0


class StayingPod(Part, frozen=True, kw_only=True):
    """A pod that a plugin chose and that stays, and the reason."""

    namespace: str
    name: str
    plugin: str
    reason: str


class DeschedulingCycle(Payload, frozen=True, kw_only=True):
    """Subject `descheduling.cycles.<profile>`: the last cycle of a profile's plugins, LowNodeLoad aside.

    Stored once per `deschedulingInterval`: it records that the cycle of this interval has run. Evicted pods have jobs
    (`migrations.<job>`), stored in the same batch.
    """

    TYPE = "cotenant.deschedulingcycle.v1"
    SUBJECT = "descheduling.cycles.{profile}"

    profile: str
    ran_at: datetime
    nodes: Count = 0
    """Participating nodes: ready and selected."""
    pods: Count = 0
    """On these nodes."""
    plugins: tuple[PluginCycle, ...] = ()
    """In the order in which they ran."""
    kept: tuple[StayingPod, ...] = ()
    """At most 10 of the pods that stay."""
    kept_count: Count = 0
    message: str = ""
