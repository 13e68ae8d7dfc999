"""Meters and attributes every recorded hour and compares it with the expected figures of its scenario."""

import os
import pickle
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import simplejson

from gpucost.core.attribution import build_record
from gpucost.core.metering.metering import meter
from gpucost.pipeline.attribute import attribution_rules, metering_rules
from gpucost.pipeline.pricing import pricing_of
from gpucost_cli import rendering as render
from gpucost_devstack.fleet.scenarios import all_scenarios
from tests.system.fleet_truth import assert_identity, assert_lines

SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}


@cache
def recorded() -> list[Any]:
    observations: list[Any] = pickle.loads(Path(os.environ["GPUCOST_RECORDED"]).read_bytes())
    return observations


@pytest.mark.parametrize("part", range(8))
def test_recorded_hours_match_expected_figures(part: int) -> None:
    for name, number, document, observation in recorded()[part::8]:
        usage = meter(observation, metering_rules(document.clusters[0], document))
        record = build_record(usage, attribution_rules(document, pricing_of(document)))
        text = render.hours_json([record])
        (hour,) = simplejson.loads(text, parse_float=Decimal, parse_int=Decimal)["hours"]
        assert_lines(SCENARIOS[name], number, hour)
        assert_identity(SCENARIOS[name], number, hour)
        for note in SCENARIOS[name].expected_notes:
            assert any(note in hour_note for hour_note in hour["notes"]) or "DCGM" in note
