"""Instance types and NVLink domains in the settings."""

from fractions import Fraction

import pytest

from gpucost.core.errors import SettingsError
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.nvlink_domains import MinimumJob
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings


def parsed(sections: str) -> CoreSettings:
    return parse_settings(f'clusters: [{{name: prod, prometheus: {{url: "http://127.0.0.1:9090"}}}}]\n{sections}')


def test_instance_types_add_to_the_catalog_and_replace_its_entries() -> None:
    gpus = parsed(
        "instance_types: [{name: p7.48xlarge, gpus: 8}, {name: g8f.large, gpus: 0.125}, {name: g5.xlarge, gpus: 2}]"
    )
    types = gpus.gpus_by_instance_type()
    assert (types["p7.48xlarge"], types["g8f.large"], types["g5.xlarge"]) == (8, Fraction(1, 8), 2)
    assert types["p5.48xlarge"] == 8
    assert parsed("").gpus_by_instance_type() is GPUS_OF_INSTANCE


def test_smallest_jobs_are_those_of_the_cluster_in_order() -> None:
    settings = parsed(
        "nvlink_domains: [{minimum_job_gpus: 72, cluster: other}, {minimum_job_gpus: 36, node_pool: gb200-*}, "
        "{minimum_job_gpus: 8, cluster: pro*}]"
    )
    assert settings.minimum_jobs("prod") == (MinimumJob(36, "gb200-*"), MinimumJob(8))
    assert parsed("").minimum_jobs("prod") == ()


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ("instance_types: [{name: p7.48xlarge, gpus: 2.5}]", "must be a whole number, or less than 1"),
        ("instance_types: [{name: p7.48xlarge, gpus: 0}]", "instance_types[0].gpus"),
        ("instance_types: [{name: p7.48xlarge}]", "instance_types[0].gpus"),
        ("instance_types: [{name: a, gpus: 1}, {name: a, gpus: 2}]", "instance_types: 'a' is named twice"),
        ("nvlink_domains: [{minimum_job_gpus: 1}]", "nvlink_domains[0].minimum_job_gpus"),
        ("nvlink_domains: [{node_pool: a}]", "nvlink_domains[0].minimum_job_gpus"),
        ("nvlink_domains: [{minimum_job_gpus: 4, racks: 1}]", "unknown key 'nvlink_domains[0].racks'"),
    ],
)
def test_implausible_hardware_is_refused(sections: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parsed(sections)
    assert says in str(refused.value)
