"""The samples of a message as one table, for means and training alike.

In: a usage message. Out: int64 (2, series, samples), milli-cores and bytes; the series are the node, the system, pods and host
applications, in the message's order. Most messages are regular: all series have as many samples as there are times, and all
values are possible. Others have no table and are taken series by series.

A table is kept as bytes: 8 a sample, which the garbage collector need not traverse.
"""

import struct
from itertools import starmap

import numpy as np
import numpy.typing as npt

from cotenant.events.node.usage import UsageSample
from cotenant.model.values import Value
from cotenant_metrics_ingest.varints import integers

LARGEST_VALUE = 2**44
"""Maximum of one sample, in milli-cores or bytes (16 TiB): sums of one sample per millisecond stay below 2^63 for minutes."""

Table = npt.NDArray[np.int64]


class Samples(Value, frozen=True):
    """A regular message's samples. `size`: how many of each series."""

    data: bytes
    size: int

    def table(self) -> Table:
        """int64 (2, series, size)."""
        return np.frombuffer(self.data, dtype=np.int64).reshape(2, -1, self.size)

    def node_and_system(self, start: int, stop: int) -> tuple[bytes, bytes, bytes, bytes]:
        """The samples from `start` to before `stop`, int64: milli-cores and bytes of the node, then those of the system."""
        data, row, low, high = self.data, 8 * self.size, 8 * start, 8 * stop
        half = len(data) // 2
        of_node, of_system = half + low, half + row + low
        more = high - low
        return data[low:high], data[of_node : of_node + more], data[row + low : row + high], data[of_system : of_system + more]


def samples_of(sample: UsageSample) -> Samples | None:
    """The samples of a regular message; None for another."""
    size = len(sample.offsets_ms)
    if not size:
        return None
    series = [sample.node_usage, sample.system_usage, *[pod.series for pod in sample.pods]]
    if sample.host_applications:
        series += [host.series for host in sample.host_applications]
    pack = integers(size)
    try:
        # Series by series: one of another length is an error.
        data = b"".join(starmap(pack, [each.cpu_milli for each in series] + [each.memory_bytes for each in series]))
    except struct.error:
        return None
    # Negative values are the largest ones of unsigned integers.
    if np.maximum.reduce(np.frombuffer(data, dtype=np.uint64)) > LARGEST_VALUE:
        return None
    return Samples(data, size)
