"""What a load costs: 100,000 subjects by snapshot, beside the same by a consumer with the last message per subject.

Out: seconds of each until the last message is decoded, the ratio, and the server's CPU time.
"""

from __future__ import annotations

import time

import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events import Event, NodeMetricComputed
from cotenant.events.node.metrics import Usage
from cotenant.log.contract import LOG, Stored, Write
from cotenant_verification.bench.testbed import Testbed

BATCH = MAX_EVENTS_PER_DECISION + 1
SUBJECTS = 100_000


async def measure() -> None:
    """Print one line a figure."""
    async with Testbed() as testbed:
        log = testbed.log
        events = [
            Event(subject=f"metrics.n{number:06}", data=NodeMetricComputed(node=f"n{number:06}", node_usage=Usage(cpu_milli=1)))
            for number in range(SUBJECTS)
        ]
        for first in range(0, SUBJECTS, BATCH):
            outcome = await log.append([Write(event=event) for event in events[first : first + BATCH]])
            assert isinstance(outcome, Stored), outcome
        before, started = testbed.cpu_seconds()["nats-server"], time.perf_counter()
        reader = await log.follow(LOG, ["metrics.*"])
        read = 0
        while read < SUBJECTS:
            read += len(await reader.pull(BATCH, 1.0))
        by_snapshot = time.perf_counter() - started
        print(f"load_snapshot {by_snapshot:.2f} s")
        print(f"load_snapshot_server_cpu {testbed.cpu_seconds()['nats-server'] - before:.2f} s")
        await reader.close()
        before, started = testbed.cpu_seconds()["nats-server"], time.perf_counter()
        await _by_consumer(testbed)
        by_consumer = time.perf_counter() - started
        print(f"load_consumer {by_consumer:.2f} s")
        print(f"load_consumer_server_cpu {testbed.cpu_seconds()['nats-server'] - before:.2f} s")
        print(f"load_snapshot_over_consumer {by_snapshot / by_consumer:.2f} ratio")


async def _by_consumer(testbed: Testbed) -> None:
    """The baseline: raw deliveries of the last messages, not even decoded."""
    stream = testbed.log.client.jetstream()
    subscription = await stream.pull_subscribe(
        "metrics.*", stream=LOG, config=_last_per_subject()
    )
    read = 0
    while read < SUBJECTS:
        read += len(await subscription.fetch(BATCH, timeout=10))
    await subscription.unsubscribe()


def _last_per_subject() -> ConsumerConfig:
    return ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, ack_policy=AckPolicy.NONE)


if __name__ == "__main__":
    uvloop.run(measure())
