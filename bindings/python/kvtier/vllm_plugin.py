# SPDX-License-Identifier: Apache-2.0
"""The entry point of vLLM's general plugins: makes ``"type": "kvtier"`` a known secondary tier, for
releases that cannot load a tier by ``module_path``.

vLLM calls it in each of its processes, those that have no use for tiers too: nothing else is imported
here, and a release without tiers is not an error.
"""
from __future__ import annotations

TIER_TYPE = "kvtier"


def register() -> None:
    """Any number of times."""
    try:
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
    except ImportError:
        return
    if TIER_TYPE not in getattr(SecondaryTierFactory, "_registry", {}):
        SecondaryTierFactory.register_tier(TIER_TYPE, "kvtier.vllm", "KvTierSecondaryTier")
