"""An object of Kubernetes as the API server has it."""

from typing import Any

Manifest = dict[str, Any]
"""Plain JSON values, with the names of fields as in YAML."""
