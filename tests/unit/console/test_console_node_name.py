"""Two stacks on one host are two nodes."""

from __future__ import annotations

from cotenant_console.up.node_name import NodeName


def test_a_name_that_is_taken_gets_a_number_and_is_free_again_afterwards() -> None:
    with NodeName("host-of-a-test") as first, NodeName("host-of-a-test") as second:
        assert (first, second) == ("host-of-a-test", "host-of-a-test-2")
    with NodeName("host-of-a-test") as again:
        assert again == "host-of-a-test"
