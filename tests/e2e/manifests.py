"""Manifests that the end-to-end tests apply."""

from __future__ import annotations

from typing import Any

BURN = "while :; do :; done"


def batch_pod(name: str, script: str = BURN, *, cpu: int = 50, **spec: Any) -> dict[str, Any]:
    """A BE pod of the process runtime that asks for batch capacity (milli-cores)."""
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": "32Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "runtimeClassName": "process",
            "priorityClassName": "koord-batch",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "command": ["/bin/sh", "-c", script], "resources": {"requests": amounts, "limits": amounts}}
            ],
            **spec,
        },
    }


def service_pod(name: str, script: str) -> dict[str, Any]:
    """An LS pod of the process runtime."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "runtimeClassName": "process",
            "priorityClassName": "koord-prod",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "command": ["/bin/sh", "-c", script],
                    "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}},
                }
            ],
        },
    }


def simulated_pod(name: str) -> dict[str, Any]:
    """A pod of any image: it lands on a simulated node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
    }
