"""Spans as OpenTelemetry's SDK is told to send them: sampling by its environment, ids given, queues bounded and counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

PROGRAM = """
import json, sys
from cotenant.runtime.telemetry import Telemetry
telemetry = Telemetry("scheduler", "a")
tracing = telemetry.tracing
assert tracing is not None
made = {
    "root": tracing.begin("", "r"),
    "of_sample": tracing.root("cell/node/n/1", "u"),
    "sampled": tracing.begin("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "c"),
    "left_out": tracing.begin("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "c"),
}
for _ in range(int(sys.argv[1])):
    tracing.record("s", tracing.begin("", "s"), "", 1, 2, {})
made["text"] = telemetry.prometheus_text().decode()
print(json.dumps(made), flush=True)
import os
os._exit(0)
"""


def told(spans: int = 0, **environment: str) -> dict[str, Any]:
    """What a process says whose collector is not there."""
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "PATH": os.defpath, **environment}
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(spans)], capture_output=True, text=True, env=given, check=True)
    made: dict[str, Any] = json.loads(ran.stdout)
    return made


def flags(made: dict[str, Any]) -> list[str]:
    return [made[name][-2:] for name in ("root", "of_sample", "sampled", "left_out")]


def test_the_sampler_decides_about_roots_and_the_flag_that_came_about_the_rest() -> None:
    assert flags(told()) == ["01", "01", "01", "00"]
    none = told(OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0")
    assert flags(none) == ["00", "00", "01", "00"]


def test_the_trace_of_a_sample_follows_from_its_name() -> None:
    assert told()["of_sample"] == told()["of_sample"]


def test_spans_that_find_no_room_are_dropped_and_counted() -> None:
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "600", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "600"}
    text = told(5000, OTEL_BSP_SCHEDULE_DELAY="60000", **small)["text"]
    (dropped,) = [line for line in text.splitlines() if line.startswith("otel_sdk_processor_span") and "queue_full" in line]
    assert float(dropped.rsplit(" ", 1)[1]) >= 1000, dropped


def test_spans_of_traces_that_are_not_sampled_are_not_sent() -> None:
    text = told(5000, OTEL_TRACES_SAMPLER="always_off", OTEL_BSP_MAX_QUEUE_SIZE="600")["text"]
    assert "queue_full" not in text
