"""Arguments of load-aware scheduling and the thresholds of a node's annotation, which replace them.

In: the arguments as a user writes them (Koordinator's LoadAwareSchedulingArgs), a node's annotations. Out:
`LoadAwareArgs` with defaults filled in, and per node the `Thresholds` in force. A part of the annotation that is not
empty replaces the arguments' part as a whole, never per resource; `aggregatedUsage` counts only with thresholds and
type. An annotation that is not JSON is ignored. Percentages are 0..100, 0 leaves a resource unchecked; empty usage
thresholds mean the defaults 65/95.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from cotenant.model.bounds import MAX_SECONDS, Int32
from cotenant.model.durations import DurationError
from cotenant.model.names import CPU, MEMORY

ANNOTATION_USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"

DEFAULT_USAGE_THRESHOLDS = {CPU: 65, MEMORY: 95}
DEFAULT_SCALING_FACTORS = {CPU: 85, MEMORY: 70}
DEFAULT_RESOURCE_WEIGHTS = {CPU: 1, MEMORY: 1}

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|ns)")


def parse_duration_seconds(text: str) -> int:
    """Return whole seconds of a Go duration such as `5m0s`, at most MAX_SECONDS. Raises DurationError."""
    parts = _DURATION_PART.findall(text)
    if text == "0":
        return 0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise DurationError(f"duration {text!r} is malformed: expected a form such as 5m0s")
    return int(min(sum(float(number) * _UNITS[unit] for number, unit in parts), MAX_SECONDS))


class AggregatedArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Filter and score on percentiles of a window instead of the newest average; duration 0: the longest window there
    is."""

    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0s"
    score_aggregation_type: str = ""
    score_aggregated_duration: str = "0s"


class LoadAwareArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Field names and meaning as upstream's LoadAwareSchedulingArgs."""

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: dict[str, int] = {}
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimated_scaling_factors: dict[str, int] = {}
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    supported_resources: list[str] = []
    aggregated: AggregatedArgs | None = None

    def defaulted(self) -> LoadAwareArgs:
        """Return the arguments with upstream's defaults in place of what is empty."""
        weights = self.resource_weights
        if not weights and not self.dominant_resource_weight:
            weights = DEFAULT_RESOURCE_WEIGHTS
        return msgspec.structs.replace(
            self,
            resource_weights=weights,
            usage_thresholds=self.usage_thresholds or DEFAULT_USAGE_THRESHOLDS,
            estimated_scaling_factors={**DEFAULT_SCALING_FACTORS, **self.estimated_scaling_factors},
        )

    def tracked_resources(self) -> tuple[str, ...]:
        """cpu, memory and every resource that the arguments mention, sorted."""
        aggregated = self.aggregated.usage_thresholds if self.aggregated else {}
        return tuple(
            sorted(
                {CPU, MEMORY}
                | self.resource_weights.keys()
                | self.usage_thresholds.keys()
                | self.prod_usage_thresholds.keys()
                | self.estimated_scaling_factors.keys()
                | aggregated.keys()
                | set(self.supported_resources)
            )
        )


class Thresholds(msgspec.Struct, frozen=True):
    """What applies on one node. `aggregation_type` empty: the usage thresholds apply to the newest average."""

    usage: dict[str, int]
    prod: dict[str, int]
    aggregated: dict[str, int] = {}
    aggregation_type: str = ""
    aggregation_seconds: int = 0


class _CustomAggregated(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: dict[str, Int32] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0s"


class _Custom(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: dict[str, Int32] = {}
    prod_usage_thresholds: dict[str, Int32] = {}
    aggregated_usage: _CustomAggregated | None = None


_CUSTOM = msgspec.json.Decoder(_Custom)


def thresholds_of(args: LoadAwareArgs, annotations: Mapping[str, str]) -> Thresholds:
    """Return the thresholds in force on a node with these annotations."""
    custom = _custom(annotations.get(ANNOTATION_USAGE_THRESHOLDS))
    aggregated: _CustomAggregated | AggregatedArgs | None = custom.aggregated_usage
    if aggregated is None or not aggregated.usage_thresholds or not aggregated.usage_aggregation_type:
        aggregated = args.aggregated
    usage = custom.usage_thresholds or args.usage_thresholds
    prod = custom.prod_usage_thresholds or args.prod_usage_thresholds
    if aggregated is None or not aggregated.usage_thresholds or not aggregated.usage_aggregation_type:
        return Thresholds(usage=usage, prod=prod)
    return Thresholds(
        usage=usage,
        prod=prod,
        aggregated=aggregated.usage_thresholds,
        aggregation_type=aggregated.usage_aggregation_type,
        aggregation_seconds=parse_duration_seconds(aggregated.usage_aggregated_duration),
    )


def _custom(text: str | None) -> _Custom:
    if not text:
        return _Custom()
    try:
        custom = _CUSTOM.decode(text)
        if custom.aggregated_usage is not None:
            parse_duration_seconds(custom.aggregated_usage.usage_aggregated_duration)
    except (msgspec.DecodeError, DurationError):
        return _Custom()
    return custom
