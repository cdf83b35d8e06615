"""Reading manifests: several documents, lines of fields, and Kubernetes' reading of scalars."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_console.manifests.documents import Manifest, ManifestError, field_steps, parse_manifests, read_manifests

TWO = b"""\
# a comment first
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    resources:
      limits:
        kubernetes.io/batch-cpu: "-1"
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: other}
data: {start: 12:30, day: 2024-01-01, on: "yes"}
"""


def parsed(raw: bytes) -> list[Manifest]:
    return list(parse_manifests(raw, "x.yaml"))


def test_each_document_knows_its_place_and_title() -> None:
    first, second = parsed(TWO)
    assert (first.place, first.title) == ("x.yaml: document 1 (line 2)", "Pod web")
    assert (second.index, second.title) == (3, "ConfigMap other/settings")


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("metadata.name", 5),
        ("spec.containers[0].resources.limits[kubernetes.io/batch-cpu]", 11),
        ("spec.containers[0].resources.requests[cpu]", 9),
        ("spec.containers[7].name", 7),
        ("status", None),
    ],
)
def test_a_field_is_found_at_its_line_and_a_missing_one_at_its_parent(field: str, line: int | None) -> None:
    assert parsed(TWO)[0].line_of(field) == line


def test_times_and_dates_and_field_names_stay_text() -> None:
    assert parsed(TWO)[1].document["data"] == {"start": "12:30", "day": "2024-01-01", "on": "yes"}


def test_numbers_are_read_as_kubernetes_reads_them() -> None:
    document = parsed(b"apiVersion: v1\nkind: X\na: 1e3\nb: 0.5\nc: 10\nd: '7'\ne: 500m\n")[0].document
    assert [document[key] for key in "abcde"] == [1000.0, 0.5, 10, "7", "500m"]


def test_field_paths_are_cut_at_dots_and_brackets() -> None:
    assert field_steps("a.b[0].c[x.y/z]") == ["a", "b", "0", "c", "x.y/z"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"apiVersion: v1\nkind: Pod\nspec: [1,\n", "x.yaml:4:1: not valid YAML"),
        (b'{"apiVersion": "v1", "kind": "Pod"', "x.yaml:2:1: not valid YAML"),
        (b"apiVersion: v1\nkind: Pod\nkind: Node\n", "x.yaml:3: field 'kind' is given twice"),
        (b"- a\n- b\n", "x.yaml:1: document 1 is not an object with fields"),
        (b"apiVersion: v1\n", "x.yaml:1: document 1: kind: Required value"),
        (b"apiVersion: v1\nkind: Pod\nx: .5\n---\nkind: Pod\n", "x.yaml:5: document 2: apiVersion: Required value"),
        (b"apiVersion: \xff", "x.yaml: is not UTF-8 at byte 12"),
        (b"!!python/object:os.system {}", "x.yaml"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(raw: bytes, message: str) -> None:
    with pytest.raises(ManifestError, match="^" + message.replace("[", r"\[").replace(".", r"\.")):
        parsed(raw)


def test_a_list_is_opened_into_its_items() -> None:
    raw = b"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {kind: Pod}\n"
    assert [manifest.line for manifest in parsed(raw)] == [4, 5]


def test_a_folder_is_read_in_the_order_of_its_file_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.yaml"):
        (tmp_path / name).write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name[0]}}}")
    (tmp_path / "notes.txt").write_text("not a manifest")
    assert [manifest.document["metadata"] for manifest in read_manifests(str(tmp_path))] == [
        {"name": "a"},
        {"name": "b"},
        {"name": "c"},
    ]


def test_a_missing_file_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        read_manifests(str(tmp_path / "absent.yaml"))
    with pytest.raises(ManifestError, match=r"no file here ends in \.yaml"):
        read_manifests(str(tmp_path))
