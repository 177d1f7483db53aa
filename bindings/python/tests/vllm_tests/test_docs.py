# SPDX-License-Identifier: Apache-2.0
"""What docs/vllm.md and the examples say is what the package does: every configuration in them is
one that the tier takes, and every option and metric is described."""
import json
import logging
import os
import pathlib
import re

import pytest

from kvtier.vllm import _fingerprint, _metrics
from kvtier.vllm._config import TierConfig
from kvtier.vllm.worker import _STORE_POLICIES

SOURCE = pathlib.Path(
    os.environ.get("KVT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[4])
)
PAGE = SOURCE / "docs" / "vllm.md"
PLACES = [PAGE, SOURCE / "examples" / "vllm" / "kubernetes.yaml",
          SOURCE / "examples" / "vllm" / "compose.yml"]


def tiers_in(path):
    """The entries of secondary_tiers, wherever JSON begins with a tier's type."""
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r'\{\s*"type":', text):
        yield json.JSONDecoder().raw_decode(text[found.start() :])[0]


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_every_configuration_is_one_that_the_tier_takes(path, caplog):
    tiers = list(tiers_in(path))
    assert tiers
    for tier in tiers:
        assert tier.pop("type") == "KvTierSecondaryTier"
        assert tier.pop("module_path") == "kvtier.vllm"
        with caplog.at_level(logging.WARNING):
            config = TierConfig.take(tier, logging.getLogger("test"))
        assert config.fingerprint in _fingerprint.KINDS
    assert caplog.text == ""


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_every_connector_is_whole_json(path):
    text = path.read_text(encoding="utf-8")
    found = [json.JSONDecoder().raw_decode(text[at.start() :])[0]
             for at in re.finditer(r'\{\s*"kv_connector":', text)]
    assert found
    for connector in found:
        extra = connector["kv_connector_extra_config"]
        assert extra["spec_name"] == "TieringOffloadingSpec"
        assert len(extra["secondary_tiers"]) == 1


def section(title):
    text = PAGE.read_text(encoding="utf-8")
    return text.partition("\n## %s\n" % title)[2].partition("\n## ")[0]


def test_every_option_is_described():
    described = set(re.findall(r"`(\w+)`", section("Options")))
    described |= set(re.findall(r"`(\w+)`", section("Three lines")))
    assert set(TierConfig.names()) <= described


def test_every_metric_is_described():
    described = set(re.findall(r"`(\w+)`", section("Metrics")))
    assert set(_metrics.DEFINITIONS) <= described


def test_every_policy_is_described():
    text = section("The other two ways in")
    assert all('="%s"' % policy in text for policy in _STORE_POLICIES)


def test_neither_example_claims_to_have_been_run():
    for path in PLACES[1:]:
        assert "UNTESTED" in path.read_text(encoding="utf-8")
