"""The service's configuration: report interval, windows, and the time after which a node counts as silent."""

import msgspec


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds. `silent_after_seconds` 0: three report intervals or three message spans, whichever is longer. Intervals and
    windows are those of nodes whose colocation strategy sets no others. `prediction_checkpoint_seconds`: how often, at
    most, a node's prediction models are stored."""

    report_interval_seconds: float = 60
    aggregate_duration_seconds: int = 300
    durations_seconds: tuple[int, ...] = (300, 600, 1800)
    silent_after_seconds: float = 0
    prediction_cold_start_seconds: int = 86_400
    prediction_safety_margin_percent: int = 10
    prediction_checkpoint_seconds: int = 600

    def __post_init__(self) -> None:
        if self.report_interval_seconds <= 0 or self.aggregate_duration_seconds < 1:
            raise ValueError("report_interval_seconds and aggregate_duration_seconds must be positive")
        if self.prediction_cold_start_seconds < 0 or not 0 <= self.prediction_safety_margin_percent <= 1000:
            raise ValueError("prediction: the cold start must not be negative, the safety margin be 0 to 1000 %")
        if self.prediction_checkpoint_seconds < 1:
            raise ValueError("prediction_checkpoint_seconds must be positive")
        if not self.durations_seconds or min(self.durations_seconds) < 1 or max(self.durations_seconds) > 7 * 86400:
            raise ValueError("durations_seconds must name one or more windows of 1 s to 7 days")
