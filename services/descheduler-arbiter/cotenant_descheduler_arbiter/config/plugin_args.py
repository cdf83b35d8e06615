"""Arguments of the plugins that look at pods and requests, one struct for each, with its validation.

In: `pluginConfig[].args`. Out: the struct, or a ValueError that names the field. Every plugin but the two of node utilisation
takes `namespaces` (include or exclude) and `labelSelector`, which narrow its candidates.

Source: kubernetes-sigs descheduler, arguments and validation of its ten plugins.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import check_selector
from cotenant.model.bounds import MAX_SECONDS, Int32
from cotenant_descheduler_arbiter.config.configuration import Args, NamespaceRule

POD_STATES = ("Running", "Pending", "PodInitializing", "ContainerCreating")
REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
DEFAULT_MIN_LIFETIME_SECONDS = 3600
_FULL = 100.0


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _seconds(field: str, seconds: int) -> None:
    _require(0 <= seconds <= MAX_SECONDS, f"{field}: {seconds} is not in 0 .. {MAX_SECONDS}")


class PluginArgs(Args, frozen=True, kw_only=True):
    """Base of the arguments."""

    def check(self) -> None:
        """Raise ValueError, with the field's name, for an invalid value."""


class CandidateArgs(PluginArgs, frozen=True, kw_only=True):
    """Which pods a plugin considers."""

    namespaces: NamespaceRule | None = None
    label_selector: LabelSelector | None = None

    def check(self) -> None:
        rule = self.namespaces or NamespaceRule()
        _require(not (rule.include and rule.exclude), "namespaces: give include or exclude, not both")
        if self.label_selector is not None:
            check_selector(self.label_selector)


class PodLifeTimeArgs(CandidateArgs, frozen=True, kw_only=True):
    """`states`: phases of pods and waiting reasons of containers; empty means all."""

    max_pod_life_time_seconds: int | None = None
    states: tuple[str, ...] = ()

    def check(self) -> None:
        CandidateArgs.check(self)
        _require(self.max_pod_life_time_seconds is not None, "maxPodLifeTimeSeconds: must be given")
        _seconds("maxPodLifeTimeSeconds", self.max_pod_life_time_seconds or 0)
        for state in self.states:
            _require(state in POD_STATES, f"states: {state!r} is none of {', '.join(POD_STATES)}")


class RemoveFailedPodsArgs(CandidateArgs, frozen=True, kw_only=True):
    """`min_pod_lifetime_seconds` None: no minimum (in a configuration the default is an hour)."""

    min_pod_lifetime_seconds: int | None = None
    exclude_owner_kinds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    including_init_containers: bool = False

    def check(self) -> None:
        CandidateArgs.check(self)
        _seconds("minPodLifetimeSeconds", self.min_pod_lifetime_seconds or 0)


class TooManyRestartsArgs(CandidateArgs, frozen=True, kw_only=True):
    """A pod is evicted from this number of restarts on, summed over its containers."""

    pod_restart_threshold: Int32 = 0
    including_init_containers: bool = False

    def check(self) -> None:
        CandidateArgs.check(self)
        _require(self.pod_restart_threshold >= 1, f"podRestartThreshold: {self.pod_restart_threshold} is below 1")


class InterPodAntiAffinityArgs(CandidateArgs, frozen=True, kw_only=True):
    """Candidates only."""


class NodeAffinityArgs(CandidateArgs, frozen=True, kw_only=True):
    """Which node affinity is checked; only the required one can be."""

    node_affinity_type: tuple[str, ...] = ()

    def check(self) -> None:
        CandidateArgs.check(self)
        _require(
            self.node_affinity_type == (REQUIRED_AFFINITY,), f"nodeAffinityType: must be [{REQUIRED_AFFINITY}]"
        )


class NodeTaintsArgs(CandidateArgs, frozen=True, kw_only=True):
    """`excluded_taints`: `key` or `key=value`."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()


class RemoveDuplicatesArgs(CandidateArgs, frozen=True, kw_only=True):
    """Pods with an owner of an excluded kind are no duplicates."""

    exclude_owner_kinds: tuple[str, ...] = ()


class TopologySpreadArgs(CandidateArgs, frozen=True, kw_only=True):
    """Whether ScheduleAnyway constraints count too."""

    include_soft_constraints: bool = False


class UtilizationArgs(PluginArgs, frozen=True, kw_only=True):
    """Percentages of the allocatable that requests are compared with; a resource that is not listed is not compared."""

    thresholds: dict[str, float] = {}
    number_of_nodes: Int32 = 0
    evictable_namespaces: NamespaceRule | None = None

    def check(self) -> None:
        _percents("thresholds", self.thresholds)
        _require(self.number_of_nodes >= 0, f"numberOfNodes: {self.number_of_nodes} is below 0")
        included = self.evictable_namespaces is not None and bool(self.evictable_namespaces.include)
        _require(not included, "evictableNamespaces.include: only exclude is supported")


class HighNodeUtilizationArgs(UtilizationArgs, frozen=True, kw_only=True):
    """Nodes at or below all thresholds are emptied."""


class LowNodeUtilizationArgs(UtilizationArgs, frozen=True, kw_only=True):
    """Nodes above a target threshold are relieved, as long as there are nodes at or below all thresholds."""

    target_thresholds: dict[str, float] = {}
    use_deviation_thresholds: bool = False

    def check(self) -> None:
        UtilizationArgs.check(self)
        _percents("targetThresholds", self.target_thresholds)
        same = set(self.thresholds) == set(self.target_thresholds)
        _require(same, "targetThresholds: must name the same resources as thresholds")
        for name, percent in self.thresholds.items():
            target = self.target_thresholds[name]
            _require(percent <= target, f"thresholds[{name}]: {percent} is above targetThresholds {target}")


def _percents(field: str, given: Mapping[str, float]) -> None:
    _require(bool(given), f"{field}: must name a resource")
    for name, percent in given.items():
        _require(0 <= percent <= _FULL, f"{field}[{name}]: {percent} is not in 0 .. 100")
