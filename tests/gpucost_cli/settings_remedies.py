"""Settings documents that are refused, and what the messages say to write instead."""

from pathlib import Path
from typing import NamedTuple

import certifi


class Remedy(NamedTuple):
    """A document that is refused, a part of the message, and the documents that follow it."""

    name: str
    refused: str
    message: str
    followed: tuple[str, ...]


PROMETHEUS = 'clusters: [{{name: demo, prometheus: {{url: "http://127.0.0.1:9"{0}}}}}]\n'
CLUSTER = PROMETHEUS.format("")
SIGV4, BEARER = ", auth: sigv4, region: eu-central-1", ", auth: bearer, secret: gpucost/token"
HTTPS = PROMETHEUS.replace("http:", "https:")
AUTHORITY = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
CERTIFICATE = "".join(AUTHORITY[:2])[AUTHORITY[0].index("-----BEGIN") :]


def certificates(text: str) -> str:
    """A document whose Prometheus has these certificates, written after | and indented."""
    indented = "".join(f"      {line}\n" for line in text.splitlines())
    return f"clusters:\n- name: demo\n  prometheus:\n    url: https://127.0.0.1:9\n    ca_certificates: |\n{indented}"


REMEDIES = (
    Remedy("empty", "", "Required keys: clusters", (CLUSTER,)),
    Remedy("tab", "clusters:\n\t- name: demo", "indent with spaces, not with tabs", (CLUSTER,)),
    Remedy(
        "special-character",
        CLUSTER + "cost_labels: [@team]\n",
        "put text that begins with a special character in quotes",
        (CLUSTER + 'cost_labels: ["@team"]\n',),
    ),
    Remedy(
        "no-space",
        CLUSTER + "cost_labels:[team]\nenergy: {}\n",
        "a colon and a space after every key",
        (CLUSTER + "cost_labels: [team]\nenergy: {}\n",),
    ),
    Remedy(
        "colon-in-text",
        CLUSTER + "cost_labels: team: x\n",
        "and text that contains ': ' in quotes",
        (CLUSTER + 'cost_labels: ["team: x"]\n',),
    ),
    Remedy(
        "open-quotation-mark",
        CLUSTER + 'cost_labels: ["team]\n',
        "close every quotation mark",
        (CLUSTER + 'cost_labels: ["team"]\n',),
    ),
    Remedy("open-bracket", CLUSTER.replace("}}]", "}]"), "close every { and [", (CLUSTER,)),
    Remedy("two-documents", CLUSTER + "---\n" + CLUSTER, "remove the line ---", (CLUSTER,)),
    Remedy(
        "indentation",
        "clusters:\n- name: demo\n   prometheus: {url: 'http://127.0.0.1:9'}\n",
        "begin all keys of a section in the same column",
        ("clusters:\n- name: demo\n  prometheus: {url: 'http://127.0.0.1:9'}\n",),
    ),
    Remedy(
        "list-indentation",
        CLUSTER + "cost_labels:\n  - team\n - env\n",
        "all entries of a list, by the same number of spaces",
        (CLUSTER + "cost_labels:\n  - team\n  - env\n",),
    ),
    Remedy(
        "impossible-date",
        CLUSTER + "cost_labels: [2026-02-30]\n",
        "correct it, or put it in quotes if it is text",
        (CLUSTER + 'cost_labels: ["2026-02-30"]\n',),
    ),
    Remedy(
        "surrogate",
        CLUSTER.replace("]", ", {name: x, prometheus: {url: 'http://127.0.0.1:9'}, selector: {a: \"\\ud800\"}}]"),
        "write the whole character",
        (
            CLUSTER.replace(
                "]", ", {name: x, prometheus: {url: 'http://127.0.0.1:9'}, selector: {a: \"\\U00010000\"}}]"
            ),
        ),
    ),
    Remedy("number-for-text", CLUSTER + "cost_labels: [1]\n", "Put it in quotes", (CLUSTER + 'cost_labels: ["1"]\n',)),
    Remedy(
        "text-for-list",
        CLUSTER + "cost_labels: team\n",
        "must be a list. Write [team]",
        (CLUSTER + "cost_labels: [team]\n",),
    ),
    Remedy(
        "empty-list",
        CLUSTER + "cost_labels:\n",
        "Write its entries, or remove the key",
        (CLUSTER + "cost_labels:\n- team\n", CLUSTER),
    ),
    *(
        Remedy(f"example-of-{key}", CLUSTER + f"{key}: 7\n", f"Write for example {example}", (CLUSTER + example,))
        for key, example in {
            "pricing": "pricing: {source: constant, gpu_hourly_usd: 12}",
            "business_units": 'business_units: [{name: research, namespaces: ["research-*"]}]',
            "utilization": "utilization: {sources: [pod, shared]}",
            "cost_labels": "cost_labels: [team]",
            "alerts": "alerts: {receivers: [], rules: []}",
        }.items()
    ),
    Remedy(
        "example-of-clusters",
        "clusters: 7",
        "Write for example clusters: [{name: prod",
        ('clusters: [{name: prod, prometheus: {url: "http://prometheus:9090"}}]',),
    ),
    Remedy(
        "typographic-quotes",
        CLUSTER.replace('"http://127.0.0.1:9"', "“http://127.0.0.1:9”"),
        "with typographic quotes. Write 'http://127.0.0.1:9'",
        (CLUSTER.replace('"http://127.0.0.1:9"', "'http://127.0.0.1:9'"),),
    ),
    Remedy(
        "colon-without-space",
        CLUSTER + "pricing: {source:constant}\n",
        "Put a space after the colon",
        (CLUSTER + "pricing: {source: constant, gpu_hourly_usd: 2}\n",),
    ),
    Remedy(
        "misspelled-key",
        CLUSTER + "busines_units: [{name: a, namespaces: [a]}]\n",
        "Did you mean business_units?",
        (CLUSTER + "business_units: [{name: a, namespaces: [a]}]\n",),
    ),
    Remedy(
        "separator-of-thousands",
        CLUSTER + "pricing: {source: constant, gpu_hourly_usd: 1,000}\n",
        "write numbers without separators of thousands, and decimal numbers with a point",
        (
            CLUSTER + "pricing: {source: constant, gpu_hourly_usd: 1000}\n",
            CLUSTER + "pricing: {source: constant, gpu_hourly_usd: 1.0}\n",
        ),
    ),
    Remedy(
        "digits",
        CLUSTER + "pricing: {source: constant, gpu_hourly_usd: '1e-400'}\n",
        "Write at most 12 of them after the decimal point, and no exponent",
        (CLUSTER + "pricing: {source: constant, gpu_hourly_usd: 1.000000000001}\n",),
    ),
    Remedy(
        "overrides",
        CLUSTER + "pricing: {source: rates, overrides: [{node_hourly_usd: 5}], rates: [{node_hourly_usd: 5}]}\n",
        "Prices set by hand are rates (pricing.rates)",
        (CLUSTER + "pricing: {source: rates, rates: [{node_hourly_usd: 5}]}\n",),
    ),
    Remedy(
        "budgets",
        CLUSTER + "budgets: [{monthly_usd: 5}]\n",
        "Budgets are rules: alerts: {rules: [{rule: budget, monthly_usd: 50000}]}",
        (CLUSTER + "alerts: {rules: [{rule: budget, monthly_usd: 50000}]}\n",),
    ),
    Remedy(
        "credentials-in-url",
        CLUSTER.replace("//", "//me:secret@"),
        "must not contain credentials; use auth: bearer with a secret",
        (PROMETHEUS.format(BEARER),),
    ),
    Remedy(
        "authorization-header",
        PROMETHEUS.format(", headers: {Authorization: Bearer x}"),
        "is not allowed; use auth: bearer with a secret, or auth: sigv4",
        (PROMETHEUS.format(BEARER), HTTPS.format(SIGV4)),
    ),
    Remedy(
        "reserved-header",
        PROMETHEUS.format(", headers: {Host: x, X-Scope-OrgID: y}"),
        "because gpucost sets it itself; remove it",
        (PROMETHEUS.format(", headers: {X-Scope-OrgID: y}"),),
    ),
    Remedy(
        "secret-header",
        PROMETHEUS.format(", headers: {X-Api-Key: abc}"),
        "Store it in Secrets Manager, and name it in secret_headers: {X-Api-Key: gpucost/…}",
        (PROMETHEUS.format(", secret_headers: {X-Api-Key: gpucost/key}"),),
    ),
    Remedy(
        "private-key",
        certificates(CERTIFICATE + "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"),
        "which must not be in the settings. Write only the certificates",
        (certificates(CERTIFICATE),),
    ),
    Remedy(
        "certificates",
        HTTPS.format(", ca_certificates: ca.pem"),
        "Write the text from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----, after | and indented",
        (certificates(CERTIFICATE),),
    ),
    Remedy(
        "missing-region", HTTPS.format(", auth: sigv4"), "region is required with auth: sigv4", (HTTPS.format(SIGV4),)
    ),
    Remedy(
        "missing-secret",
        PROMETHEUS.format(", auth: bearer"),
        "secret is required with auth: bearer",
        (PROMETHEUS.format(BEARER),),
    ),
    Remedy(
        "known-resource",
        CLUSTER.replace("}}]", "}, units: {nvidia.com/gpu: 1, nvidia.com/a10g-large: 1}}]"),
        "is a resource whose GPUs gpucost knows. Name only others",
        (CLUSTER.replace("}}]", "}, units: {nvidia.com/a10g-large: 1}}]"),),
    ),
    Remedy(
        "utilization-twice",
        CLUSTER + "utilization: {sources: [pod, pod]}\n",
        "contains pod twice; name each source once",
        (CLUSTER + "utilization: {sources: [pod]}\n",),
    ),
    Remedy(
        "prices-twice",
        CLUSTER + "pricing: {sources: [spot, spot]}\n",
        "contains spot twice; name each source once",
        (CLUSTER + "pricing: {sources: [spot]}\n",),
    ),
    Remedy(
        "source-and-sources",
        CLUSTER + "pricing: {source: spot, sources: [spot]}\n",
        "source and sources exclude each other. Pass one of them, or neither for source auto",
        (CLUSTER + "pricing: {source: spot}\n", CLUSTER + "pricing: {sources: [spot]}\n", CLUSTER + "pricing: {}\n"),
    ),
    Remedy(
        "price-without-source",
        CLUSTER + "pricing: {sources: [spot], gpu_hourly_usd: 2}\n",
        "gpu_hourly_usd requires source constant, which is not in sources. Add constant, or leave gpu_hourly_usd out",
        (
            CLUSTER + "pricing: {sources: [spot, constant], gpu_hourly_usd: 2}\n",
            CLUSTER + "pricing: {sources: [spot]}\n",
        ),
    ),
    Remedy(
        "kinds-twice",
        CLUSTER + "pricing: {source: cur, cur: {database: d, table: t, workgroup: w, region: us-east-1, "
        "unused_commitments: [savings-plan, savings-plan]}}\n",
        "twice; name each kind once",
        (
            CLUSTER + "pricing: {source: cur, cur: {database: d, table: t, workgroup: w, region: us-east-1, "
            "unused_commitments: [savings-plan]}}\n",
        ),
    ),
    Remedy(
        "unit-twice",
        CLUSTER + "business_units: [{name: a, namespaces: [x]}, {name: a, namespaces: [y]}]\n",
        "Write one entry for each name, with all of its namespaces and labels, or another name. An entry that replaces "
        "an earlier one needs from",
        (
            CLUSTER + "business_units: [{name: a, namespaces: [x, y]}]\n",
            CLUSTER + "business_units: [{name: a, namespaces: [x]}, {name: b, namespaces: [y]}]\n",
            CLUSTER + "business_units: [{name: a, namespaces: [x]}, {name: a, namespaces: [y], from: 2026-11-01}]\n",
        ),
    ),
    Remedy(
        "label-with-a-list",
        CLUSTER + "business_units: [{name: a, pod_labels: {team: [x, y]}}]\n",
        "Write a unit for each value, with names of their own, or match by namespaces, which takes a list",
        (
            CLUSTER + "business_units: [{name: a, pod_labels: {team: x}}, {name: b, pod_labels: {team: y}}]\n",
            CLUSTER + "business_units: [{name: a, namespaces: [x, y]}]\n",
        ),
    ),
    Remedy(
        "access-null",
        CLUSTER + "access: null\n",
        "must be a list of grants; omit the key to give access to all callers whom IAM admits",
        (CLUSTER,),
    ),
    Remedy(
        "consumers-from-both",
        CLUSTER + "inference: {enabled: true, consumer_label: team, gateway: {name: llm-d-router}}\n",
        "exclude each other; keep the one that counts consumers",
        (
            CLUSTER + "inference: {enabled: true, consumer_label: team}\n",
            CLUSTER + "inference: {enabled: true, gateway: {name: llm-d-router}}\n",
        ),
    ),
    Remedy(
        "counter-twice",
        CLUSTER + "inference: {servers: [{name: mine, requests: requests_total}, "
        "{name: other, requests: requests_total}]}\n",
        "is a counter of two servers; replace a server by its name",
        (CLUSTER + "inference: {servers: [{name: mine, requests: requests_total}]}\n",),
    ),
    Remedy(
        "quiet-hours",
        CLUSTER + "alerts: {quiet_hours: {from: '08:00', to: '08:00'}}\n",
        "an empty period; for a whole day, use 00:00 to 23:59",
        (CLUSTER + "alerts: {quiet_hours: {from: '00:00', to: '23:59'}}\n",),
    ),
    Remedy(
        "credentials-of-alertmanager",
        CLUSTER + "alerts: {receivers: [{type: alertmanager, url: 'https://me:x@alerts.internal'}]}\n",
        "store them in a secret and set its name as secret",
        (CLUSTER + "alerts: {receivers: [{type: alertmanager, url: 'https://alerts.internal', secret: gpucost/a}]}\n",),
    ),
    Remedy(
        "time-zone",
        CLUSTER + "alerts: {time_zone: CEST}\n",
        "use an IANA name, for example Europe/Berlin",
        (CLUSTER + "alerts: {time_zone: Europe/Berlin}\n",),
    ),
    Remedy(
        "path-of-queries",
        CLUSTER.replace(":9", ":9/api/v1"),
        "leave out /api/v1; queries append their own path",
        (CLUSTER,),
    ),
    Remedy(
        "token-cost",
        CLUSTER + "alerts: {rules: [{rule: token-cost, usd_per_million_tokens: 5}]}\n",
        "token-cost requires inference: {enabled: true}",
        (CLUSTER + "alerts: {rules: [{rule: token-cost, usd_per_million_tokens: 5}]}\ninference: {enabled: true}\n",),
    ),
    Remedy(
        "plain-http-with-a-secret",
        PROMETHEUS.format(BEARER).replace("127.0.0.1", "metrics.internal"),
        "credentials are sent to https:// only",
        (HTTPS.format(BEARER).replace("127.0.0.1", "metrics.internal"),),
    ),
    Remedy(
        "example-account",
        HTTPS.format(SIGV4 + ", role_arn: 'arn:aws:iam::111122223333:role/gpucost-query-eu'"),
        "Replace it with the ID of your AWS account",
        (HTTPS.format(SIGV4 + ", role_arn: 'arn:aws:iam::210987654321:role/gpucost-query-eu'"),),
    ),
    Remedy(
        "example-address",
        CLUSTER.replace("127.0.0.1:9", "prometheus.example.com"),
        "Replace it with your address",
        (CLUSTER,),
    ),
)
