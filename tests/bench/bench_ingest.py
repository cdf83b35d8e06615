"""Usage messages through metrics-ingest per second of one core's time: decoded, folded, and reported every 60 s of
their time.

200 nodes of 30 pods send a message of 15 samples every 15 s for 10 minutes of virtual time. The messages are encoded
before the clock starts; decoding from the wire's bytes as the service does it, folding, training and predicting, deciding,
and encoding the decisions are inside. The garbage collector is set as in the service's process. Run it alone:
`python -m tests.bench.bench_ingest`.
"""

import gc
import random
import time
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.events.envelope import Event, MessageDecoders, decode_event, encode_event
from cotenant.events.node.usage import PodUsage, Series, UsageSample
from cotenant.events.objects import ObjectStored
from cotenant.log.contract import USAGE
from cotenant.model.subjects import node_subject, usage_subject
from cotenant.runtime.process import GC_THRESHOLDS
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import MetricsIngestCore
from cotenant_metrics_ingest.definition import DEFINITION

NODES = 200
PODS = 30
PERIOD = timedelta(seconds=15)
MESSAGES = 40
START = datetime(2026, 1, 1, tzinfo=UTC)
OFFSETS = tuple(range(-14_000, 1, 1000))


def usage_message(node: str, number: int, dice: random.Random) -> Event:
    """One message of a node with PODS pods and noisy usage."""

    def series(cpu: int, memory: int) -> Series:
        return Series(
            cpu_milli=tuple(cpu + dice.randrange(cpu) for _ in OFFSETS),
            memory_bytes=tuple(memory + 4096 * dice.randrange(5000) for _ in OFFSETS),
        )

    return Event(
        subject=usage_subject(node),
        data=UsageSample(
            node=node,
            boot="1",
            counter=number,
            offsets_ms=OFFSETS,
            node_usage=series(8000, 2**34),
            system_usage=series(500, 2**31),
            pods=tuple(
                PodUsage(
                    namespace="default",
                    name=f"pod-{pod:02}",
                    uid=f"{node}-pod-{pod:02}",
                    qos="LS",
                    priority="koord-prod",
                    series=series(300, 2**29),
                )
                for pod in range(PODS)
            ),
        ),
        time=START + number * PERIOD,
        id=f"{node}/{number}",
        source=f"/cell/node-executor/{node}",
        stream=USAGE,
    )


def measure() -> tuple[float, float]:
    """Messages a second, and bytes of one report."""
    dice = random.Random(7)
    core = MetricsIngestCore(MetricsConfig())
    decoders = MessageDecoders(DEFINITION.views)
    sequence = 0
    for index in range(NODES):
        sequence += 1
        document = {"metadata": {"name": f"node-{index:03}"}}
        stored = ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
        core.apply(Event(subject=node_subject(f"node-{index:03}"), data=stored, sequence=sequence, time=START))
    core.decide(START)
    # The same eight messages a node, with times and counters of their own, keep the encoding ahead small.
    bodies = {index: [usage_message(f"node-{index:03}", number, dice) for number in range(8)] for index in range(NODES)}
    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # what the benchmark itself holds is nothing that the service would have to look through
    spent, count, reports, report_bytes = 0.0, 0, 0, 0
    usage_sequence = 0
    for number in range(1, MESSAGES + 1):
        wires = []
        for index in range(NODES):
            event = bodies[index][number % 8]
            assert isinstance(event.data, UsageSample)
            sample = msgspec.structs.replace(event.data, counter=number)
            wires.append(encode_event(msgspec.structs.replace(event, data=sample, time=START + number * PERIOD)))
        now = START + number * PERIOD
        started = time.process_time()
        for index, wire in enumerate(wires):
            usage_sequence += 1
            subject = usage_subject(f"node-{index:03}")
            core.apply(decode_event(wire, subject=subject, stream=USAGE, sequence=usage_sequence, decoders=decoders))
        for event in core.decide(now):
            sequence += 1
            stamped = msgspec.structs.replace(event, sequence=sequence, time=now, id="report", source="/cell/metrics-ingest/0")
            report_bytes += len(encode_event(stamped))
            reports += 1
            core.apply(stamped)
        spent += time.process_time() - started
        count += len(wires)
    return count / spent, report_bytes / max(reports, 1)


def run() -> None:
    """Print the figures."""
    rate, size = measure()
    print(f"ingest_usage_messages_per_second {rate:.0f} 1/s")
    print(f"ingest_report_bytes {size:.0f} B")


if __name__ == "__main__":
    run()
