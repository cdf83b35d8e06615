"""`cotenant top nodes|pods`: usage from NodeMetrics, and capacity.

In: NodeMetric and Node objects. Out: tables as kubectl's, with the batch CPU and memory that a node
offers. Metrics that have not been renewed for long are shown as `<unknown>`, never as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from cotenant.api.ages import age
from cotenant.api.kinds import Kind
from cotenant.kinds.koordinator.node_metrics import NODE_METRICS
from cotenant.kinds.nodes import NODES
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import QuantityError, parse_milli, parse_value
from cotenant_console.api.client import Client, Json, list_at, text_at, value_at
from cotenant_console.api.connection import with_client, with_namespace
from cotenant_console.tables import Table

MIB = 1024 * 1024
UNKNOWN = "<unknown>"


@click.command("top")
@click.argument("what", type=click.Choice(["nodes", "node", "pods", "pod"]))
@click.argument("name", required=False)
@with_namespace
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")
@with_client
def command(client: Client, what: str, name: str | None, namespace: str, all_namespaces: bool) -> None:
    """Show usage of nodes or pods."""
    metrics = _items(client, NODE_METRICS)
    if what.startswith("node"):
        nodes = [node for node in _items(client, NODES) if not name or text_at(node, "metadata", "name") == name]
        table = nodes_table(nodes, metrics, datetime.now(UTC))
    else:
        table = pods_table(metrics, "" if all_namespaces else namespace, name or "")
    if not table.rows:
        raise click.ClickException("no metrics yet: the first ones arrive some fifteen seconds after a node has started")
    click.echo("\n".join(table.lines()))


def _items(client: Client, kind: Kind) -> list[Json]:
    return list_at(client.get(kind.path()), "items")


def nodes_table(nodes: Sequence[Json], metrics: Sequence[Json], now: datetime) -> Table:
    """One row a node, in the order of the list."""
    by_name = {text_at(metric, "metadata", "name"): metric for metric in metrics}
    table = Table(("NAME", "CPU(cores)", "CPU%", "MEMORY(bytes)", "MEMORY%", "BATCH-CPU", "BATCH-MEMORY", "UPDATED"))
    for node in nodes:
        name = text_at(node, "metadata", "name")
        metric = by_name.get(name)
        allocatable = value_at(node, "status", "allocatable")
        used = value_at(metric, "status", "nodeMetric", "nodeUsage", "resources")
        updated = text_at(metric, "status", "updateTime")
        table.rows.append(
            (
                name,
                *_share(amount(used, "cpu", milli=True), amount(allocatable, "cpu", milli=True), "m", 1),
                *_share(amount(used, "memory"), amount(allocatable, "memory"), "Mi", MIB),
                _reclaimable(amount(allocatable, BATCH_CPU), "m", 1),
                _reclaimable(amount(allocatable, BATCH_MEMORY), "Mi", MIB),
                f"{age(updated, now)} ago" if updated else UNKNOWN,
            )
        )
    return table


def pods_table(metrics: Sequence[Json], scope: str, name: str) -> Table:
    """One row a pod that a NodeMetric names, sorted by namespace and name."""
    headings = ("NAME", "CPU(cores)", "MEMORY(bytes)", "QOS", "NODE")
    table = Table(headings if scope else ("NAMESPACE", *headings))
    rows = []
    for metric in metrics:
        node = text_at(metric, "metadata", "name")
        for pod in list_at(metric, "status", "podsMetric"):
            row = _pod_row(pod, node)
            if (not scope or row[0] == scope) and (not name or row[1] == name):
                rows.append(row[1:] if scope else row)
    table.rows = sorted(rows)
    return table


def _pod_row(pod: Json, node: str) -> tuple[str, ...]:
    resources = value_at(pod, "podUsage", "resources")
    cpu, memory = amount(resources, "cpu", milli=True), amount(resources, "memory")
    return (
        text_at(pod, "namespace"),
        text_at(pod, "name"),
        UNKNOWN if cpu is None else f"{cpu}m",
        UNKNOWN if memory is None else f"{memory // MIB}Mi",
        text_at(pod, "qos", default="<none>"),
        node,
    )


def amount(resources: Json, name: str, milli: bool = False) -> int | None:
    """A quantity of a resource list in whole units (or thousandths), None where it is missing or damaged."""
    found = resources.get(name) if isinstance(resources, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    try:
        return parse_milli(found) if milli else parse_value(found)
    except QuantityError:
        return None


def _share(used: int | None, total: int | None, unit: str, scale: int) -> tuple[str, str]:
    if used is None:
        return UNKNOWN, UNKNOWN
    return f"{used // scale}{unit}", f"{100 * used // total}%" if total else UNKNOWN


def _reclaimable(offered: int | None, unit: str, scale: int) -> str:
    return "<none>" if offered is None else f"{offered // scale}{unit}"
