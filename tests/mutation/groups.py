"""Which files are mutated, and which unit tests judge them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Group:
    """`sources` are globs of files below the root, `tests` files or folders below tests, `without` those of their files that
    take long and tell little more.
    """

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """Return the mutated files, sorted. Raises FileNotFoundError for a glob that matches none."""
        found: set[Path] = set()
        for pattern in self.sources:
            matches = [path for path in ROOT.glob(pattern) if path.name != "__init__.py"]
            if not matches:
                raise FileNotFoundError(f"group {self.name}: no file matches {pattern}")
            found.update(matches)
        return sorted(found)

    def test_arguments(self) -> list[str]:
        """Return the tests as pytest takes them."""
        paths = [str(ROOT / "tests" / path) for path in self.tests]
        return [*paths, *(f"--ignore={ROOT / 'tests' / path}" for path in self.without)]


_CALCULATOR = "services/batch-resource-calculator/cotenant_batch_resource_calculator"
_EXECUTOR = "services/node-executor/cotenant_node_executor"
_QUOTA_TREES = "shared/cotenant/domain/quota/trees"
_ARBITER = "services/descheduler-arbiter/cotenant_descheduler_arbiter"
_METRICS = "services/metrics-ingest/cotenant_metrics_ingest"
_SCHEDULER = "services/scheduler/cotenant_scheduler"
_VERIFICATION = "services/verification/cotenant_verification"

_SCHEDULER_TESTS = ("unit/scheduler", "unit/shared/domain")
_PROPERTIES = (
    *("test_features_together", "test_scheduler_simulated"),
    *("framework/test_scheduler_evaluation", "framework/test_scheduler_series"),
    *("cycle/test_scheduler_being_stored", "cycle/test_scheduler_preemption_reference", "cycle/test_scheduler_reference"),
    *("plugins/test_scheduler_plugins", "plugins/test_scheduler_relations"),
)
_SCHEDULER_SLOW = tuple(f"unit/scheduler/{name}.py" for name in _PROPERTIES)
"""Properties: a survivor costs minutes with them, and what they alone would notice is a missing example."""

GROUPS = (
    Group("batch-formulas", (f"{_CALCULATOR}/formulas/*.py",), ("unit/batch_resource_calculator",)),
    Group("batch-config", (f"{_CALCULATOR}/config/*.py",), ("unit/batch_resource_calculator",)),
    Group(
        "executor-strategies",
        tuple(f"{_EXECUTOR}/strategies/{below}*.py" for below in ("", "pods/", "cpu/", "cpu/identity/", "cpu/suppression/")),
        ("unit/node_executor",),
    ),
    *(
        Group(f"executor-{subject}", (f"{_EXECUTOR}/strategies/{below}/*.py",), ("unit/node_executor/strategies",))
        for subject, below in (
            ("memory", "memory"),
            ("cache", "cache"),
            ("disk", "disk"),
            ("burst", "cpu/burst"),
            ("cpu-evict", "cpu/evict"),
        )
    ),
    Group("executor-convert", (f"{_EXECUTOR}/targets/convert.py",), ("unit/node_executor",)),
    Group(
        "quota-formulas",
        tuple(
            f"{_QUOTA_TREES}/{name}.py"
            for name in ("share", "splits", "climbing", "scale_min", "line", "family", "tree", "counted_quota", "totals")
        ),
        ("unit/quota_tree",),
    ),
    Group(
        "cycle",
        ("shared/cotenant/engine/cycle.py", "shared/cotenant/engine/ahead.py"),
        ("contract/test_cycle.py", "contract/test_cycle_bounds.py", "unit/shared", "unit/batch_resource_calculator"),
    ),
    Group(
        "model",
        (
            "shared/cotenant/domain/node.py",
            *(f"shared/cotenant/model/{name}.py" for name in ("tiers", "amounts", "quantities")),
        ),
        ("unit/shared", "unit/quota_tree", "unit/descheduler_arbiter"),
    ),
    Group("low-node-load", (f"{_ARBITER}/low_node_load/*.py",), ("unit/descheduler_arbiter",)),
    Group(
        "eviction-limits",
        (f"{_ARBITER}/eviction/*.py", f"{_ARBITER}/migration/max_unavailable.py"),
        ("unit/descheduler_arbiter",),
    ),
    Group(
        "aggregation",
        tuple(f"{_METRICS}/{name}.py" for name in ("aggregation", "means", "windows/percentiles", "slots", "points")),
        ("unit/metrics_ingest",),
    ),
    Group(
        "scheduler-plugins",
        (f"{_SCHEDULER}/plugins/*.py", f"{_SCHEDULER}/plugins/volumes/*.py"),
        _SCHEDULER_TESTS,
        _SCHEDULER_SLOW,
    ),
    Group(
        "scheduler-cycle",
        (
            *(f"{_SCHEDULER}/cycle/{files}" for files in ("*.py", "endings/*.py", "groups/*.py")),
            *(f"{_SCHEDULER}/{file}" for file in ("monitor.py", "state/quotas/cache.py")),
        ),
        _SCHEDULER_TESTS,
        _SCHEDULER_SLOW,
    ),
    Group(
        "scheduler-reservations",
        tuple(f"{_SCHEDULER}/{below}/*.py" for below in ("cycle/reservations", "plugins/reservation", "state/reservations")),
        _SCHEDULER_TESTS,
        _SCHEDULER_SLOW,
    ),
    Group(
        "scheduler-jobs",
        (f"{_SCHEDULER}/cycle/ordering/*.py", f"{_SCHEDULER}/state/gangs.py", "shared/cotenant/domain/gangs.py"),
        _SCHEDULER_TESTS,
        _SCHEDULER_SLOW,
    ),
    Group("descheduler-plugins", (f"{_ARBITER}/plugins/*.py",), ("unit/descheduler_arbiter",)),
    Group(
        "reservation-audit",
        tuple(f"{_VERIFICATION}/bench/audit/{name}.py" for name in ("reservations", "reservation_rules")),
        tuple(f"unit/console/test_console_bench_reservation{rest}.py" for rest in ("s", "_check", "_rules")),
    ),
    Group("prediction", (f"{_METRICS}/prediction/*.py",), ("unit/metrics_ingest",)),
)
