"""The table of publish and subscribe permissions on NATS, from which the accounts are generated.

Two accounts. The streams are in `cell`, with the services. Nodes are in `nodes`, which has no JetStream: it imports from
`cell` what a node needs. That prevents one thing that permissions cannot: nats-server sends its answers (an
acknowledgement, a stored message) to whatever reply subject a request names, and in the account of the streams such an answer
is stored where that subject belongs to a stream. What arrives in `nodes` is never imported back into `cell`.

A role is a scoped signing key of its account: its permissions are in the account's claims, so all credentials of a role have
the permissions of this table, also those issued before it changed. `{{name()}}` stands for the user's name; a node's user
is named like its token in subjects (`cotenant.model.subjects.encode_token`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.events.requests import CONFIG_DRY_RUN, QUOTA_DEBUG, SCHEDULER_DEBUG
from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE
from cotenant.log.nats.access import CELL, NODES, NODES_API
from cotenant.model.subjects import LOG_IDENTITY

NAME = "{{name()}}"
STREAMS = (LOG, HISTORY, USAGE, EXECUTION)
ADMINISTRATOR = "administrator"
READER = "reader"
NODE = "node"
SIMULATED_NODES = "simulated-nodes"
SYSTEM = "system"
_API = "$JS.API"
_ANSWERS = ("_INBOX.>",)
"""Answers to requests. An inbox is below its user's name and ends in a random token."""


@dataclass(frozen=True)
class NatsRole:
    """Permissions of one kind of user."""

    name: str
    account: str
    says: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    responds: bool = False
    """May answer requests, whatever their reply subjects are."""


def _reading() -> tuple[str, ...]:
    """Reading every stream: its state, single messages, consumers of one's own."""
    found = []
    for stream in STREAMS:
        found += [f"{_API}.STREAM.INFO.{stream}", f"{_API}.STREAM.MSG.GET.{stream}", f"{_API}.DIRECT.GET.{stream}"]
        found += [f"{_API}.CONSUMER.CREATE.{stream}.*", f"{_API}.CONSUMER.CREATE.{stream}.*.>"]
        found += [f"{_API}.CONSUMER.MSG.NEXT.{stream}.*", f"{_API}.CONSUMER.DELETE.{stream}.*"]
    return tuple(found)


def _service(name: str, says: str, *publish: str, subscribe: tuple[str, ...] = (), commits: bool = True) -> NatsRole:
    own = (f"services.{name}.*", *((f"commits.{name}.*", "execution._.commits") if commits else ()))
    return NatsRole(
        name,
        CELL,
        says,
        (*publish, *own, f"deadletter.*.{name}", *_ANSWERS, *_reading()),
        (f"_INBOX.{name}.>", "$SRV.>", *subscribe),
    )


def _node(name: str, token: str, says: str) -> NatsRole:
    """A role of nodes whose token in subjects is `token`."""
    consumer = token if token == "*" else f"{NODE}-{token}"
    return NatsRole(
        name,
        NODES,
        says,
        (
            f"node.{token}.run.>",
            f"node.{token}.executor",
            f"node.{token}.topology",
            f"usage.{token}",
            f"execution.{token}.>",
            f"deadletter.*.{consumer}",
            f"cotenant.gateway.node-evict.{token}",
            f"{NODES_API}.DIRECT.GET.{LOG}.{LOG_IDENTITY}",
            f"{NODES_API}.DIRECT.GET.{LOG}.node.{token}.>",
            f"{NODES_API}.CONSUMER.CREATE.{LOG}.{consumer}.node.{token}.>",
            f"{NODES_API}.CONSUMER.MSG.NEXT.{LOG}.{consumer}",
            f"{NODES_API}.CONSUMER.DELETE.{LOG}.{consumer}",
        ),
        (
            f"_INBOX.{NAME}.>",
            f"republished.node.{token}.>",
            f"$JS.EVENT.ADVISORY.STREAM.*.{LOG}",
            f"cotenant.node.{token}.*",
            # No `$SRV.*`: whoever may subscribe to `*` may subscribe to `>` in its place.
            *(
                f"$SRV.{verb}{rest}"
                for verb in ("PING", "INFO", "STATS")
                for rest in ("", ".cotenant-node-executor", ".cotenant-node-executor.*")
            ),
        ),
        responds=True,
    )


SERVICE_ROLES = (
    _service(
        "gateway",
        "stores objects and evictions, ends reports of removed nodes, asks nodes for logs, batch-resource-calculator what a "
        "configuration would change, the scheduler what it would do, and quota-tree what it counts, makes room on a full LOG",
        "objects.>",
        "evictions.>",
        "node.*.run.>",
        "node.*.executor",
        "node.*.topology",
        "execution._.audit",
        "cotenant.node.*.*",
        CONFIG_DRY_RUN,
        SCHEDULER_DEBUG,
        QUOTA_DEBUG,
        "$SRV.PING",
        f"{_API}.STREAM.UPDATE.{LOG}",
        subscribe=("cotenant.gateway.evict.*", "cotenant.gateway.node-evict.*", "cotenant.gateway.reserve.*"),
    ),
    _service("metrics-ingest", "stores node metrics, and the state of predictions", "metrics.*", "predictions.*"),
    _service(
        "batch-resource-calculator",
        "stores what batch may use, NodeSLOs, and rejected sections of the node configuration",
        "node.*.resources",
        "node.*.slo",
        "configmaps.*.*",
        # Metrics as they are published: a sign to read LOG now.
        subscribe=("cotenant.batch-resource-calculator.*", "metrics.>"),
    ),
    _service(
        "quota-tree",
        "stores quotas, asks the gateway for evictions of over-used ones",
        "quotas.>",
        "cotenant.gateway.evict.quota-tree",
        subscribe=("cotenant.quota-tree.*",),
    ),
    _service(
        "scheduler",
        "stores placements, reservations, why pods wait, and how far PodGroups are",
        "node.*.placement.>",
        "node.*.reservation.>",
        "waiting.>",
        "podgroups.>",
        "reservations.*",
        subscribe=("cotenant.scheduler.*",),
    ),
    _service(
        "descheduler-arbiter",
        "stores migration jobs, judgements and conditions of nodes, asks the gateway for evictions and reservations",
        "migrations.*",
        "descheduling.>",
        "node.*.condition",
        "cotenant.gateway.evict.descheduler-arbiter",
        "cotenant.gateway.reserve.descheduler-arbiter",
    ),
    _service("yarn-copilot", "stores what YARN has", "yarn.*", subscribe=("cotenant.yarn-copilot.*",)),
)
READERS = (
    NatsRole(
        READER,
        CELL,
        "reads every stream (`cotenant replay`, the screen of `cotenant up`)",
        ("deadletter.*.console", *_reading()),
        (f"_INBOX.{NAME}.>",),
    ),
    NatsRole(ADMINISTRATOR, CELL, "everything, streams and purges too", (">",), (">",)),
)
OF_NODES = (
    _node(NODE, NAME, "one node: its own subjects; asks the gateway for evictions of its own pods, where kubelet runs them"),
    _node(SIMULATED_NODES, "*", "all nodes: for simulated ones only, which share a process"),
)
NATS_ROLES: dict[str, NatsRole] = {role.name: role for role in (*SERVICE_ROLES, *READERS, *OF_NODES)}


@dataclass(frozen=True)
class Shared:
    """What one account exports to another. `local`: its subject there, if it differs."""

    subject: str
    kind: str
    """`service`: requests go, answers come back; `stream`: messages come."""
    local: str = ""
    streamed: bool = False
    """A request has several answers."""


FOR_NODES = (
    Shared("node.*.run.>", "service"),
    Shared("node.*.executor", "service"),
    Shared("node.*.topology", "service"),
    Shared("usage.*", "service"),
    Shared("execution.*.>", "service"),
    Shared("deadletter.*.*", "service"),
    Shared("cotenant.gateway.node-evict.*", "service"),
    Shared(f"{_API}.DIRECT.GET.{LOG}.{LOG_IDENTITY}", "service", f"{NODES_API}.DIRECT.GET.{LOG}.{LOG_IDENTITY}"),
    Shared(f"{_API}.DIRECT.GET.{LOG}.node.*.>", "service", f"{NODES_API}.DIRECT.GET.{LOG}.node.$1.>"),
    Shared(
        f"{_API}.CONSUMER.CREATE.{LOG}.*.node.*.>", "service", f"{NODES_API}.CONSUMER.CREATE.{LOG}.$1.node.$2.>"
    ),
    Shared(f"{_API}.CONSUMER.MSG.NEXT.{LOG}.*", "service", f"{NODES_API}.CONSUMER.MSG.NEXT.{LOG}.$1", streamed=True),
    Shared(f"{_API}.CONSUMER.DELETE.{LOG}.*", "service", f"{NODES_API}.CONSUMER.DELETE.{LOG}.$1"),
    Shared("republished.node.>", "stream"),
    Shared(f"$JS.EVENT.ADVISORY.STREAM.*.{LOG}", "stream"),
)
"""Exports of `cell` to `nodes`."""
FOR_CELL = (
    Shared("cotenant.node.*.*", "service"),
    *(Shared(f"$SRV.{verb}", "service", streamed=True) for verb in ("PING", "INFO", "STATS")),
)
"""Exports of `nodes` to `cell`: executors answer requests, and `nats micro ls`."""


def table() -> str:
    """Return the roles as a table for people (Markdown)."""
    lines = ["| role | is for | may publish |", "|---|---|---|"]
    for role in NATS_ROLES.values():
        own = [f"`{subject}`" for subject in role.publish if subject not in (*_ANSWERS, *_reading())]
        common = ["reads of the streams"] if set(_reading()) <= set(role.publish) else []
        lines.append(f"| {role.name} | {role.says} | {', '.join(own + common)} |")
    return "\n".join(lines)
