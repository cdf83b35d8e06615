"""Fixtures that every kind of test shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.nats_server import NatsServer

HERE = Path(__file__).parent
OF_THE_MACHINE = ("e2e", "integration/console", "integration/node_executor", "integration/node_kernel")
"""Tests of these folders share the machine's control groups and measure its load: one after the other, in one worker."""
ALONE = ("unit", "simulation/test_mutants.py")
"""Here each test is one of its own. Those of any other file share servers, and run in its order, in one worker."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Say which tests do not run at the same time (`pytest -n N --dist loadgroup`)."""
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if file.rpartition("/")[0] in OF_THE_MACHINE:
            item.add_marker(pytest.mark.xdist_group("machine"))
        elif not file.startswith(ALONE):
            item.add_marker(pytest.mark.xdist_group(file))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run tests of one group side by side: xdist writes groups into ids, and pytest 9.2 no longer lets it."""
    if not session.config.getoption("loadgroup", default=False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: has no group; this pytest and this pytest-xdist do not fit together")


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A fresh server for one test."""
    server = NatsServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared_nats_server() -> Iterator[NatsServer]:
    """One server for the tests of a module that keep to subjects of their own."""
    server = NatsServer()
    server.start()
    yield server
    server.close()
