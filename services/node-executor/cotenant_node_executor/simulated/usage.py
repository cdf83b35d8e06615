"""Demand and usage of a simulated pod: pure integer arithmetic on (pod, time).

Demand: annotation `cotenant.io/simulated-usage: "cpu=500m..1500m,memory=64Mi..128Mi,period=10m"`: a triangle from the
lower to the upper value and back in one period, shifted by the pod's uid; one value alone is constant; the period is one
hour by default. With `from=start` it begins at the lower value at each start, as a leak does. Without the annotation: the
batch CPU request; 60 % of the CPU request; 100m.

Usage: services first, then batch, within each tier by weighted sharing with caps (a group's quota): what pods below their
share leave unused is divided among the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.model.by_identity import by_identity
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from cotenant.model.quantities import QuantityError, parse_milli, parse_value
from cotenant.model.values import Value
from cotenant_node_executor.simulated.containers import parse_duration

ANNOTATION_USAGE = "cotenant.io/simulated-usage"
DEFAULT_PERIOD_MS = 3_600_000
DEFAULT_MILLI = 100
DEFAULT_MEMORY_BYTES = 64 * 1024 * 1024
REQUEST_PERCENT = 60
START = "start"


class Curve(Value, frozen=True):
    """A triangle between two values."""

    low: int
    high: int
    period_ms: int = DEFAULT_PERIOD_MS

    def at(self, elapsed_ms: int) -> int:
        """Return the value after `elapsed_ms`, starting at the lower one."""
        if self.low == self.high:
            return self.low
        half = max(self.period_ms // 2, 1)
        place = elapsed_ms % (2 * half)
        rise = place if place <= half else 2 * half - place
        return self.low + (self.high - self.low) * rise // half


class UsageCurve(Value, frozen=True):
    """CPU in milli-cores and memory in bytes over time; `phase_ms` shifts both."""

    cpu: Curve
    memory: Curve
    phase_ms: int = 0

    @property
    def constant(self) -> bool:
        """Whether the demand does not depend on time."""
        return self.cpu.low == self.cpu.high and self.memory.low == self.memory.high


def wanted_usage(pod: Pod, seed: int, start_ms: int = 0) -> UsageCurve:
    """The pod's demand over time, for a start at `start_ms` after the epoch. Raises ValueError on a malformed annotation."""
    requested = _requested(pod.spec)
    text = pod.metadata.annotations.get(ANNOTATION_USAGE)
    if text is None:
        return requested
    fields = dict(_field(part) for part in text.split(","))
    unknown = sorted(set(fields) - {"cpu", "memory", "period", "from"})
    if unknown:
        raise ValueError(f"annotation {ANNOTATION_USAGE}: {unknown[0]!r} is none of cpu, memory, period, from")
    if fields.get("from", START) != START:
        raise ValueError(f"annotation {ANNOTATION_USAGE}: from={fields['from']} is not from={START}")
    period = DEFAULT_PERIOD_MS
    if "period" in fields:
        period = max(round(parse_duration(fields["period"]) / timedelta(milliseconds=1)), 2)
    try:
        low, high = _range(fields.get("cpu"), requested.cpu.low, parse_milli)
        least, most = _range(fields.get("memory"), requested.memory.low, parse_value)
    except QuantityError as error:
        raise ValueError(f"annotation {ANNOTATION_USAGE}: {error}") from error
    digest = blake2b(f"{seed}/{pod.metadata.uid}".encode(), digest_size=8).digest()
    phase = -start_ms if "from" in fields else int.from_bytes(digest) % period
    return UsageCurve(Curve(low, high, period), Curve(least, most, period), phase)


@by_identity
def _requested(spec: PodSpec) -> UsageCurve:
    """Demand of a pod without an annotation: constant. Requests that cannot be read count as absent."""
    try:
        requests = pod_requests(Pod(spec=spec))
    except QuantityError:
        requests = {}
    cpu = requests.get(BATCH_CPU) or requests.get(CPU, 0) * REQUEST_PERCENT // 100 or DEFAULT_MILLI
    memory = requests.get(BATCH_MEMORY) or requests.get(MEMORY, 0) * REQUEST_PERCENT // 100 or DEFAULT_MEMORY_BYTES
    return UsageCurve(Curve(cpu, cpu), Curve(memory, memory))


def _field(part: str) -> tuple[str, str]:
    key, equals, value = part.strip().partition("=")
    if not equals or not value:
        raise ValueError(f"annotation {ANNOTATION_USAGE}: {part!r} is not KEY=VALUE")
    return key, value


def _range(text: str | None, default: int, parse: Callable[[str], int]) -> tuple[int, int]:
    if text is None:
        return default, default
    low, dots, high = text.partition("..")
    first = parse(low)
    return (first, parse(high)) if dots else (first, first)


def elapsed_ms(now: datetime, epoch: datetime) -> int:
    """Whole milliseconds since an epoch."""
    since = now - epoch
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def share_out(capacity: int, wanted: Mapping[str, int], weights: Mapping[str, int]) -> dict[str, int]:
    """Divide a capacity by weight, at most each one's demand; the remainder of rounding stays unused."""
    if sum(amount for amount in wanted.values() if amount > 0) <= capacity:
        return {name: max(amount, 0) for name, amount in wanted.items()}
    given = dict.fromkeys(wanted, 0)
    open_names: Sequence[str] = sorted(name for name in wanted if wanted[name] > 0)
    left = max(capacity, 0)
    while open_names and left > 0:
        total = sum(max(weights.get(name, 1), 1) for name in open_names)
        pool = left
        satisfied: list[str] = []
        for name in open_names:
            fair = pool * max(weights.get(name, 1), 1) // total
            if wanted[name] <= fair:
                satisfied.append(name)
        if not satisfied:
            for name in open_names:
                given[name] = pool * max(weights.get(name, 1), 1) // total
            break
        for name in satisfied:
            given[name] = wanted[name]
            left -= wanted[name]
        open_names = [name for name in open_names if name not in satisfied]
    return given
