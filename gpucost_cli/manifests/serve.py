"""The manifests of `gpucost serve` in a cluster (`gpucost manifests render --for serve`)."""

import hashlib
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpucost.core.errors import InvalidInputError
from gpucost.settings_document import SettingsDocument
from gpucost_cli.manifests.parameters import ExistingClusterParameters

_LOOPBACK = ("127.", "localhost", "::1")


def serve_values(settings: SettingsDocument, parameters: ExistingClusterParameters) -> dict[str, Any]:
    """Return the variables of the template.

    Raises:
        InvalidInputError: there is no image, or the pod cannot reach a Prometheus of the settings.
    """
    if parameters.serve.image is None:
        raise InvalidInputError(
            "parameters: serve.image: required. Build the image from the Dockerfile, push it, and name it, for example "
            "serve: {image: 111122223333.dkr.ecr.us-east-1.amazonaws.com/gpucost:0.1.0}"
        )
    ports = {443}
    for cluster in settings.clusters:
        address = urlsplit(cluster.prometheus.url)
        if (address.hostname or "").startswith(_LOOPBACK):
            raise InvalidInputError(
                f"cluster {cluster.name}: {cluster.prometheus.url} is an address of the pod itself. Set prometheus.url "
                "to that of the Service, for example http://prometheus-operated.monitoring.svc:9090"
            )
        ports.add(address.port or (443 if address.scheme == "https" else 80))
    document = yaml.safe_dump(settings.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)
    return {
        "cluster": {"name": ", ".join(cluster.name for cluster in settings.clusters)},
        "serve": {
            **parameters.serve.model_dump(mode="json"),
            "settings": document,
            "settings_digest": hashlib.sha256(document.encode()).hexdigest()[:16],
            "egress_ports": sorted(ports),
        },
        "system_nodes": dict(parameters.system_nodes),
    }
