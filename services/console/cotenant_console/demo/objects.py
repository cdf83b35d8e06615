"""The demonstration's objects: a namespace, two quotas, one latency-sensitive service, and batch jobs.

In: the interpreter, ports, sizes. Out: manifests, in the form that a user of Koordinator would write.
"""

from __future__ import annotations

from pathlib import Path

from cotenant_console.api.client import Document
from cotenant_console.demo.interpreter import Interpreter

NAMESPACE = "demo"
SERVICE = "web"
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
QOS_LABEL = "koordinator.sh/qosClass"
APP_LABEL = "app"
JOB_APP = "crunch"
JOB_MEMORY_BYTES = 48 * 1024 * 1024
SERVICE_SCRIPT = Path(__file__).with_name("service.py")
JOB_SCRIPT = Path(__file__).with_name("batch.py")


def shared_objects() -> list[Document]:
    """The namespace and the quotas of both teams."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        _quota("services", {"cpu": "1", "memory": "1Gi"}, {"cpu": "64", "memory": "64Gi"}),
        _quota(
            "batch",
            {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "512Mi"},
            {"kubernetes.io/batch-cpu": "64000", "kubernetes.io/batch-memory": "64Gi"},
        ),
    ]


def _quota(name: str, least: Document, most: Document) -> Document:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"min": least, "max": most},
    }


def service_pod(interpreter: Interpreter, port: int, work: int) -> Document:
    """The latency-sensitive service."""
    command = [interpreter.path, str(SERVICE_SCRIPT), "--port", str(port), "--work", str(work)]
    resources: Document = {"requests": {"cpu": "500m", "memory": "64Mi"}}
    return _pod(SERVICE, SERVICE, "LS", "koord-prod", "services", interpreter, command, resources, "Always")


def job_pod(interpreter: Interpreter, name: str, cpu_seconds: float, batch_cpu_milli: int) -> Document:
    """One batch job: real CPU work on batch resources."""
    command = [
        interpreter.path,
        str(JOB_SCRIPT),
        "--cpu-seconds",
        f"{cpu_seconds:g}",
        "--memory",
        str(JOB_MEMORY_BYTES),
    ]
    amounts: Document = {"kubernetes.io/batch-cpu": str(batch_cpu_milli), "kubernetes.io/batch-memory": "96Mi"}
    resources: Document = {"requests": dict(amounts), "limits": dict(amounts)}
    return _pod(name, JOB_APP, "BE", "koord-batch", "batch", interpreter, command, resources, "Never")


def _pod(
    name: str,
    app: str,
    qos: str,
    priority: str,
    quota: str,
    interpreter: Interpreter,
    command: list[str],
    resources: Document,
    restart: str,
) -> Document:
    container: Document = {"name": "main", "command": list(command), "resources": resources}
    if interpreter.user is not None:
        container["securityContext"] = {"runAsUser": interpreter.user}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {APP_LABEL: app, QOS_LABEL: qos, QUOTA_LABEL: quota},
        },
        "spec": {
            "runtimeClassName": "process",
            "priorityClassName": priority,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
        },
    }
