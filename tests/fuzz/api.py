"""`python -m tests.fuzz.api -n 20000`: requests that schemathesis makes from the published OpenAPI, to a real gateway.

In: a gateway. Out: its answers: none is a fault of the server, each comes within TIMEOUT_SECONDS. Most requests that name
an object name one of a few, so that they meet. A third of the bodies are what the schema allows, the others documents of
`facts` of the request's kind and name, half of them with values at the edges.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.core.result import Ok

from cotenant.kinds.registry import REGISTRY
from cotenant_gateway.http.openapi.documents import openapi_group
from tests.fuzz.extremes import json_bytes
from tests.fuzz.facts import DOCUMENTS, Document, document
from tests.integration.gateway.gateway_process import GatewayProcess, shared_identity
from tests.nats_server import NatsServer

TIMEOUT_SECONDS = 60
NAMES = ("web", "job", "n1", "team", "default")
PASSING = frozenset({503, 504})
"""Answers that say to come again."""
_BODIES = frozenset({"POST", "PUT", "PATCH"})
_BY_PLURAL = {each.plural: each for each in DOCUMENTS}


def cases() -> st.SearchStrategy[Case[Any]]:
    """Requests of every operation of every group."""
    groups = sorted({(each.kind.group, each.kind.version) for each in REGISTRY})
    operations = []
    for group, version in groups:
        published: Any = openapi_group(REGISTRY, group, version)
        schema = schemathesis.openapi.from_dict(published)
        operations += [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    return st.one_of([operation.as_strategy() for operation in operations])


class Session:
    """Sends cases to a gateway and counts the answers."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.url = gateway.url
        self.answers: Counter[int] = Counter()
        self._session = requests.Session()
        self._session.headers.update(gateway.credentials.headers)

    def send(self, case: Case[Any], seed: int) -> None:
        """Send a case. Raises AssertionError for a fault of the server."""
        random = Random(seed)
        parameters: dict[str, Any] = dict(case.path_parameters or {})
        for name in parameters:
            if random.random() < 0.8:
                parameters[name] = random.choice(NAMES[3:] if name == "namespace" else NAMES[:3])
        case.path_parameters = parameters
        if random.random() < 0.7:
            case.query = {}
        arguments = case.as_transport_kwargs(base_url=self.url)
        of = kind_of(case.path)
        if case.method in _BODIES and of is not None and random.random() < 0.67:
            arguments.pop("json", None)
            arguments["data"] = json_bytes(body(random, of, parameters))
        arguments |= {"timeout": TIMEOUT_SECONDS, "verify": str(shared_identity().ca)}
        answer = self._session.request(**arguments)
        if answer.status_code == 404 and of is not None and parameters.get("name") in NAMES:
            self._create(random, of, case.path, parameters)
            answer = self._session.request(**arguments)
        self.answers[answer.status_code] += 1
        assert answer.status_code < 500 or answer.status_code in PASSING, f"{answer.status_code}: {answer.text[:2000]}"


    def _create(self, random: Random, of: Document, path: str, parameters: dict[str, Any]) -> None:
        """Create the object that a request names, and its namespace: most requests would find nothing without it."""
        team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMES[3]}}
        made = document(random, of, 0.0, 0.0)[2]
        made["metadata"] = {"name": parameters["name"]}
        collection = path.split("/{name}")[0].replace("{namespace}", quote(parameters.get("namespace", ""), safe=""))
        for where, what in (("/api/v1/namespaces", team), (collection, made)):
            self._session.post(
                self.url + where, data=json_bytes(what), headers={"Content-Type": "application/json"}, timeout=TIMEOUT_SECONDS,
                verify=str(shared_identity().ca),
            )  # fmt: skip


def kind_of(path: str) -> Document | None:
    """Return the kind of a path's objects: of the last part that names a kind."""
    return next((_BY_PLURAL[part] for part in reversed(path.split("/")) if part in _BY_PLURAL), None)


def body(random: Random, of: Document, parameters: dict[str, Any]) -> Any:
    """Return a document as a client sends it, with the names of its path."""
    heat = random.choice((0.0, 0.0, 0.02, 0.3))
    made = document(random, of, heat, random.choice((0.0, 0.1, 0.3)))[2]
    metadata = made.get("metadata") if isinstance(made, dict) else None
    if isinstance(metadata, dict) and random.random() > heat:
        for name in ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp", "ownerReferences", "generateName"):
            metadata.pop(name, None)
        metadata["name"] = parameters.get("name", random.choice(NAMES[:3]))
        metadata.pop("namespace", None)
    return made


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) >> 10
    return 0


def run(session: Session, examples: int, *, derandomize: bool) -> None:
    """Send so many cases."""

    @settings(
        max_examples=examples,
        derandomize=derandomize,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(), st.integers(0, 2**32 - 1))
    def every_case(case: Case[Any], seed: int) -> None:
        session.send(case, seed)

    every_case()


def main() -> int:
    """Run as many as asked for, in blocks, and print answers and the gateway's memory after each."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.api", description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", "--cases", type=int, default=20_000)
    options = parser.parse_args()
    server = NatsServer()
    server.start()
    gateway = GatewayProcess(server.url)
    try:
        asyncio.run(gateway.ready())
        session = Session(gateway)
        while sum(session.answers.values()) < options.cases:
            run(session, min(1000, options.cases), derandomize=False)
            print(dict(sorted(session.answers.items())), f"rss_mib={resident_mib(gateway.process.pid)}", flush=True)
    finally:
        gateway.close()
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
