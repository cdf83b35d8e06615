"""An adapter calls only what a service runs; what waits to be wired stands in one table, and leaves it when it is."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conformance.running_code import Definition, definitions, imports, running, sources

ADAPTERS = Path(__file__).parent / "adapters"

DEVICES = "usages of devices in reports"

NOT_WIRED: dict[str, str] = {
    "cotenant_metrics_ingest.report.GpuUsage": DEVICES,
    "cotenant_metrics_ingest.report.gpu_devices": DEVICES,
}
"""What adapters call and no service runs yet, with the capability that will."""


def called(path: Path) -> set[Definition]:
    """Return what an adapter imports from the services, or takes from a module of theirs."""
    tree = ast.parse(path.read_text())
    modules: dict[str, str] = {}
    found: set[Definition] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cotenant"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in sources():
                    modules[alias.asname or alias.name] = whole
                else:
                    found.add((node.module, alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found.add((modules[node.value.id], node.attr))
    return {defined(module, name) for module, name in found}


def defined(module: str, name: str) -> Definition:
    """Return where a name is defined that a module defines or imports."""
    known = imports(module)
    return defined(*known[name]) if name not in definitions(module) and name in known else (module, name)


def test_adapters_call_only_what_a_service_runs() -> None:
    offenders = {
        f"{module}.{name}"
        for path in sorted(ADAPTERS.rglob("*.py"))
        for module, name in called(path)
        if (module, name) not in running()
    }
    assert sorted(offenders - NOT_WIRED.keys()) == [], "no service runs it"
    assert sorted(NOT_WIRED.keys() - offenders) == [], "it runs, or no adapter calls it: take it out of the table"


def test_what_runs_is_found_by_who_names_it() -> None:
    scheduler = "cotenant_scheduler.core"
    assert (scheduler, "SchedulerCore") in running()
    assert ("cotenant_scheduler.plugins.load_aware", "LoadAwareScheduling") in running()
    assert ("cotenant_metrics_ingest.report", "gpu_devices") not in running()
    assert "SchedulerCore" in definitions(scheduler)
    assert imports(scheduler)["Profile"] == ("cotenant_scheduler.framework.profile", "Profile")
