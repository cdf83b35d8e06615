"""Requests between services that are no facts: sent over NATS, answered once, not stored.

Reading a container's log: the node's executor serves `cotenant.node.<node>.logs`. The request is the JSON of `LogsRequest`,
the answer the text itself (UTF-8, at most MAX_LOG_ANSWER_BYTES, the end of the log). A refusal carries the NATS service
error headers: 404 where the node has no such log, 400 where the request cannot be read.

What a node configuration would change: batch-resource-calculator serves CONFIG_DRY_RUN. The request is the JSON of the `data`
of the ConfigMap `slo-controller-config` as it would be, the answer the JSON of `ConfigEffect`.

What the scheduler would do with a pod, its nodes, gangs and reservations: it serves SCHEDULER_DEBUG. The request is the JSON of
`SchedulerQuestion`, the answer that of `DebugAnswer`.

What quota-tree knows of quotas: it serves QUOTA_DEBUG. The request is the JSON of `QuotaQuestion`, the answer that of
`DebugAnswer`.

Adopting LOG: the node's executor serves `cotenant.node.<node>.adopt`; the request is empty, the answer the JSON of `Adopted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from cotenant.model.bounds import Count
from cotenant.model.subjects import encode_token

MAX_LOG_ANSWER_BYTES = 512 * 1024
T = TypeVar("T")


class LogsRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The end of a container's log, as `pods/log` requests it.

    `uid` empty: whichever pod has this name here. `container` empty: the pod's only one. `tail_lines`: at most that many lines;
    `limit_bytes`: at most that much. `previous`: of the attempt before the newest one. Lines carry no times, so a log cannot be
    requested since a time.
    """

    namespace: str
    name: str
    uid: str = ""
    container: str = ""
    tail_lines: Count | None = None
    limit_bytes: Count = MAX_LOG_ANSWER_BYTES
    previous: bool = False


def logs_subject(node: str) -> str:
    """The subject on which a node's executor answers `LogsRequest`."""
    return f"cotenant.node.{encode_token(node)}.logs"


CONFIG_DRY_RUN = "cotenant.batch-resource-calculator.dry-run"


class ConfigEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a node configuration would change. `nodes`: how many would have another offer. `changes`: by resource (`batch-cpu`,
    `mid-memory`, amplified `cpu`, ...) the change of the sum over all nodes, in percent. `slos`: how many NodeSLOs would have
    another spec. `rejected`: by section what is wrong with it; the
    effect is that of the others, as the previous value of a rejected one stays in force. `error`: why it is unknown."""

    nodes: Count = 0
    changes: dict[str, float] = {}
    slos: Count = 0
    rejected: dict[str, str] = {}
    error: str = ""


SCHEDULER_DEBUG = "cotenant.scheduler.debug"
MOST_DEBUG_ROWS = 1000
"""Lines of one table."""


class SchedulerQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`about`: `scores` or `filters` of the pod `namespace`/`name` node by node, at most `rows` lines; `gangs`, or the `gang`
    `namespace`/`name`; the `reservations` of the node `name`, its `load`, or the `node` itself."""

    about: str
    namespace: str = ""
    name: str = ""
    rows: Count = 20


class DebugAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`text`: a Markdown table, or (`json`) a JSON document; `error`: why there is none."""

    text: str = ""
    json: bool = False
    error: str = ""


def debug_answer(body: bytes, question: type[T], find: Callable[[T], DebugAnswer]) -> bytes:
    """Return the answer to a question of this type; to one that cannot be read, what is wrong with it."""
    try:
        asked = msgspec.json.decode(body, type=question)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return msgspec.json.encode(DebugAnswer(error=f"the question cannot be read: {error}"))
    return msgspec.json.encode(find(asked))


QUOTA_DEBUG = "cotenant.quota-tree.debug"


class QuotaQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`name`: one quota; empty: all but the roots, of the tree `tree` if that is given (empty: the default tree). `pods`: with
    the pods of each. `topology`: instead, what there is of quotas, and the children of each."""

    name: str = ""
    tree: str | None = None
    pods: bool = False
    topology: bool = False


class Adopted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An executor's answer to a request to adopt LOG. `was_unknown`: false if it knew LOG already. `pods`:
    how many pods ran without a placement; they are stopped next."""

    node: str
    was_unknown: bool
    pods: Count = 0


def adopt_subject(node: str) -> str:
    """The subject on which a node's executor answers a request to adopt LOG."""
    return f"cotenant.node.{encode_token(node)}.adopt"
