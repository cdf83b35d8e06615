"""Walks of causes over events that are all in memory."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.events.envelope import Event
from cotenant.explain.causes import CauseWalk


def lookup_all(walk: CauseWalk, lookup: Mapping[str, Event]) -> CauseWalk:
    """Run a walk over events that are all in memory."""
    while wanted := walk.wanted():
        for ref in wanted:
            walk.add(ref, lookup.get(ref))
    return walk
