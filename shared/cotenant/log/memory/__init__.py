"""The streams in one process, for the simulator and for tests."""

from cotenant.log.memory.log import MemoryLog
from cotenant.log.memory.reader import MemoryReader
from cotenant.log.memory.stream import MemoryStream, RawMessage

__all__ = ["MemoryLog", "MemoryReader", "MemoryStream", "RawMessage"]
