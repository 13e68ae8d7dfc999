"""Section `retention`: days as numbers or as Prometheus durations."""

import pytest

from gpucost.core.errors import SettingsError
from gpucost.settings import RetentionSettings
from gpucost.settings_document import parse_settings

DOCUMENT = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
retention: {pods: %s}
"""


def retention(pods: str) -> RetentionSettings:
    return parse_settings(DOCUMENT % pods).retention


@pytest.mark.parametrize(("text", "days"), [("400", 400), ("400d", 400), ("26w", 182), ("1y5w", 400), ("'90'", None)])
def test_retention_is_a_number_of_days_or_a_duration(text: str, days: int | None) -> None:
    if days is None:
        with pytest.raises(SettingsError, match="is not a number of days or a duration such as 400d, 26w or 5y"):
            retention(text)
    else:
        assert retention(text).pods == days


@pytest.mark.parametrize("text", ["12h", "d", "''", "400 d", "5d4w", "-400d"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"retention\.pods: .* is not a number of days or a duration"):
        retention(text)


@pytest.mark.parametrize("text", ["34d", "11y"])
def test_retention_is_between_35_days_and_10_years(text: str) -> None:
    with pytest.raises(SettingsError, match=r"retention\.pods: must be"):
        retention(text)
