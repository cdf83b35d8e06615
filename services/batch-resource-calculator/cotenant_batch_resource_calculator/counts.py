"""Counts of the service's own work since its load: events by outcome, and ConfigMaps by their readable sections.

In: own events and configurations, as they are folded. Out: counts by label values, for metrics only.
Bound: reasons are codes of `deciding`, and sections are those of the ConfigMap.
"""

from __future__ import annotations

from collections import Counter

from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.in_force import Configuration
from cotenant_batch_resource_calculator.rendering import KEYS_OF_SPEC
from cotenant_batch_resource_calculator.situations import PLUGINS_OF_INPUTS

SUCCEEDED = "succeeded"
FAILED = "failed"
OVERCOMMITTING = ("BatchResource", "MidResource")
PLUGINS = (*OVERCOMMITTING, *PLUGINS_OF_INPUTS)
UNUSABLE_INPUT = "UnusableInput"
_REJECTED = "ConfigRejected"
_UNKNOWN_CAPACITY = "UnknownCapacity"


class Counts:
    """Mutable counters."""

    def __init__(self) -> None:
        self.resources: Counter[tuple[str, str]] = Counter()
        """By status and reason."""
        self.plugins: Counter[tuple[str, str, str]] = Counter()
        """By plugin, status and reason."""
        self.slos: Counter[str] = Counter()
        self.metric_specs: Counter[str] = Counter()
        self.slo_specs: Counter[str] = Counter()

    def stored(self, event: Event) -> None:
        """Count an own event; tombstones and what others wrote do not matter."""
        data = event.data
        if event.tombstone:
            return
        if isinstance(data, NodeResources):
            self._resources_stored(data)
        elif isinstance(data, NodeSLORendered):
            self.slos[FAILED if data.reason else SUCCEEDED] += 1

    def _resources_stored(self, data: NodeResources) -> None:
        failed = _REJECTED in data.reason or _UNKNOWN_CAPACITY in data.reason
        self.resources[FAILED if failed else SUCCEEDED, data.reason] += 1
        for plugin in OVERCOMMITTING:
            self.plugins[plugin, FAILED if data.degraded else SUCCEEDED, data.reason if data.degraded else ""] += 1
        for plugin in PLUGINS_OF_INPUTS:
            failed = plugin in data.failed
            self.plugins[plugin, FAILED if failed else SUCCEEDED, UNUSABLE_INPUT if failed else ""] += 1

    def configured(self, configuration: Configuration) -> None:
        """Count a ConfigMap."""
        self.metric_specs[FAILED if configuration.rejection(colocation.KEY) else SUCCEEDED] += 1
        self.slo_specs[FAILED if configuration.rejection(*KEYS_OF_SPEC) else SUCCEEDED] += 1
