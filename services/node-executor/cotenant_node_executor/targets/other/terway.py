"""Files of terway-qos, the network agent that enforces bandwidth with BPF on nodes of that CNI.

In: the name of a file, its text; "" for no file. Out: the same. A file is replaced as a whole, as terway-qos watches the folder
and reads its files. A missing folder is created.
"""

from __future__ import annotations

import os
from pathlib import Path

from cotenant_node_executor.targets.address import Attribute, NonCgroup, TerwayFile
from cotenant_node_executor.targets.other.accessors import below

FOLDER = Path("/var/lib/terway/qos")


class TerwayAccessor:
    """Files below one folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def _path(self, place: NonCgroup) -> Path:
        assert isinstance(place, TerwayFile)
        return below(self._folder, place.name)

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The text; "" where there is no file."""
        try:
            return self._path(place).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Write the file, or remove it."""
        path = self._path(place)
        new = path.with_name(f".{path.name}.new")
        if not value:
            path.unlink(missing_ok=True)
            new.unlink(missing_ok=True)  # of a writer that was killed
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(value, encoding="utf-8")
        os.replace(new, path)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether the texts are the same."""
        return wanted == present

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Write the file's former value, or remove it."""
        self.write(place, attribute, text)
