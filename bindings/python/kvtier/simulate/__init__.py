# SPDX-License-Identifier: Apache-2.0
"""An end-to-end simulation of vLLM's scheduler on the tier, without a GPU and without vLLM.

    python -m kvtier.simulate --store file:///srv/kv-simulation trace.jsonl

Requests come from a trace; chunks are promoted, cascaded and evicted as vLLM does it, requests are
aborted and the cache is reset meanwhile, and every byte is compared. docs/vllm.md tells more.
"""
from __future__ import annotations

from .primary import ContractError, Primary
from .scheduler import Interface, Scheduler
from .service import simulate, spec_like

__all__ = ["ContractError", "Interface", "Primary", "Scheduler", "simulate", "spec_like"]
