"""Who asks: tokens from a file, client certificates, processes on this machine; everybody else gets 401."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cotenant_gateway.access.authentication import Authenticator, Peer, local_user
from cotenant_gateway.access.tokens.bearer_tokens import MAX_VERIFIED, VerifiedTokens
from cotenant_gateway.access.tokens.files import AccessFileError, FileMarks
from cotenant_gateway.access.tokens.token_file import TokenFile, read_tokens
from cotenant_gateway.access.users import AUTHENTICATED, MASTERS
from cotenant_gateway.statuses import ApiError

TOKEN = "a-token-of-23-characters"
CERTIFICATE = Peer((("organizationName", "ops"), ("organizationName", "team"), ("commonName", "carl")))
NOBODY = Peer()


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(written(tmp_path / "tokens.csv", f'# comment\n\n{TOKEN},anna,7,"team, ops"\n{TOKEN}2,berta\n'))


@pytest.fixture
def authenticator(tokens: TokenFile) -> Authenticator:
    return Authenticator([tokens], lambda: 1000)


def test_a_token_names_user_uid_and_groups(authenticator: Authenticator) -> None:
    anna = authenticator.user(NOBODY, f"Bearer {TOKEN}")
    assert (anna.name, anna.uid, anna.groups) == ("anna", "7", ("team", "ops", AUTHENTICATED))
    assert authenticator.user(NOBODY, f"bearer   {TOKEN}2 ").groups == (AUTHENTICATED,)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \udcff", "Bearer " + "x" * 20_000]
)
def test_whoever_else_comes_is_nobody(authenticator: Authenticator, header: str) -> None:
    with pytest.raises(ApiError) as refusal:
        authenticator.user(NOBODY, header)
    assert refusal.value.code == 401


def test_a_certificate_names_user_and_groups(authenticator: Authenticator) -> None:
    assert authenticator.user(CERTIFICATE, "") == authenticator.user(CERTIFICATE, f"Bearer {TOKEN}")
    assert authenticator.user(CERTIFICATE, "").groups == ("ops", "team", AUTHENTICATED)
    with pytest.raises(ApiError):
        authenticator.user(CERTIFICATE, "Bearer wrong")
    with pytest.raises(ApiError):
        authenticator.user(Peer((("organizationName", MASTERS),)), "")


def test_the_gateways_own_user_and_root_may_do_everything_on_the_socket(authenticator: Authenticator) -> None:
    assert MASTERS in authenticator.user(Peer(uid=0), "").groups
    assert MASTERS in authenticator.user(Peer(uid=1000), "").groups
    other = authenticator.user(Peer(uid=65534), "")
    assert other.name.startswith("unix:")
    assert MASTERS not in other.groups
    assert local_user(4_000_000, False).name == "unix:4000000"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("short,anna\n", 0o600, ":1: a token has 16"),
        (f"{TOKEN}\n", 0o600, ":1: the user's name is missing"),
        (f"\n{TOKEN},a\n{TOKEN},b\n", 0o600, ":3: the token of 'a' is listed twice"),
        (f"{TOKEN},a\n", 0o640, "chmod 600"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(AccessFileError, match=said):
        read_tokens(written(tmp_path / "tokens.csv", text, mode))


def test_a_token_is_taken_away_without_a_restart(tmp_path: Path, tokens: TokenFile, authenticator: Authenticator) -> None:
    path = tmp_path / "tokens.csv"
    assert not tokens.look()
    written(path, f"{TOKEN}3,anna\n")
    os.utime(path, ns=(1, 1))
    assert tokens.look()
    assert authenticator.user(NOBODY, f"Bearer {TOKEN}3").name == "anna"
    with pytest.raises(ApiError):
        authenticator.user(NOBODY, f"Bearer {TOKEN}")
    written(path, "rubbish")
    os.utime(path, ns=(2, 2))
    assert not tokens.look()
    assert authenticator.user(NOBODY, f"Bearer {TOKEN}3").name == "anna"


def test_a_verified_token_is_remembered_until_it_expires_and_only_so_many_are() -> None:
    tokens: VerifiedTokens[str] = VerifiedTokens()
    tokens.put(b"first", 100.0, "anna")
    assert tokens.get(b"first", 99.9) == "anna"
    assert tokens.get(b"first", 100.0) is None
    for number in range(MAX_VERIFIED):
        tokens.put(b"%d" % number, 100.0, "berta")
    assert tokens.get(b"0", 0.0) == "berta"
    tokens.put(b"one more", 100.0, "carl")
    assert len(tokens) == MAX_VERIFIED
    assert tokens.get(b"1", 0.0) is None, "the one used longest ago is forgotten"
    assert tokens.get(b"0", 0.0) == "berta"


def test_files_are_seen_to_change_appear_and_go(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    written(first, "1")
    marks = FileMarks(first, second)
    assert not marks.changed()
    written(second, "2")
    assert marks.changed()
    assert not marks.changed()
    written(tmp_path / "new", "1").replace(first)
    assert marks.changed(), "another file of the same size"
    second.unlink()
    assert marks.changed()
