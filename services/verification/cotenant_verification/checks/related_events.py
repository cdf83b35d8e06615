"""The events about an object: the first thing to read when a promise is broken.

In: the view, a subject as a check names it. Out: events in the order of the log, and each as lines: time, sentence,
figures, causes. The meaning of a subject:

| subject | events |
|---|---|
| of a pod (object, waiting, placement, run, eviction) | everything with the pod's name |
| `node.<node>.executor`, `execution.<node>.*`, a node's name | everything of the node, its metrics and its YARN side |
| `LOG:<sequence>`, of a commit | the commit, what was stored with it, and earlier versions of the same subjects |
| `<service>/<replica>` | the service's commits |
| any other | its own |
"""

from __future__ import annotations

import json
from collections.abc import Callable

from cotenant.events.commits import record_of
from cotenant.events.envelope import Event, encode_payload
from cotenant.model.subjects import commit_subject, encode_token, metrics_subject, node_subject, tokens, yarn_subject
from cotenant.simulation import START
from cotenant_verification.checks.log_view import LogView

TEXT = 400
LONG = 160
"""Longer members are left out of an event's figures: a pod's manifest, an object."""
NAMED = ("objects", "waiting", "evictions")


def related_events(view: LogView, subject: str) -> list[Event]:
    """Events about the entity of a subject."""
    wanted = _wanted(view, subject)
    return [event for event in view.log if wanted(event.subject)]


def _wanted(view: LogView, subject: str) -> Callable[[str], bool]:
    if subject.startswith("LOG:"):
        batch = _batch_of(view, int(subject.removeprefix("LOG:")))
        return batch.__contains__
    if "/" in subject and "." not in subject:
        # A service's process.
        return commit_subject(subject.partition("/")[0], "0").__eq__
    parts = tokens(subject)
    if parts[0] == "execution" or (parts[0] == "node" and len(parts) == 3) or len(parts) == 1:
        return _node(parts[1] if len(parts) > 1 else parts[0])
    if parts[0] in NAMED or "placement" in parts or "run" in parts:
        return lambda other: other == subject or tokens(other)[-2:] == parts[-2:]
    return subject.__eq__


def _node(name: str) -> Callable[[str], bool]:
    own = {metrics_subject(name), yarn_subject(name), node_subject(name)}
    prefix = f"node.{encode_token(name)}."
    return lambda other: other in own or (other.startswith(prefix) and ".run." not in other)


def _batch_of(view: LogView, sequence: int) -> set[str]:
    """The subjects of a commit: its first message's and those stored with it."""
    first = view.by_sequence(sequence)
    if first is None:
        return set()
    record = record_of(first)
    stored = (view.by_sequence(sequence + offset) for offset in range(1, record.count + 1 if record is not None else 1))
    return {first.subject, *(event.subject for event in stored if event is not None)}


def event_lines(event: Event) -> list[str]:
    """One event: when, what, its figures, its causes."""
    at = (event.time - START).total_seconds() if event.time is not None else 0.0
    word = "ended " if event.tombstone else ""
    return [
        f"  {event.ref:<10} {at:>9.3f} s  {event.subject}  {word}by {event.source}",
        f"             {_figures(event)}",
        f"             causes {' '.join(event.causes) or '-'}",
    ]


def _figures(event: Event) -> str:
    """The event's data without its long members."""
    data = json.loads(encode_payload(event.data))
    short = {name: value for name, value in data.items() if len(json.dumps(value)) <= LONG}
    text = json.dumps(short, ensure_ascii=False, separators=(",", ":"))
    left_out = sorted(set(data) - set(short))
    text = text if len(text) <= TEXT else f"{text[:TEXT]}..."
    return f"{text} without {', '.join(left_out)}" if left_out else text
