"""Documents as kubectl prints them: JSON with four blanks of indent, or YAML."""

from __future__ import annotations

import json

from cotenant_console.api.client import Document


def rendered(document: Document, output: str) -> str:
    """A document as JSON with four blanks of indent, as kubectl prints it, or as YAML."""
    if output == "json":
        return json.dumps(document, indent=4, ensure_ascii=False) + "\n"
    import yaml  # here, because only this form needs it and loading it takes time

    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=True, default_flow_style=False, allow_unicode=True)
