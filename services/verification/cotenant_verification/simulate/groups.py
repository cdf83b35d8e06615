"""The gangs, reservations and quotas at the end of a simulated run.

In: objects as the API shows them. Out: parts of the result. A gang counts as placed if all of its pods have a node, as
waiting if none does, and as partly placed where only some do: a replacement waits, or a pod beyond the minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cotenant.domain.gangs import gang_id, gang_name
from cotenant.model.amounts import format_amounts
from cotenant_console.api.client import Document, Json, mapping_at, text_at
from cotenant_console.commands.quota_tree import amounts_of, drawn


def gangs_of(pods: Iterable[Json]) -> Document:
    """How many gangs are placed, partly placed, and wait."""
    gangs: dict[str, Counter[bool]] = {}
    for pod in pods:
        labels, annotations = _texts(pod, "labels"), _texts(pod, "annotations")
        name = gang_name(labels, annotations)
        if name:
            gang = gang_id(text_at(pod, "metadata", "namespace"), name)
            gangs.setdefault(gang, Counter())[bool(text_at(pod, "spec", "nodeName"))] += 1
    states = ("partly placed" if len(has) > 1 else "placed" if has[True] else "waiting" for has in gangs.values())
    return dict(sorted(Counter(states).items()))


def reservations_of(documents: Iterable[Document]) -> list[Json]:
    """The phase, the node and the amounts of each."""
    return [
        {
            "name": text_at(each, "metadata", "name"),
            "phase": text_at(each, "status", "phase"),
            "node": text_at(each, "status", "nodeName"),
            "allocatable": format_amounts(amounts_of(mapping_at(each, "status", "allocatable"))),
            "allocated": format_amounts(amounts_of(mapping_at(each, "status", "allocated"))),
        }
        for each in documents
    ]


def quotas_of(documents: Iterable[Document]) -> list[Json]:
    """What each uses, may use and requests."""
    return [
        {
            "name": quota.name,
            "used": format_amounts(quota.used),
            "runtime": format_amounts(quota.runtime),
            "request": format_amounts(quota.request),
        }
        for quota in map(drawn, documents)
    ]


def group_lines(reservations: Iterable[Json], quotas: Iterable[Json]) -> Iterable[str]:
    """A line for each, for a terminal."""
    for each in reservations:
        line = f"reservation {text_at(each, 'name')}: {text_at(each, 'phase')}"
        node = text_at(each, "node")
        given = f" on {node}, {text_at(each, 'allocated')} of {text_at(each, 'allocatable')} given" if node else ""
        yield line + given
    for each in quotas:
        yield (
            f"quota {text_at(each, 'name')}: used {text_at(each, 'used')}, runtime {text_at(each, 'runtime')}, "
            f"requested {text_at(each, 'request')}"
        )


def _texts(pod: Json, kind: str) -> dict[str, str]:
    return {name: str(value) for name, value in mapping_at(pod, "metadata", kind).items()}
