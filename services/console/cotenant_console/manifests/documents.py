"""Manifests as files: YAML of several documents, or JSON, with the line of every field.

In: a file, a folder, or `-` for standard input. Out: documents, each with its place (`file: document 2, line 14`),
so that an error of the server can name the line of the field it refused. Scalars are read as Kubernetes reads them
(YAML 1.1 booleans; no dates, no base-60 numbers: `12:30` stays text); a key given twice is an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from cotenant_console.api.client import Document, Json, text_at

SUFFIXES = (".yaml", ".yml", ".json")
MAX_MANIFEST_BYTES = 64 * 1024 * 1024

Node: TypeAlias = yaml.nodes.Node


class ManifestError(Exception):
    """A manifest cannot be read; the text states the file, the line and what is wrong there."""


class _Loader(yaml.CSafeLoader):
    """The safe loader with Kubernetes' reading of scalars."""


_KEPT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o?[0-7]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True)
class Manifest:
    """One document of a manifest file."""

    source: str
    index: int
    line: int
    document: Document
    node: Node

    @property
    def place(self) -> str:
        """Its position, for messages."""
        return f"{self.source}: document {self.index} (line {self.line})"

    @property
    def title(self) -> str:
        """Kind, namespace and name, for messages."""
        namespace = text_at(self.document, "metadata", "namespace")
        name = text_at(self.document, "metadata", "name", default="<no name>")
        return f"{text_at(self.document, 'kind')} {namespace + '/' if namespace else ''}{name}"

    def line_of(self, field_path: str) -> int | None:
        """The line of a field such as `spec.containers[0].resources.limits[kubernetes.io/batch-cpu]`.

        The deepest part of the path that the manifest holds decides: a missing field is shown at its parent.
        """
        here: Node = self.node
        line: int | None = None
        for step in field_steps(field_path):
            found = _child(here, step)
            if found is None:
                break
            key, here = found
            line = key.start_mark.line + 1
        return line


def field_steps(field_path: str) -> list[str]:
    """A field path cut into steps: `a.b[0].c[x.y/z]` -> a, b, 0, c, x.y/z."""
    return [
        bracketed.strip("\"'") if bracketed else plain
        for plain, bracketed in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", field_path)
    ]


def read_manifests(target: str) -> list[Manifest]:
    """All documents of a file, of every manifest in a folder (sorted by name), or of standard input (`-`)."""
    if target == "-":
        return list(parse_manifests(sys.stdin.buffer.read(MAX_MANIFEST_BYTES + 1), "standard input"))
    path = Path(target)
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.is_file())
        if not files:
            raise ManifestError(f"{target}: no file here ends in {', '.join(SUFFIXES)}")
        return [manifest for file in files for manifest in _read_file(file)]
    return _read_file(path)


def _read_file(path: Path) -> list[Manifest]:
    try:
        with path.open("rb") as file:
            return list(parse_manifests(file.read(MAX_MANIFEST_BYTES + 1), str(path)))
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_manifests(raw: bytes, source: str) -> Iterator[Manifest]:
    """The documents of one file; empty documents are left out and a `List` is opened into its items."""
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{source}: is larger than {MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{source}: is not UTF-8 at byte {error.start}") from error
    loader = _Loader(text)
    try:
        index = 0
        while loader.check_node():
            index += 1
            node = loader.get_node()
            if node is None or node.tag == "tag:yaml.org,2002:null":
                continue
            yield from _open_list(_manifest(node, source, index, loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ManifestError(f"{source}{where}: not valid YAML: {error.problem or error.context or error}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: not valid YAML: {error}") from error
    finally:
        loader.dispose()


def _manifest(node: Node, source: str, index: int, loader: _Loader) -> Manifest:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.nodes.MappingNode):
        raise ManifestError(f"{source}:{line}: document {index} is not an object with fields")
    _settle_keys(node, source)
    document = loader.construct_document(node)
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ManifestError(f"{source}:{line}: document {index} holds what JSON cannot: {error}") from error
    for required in ("apiVersion", "kind"):
        if not isinstance(document.get(required), str) or not document[required]:
            raise ManifestError(f"{source}:{line}: document {index}: {required}: Required value")
    return Manifest(source, index, line, document, node)


def _open_list(manifest: Manifest) -> Iterator[Manifest]:
    items = manifest.document.get("items")
    if manifest.document["kind"] != "List" or not isinstance(items, list):
        yield manifest
        return
    found = _child(manifest.node, "items")
    assert found is not None
    for item, node in zip(items, found[1].value, strict=True):
        if not isinstance(item, dict):
            raise ManifestError(f"{manifest.source}:{node.start_mark.line + 1}: an item of a List must be an object")
        yield Manifest(manifest.source, manifest.index, node.start_mark.line + 1, item, node)


def _child(node: Node, step: str) -> tuple[Node, Node] | None:
    """The key node and value node of one step down, None where there is no such field."""
    if isinstance(node, yaml.nodes.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.nodes.ScalarNode) and key.value == step:
                return key, value
    if isinstance(node, yaml.nodes.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item, item
    return None


def _settle_keys(node: Node, source: str) -> None:
    """Read every field name as text (`on:` is no boolean) and refuse a name that is given twice."""
    if isinstance(node, yaml.nodes.MappingNode):
        seen: set[Json] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.nodes.ScalarNode):
                raise ManifestError(f"{source}:{key.start_mark.line + 1}: a field name must be text")
            is_merge = key.tag == "tag:yaml.org,2002:merge"
            if key.value in seen and not is_merge:
                raise ManifestError(f"{source}:{key.start_mark.line + 1}: field {key.value!r} is given twice")
            seen.add(key.value)
            if not is_merge:
                key.tag = "tag:yaml.org,2002:str"
            _settle_keys(value, source)
    elif isinstance(node, yaml.nodes.SequenceNode):
        for item in node.value:
            _settle_keys(item, source)
