"""Web addresses of a cluster's ResourceManagers, from Hadoop's configuration files.

In: a folder and a cluster's id. Out: base URLs for `rm_client`, in the order of `rm-ids`; or a HadoopConfigError. The files of
cluster `<id>` are `<id>.yarn-default.xml` and `<id>.yarn-site.xml`, of which the second overrides the first; those of the
default cluster have no prefix. Source: Koordinator YARN operator (the files), Hadoop's yarn-default.xml (properties, ports).
Below `yarn.resourcemanager`:

    webapp.address                  else hostname, else the host of address; port 8088
    webapp.https.address            in its place where yarn.http.policy is HTTPS_ONLY; port 8090
    ha.enabled, ha.rm-ids           the same properties with the suffix `.<id>`, one after the other

`${name}` in a value is replaced by that property. Bounds: a file has at most MAX_FILE_BYTES, a value at most MAX_VALUE
characters, at most MAX_CLUSTERS clusters of a folder are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER

SITE = "yarn-site.xml"
DEFAULTS = "yarn-default.xml"
MAX_FILE_BYTES = 1 << 20
MAX_VALUE = 4096
MAX_SUBSTITUTIONS = 20
MAX_CLUSTERS = 64

_PREFIX = "yarn.resourcemanager"
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")


class HadoopConfigError(ValueError):
    """The files do not say where a cluster's ResourceManagers are; the message names the file and the property."""


def clusters_of_folder(folder: Path) -> tuple[str, ...]:
    """Return the ids of the clusters that have a `yarn-site.xml` in the folder. Raises HadoopConfigError."""
    if not folder.is_dir():
        raise HadoopConfigError(f"{folder} is not a folder")
    named = [path.name.removesuffix(f".{SITE}") for path in sorted(folder.glob(f"*.{SITE}"))]
    found = [name for name in named if _CLUSTER_ID.match(name)]
    if (folder / SITE).is_file():
        found.insert(0, DEFAULT_CLUSTER)
    if len(found) > MAX_CLUSTERS:
        raise HadoopConfigError(f"{folder} has the configuration of {len(found)} clusters: at most {MAX_CLUSTERS} are possible")
    return tuple(found)


def addresses(folder: Path, cluster: str) -> tuple[str, ...]:
    """Return the base URLs of a cluster's ResourceManagers. Raises HadoopConfigError."""
    if not _CLUSTER_ID.match(cluster):
        raise HadoopConfigError(f"{cluster!r} cannot be a cluster's id: letters, digits, '.', '_' and '-' can")
    prefix = "" if cluster == DEFAULT_CLUSTER else f"{cluster}."
    site = folder / f"{prefix}{SITE}"
    properties = {**_properties(folder / f"{prefix}{DEFAULTS}", optional=True), **_properties(site)}
    try:
        return tuple(_urls(properties))
    except HadoopConfigError as error:
        raise HadoopConfigError(f"{site}: {error}") from error


def _properties(path: Path, *, optional: bool = False) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if optional:
            return {}
        raise HadoopConfigError(f"{path} does not exist") from error
    except OSError as error:
        raise HadoopConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > MAX_FILE_BYTES:
        raise HadoopConfigError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise HadoopConfigError(f"{path} is not XML: {error}") from error
    return {
        (entry.findtext("name") or "").strip(): (entry.findtext("value") or "").strip() for entry in root.iter("property")
    }


def _urls(properties: Mapping[str, str]) -> Iterator[str]:
    secure = _value(properties, "yarn.http.policy") == "HTTPS_ONLY"
    if _value(properties, f"{_PREFIX}.ha.enabled").lower() != "true":
        yield _url(properties, "", secure=secure)
        return
    ids = [part.strip() for part in _value(properties, f"{_PREFIX}.ha.rm-ids").split(",") if part.strip()]
    if not ids:
        raise HadoopConfigError(f"{_PREFIX}.ha.enabled is true, and {_PREFIX}.ha.rm-ids is empty")
    for each in ids:
        yield _url(properties, f".{each}", secure=secure)


def _url(properties: Mapping[str, str], suffix: str, *, secure: bool) -> str:
    scheme, port, name = ("https", 8090, "webapp.https.address") if secure else ("http", 8088, "webapp.address")
    address = _value(properties, f"{_PREFIX}.{name}{suffix}")
    if not address:
        host = _value(properties, f"{_PREFIX}.hostname{suffix}")
        host = host or _value(properties, f"{_PREFIX}.address{suffix}").partition(":")[0]
        if not host:
            raise HadoopConfigError(f"neither {_PREFIX}.{name}{suffix} nor {_PREFIX}.hostname{suffix} is set")
        address = f"{host}:{port}"
    if _VARIABLE.search(address) or any(mark in address for mark in "/?#@ "):
        raise HadoopConfigError(f"{_PREFIX}.{name}{suffix} is {address!r}: expected host:port")
    return f"{scheme}://{address}"


def _value(properties: Mapping[str, str], name: str) -> str:
    """Return a property with its variables replaced; empty if it is absent."""
    text = properties.get(name, "")
    for _ in range(MAX_SUBSTITUTIONS):
        if len(text) > MAX_VALUE:
            raise HadoopConfigError(f"{name} is longer than {MAX_VALUE} characters")
        replaced = _VARIABLE.sub(lambda found: properties.get(found[1], found[0])[: MAX_VALUE + 1], text)
        if replaced == text:
            return text
        text = replaced
    raise HadoopConfigError(f"{name} refers to itself")
