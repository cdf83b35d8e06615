"""A service that says its own latency, asked by a real executor, over a socket in the pod's own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cotenant_node_executor.targets.address import Knob
from tests.integration.node_executor.executor_harness import Harness, pod_manifest
from tests.integration.node_executor.test_enforcement import batch_pod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")


def service(figure: Path) -> str:
    """Answers with what the file says, on a socket in a folder that only the pod has."""
    return (
        "import http.server, socketserver\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def address_string(self): return ''\n"
        "    def do_GET(self):\n"
        f"        body = open({str(figure)!r}, 'rb').read()\n"
        "        self.send_response(200)\n        self.end_headers()\n        self.wfile.write(body)\n"
        "socketserver.ThreadingUnixStreamServer('/tmp/web.sock', Answer).serve_forever()"
    )


async def test_a_late_service_takes_quota_from_batch_work_by_its_own_figure_and_one_that_talks_rubbish_is_said(
    harness: Harness,
) -> None:
    harness.folder.chmod(0o755)
    figure = harness.folder / "figure"
    figure.write_text('{"oldestRequestMs": 45}')
    harness.start()
    await harness.node_slo(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=1000)
    await harness.place(batch_pod("batch"))
    annotations = {
        "cotenant.io/latency-endpoint": "http://unix:/tmp/web.sock:/latency",
        "cotenant.io/latency-goal": "20ms",
    }
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    labels = {"koordinator.sh/qosClass": "LS"}
    await harness.place(
        pod_manifest("web", service(figure), labels=labels, annotations=annotations, container={"resources": resources})
    )
    await harness.running("web")
    text = await harness.wait("the figure of a decision", lambda: harness.summary("suppress", "default/web: oldest request"))
    assert "for services that are late (default/web: oldest request 45.0 ms, goal 20 ms)" in text
    quota = harness.number("besteffort", Knob.CPU_QUOTA)
    assert quota > 0

    figure.write_text("rubbish")
    why = "the own latency of pod default/web"
    said = await harness.wait("that it cannot be read", lambda: harness.summary("refusals", why))
    assert "run delay is used" in said
