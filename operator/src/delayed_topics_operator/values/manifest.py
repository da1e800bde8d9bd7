"""An object of Kubernetes as the API server has it."""

import base64
from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]
"""Plain JSON values, with the names of fields as in YAML."""


def encoded(files: Mapping[str, str]) -> dict[str, str]:
    """Returns the files as the data of a Secret."""
    return {key: base64.b64encode(value.encode()).decode() for key, value in files.items()}
