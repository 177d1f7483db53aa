# SPDX-License-Identifier: Apache-2.0
"""What makes the chunks of two vLLM instances interchangeable: the fields of object names.

With ``fingerprint="vllm"`` they are exactly those of vLLM's own file mapper, so that a tree or
bucket can be shared with vLLM's tiers. With ``fingerprint="full"``, the default, the KV layout, the
dtype of the cache (fp8_e4m3 and fp8_e5m2 are of one length) and the model's revision are added
where vLLM exposes them: instances that differ in those have other names and never read each
other's bytes.
"""
from __future__ import annotations

from typing import Any, Optional

from . import _compat

KINDS = ("full", "vllm")


def _first(holders: list, *names: str) -> Any:
    """The first attribute of these names that one of the holders has and that is not None."""
    for holder in holders:
        for name in names:
            value = getattr(holder, name, None)
            if value is not None:
                return value
    return None


def _text(value: Any) -> str:
    """Of an enum's member its name, of a torch dtype what follows the dot."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value).rsplit("torch.", 1)[-1]


def _from_spec(spec: Any, blocks_per_file: int) -> "tuple[dict, int]":
    """Fields and rank by the names of vLLM's file mapper, for releases without one that can be
    asked, and for specs that are no vLLM objects."""
    config = getattr(spec, "config", None)
    if config is None:
        raise ValueError(
            "offloading_spec: %s has no config, from which object names are made"
            % type(spec).__name__
        )
    parallel = config.parallel
    agnostic = bool(
        getattr(parallel, "is_parallelism_agnostic", False)
        or getattr(config, "replicated_layout", False)
    )
    fields = {
        "model_name": str(config.model.name),
        "tokens_per_hash": int(config.cache.tokens_per_hash),
        "blocks_per_file": blocks_per_file,
        "tp_size": 1 if agnostic else int(parallel.tp_size),
        "pp_size": 1 if agnostic else int(parallel.pp_size),
        "pcp_size": 1 if agnostic else int(getattr(parallel, "pcp_size", 1)),
        "dcp_size": 1 if agnostic else int(getattr(parallel, "dcp_size", 1)),
        "dtype": str(config.model.dtype),
        "kv_cache_groups": [
            {
                "tokens_per_block": int(group.tokens_per_block),
                "layer_names": list(group.layer_names),
            }
            for group in config.groups
        ],
        "inference_engine": "vllm",
    }
    if not agnostic:
        fields["parallel_agnostic"] = False
    if getattr(config, "replicated_layout", False):
        fields["replicated_layout"] = True
    return fields, 0 if agnostic else int(parallel.rank)


def blocks_per_chunk(spec: Any) -> int:
    config = getattr(spec, "config", None)
    value = _first(
        [spec, getattr(config, "cache", None)], "blocks_per_chunk", "block_size_factor"
    )
    return 1 if value is None else int(value)


def mapper_fields(spec: Any, blocks_per_file: int) -> "tuple[dict, int]":
    """Fields and rank as vLLM's own tiers use them: its mapper is asked where it can be."""
    mapper = _compat.FileMapper
    if mapper is None or not hasattr(mapper, "from_offloading_spec"):
        return _from_spec(spec, blocks_per_file)
    made = mapper.from_offloading_spec(
        root_dir="", offloading_spec=spec, blocks_per_file=blocks_per_file, parallel_agnostic=True
    )
    return dict(made.get_run_config()), int(getattr(made, "rank", 0))


def extra_fields(spec: Any, revision: Optional[str], layout: Optional[str]) -> dict:
    """The model's revision and the KV layout: what the user says, else what vLLM exposes; and the
    cache's dtype where it is not the model's. A field that nobody knows is absent."""
    config = getattr(spec, "config", None)
    old = getattr(spec, "vllm_config", None)
    if revision is None:
        models = [getattr(config, "model", None), getattr(old, "model_config", None)]
        revision = _first(models, "revision", "model_revision")
    caches = [config, getattr(config, "cache", None), getattr(old, "cache_config", None)]
    if layout is None:
        layout = _first(caches, "kv_cache_layout", "kv_layout")
    dtype = _first(caches, "cache_dtype", "kv_cache_dtype")
    fields = {}
    if revision is not None:
        fields["model_revision"] = _text(revision)
    if layout is not None:
        fields["kv_cache_layout"] = _text(layout)
    if dtype is not None and _text(dtype) != "auto":
        fields["kv_cache_dtype"] = _text(dtype)
    return fields


def fields_of(
    spec: Any,
    kind: str = "full",
    revision: Optional[str] = None,
    layout: Optional[str] = None,
    blocks_per_file: Optional[int] = None,
) -> "tuple[dict, int]":
    """The fields and this process's rank. blocks_per_file is the chunk's unless it is given: vLLM's
    object tier always says 1."""
    if kind not in KINDS:
        raise ValueError("fingerprint: %r, expected %s" % (kind, " or ".join(KINDS)))
    fields, rank = mapper_fields(spec, blocks_per_file or blocks_per_chunk(spec))
    if kind == "full":
        for name, value in extra_fields(spec, revision, layout).items():
            fields.setdefault(name, value)
    elif revision is not None or layout is not None:
        raise ValueError(
            "fingerprint: 'vllm' has no place for model_revision and kv_layout, expected 'full'"
        )
    return fields, rank
