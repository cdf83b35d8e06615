"""`cotenant explain pod|node|quota|reservation NAME`: from a decision back to the samples and objects behind it.

In: the gateway's chain of causes. Out: the answer in one line, the trace id of its basis, then the chain as an indented
tree: stream:sequence, time, sentence, and the figures below it. Causes already shown are not repeated; events that are no
longer kept are reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from cotenant_console.api.client import Client, Document, Json, list_at, mapping_at, text_at, value_at
from cotenant_console.api.connection import with_client, with_namespace

PREFIX = "/apis/cotenant.io/v1/explain"
FIGURE_COLUMNS = 100
QUOTAS = ("quota", "quotas", "eq", "eqs", "elasticquota", "elasticquotas")
KINDS = ("pod", "po", "pods", "node", "no", "nodes", *QUOTAS, "reservation", "reservations")


@click.command("explain")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@with_namespace
@click.option("--depth", type=click.IntRange(1), default=12, show_default=True, help="Number of steps to walk back.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
@with_client
def command(client: Client, kind: str, name: str, namespace: str, depth: int, output: str | None) -> None:
    """Walk from a decision back to the samples that caused it; for a quota, explain its runtime first."""
    if kind.startswith("po"):
        path = f"{PREFIX}/pod/{namespace}/{name}"
    elif kind.startswith("res"):
        path = f"{PREFIX}/reservation/{name}"
    else:
        path = f"{PREFIX}/node/{name}" if kind.startswith("no") else f"{PREFIX}/quota/{name}"
    explanation = client.get(path)
    if output == "json":
        click.echo(json.dumps(explanation, indent=2))
    else:
        click.echo("\n".join(explanation_lines(explanation, depth)))


def explanation_lines(explanation: Document, depth: int) -> Iterator[str]:
    """The explanation as text."""
    namespace = text_at(explanation, "namespace")
    name = f"{namespace}/{text_at(explanation, 'name')}" if namespace else text_at(explanation, "name")
    yield f"{text_at(explanation, 'kind')} {name}: {text_at(explanation, 'summary')}"
    for reason in list_at(explanation, "reasons"):
        yield f"  {reason}"
    if trace := text_at(explanation, "links", 0, "traceId"):
        yield f"trace {trace}"
    hidden = 0
    for link in list_at(explanation, "links"):
        if int(text_at(link, "depth", default="0")) >= depth:
            hidden += 1
            continue
        yield from link_lines(link)
    if hidden:
        yield f"... {hidden} older causes: see them with a larger --depth"
    if value_at(explanation, "cut") is True:
        yield "... the walk reached its bounds: older causes exist"


def link_lines(link: Json) -> Iterator[str]:
    """One event of the chain, and its figures."""
    indent = "  " * int(text_at(link, "depth", default="0"))
    repeated = "  (see above)" if value_at(link, "repeated") is True else ""
    yield f"{indent}{text_at(link, 'ref'):<10} {text_at(link, 'time')[11:23]:<12}  {text_at(link, 'sentence')}{repeated}"
    line = ""
    for key, value in mapping_at(link, "figures").items():
        figure = f"{key}={value}"
        if line and len(line) + len(figure) > FIGURE_COLUMNS:
            yield f"{indent}{'':<10} {'':<12}    {line}"
            line = ""
        line = f"{line} {figure}".strip()
    if line:
        yield f"{indent}{'':<10} {'':<12}    {line}"
