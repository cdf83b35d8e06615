"""Messages that are not regular, series by series: why one is refused, and the samples of one that is not.

In: a usage message. Out: the fault of its node's and system's series; its samples within a slot. Pods' series may be short or
impossible: those samples that are possible count.
"""

from cotenant.events.node.usage import Series, UsageSample
from cotenant_metrics_ingest.samples import LARGEST_VALUE
from cotenant_metrics_ingest.varints import packed


def newest(
    cpu: tuple[int, ...], memory: tuple[int, ...], start: int, stop: int, size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A series' milli-cores and bytes from time `start` to before `stop` of `size` times. A pod that started between two
    messages has fewer samples than there are times: they belong to the newest times."""
    length = min(len(cpu), len(memory), size)
    low, high = max(start - size + length, 0), max(stop - size + length, 0)
    return cpu[len(cpu) - length :][low:high], memory[len(memory) - length :][low:high]


def node_and_system(sample: UsageSample, start: int, stop: int) -> list[bytes]:
    """The samples from time `start` to before `stop` as int64: milli-cores and bytes of the node, then those of the system."""
    node, system = sample.node_usage, sample.system_usage
    series = (node.cpu_milli, node.memory_bytes, system.cpu_milli, system.memory_bytes)
    return [packed([values[start:stop]]) for values in series]


def values_fault(sample: UsageSample) -> str:
    """What is wrong with the node's or the system's series; empty if nothing is."""
    for name, series, optional in (("nodeUsage", sample.node_usage, False), ("systemUsage", sample.system_usage, True)):
        fault = _series_fault(series, len(sample.offsets_ms), optional)
        if fault:
            return f"{name}: {fault}"
    return ""


def _series_fault(series: Series, size: int, optional: bool) -> str:
    cpu, memory = series.cpu_milli, series.memory_bytes
    if optional and not cpu and not memory:
        return ""
    if len(cpu) != size or len(memory) != size:
        return f"{len(cpu)} cpu and {len(memory)} memory samples for {size} times"
    if min(cpu) < 0 or min(memory) < 0 or max(cpu) > LARGEST_VALUE or max(memory) > LARGEST_VALUE:
        return f"a sample is not in 0 .. {LARGEST_VALUE}"
    return ""
