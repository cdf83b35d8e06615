"""`pods/resize` over HTTP and by kubectl, against a real nats-server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.gateway.gateway_process import PODS, GatewayProcess, body_of, pod, with_kubectl
from tests.nats_server import NatsServer

STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


@pytest.fixture(scope="module")
def gateway_process(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(shared_nats_server.url)
    asyncio.run(gateway.ready())
    yield gateway
    gateway.close()


def asking(cpu: str) -> str:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": "4"}}
    return json.dumps({"spec": {"containers": [{"name": "main", "resources": resources}]}})


async def test_the_subresource_is_listed_read_patched_and_replaced(gateway_process: GatewayProcess) -> None:
    async with gateway_process.session() as http:
        resources = (await body_of(await http.get("/api/v1"), 200))["resources"]
        assert next(each for each in resources if each["name"] == "pods/resize")["verbs"] == ["get", "patch", "update"]
        await body_of(await http.post(PODS, json=pod("sized")), 201)
        patched = await body_of(await http.patch(f"{PODS}/sized/resize", data=asking("2"), headers=STRATEGIC), 200)
        assert patched["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
        read = await body_of(await http.get(f"{PODS}/sized/resize"), 200)
        assert read == patched
        read["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
        await body_of(await http.put(f"{PODS}/sized/resize", json=read), 200)
        stale = await body_of(await http.put(f"{PODS}/sized/resize", json=patched), 409)
        assert stale["reason"] == "Conflict"
        await body_of(await http.delete(f"{PODS}/sized/resize"), 405)
        refused = await body_of(await http.patch(f"{PODS}/sized", data=asking("1"), headers=STRATEGIC), 422)
        assert "pod updates may not change fields other than" in refused["message"]
        await body_of(await http.get("/api/v1/nodes/n1/resize"), 404)
        paths = (await body_of(await http.get("/openapi/v3/api/v1"), 200))["paths"]
        assert set(paths["/api/v1/namespaces/{namespace}/pods/{name}/resize"]) == {"get", "put", "patch", "parameters"}


@with_kubectl
async def test_kubectl_patches_and_edits_it(gateway_process: GatewayProcess, tmp_path: Path) -> None:
    kubectl = partial(gateway_process.kubectl, tmp_path)
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(pod("by-kubectl-sized")))
    await kubectl("apply", "-f", str(manifest))
    assert "patched" in await kubectl("patch", "pod", "by-kubectl-sized", "--subresource", "resize", "-p", asking("2"))
    query = "jsonpath={.spec.containers[0].resources.requests.cpu}"
    assert await kubectl("get", "pod", "by-kubectl-sized", "-o", query) == "2"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/cpu: \"2\"/cpu: \"3\"/' \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in await kubectl("edit", "pod", "by-kubectl-sized", "--subresource=resize", editor=editor)
    assert await kubectl("get", "pod", "by-kubectl-sized", "-o", query) == "3"
