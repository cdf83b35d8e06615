"""The table of roles on NATS: what the documentation says is what the accounts are made from."""

from __future__ import annotations

from pathlib import Path

from cotenant.log.nats.access import CELL, NODES
from cotenant_console.nats_access.roles import NATS_ROLES, table

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"


def test_the_documentation_has_the_table_that_the_accounts_are_made_from() -> None:
    assert table() in SECURITY.read_text()


def test_only_an_administrator_has_rights_on_streams_and_only_the_gateway_changes_limits_of_log() -> None:
    of_streams = {
        role.name: [subject for subject in role.publish if "STREAM.UPDATE" in subject or "STREAM.CREATE" in subject]
        for role in NATS_ROLES.values()
    }
    assert {name: found for name, found in of_streams.items() if found} == {"gateway": ["$JS.API.STREAM.UPDATE.LOG"]}
    assert [role.name for role in NATS_ROLES.values() if ">" in role.publish] == ["administrator"]


def test_roles_of_nodes_are_in_the_account_without_streams() -> None:
    for role in NATS_ROLES.values():
        assert role.account == (NODES if "node" in role.name else CELL)
        if role.account == NODES:
            assert not [subject for subject in role.publish if subject.startswith("$JS")]


def test_no_role_but_those_of_everything_ends_a_subscription_in_a_star_of_others_subjects() -> None:
    """nats-server lets whoever may subscribe to `x.*` subscribe to `x.>`."""
    ends = [subject for role in NATS_ROLES.values() for subject in role.subscribe if subject.endswith(".*")]
    assert all(subject.startswith(("cotenant.", "$SRV.")) and subject != "$SRV.*" for subject in ends)
