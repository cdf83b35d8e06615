"""What fuzzing found: a user's job without a uid was accepted, ended and accepted again in one moment."""

from __future__ import annotations

from datetime import timedelta

from cotenant.model.subjects import object_subject
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration


def test_a_job_object_without_a_uid_is_not_accepted() -> None:
    cluster = Cluster(configuration(balance=False))
    created = (cluster.now - timedelta(days=1)).isoformat()
    document = {
        "metadata": {"name": "move", "creationTimestamp": created},
        "spec": {"podRef": {"name": "web", "namespace": "d"}},
    }
    cluster.store(object_subject("scheduling.koordinator.sh", "podmigrationjobs", "", "move"), document)
    assert list(cluster.core.decide(cluster.now)) == []
