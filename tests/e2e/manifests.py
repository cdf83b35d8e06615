"""Manifests that the end-to-end tests apply."""

from __future__ import annotations

from typing import Any

from tests.builders import container, pod_document

BURN = "while :; do :; done"


def batch_pod(name: str, script: str = BURN, *, cpu: int = 50, **spec: Any) -> dict[str, Any]:
    """A BE pod of the process runtime that asks for batch capacity (milli-cores)."""
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": "32Mi"}
    members = {
        "runtimeClassName": "process",
        "priorityClassName": "koord-batch",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container(command=["/bin/sh", "-c", script], requests=amounts, limits=amounts)],
        **spec,
    }
    return pod_document(name, namespace="", uid="", labels={"koordinator.sh/qosClass": "BE"}, **members)


def service_pod(name: str, script: str) -> dict[str, Any]:
    """An LS pod of the process runtime."""
    return pod_document(
        name,
        namespace="",
        uid="",
        labels={"koordinator.sh/qosClass": "LS"},
        runtimeClassName="process",
        priorityClassName="koord-prod",
        terminationGracePeriodSeconds=1,
        containers=[container(command=["/bin/sh", "-c", script], requests={"cpu": "100m", "memory": "32Mi"})],
    )


def simulated_pod(name: str) -> dict[str, Any]:
    """A pod of any image: it lands on a simulated node."""
    requests = {"cpu": "100m", "memory": "64Mi"}
    return pod_document(name, namespace="", uid="", image="app", requests=requests, terminationGracePeriodSeconds=1)
