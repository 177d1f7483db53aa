# SPDX-License-Identifier: Apache-2.0
"""One run: a tier, its primary tier, a scheduler; from the first request to the released rows."""
from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Optional

from ..vllm import KvTierSecondaryTier
from .primary import Primary
from .scheduler import Scheduler


def spec_like(
    model: str = "simulated/model", groups: int = 1, blocks_per_chunk: int = 1, **config: Any
) -> Any:
    """What the tier reads of vLLM's OffloadingSpec."""
    return SimpleNamespace(
        blocks_per_chunk=blocks_per_chunk,
        storage_format=None,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=True),
        config=SimpleNamespace(
            model=SimpleNamespace(name=model, dtype="bfloat16"),
            cache=SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=blocks_per_chunk),
            parallel=SimpleNamespace(
                rank=0,
                world_size=1,
                tp_size=1,
                pp_size=1,
                pcp_size=1,
                dcp_size=1,
                is_parallelism_agnostic=True,
            ),
            groups=tuple(
                SimpleNamespace(tokens_per_block=16, layer_names=("layer.%d" % group,))
                for group in range(groups)
            ),
            **config,
        ),
    )


def report(scheduler: Scheduler, primary: Primary, seconds: float) -> Dict[str, Any]:
    totals = dict(vars(scheduler.totals))
    totals["evictions"] = primary.evictions
    totals["verified_bytes"] = primary.verified_bytes
    totals["seconds"] = round(seconds, 3)
    totals["calls"] = scheduler.calls.summary()
    return totals


def simulate(
    requests: Iterable[List[bytes]],
    *,
    rows: int,
    row_bytes: int,
    tier: Dict[str, Any],
    concurrency: int = 8,
    abort_share: float = 0.0,
    reset_every: int = 0,
    seed: int = 1,
    model: Optional[str] = None,
) -> Dict[str, Any]:
    """Serves the requests (lists of OffloadKeys); `tier` is the tier's configuration. What was
    done, in numbers; ContractError when the tier misbehaves."""
    primary = Primary(rows, row_bytes)
    spec = spec_like() if model is None else spec_like(model)
    under_test = KvTierSecondaryTier(spec, primary.view, "KvTierSecondaryTier", **tier)
    scheduler = Scheduler(
        under_test,
        primary,
        concurrency=concurrency,
        abort_share=abort_share,
        reset_every=reset_every,
        seed=seed,
    )
    began = time.monotonic()
    try:
        scheduler.run(requests)
    except BaseException:
        under_test.shutdown()
        raise
    seconds = time.monotonic() - began
    scheduler.shutdown()
    return report(scheduler, primary, seconds)
