"""The logs that keep the contract."""

from cotenant.log.memory import MemoryLog
from cotenant.log.nats.log import NatsLog

AnyLog = NatsLog | MemoryLog
