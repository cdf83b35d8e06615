"""/metrics of every service: what Prometheus can read, named as it wants, and exactly what docs/metrics.md lists.

Every process is a real one on a real server, and has something to count.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cotenant.log.contract import Write
from cotenant.log.nats.log import connect
from tests.integration.gateway.gateway_process import GatewayProcess, pod
from tests.integration.pods import stored_pod
from tests.nats_server import NatsServer, free_port

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 90
MODULES = {
    "metrics-ingest": "cotenant_metrics_ingest",
    "batch-resource-calculator": "cotenant_batch_resource_calculator",
    "quota-tree": "cotenant_quota_tree",
    "scheduler": "cotenant_scheduler",
    "descheduler-arbiter": "cotenant_descheduler_arbiter",
    "yarn-copilot": "cotenant_yarn_copilot",
    "node-executor": "cotenant_node_executor",
}
DECIDING = ("metrics-ingest", "batch-resource-calculator", "quota-tree", "scheduler", "descheduler-arbiter")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOREIGN = ("python_", "process_", "target_", "otel_")
"""Families of prometheus_client and OpenTelemetry themselves."""
KOORDINATORS = ("slo_controller_", "koord_manager_", "koordlet_", "scheduler_")
"""Named as Koordinator names them, with its labels."""
KOORDINATORS_LABELS = {"node", "webhook_type", "object_type", "operation", "plugin_name", "profile"}
"""`node` has at most 1,001 values."""
OF_ONE_NODE = "koordlet_"
"""With a node's and its pods' labels."""
LABELS = {"outcome", "reason", "stream", "verb", "status", "kind", "state", "why", "of", "zone", "resource", "group", "le"} | {
    "plugin",
    "unit",
}
"""None of them has a value for each node, pod or client; zones have a bound of their own."""
WHERE_CONFIGURED = {
    "cotenant_log_disk_free_bytes",
    "cotenant_gateway_oidc_keys",
    "cotenant_gateway_oidc_key_fetches_total",
    "cotenant_gateway_oidc_tokens_refused_total",
}
"""Shown where the gateway sees the server's disk, or has an OpenID issuer."""
OF_PODS = {
    *(f"koordlet_{name}" for name in ("pod_psi", "pod_eviction_detail")),
    *(f"koordlet_{name}" for name in ("host_application_resource_usage", "node_metric_numa_node_usage")),
    *(f"koordlet_container_resource_{name}" for name in ("requests", "limits")),
    *(f"koordlet_container_{name}" for name in ("psi", "cpi", "oom_score_adj", "core_sched_cookie")),
    *(f"koordlet_{name}" for name in ("core_sched_cookie_manage_status", "node_metric_numa_system_usage")),
    *(f"koordlet_resctrl_{name}" for name in ("llc_occupancy", "memory_bandwidth")),
    *(f"koordlet_collect_node_{name}_info_status" for name in ("cpu", "numa", "local_storage")),
    *(f"koordlet_container_scaled_cfs_{name}_us" for name in ("quota", "burst")),
    *(f"koordlet_resource_update_duration_milliseconds_{name}" for name in ("bucket", "sum", "count")),
    "koordlet_be_suppress_cpu_cores",
    "koordlet_be_numa_node_memory_bytes",
    *(f"koordlet_node_predicted_resource_{name}" for name in ("reclaimable", "peak")),
    *(f"scheduler_reservation_{name}" for name in ("status_phase", "resource")),
}
"""Shown where there are pods, host applications, NUMA nodes, caches, collectors, a suppression, a written control group, a
prediction, a Reservation (unit tests of node-executor, of metrics-ingest, of scheduler)."""
MAX_SERIES = 200
NOT_BASE_UNITS = re.compile(r"_(ms|milli\w*|microseconds|minutes|hours|kib|mib|gib|kb|mb|percent|pct)(_|$)")


def families(text: str) -> dict[str, Metric]:
    """The metrics of a page, by the names that Prometheus stores."""
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in found, f"{name} twice"
        found[name] = family
    return found


def lint(name: str, family: Metric) -> list[str]:
    """What promtool's linter, and the rules for labels of this project, object to."""
    wrong = []
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        wrong.append("not in snake case")
    if not family.documentation.strip():
        wrong.append("without help")
    if family.type in ("unknown", "untyped"):
        wrong.append("without a type")
    ends_like_another = family.type != "counter" and name.endswith(("_total", "_count", "_sum", "_bucket"))
    if ends_like_another and not name.startswith(KOORDINATORS):
        wrong.append(f"ends like another type than {family.type}")
    if name.endswith("_total_total") or re.search(r"_(counter|gauge|histogram|summary)(_|$)", name):
        wrong.append("says its type")
    if NOT_BASE_UNITS.search(name) and not name.startswith(KOORDINATORS):
        wrong.append("not in a base unit")
    if "seconds" in family.documentation and "seconds" not in name:
        wrong.append("a time without its unit")
    if len(family.samples) > MAX_SERIES and not name.endswith("_bucket"):
        wrong.append(f"{len(family.samples)} series")
    labels = {label for sample in family.samples for label in sample.labels if not name.startswith(OF_ONE_NODE)}
    known = LABELS | (KOORDINATORS_LABELS if name.startswith(KOORDINATORS) else set())
    wrong += [f"label {label}" for label in sorted(labels - known)]
    return [f"{name}: {each}" for each in wrong]


def documented() -> dict[str, set[str]]:
    """The table of docs/metrics.md: services by metric."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith(tuple(f"| `{begin}" for begin in ("cotenant_", *KOORDINATORS))):
            named = cells[2].split(", ")
            services = {"all": {"gateway", *MODULES}, "deciding": set(DECIDING)}
            found[cells[0].strip("`").partition("{")[0]] = set().union(*(services.get(one, {one}) for one in named))
    assert found
    return found


async def page(url: str) -> tuple[str, str]:
    """A service's metrics, and their content type."""

    def read() -> tuple[str, str]:
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_SECONDS) as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    return await asyncio.to_thread(read)


@pytest.fixture
async def pages(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[dict[str, tuple[str, str]]]:
    """The pages of all services, once each has counted what it does."""
    ports = {name: free_port() for name in MODULES}
    more = {"node-executor": ["--simulate", "n1", "--report-period", "1", "--data", str(tmp_path)]}

    def started(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", MODULES[name], "--nats", nats_server.url, "--http-port", str(ports[name])]
        return subprocess.Popen([*command, *more.get(name, [])])

    gateway = GatewayProcess(nats_server.url)
    running = [started(name) for name in MODULES]
    try:
        await gateway.ready()
        log = await connect(nats_server.url, "test")
        await log.append([Write(event=stored_pod("lonely"))])
        found: dict[str, tuple[str, str]] = {}
        async with asyncio.timeout(WAIT_SECONDS), gateway.session() as session:
            for name, port in ports.items():
                while not _has_begun(name, found.get(name, ("", ""))[0]):
                    await asyncio.sleep(0.1)
                    try:
                        found[name] = await page(f"http://127.0.0.1:{port}")
                    except OSError:
                        continue
            async with session.post("/api/v1/namespaces/default/pods", json=pod("asked")) as answer:
                assert answer.status == 201, await answer.text()
            while "cotenant_fold_behind_seconds" not in found.get("gateway", ("", ""))[0]:
                async with session.get("/metrics") as answer:
                    found["gateway"] = await answer.text(), answer.headers["Content-Type"]
        await log.close()
        yield found
    finally:
        for process in running:
            process.terminate()
        gateway.process.terminate()
        for process in (*running, gateway.process):
            await asyncio.to_thread(process.wait, WAIT_SECONDS)


def _has_begun(name: str, text: str) -> bool:
    """Whether a service has loaded, and counted a first decision where the pod or the node is one for it."""
    if "cotenant_ready 1.0" not in text:
        return False
    if name == "metrics-ingest":
        return "koordlet_node_resource_priority_reclaimable_status" in text
    if name in ("scheduler", "batch-resource-calculator"):
        return "cotenant_store_seconds_count" in text
    return True


async def test_every_service_shows_what_is_documented_as_prometheus_wants_it(pages: dict[str, tuple[str, str]]) -> None:
    table = documented()
    seen: set[str] = set()
    for service, (text, content_type) in sorted(pages.items()):
        assert content_type == CONTENT_TYPE, service
        shown = families(text)
        own = {name for name in shown if not name.startswith(FOREIGN)}
        assert [wrong for name in sorted(own) for wrong in lint(name, shown[name])] == [], service
        assert all(name.startswith(("cotenant_", *KOORDINATORS)) for name in own), service
        promised = {name for name, services in table.items() if service in services}
        optional = {"cotenant_decide_seconds", "cotenant_store_seconds", *WHERE_CONFIGURED, *OF_PODS}
        assert own - promised == set(), f"{service} shows what docs/metrics.md does not list"
        assert promised - own - optional == set(), f"{service} does not show what docs/metrics.md lists"
        seen |= own
    assert set(table) - seen == WHERE_CONFIGURED | OF_PODS, "no service shows these"
