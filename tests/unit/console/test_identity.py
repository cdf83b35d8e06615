"""What `up` makes so that nobody else gets in, and kubeconfigs."""

from __future__ import annotations

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cotenant_console.api.credentials import Credentials, CredentialsError, kubeconfig_text, read_kubeconfig
from cotenant_console.api.endpoint import EndpointUnknownError, ServerOptions, find_endpoint
from cotenant_console.pki.identity import IdentityError, ProvidedCertificate, prepared
from cotenant_gateway.access.tokens.jwts import read_keys, read_signing_key

NAMES = ("localhost", "127.0.0.1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_stays_from_one_up_to_the_next_and_is_its_owners(tmp_path: Path) -> None:
    first = prepared(tmp_path, NAMES)
    texts = {path: path.read_text() for path in (tmp_path / "pki").iterdir()}
    assert len(texts) == 7
    for path in texts:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700
    assert prepared(tmp_path, NAMES) == first
    assert {path: path.read_text() for path in (tmp_path / "pki").iterdir()} == texts
    assert len(first.token) >= 32


def test_the_servers_certificate_is_made_again_in_time_and_for_other_names(tmp_path: Path) -> None:
    first = prepared(tmp_path, NAMES, now=NOW).certificate.read_text()
    assert prepared(tmp_path, NAMES, now=NOW + timedelta(days=360)).certificate.read_text() == first
    later = prepared(tmp_path, NAMES, now=NOW + timedelta(days=370)).certificate.read_text()
    assert later != first
    assert prepared(tmp_path, (*NAMES, "gateway.example"), now=NOW + timedelta(days=371)).certificate.read_text() != later
    ca = (tmp_path / "pki/ca.crt").read_text()
    assert prepared(tmp_path, NAMES, now=NOW).ca_text == ca


def test_given_files_take_the_place_of_made_ones(tmp_path: Path) -> None:
    theirs = prepared(tmp_path / "theirs", NAMES)
    given = ProvidedCertificate(theirs.certificate, theirs.key, theirs.ca)
    ours = prepared(tmp_path / "ours", NAMES, given)
    assert (ours.certificate, ours.ca) == (theirs.certificate, theirs.ca)
    assert not (tmp_path / "ours/pki/server.key").exists()
    with pytest.raises(IdentityError, match="together"):
        prepared(tmp_path / "half", NAMES, ProvidedCertificate(certificate=theirs.certificate))


def test_rubbish_in_the_folder_is_named(tmp_path: Path) -> None:
    prepared(tmp_path, NAMES)
    (tmp_path / "pki/ca.crt").write_text("rubbish")
    with pytest.raises(IdentityError, match="move that folder away"):
        prepared(tmp_path, NAMES)


def test_a_kubeconfig_is_read_as_kubectl_reads_it(tmp_path: Path) -> None:
    identity = prepared(tmp_path, NAMES)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text("https://127.0.0.1:8001", identity.ca_text, "anna", "secret"))
    server = read_kubeconfig(path)
    assert (server.url, server.credentials) == ("https://127.0.0.1:8001", Credentials(ca=identity.ca_text, token="secret"))
    (tmp_path / "token").write_text("from-a-file\n")
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    config["clusters"][0]["cluster"]["certificate-authority-data"] = ""
    config["clusters"][0]["cluster"]["certificate-authority"] = "pki/ca.crt"
    path.write_text("# a comment\n" + json.dumps(config))
    assert read_kubeconfig(path).credentials == Credentials(ca=identity.ca_text, token="from-a-file")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "a: [",
        '{"current-context":"x"}',
        '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"y"}}]}',
        '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"y"}}],"clusters":[{"name":"y","cluster":{}}]}',
        '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"y"}}],"clusters":[{"name":"y","cluster":'
        '{"server":"https://a","certificate-authority-data":"' + base64.b64encode(b"\xff").decode() + '"}}]}',
    ],
)
def test_what_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CredentialsError, match="kubeconfig"):
        read_kubeconfig(path)


def test_where_to_go_follows_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COTENANT_SERVER", "COTENANT_TOKEN", "COTENANT_CERTIFICATE_AUTHORITY", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COTENANT_DATA", str(tmp_path / "data"))
    with pytest.raises(EndpointUnknownError, match="--kubeconfig"):
        find_endpoint()
    path = tmp_path / "kubeconfig"
    ca = prepared(tmp_path, NAMES).ca_text
    path.write_text(kubeconfig_text("https://a:1", ca, "anna", "of-kubeconfig"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert find_endpoint().api_url == "https://a:1"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/endpoint.json").write_text('{"api":"https://b:1","nats":"nats://b"}')
    (tmp_path / "data/kubeconfig").write_text(kubeconfig_text("https://b:1", ca, "boss", "of-data"))
    assert (find_endpoint().api_url, find_endpoint().credentials.token) == ("https://b:1", "of-data")
    assert find_endpoint(ServerOptions(kubeconfig=str(path))).credentials.token == "of-kubeconfig"
    assert find_endpoint(ServerOptions(server="https://b:1")).credentials.token == "of-data"
    assert find_endpoint(ServerOptions(server="c:1")).api_url == "https://c:1"
    assert find_endpoint(ServerOptions(server="c:1")).credentials.token == "of-kubeconfig"
    assert find_endpoint(ServerOptions(token="mine")).credentials == Credentials(token="mine")
    with pytest.raises(CredentialsError):
        find_endpoint(ServerOptions(kubeconfig=str(tmp_path / "none")))


def test_a_new_signing_key_leaves_the_old_one_accepted(tmp_path: Path) -> None:
    first = prepared(tmp_path, NAMES).account_keys
    old = {key.kid for key in read_keys(first.verifying)}
    assert {read_signing_key(first.signing).key.kid} == old
    first.signing.unlink()
    second = prepared(tmp_path, NAMES).account_keys
    new = read_signing_key(second.signing).key.kid
    assert {key.kid for key in read_keys(second.verifying)} == {*old, new}
    assert {new}.isdisjoint(old)
