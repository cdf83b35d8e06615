"""Two stacks on one host are two nodes with ports of their own."""

from __future__ import annotations

import os
import socket

import pytest

from cotenant_console.up.claims import Claims, NothingLeftError


def test_a_name_that_is_taken_gets_a_number_and_is_free_again_afterwards() -> None:
    name = f"host-of-test-{os.getpid()}"
    with Claims() as one, Claims() as other:
        assert (one.node(name), other.node(name)) == (name, f"{name}-2")
    with Claims() as again:
        assert again.node(name) == name


def test_a_port_that_somebody_listens_on_or_another_stack_holds_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Claims() as one, Claims() as other:
        taken = server.getsockname()[1]
        first = one.port(taken)
        assert first > taken
        assert other.port(first) > first
        with pytest.raises(NothingLeftError, match=f"port {taken} is in use"):
            one.port(taken, exactly=True)
