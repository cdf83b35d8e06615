"""Client authentication and verification of the server: kubeconfig files, tokens, certificates.

In: a kubeconfig's text (YAML; JSON is YAML too), or single values. Out: `Credentials`: an SSL context and headers. Of a
kubeconfig's clusters and users those of its current context are taken.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

KUBECONFIG_FILE = "kubeconfig"


class CredentialsError(Exception):
    """A kubeconfig or a certificate cannot be used; the text states which, and why."""


@dataclass(frozen=True)
class Credentials:
    """Empty ones are anonymous: `NO_CREDENTIALS`."""

    ca: str = ""
    """Trusted CA certificates (PEM); empty: this machine's."""
    token: str = ""
    certificate: str = ""
    """The client's own (PEM)."""
    key: str = ""
    insecure: bool = False
    """Skip verification of the server."""

    def context(self) -> ssl.SSLContext:
        """Return the context of a client's connections. Raises CredentialsError."""
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
            if self.insecure:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if self.certificate:
                _load_chain(context, self.certificate, self.key)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise CredentialsError(f"the certificates cannot be used: {error}") from error
        return context

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The ssl module reads them from files only.
    descriptor, name = tempfile.mkstemp(prefix="cotenant-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate.rstrip()}\n{key}")
        context.load_cert_chain(name)
    finally:
        os.unlink(name)


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True)
class Server:
    """A server's address, and the credentials for it."""

    url: str
    credentials: Credentials = NO_CREDENTIALS


def read_kubeconfig(path: Path) -> Server:
    """Return the server of a kubeconfig's current context. Raises CredentialsError; FileNotFoundError where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: {error}") from error
    try:
        return _server(_parsed(text), path.parent)
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise CredentialsError(f"{path} cannot be used as a kubeconfig: {error!r}") from error


def _parsed(text: str) -> dict[str, object]:
    if text.lstrip().startswith("{"):
        found = json.loads(text)
    else:
        import yaml

        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("it is not a mapping")
    return found


def _named(config: dict[str, object], plural: str, singular: str, name: object) -> dict[str, object]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if entry["name"] == name:
            found = entry[singular]
            assert isinstance(found, dict)
            return found
    raise ValueError(f"{plural} has no {name!r}")


def _server(config: dict[str, object], folder: Path) -> Server:
    context = _named(config, "contexts", "context", config.get("current-context"))
    cluster = _named(config, "clusters", "cluster", context.get("cluster"))
    user = _named(config, "users", "user", context["user"]) if context.get("user") else {}

    def text(of: dict[str, object], name: str) -> str:
        """Return a file's contents, or the data in the kubeconfig itself."""
        inline, file = of.get(f"{name}-data"), of.get(name)
        if inline:
            try:
                return base64.b64decode(str(inline), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ValueError(f"{name}-data: {error}") from error
        return (folder / str(file)).read_text() if file else ""

    token_file = user.get("tokenFile")
    token = (folder / str(token_file)).read_text().strip() if token_file else str(user.get("token") or "")
    return Server(
        str(cluster["server"]).rstrip("/"),
        Credentials(
            ca=text(cluster, "certificate-authority"),
            token=token,
            certificate=text(user, "client-certificate"),
            key=text(user, "client-key"),
            insecure=cluster.get("insecure-skip-tls-verify") is True,
        ),
    )


def kubeconfig_text(url: str, ca: str, user: str, token: str) -> str:
    """Return a kubeconfig for one server and one user, as JSON, which every reader of YAML reads."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca.encode()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cotenant", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "cotenant", "context": {"cluster": "cotenant", "user": user}}],
        "current-context": "cotenant",
    }
    return json.dumps(config, indent=2) + "\n"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, at once and whole."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
