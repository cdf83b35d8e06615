"""Pods as the load estimates count them. Equally counted pods share one object."""

from __future__ import annotations

from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.load.load_estimate import AssignedPod, estimation_deadline
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

SHAPES_CACHED = 8192
"""One pod that is resized again and again has as many shapes at the moment at which it was assigned."""


class AssignedPods:
    """Makes `AssignedPod`s; caches those of the last moment, at most SHAPES_CACHED."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._args = args
        self._assigned_us = 0
        self._known: dict[Shape, AssignedPod] = {}

    @property
    def by_shape(self) -> bool:
        """Whether all pods of one shape that are assigned at one moment are counted equally."""
        return not self._args.allow_customize_estimation

    def of(self, facts: ParsedPod, shape: Shape, assigned_us: int) -> AssignedPod:
        """Return a pod that was assigned to its node at a moment (microseconds since 1970)."""
        if not self.by_shape:
            return self._make(facts, shape, assigned_us)
        if self._assigned_us != assigned_us or len(self._known) >= SHAPES_CACHED:
            self._assigned_us = assigned_us
            self._known.clear()
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = self._make(facts, shape, assigned_us)
        return known

    def _make(self, facts: ParsedPod, shape: Shape, assigned_us: int) -> AssignedPod:
        args = self._args
        deadline = estimation_deadline(
            assigned_us,
            None,
            args.estimated_seconds_after_pod_scheduled,
            args.estimated_seconds_after_initialized,
            facts.annotations,
            args.allow_customize_estimation,
        )
        return AssignedPod(shape.estimate, shape.prod, assigned_us, deadline)
