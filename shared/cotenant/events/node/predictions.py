"""State of a node's prediction models, stored by metrics-ingest for its own restart on `predictions.<node>`."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Count, Int64, Milliseconds


class HistogramState(Part, frozen=True, kw_only=True):
    """One resource's histograms, in the order of `PredictionState.models`: unsigned LEB128 integers.

    Per model: its number of buckets; then its buckets, each as the difference to the one before; their weights, scaled so that
    the heaviest is `heaviest`, rounded; its total weight at `reference_seconds` in thousandths.
    """

    reference_seconds: Milliseconds = 0
    """Seconds since the epoch at which a weight of 1 is one sample; earlier samples weigh less by half in each half-life."""
    heaviest: Count = 10_000
    models: bytes = b""


class SeasonState(Part, frozen=True, kw_only=True):
    """One resource's profile by time of day (`resource`: cpu or memory), and whether its forecast is in force.

    `latest_quarter`: quarter hours since the epoch of the newest value. `peaks`: deflated (RFC 1950), a byte for each quarter
    hour of the week from Monday 00:00 UTC: the bucket's number plus one, 0 for none, as the difference to the byte before
    modulo 256.
    """

    resource: str
    by_time_of_day: bool = False
    latest_quarter: Int64 = -1
    peaks: bytes = b""


class PredictionState(Payload, frozen=True, kw_only=True):
    """Subject `predictions.<node>`: one message per node, which replaces the one before; HISTORY does not copy it.

    `trained_ms`: newest sample that is in it, by the node's clock. The models, in this order: `models`, ids of those that are
    no pods'; `packed_pods`, uids of pods that are UUIDs, 16 bytes each; `pods`, uids that are none. A message is at most 8 KiB:
    a node of many pods is stored with fewer weights (`heaviest`), then without its smallest pods (`dropped`).
    """

    TYPE = "cotenant.predictions.v1"
    SUBJECT = "predictions.{node}"

    node: str
    stored_at: datetime | None = None
    trained_ms: Milliseconds = 0
    models: tuple[str, ...] = ()
    packed_pods: bytes = b""
    pods: tuple[str, ...] = ()
    cpu: HistogramState = HistogramState()
    memory: HistogramState = HistogramState()
    dropped: Count = 0
    seasons: tuple[SeasonState, ...] = ()
    """Of nodes that are configured for the forecast by time of day."""
