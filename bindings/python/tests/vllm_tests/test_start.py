# SPDX-License-Identifier: Apache-2.0
"""How a tier is configured: places, options, names, and what is refused at the start."""
import json
import logging
import os

import pytest

import kvtier
from kvtier.simulate import Primary, spec_like
from kvtier.vllm import KvTierSecondaryTier, _fingerprint
from kvtier.vllm._config import TierConfig
from scene import HIT, MISS, ROW_BYTES, Scene, keys_of, objects_below

LOGGER = logging.getLogger("test")


def config_of(**arguments):
    return TierConfig.take(arguments, LOGGER)


def start(spec=None, **config):
    """Only starts and ends one; what it was opened as."""
    with Scene(spec=spec, **config) as scene:
        return scene.tier._store.info


# ---- where ----


@pytest.mark.parametrize("arguments, uri", [
    ({"store": "s3://bucket/prefix"}, "s3://bucket/prefix"),
    ({"store": "s3://bucket", "prefix": "/a/b/"}, "s3://bucket/a/b"),
    ({"store_config": {"bucket": "b", "endpoint_override": "h:1"}}, "s3://b"),
    ({"store_config": {"bucket": "b", "endpoint_override": "h:1"}, "prefix": "p"}, "s3://b/p"),
    ({"store_config": {"bucket": "b"}, "prefix": "/p/", "options": {"compat_names": "vllm-obj"}},
     "s3://b//p/"),
    ({"root_dir": "/srv/kv/"}, "file:///srv/kv"),
])
def test_places_of_our_own_and_of_vllms_tiers(arguments, uri):
    assert config_of(**arguments).uri() == uri


@pytest.mark.parametrize("arguments, part", [
    ({}, "store: missing"),
    ({"root_dir": "/x", "store": "mem:"}, "root_dir: given beside"),
    ({"store": "s3://b/p", "prefix": "q"}, "prefix: 'q' beside store"),
    ({"store_config": {"endpoint_override": "h"}}, "store_config: no bucket"),
    ({"store_config": "b"}, "store_config: a str, expected an object"),
    ({"store": 5}, "store: a int, expected a string"),
    ({"store": "mem:", "max_wait_s": -1}, "max_wait_s: -1, expected a number from 0"),
    ({"store": "mem:", "lanes": "many"}, "lanes: 'many', expected a number from 0"),
    ({"store": "mem:", "locality": "NEAR"}, "locality: 'NEAR', expected LOCAL or REMOTE"),
])
def test_what_makes_no_sense_is_refused_by_name(arguments, part):
    with pytest.raises(ValueError, match=part):
        config_of(**arguments)


def test_arguments_that_are_not_known_are_named_in_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        config = config_of(store="mem:", max_wait=3, module_path="kvtier.vllm", novelty=1)
    assert config.max_wait_s == 5.0
    assert "max_wait (did you mean max_wait_s?), novelty" in caplog.text
    assert "module_path" not in caplog.text


def test_secrets_are_not_in_what_is_printed_of_a_configuration():
    config = config_of(store_config={"bucket": "b", "secret_key": "hush"}, options={"x": "hush"})
    assert "hush" not in repr(config)


def test_chunks_are_touched_where_somebody_looks_at_it():
    limited = {"max_bytes": "1G"}
    assert config_of(store="mem:").touch_interval() is None
    assert config_of(store="mem:", options=limited).touch_interval() == 60
    assert config_of(store="mem:", options=limited, touch_interval_s=0).touch_interval() is None
    assert config_of(store="mem:", touch_interval_s=5).touch_interval() == 5


def test_worker_options_are_those_that_were_given():
    config = config_of(store="mem:", io_threads=100, store_timeout_s=1.5, max_wait_s=2)
    assert config.worker_options() == {
        "lanes": 64, "store_timeout_ms": 1500, "lookup_timeout_ms": 2000
    }
    assert config_of(store="mem:", io_threads=2, lanes=7).worker_options()["lanes"] == 7


def test_the_configuration_of_the_object_tier_is_taken_as_it_is(s3_server):
    store_config = {
        "bucket": "test", "endpoint_override": s3_server, "scheme": "http", "region": "us-east-1",
        "access_key": "key-of-the-tests", "secret_key": "secret-of-the-tests", "ca_bundle": "",
    }
    keys = keys_of(3)
    with Scene(store_config=store_config, prefix="from-obj", io_threads=2) as scene:
        assert scene.store(keys).success
        assert scene.tier._store.info.uri == "s3://test/from-obj"
    with Scene(store="s3://test/from-obj", store_config=store_config) as scene:
        assert scene.look_up(keys) == [HIT] * 3
        assert scene.load(keys).success


def test_the_configuration_of_the_file_tier_is_taken_as_it_is(tmp_path):
    keys = keys_of(3)
    with Scene(root_dir=str(tmp_path / "kv"), n_read_threads=16, n_write_threads=16) as scene:
        assert scene.store(keys).success
    assert len(objects_below(tmp_path / "kv")) == 3


def test_a_tree_of_vllms_file_tier_is_read_and_added_to(tmp_path):
    """Raw rows under vLLM's names, as its tier writes them."""
    keys = keys_of(4)
    config = {"root_dir": str(tmp_path), "fingerprint": "vllm", "options": {"accept_raw": True}}
    with Scene(**config) as scene:
        rows = scene.rows(keys)
        for row, key in list(zip(rows, keys))[:2]:
            name = scene.tier._store.object_name(key[:-4], 0)
            os.makedirs(os.path.dirname(str(tmp_path / name)), exist_ok=True)
            with open(str(tmp_path / name), "wb") as file:
                file.write(bytes(scene.memory.view[row : row + 1].cast("B")))
        assert scene.look_up(keys) == [HIT, HIT, MISS, MISS]
        assert scene.load(keys[:2]).success
        assert scene.store(keys).success
        assert scene.load(keys).success
        assert os.path.getsize(str(tmp_path / name)) == ROW_BYTES


# ---- names ----


def test_names_are_vllms():
    """The fields, and so the digest, of vLLM's own file mapper."""
    fields, rank = _fingerprint.fields_of(spec_like("org/model"), "vllm")
    assert rank == 0
    assert fields == {
        "model_name": "org/model", "tokens_per_hash": 16, "blocks_per_file": 1, "tp_size": 1,
        "pp_size": 1, "pcp_size": 1, "dcp_size": 1, "dtype": "bfloat16",
        "kv_cache_groups": [{"tokens_per_block": 16, "layer_names": ["layer.0"]}],
        "inference_engine": "vllm",
    }
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert start(spec_like("org/model"), store="mem:", fingerprint="vllm").canonical == canonical


def test_instances_that_are_not_agnostic_have_ranks_and_sizes_of_their_own():
    spec = spec_like()
    spec.config.parallel.is_parallelism_agnostic = False
    spec.config.parallel.tp_size = 4
    spec.config.parallel.rank = 3
    fields, rank = _fingerprint.fields_of(spec)
    assert (fields["tp_size"], fields["parallel_agnostic"], rank) == (4, False, 3)


def test_revision_and_layout_are_part_of_the_names_where_vllm_tells_them():
    plain = start(store="mem:")
    told = spec_like(kv_cache_layout="HND")
    told.config.model.revision = "abc123"
    full = start(told, store="mem:")
    assert json.loads(full.canonical)["kv_cache_layout"] == "HND"
    assert json.loads(full.canonical)["model_revision"] == "abc123"
    assert full.base_name != plain.base_name
    assert start(told, store="mem:", fingerprint="vllm").base_name == plain.base_name
    said = start(store="mem:", model_revision="abc123", kv_layout="HND")
    assert said.base_name == full.base_name
    assert start(told, store="mem:", model_revision="v2").base_name != full.base_name


def test_caches_of_another_dtype_have_names_of_their_own():
    names = set()
    for dtype in ("auto", "fp8_e4m3", "fp8_e5m2"):
        spec = spec_like()
        spec.config.cache.cache_dtype = dtype
        names.add(start(spec, store="mem:").base_name)
        assert start(spec, store="mem:", fingerprint="vllm").base_name == \
            start(store="mem:").base_name
    assert len(names) == 3 and start(store="mem:").base_name in names


def test_a_fingerprint_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="fingerprint: 'some', expected full or vllm"):
        start(store="mem:", fingerprint="some")
    with pytest.raises(ValueError, match="'vllm' has no place for model_revision"):
        start(store="mem:", fingerprint="vllm", model_revision="x")


def test_instances_with_other_hash_seeds_are_told_apart(tmp_path, monkeypatch):
    uri = "file://%s" % tmp_path
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with Scene(store=uri) as scene:
        assert scene.store(keys_of(1)).success
    start(store=uri)
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    with pytest.raises(kvtier.ConfigurationError, match="hash_seed"):
        start(store=uri)
    start(store=uri, hash_seed="0")


def test_a_bucket_of_vllms_object_tier_is_read(s3_place, monkeypatch, caplog):
    """Its keys begin with the prefix and a doubled slash, and there is no config.json."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    config = {
        "store": s3_place.uri, "fingerprint": "vllm",
        "options": dict(s3_place.options, accept_raw=True, compat_names="vllm-obj"),
    }
    keys = keys_of(2)
    with caplog.at_level(logging.WARNING), Scene(**config) as scene:
        assert scene.store(keys).success
    with Scene(**config) as scene:
        assert scene.look_up(keys) == [HIT, HIT]
        assert scene.load(keys).success
    assert caplog.text == ""


def test_the_chunk_size_is_part_of_the_names_but_for_vllms_object_tier(s3_place):
    spec = spec_like(blocks_per_chunk=4)
    config = {"store": s3_place.uri, "options": s3_place.options}
    assert json.loads(start(spec, **config).canonical)["blocks_per_file"] == 4
    config["options"] = dict(s3_place.options, accept_raw=True, compat_names="vllm-obj")
    assert json.loads(start(spec, **config).canonical)["blocks_per_file"] == 1


def test_a_missing_hash_seed_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    with caplog.at_level(logging.WARNING):
        start(store="mem:")
    assert "PYTHONHASHSEED is not set" in caplog.text


# ---- what is refused at the start ----


def refused(**config):
    """Starting fails, and nothing is left: the rows can be released at once."""
    memory = Primary(4, ROW_BYTES)
    with pytest.raises(Exception) as caught:
        KvTierSecondaryTier(spec_like(), memory.view, **config)
    memory.release()
    return str(caught.value)


def test_a_bucket_that_is_not_there_is_found_out_at_the_start(s3_server):
    store_config = {
        "bucket": "absent", "endpoint_override": s3_server, "scheme": "http",
        "access_key": "key-of-the-tests", "secret_key": "secret-of-the-tests",
    }
    line = refused(store_config=store_config)
    assert "NoSuchBucket" in line


def test_wrong_credentials_are_found_out_at_the_start(s3_server):
    store_config = {
        "bucket": "test", "endpoint_override": s3_server, "scheme": "http",
        "access_key": "key-of-the-tests", "secret_key": "wrong",
    }
    line = refused(store_config=store_config)
    assert "SignatureDoesNotMatch" in line
    assert "wrong" not in line


def test_a_store_that_takes_nothing_is_found_out_at_the_start(tmp_path):
    line = refused(store="fault+file://%s" % tmp_path, options={"fail": "put:1+:EROFS"})
    assert "cannot be used" in line and "KVT_EROFS" in line and "kvtier probe" in line


def test_a_folder_that_is_none_is_found_out_at_the_start(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert str(path) in refused(root_dir=str(path))


def test_options_of_the_store_that_do_not_exist_are_refused(tmp_path):
    assert "max_byte" in refused(root_dir=str(tmp_path), options={"max_byte": "1G"})


def test_rows_that_are_not_writable_are_refused():
    with pytest.raises(ValueError, match="read-only"):
        KvTierSecondaryTier(spec_like(), memoryview(bytes(8192)).cast("b", (2, 4096)), store="mem:")


def test_a_tier_needs_what_the_factory_passes():
    with pytest.raises(ValueError, match="offloading_spec, primary_kv_view: missing"):
        KvTierSecondaryTier(store="mem:")
