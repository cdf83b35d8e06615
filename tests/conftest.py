"""Fixtures that every kind of test shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats_server import NatsServer


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
