"""Typed events: the facts on the log, and their form on the wire.

`envelope` holds the Event that cores see and its CloudEvents form on the wire; each other file is one family of payloads, owned
by the service that writes it. Importing this package registers every payload type by its wire name.
"""

from __future__ import annotations

from cotenant.events.audit import Audited
from cotenant.events.commits import Commit, CommitRefused, LogDeclared, ServiceStarted
from cotenant.events.configurations import ConfigurationRejected
from cotenant.events.deadletters import DeadLetter
from cotenant.events.descheduling import DeschedulingCycle
from cotenant.events.envelope import Event, Payload, decode_event, encode_event, payload_types
from cotenant.events.gangs import PodGroupStatus
from cotenant.events.migrations import EvictionOutcome, EvictionRequest, Migration, NodeLoadJudged
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.execution import Execution
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.usage import UsageSample
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.events.quotas import ProfiledQuota, QuotaRuntime
from cotenant.events.reservations import ReservationShare, ReservationStatus

__all__ = [
    "Audited",
    "Commit",
    "CommitRefused",
    "ConfigurationRejected",
    "DeadLetter",
    "DeschedulingCycle",
    "Event",
    "EvictionOutcome",
    "EvictionRequest",
    "Execution",
    "ExecutorStatus",
    "LogDeclared",
    "MachineTopology",
    "Migration",
    "NodeCondition",
    "NodeLoadJudged",
    "NodeMetricComputed",
    "NodeResources",
    "NodeSLORendered",
    "ObjectDeleted",
    "ObjectStored",
    "Payload",
    "Placement",
    "PodGroupStatus",
    "PredictionState",
    "ProfiledQuota",
    "QuotaRuntime",
    "ReservationShare",
    "ReservationStatus",
    "RunStatus",
    "ServiceStarted",
    "UsageSample",
    "Waiting",
    "YarnNode",
    "decode_event",
    "encode_event",
    "payload_types",
]
