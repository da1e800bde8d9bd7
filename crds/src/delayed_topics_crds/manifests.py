"""The CustomResourceDefinitions, as plain manifests and as templates of the chart."""

from typing import Any

import yaml

from delayed_topics_crds.kinds import CATEGORY, GROUP, VERSION, Column, Kind
from delayed_topics_crds.schema import structural

_HEADER = "# Generated from the models in crds/ by `python -m delayed_topics_crds generate`; changes go there.\n"


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and indents lists as is usual in Kubernetes manifests."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def definition(kind: Kind) -> dict[str, Any]:
    """Returns the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": _subresources(kind),
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": structural(kind.model)},
                }
            ],
        },
    }


def plain_manifest(kind: Kind) -> str:
    """Returns the CustomResourceDefinition as YAML."""
    return _HEADER + _yaml(definition(kind))


def chart_template(kind: Kind) -> str:
    """Returns the CustomResourceDefinition as a template of the chart. It is installed on request, and kept when the chart is uninstalled.

    Raises ValueError if Helm would evaluate a part of a description.
    """
    manifest = definition(kind)
    manifest["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    text = _yaml(manifest)
    if "{{" in text:
        raise ValueError(f"a description of {kind.name} contains '{{{{', which Helm would evaluate")
    return f"{_HEADER}{{{{- if .Values.crds.install }}}}\n{text}{{{{- end }}}}\n"


def _subresources(kind: Kind) -> dict[str, Any]:
    if kind.scale is None:
        return {"status": {}}
    return {
        "status": {},
        "scale": {
            "specReplicasPath": kind.scale.spec_replicas,
            "statusReplicasPath": kind.scale.status_replicas,
            "labelSelectorPath": kind.scale.selector,
        },
    }


def _column(column: Column) -> dict[str, Any]:
    wide = {"priority": 1} if column.wide else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **wide}


def _yaml(manifest: dict[str, Any]) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
