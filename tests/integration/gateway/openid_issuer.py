"""An OpenID issuer of its own process: a folder served over HTTPS, whose keys a test replaces; and the tokens that it gives.

`python -m tests.integration.gateway.openid_issuer PORT FOLDER CERTIFICATE KEY` serves. Providers on the package index leave
no say in keys and algorithms, which is what these tests are about.
"""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cotenant_console.api.credentials import write_private
from cotenant_console.pki.identity import GatewayIdentity, prepared
from cotenant_gateway.access.tokens.jwts import SigningKey, read_signing_key
from tests.nats_server import free_port

CLIENT = "cotenant-tests"


def rsa_key(folder: Path, name: str) -> SigningKey:
    """A new RSA key."""
    private = rsa.generate_private_key(65537, 2048)
    path = folder / f"{name}.key"
    write_private(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    return read_signing_key(path)


class Issuer:
    """One issuer; it listens from `start` to `close`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.folder = folder
        self.identity: GatewayIdentity = prepared(folder / "tls", ("127.0.0.1",))
        self.served = folder / "served"
        (self.served / ".well-known").mkdir(parents=True)
        document = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        (self.served / ".well-known/openid-configuration").write_text(json.dumps(document))
        self.key = rsa_key(folder, "first")
        self.publish(self.key)
        self._process: subprocess.Popen[bytes] | None = None

    def publish(self, *keys: SigningKey) -> None:
        """Serve these keys from now on."""
        draft = self.served / "jwks.new"
        draft.write_text(json.dumps({"keys": [key.key.jwk for key in keys]}))
        draft.replace(self.served / "jwks")

    def start(self) -> None:
        """Listen; returns once it does."""
        program = (sys.executable, "-m", "tests.integration.gateway.openid_issuer")
        files = (str(self.served), str(self.identity.certificate), str(self.identity.key))
        self._process = subprocess.Popen([*program, str(self.port), *files], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=30)
            self._process = None

    def claims(self, **others: Any) -> dict[str, Any]:
        """Claims of a valid token of the user carl; None takes one away."""
        now = int(time.time())
        found = {"iss": self.url, "aud": CLIENT, "sub": "carl", "groups": ["team"], "exp": now + 600, "iat": now, **others}
        return {name: value for name, value in found.items() if value is not None}


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(port: str, folder: str, certificate: str, key: str) -> None:
    """Serve until terminated."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), partial(_Files, directory=folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
