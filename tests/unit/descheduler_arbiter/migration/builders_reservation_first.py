"""A job in mode ReservationFirst, in each of its phases."""


from typing import Any

import msgspec

from cotenant.events.migrations import EvictionOutcome, EvictionRequest, Migration, ReservationRequest
from cotenant.model.subjects import eviction_subject
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration

NAME = "uid-job-move"
"""Of the reservation: the uid of the job's object."""


def started(**spec: Any) -> Cluster:
    """Four replicas on node a, and a user's job in mode ReservationFirst that has passed arbitration."""
    cluster = Cluster(configuration(balance=False))
    for node in ("a", "b", "c"):
        cluster.node(node)
    for index in range(4):
        cluster.pod(f"web-{index}", "a")
    cluster.job("move", "web-0", mode="ReservationFirst", **spec)
    cluster.decide()
    return cluster


def reserved() -> Cluster:
    cluster = started()
    cluster.reservation(NAME, job="move")
    cluster.decide()
    return cluster


def held() -> Cluster:
    cluster = reserved()
    cluster.hold_place(NAME, "b")
    cluster.decide()
    return cluster


def granted() -> Cluster:
    cluster = held()
    cluster.answer("move")
    cluster.decide()
    return cluster


def evicted() -> Cluster:
    cluster = granted()
    cluster.end_pod("web-0")
    cluster.decide()
    return cluster


PHASES = {"started": started, "reserved": reserved, "held": held, "granted": granted, "evicted": evicted}


def job_of(cluster: Cluster) -> Migration:
    return cluster.migration("move")


def conditions(cluster: Cluster) -> dict[str, str]:
    return {each.type: each.status for each in job_of(cluster).conditions}


def asked(cluster: Cluster) -> list[ReservationRequest]:
    return [
        msgspec.json.decode(request.body, type=ReservationRequest)
        for request in cluster.requests()
        if request.subject == "cotenant.gateway.reserve.descheduler-arbiter"
    ]


def evictions(cluster: Cluster) -> list[EvictionRequest]:
    return [
        msgspec.json.decode(request.body, type=EvictionRequest)
        for request in cluster.requests()
        if request.subject == "cotenant.gateway.evict.descheduler-arbiter"
    ]


def refuse(cluster: Cluster, message: str) -> None:
    outcome = EvictionOutcome(
        namespace="default", name="web-0", uid="uid-web-0", allowed=False, job="move", message=message
    )
    cluster.publish(eviction_subject("default", "web-0"), outcome)
    cluster.decide()
