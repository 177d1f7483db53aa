# SPDX-License-Identifier: Apache-2.0
"""Stores of each backend: what is at rest, and how opening fails."""
import os
import shutil
import subprocess

import pytest

import kvtier
from conftest import Place

ROW = 4096


def fill(store, worker, count, helpers):
    """Stores `count` rows that differ; their keys and the buffer."""
    buffer = bytearray(b"".join(bytes([i]) * ROW for i in range(count)))
    keys = [b"key %04d" % i for i in range(count)]
    with kvtier.Rows(buffer, ROW) as rows:
        worker.submit_store_rows(1, keys, rows, range(count))
        assert helpers.take_one(worker).ok
    return keys, buffer


def test_what_a_store_was_opened_as(place):
    with place.open(rank=3) as store:
        info = store.info
        assert info.uri == place.uri
        assert info.backend == place.uri.split(":")[0]
        assert (info.base_name, info.canonical, info.rank) == ("test", "test", 3)
        assert info.mode is kvtier.Mode.EXACT
        assert info.max_object_bytes > 1 << 30
        assert len(info.namespace_digest) == 8
        assert store.object_name(b"\x01\x23\x45", 2) == "test_r3/012/34_g2/012345.bin"
        assert not store.closed
    assert store.closed


def test_objects_are_listed_looked_at_and_removed(store, worker, helpers):
    keys, _ = fill(store, worker, 5, helpers)
    entries = {entry.hash: entry for entry in store.list()}
    assert set(entries) == set(keys)
    assert {entry.name for entry in store} == {store.object_name(key) for key in keys}
    stat = store.stat(keys[0])
    assert stat.state is kvtier.ObjectState.WHOLE
    assert (stat.hash, stat.group, stat.payload_bytes) == (keys[0], 0, ROW)
    assert (stat.ref_bytes, stat.presence) == ([ROW], [True])
    assert stat.object_bytes == entries[keys[0]].object_bytes
    seen = []
    store.list(lambda entry: seen.append(entry) or len(seen) == 2)
    assert len(seen) == 2
    store.remove(keys[0])
    for call in (store.stat, store.remove):
        with pytest.raises(kvtier.MissError) as caught:
            call(keys[0])
        assert caught.value.code is kvtier.Code.ENOENT
    assert len(store.list()) == 4


def test_an_exception_in_a_callback_ends_the_listing(store, worker, helpers):
    fill(store, worker, 3, helpers)
    seen = []

    def refuse(entry):
        seen.append(entry)
        raise LookupError("seen enough")

    with pytest.raises(LookupError, match="seen enough"):
        store.list(refuse)
    with pytest.raises(LookupError, match="seen enough"):
        store.verify(callback=refuse)
    assert len(seen) == 2


def test_every_object_is_verified(store, worker, helpers):
    fill(store, worker, 4, helpers)
    entries = []
    summary = store.verify(callback=entries.append)
    assert (summary.objects, summary.whole, summary.corrupt) == (4, 4, 0)
    assert {(e.state, e.error) for e in entries} == {(kvtier.ObjectState.WHOLE, 0)}


def test_gc_removes_what_is_too_much(store, worker, helpers):
    keys, _ = fill(store, worker, 4, helpers)
    size = store.stat(keys[0]).object_bytes
    planned = store.gc(max_bytes=2 * size, dry_run=True)
    assert (planned.objects, planned.removed_objects) == (4, 2)
    assert len(store.list()) == 4
    assert store.gc(max_bytes=2 * size) == planned
    assert len(store.list()) == 2
    with pytest.raises(kvtier.InvalidArgumentError):
        store.gc(max_bytes=-1)


def test_a_probe_says_what_it_finds_out(store):
    heard = []
    lines = store.probe(heard.append)
    assert lines == heard and len(lines) > 3
    assert lines[0].name == "backend" and lines[0].value == store.info.backend
    assert not any(line.error for line in lines)
    assert store.list() == []


def test_a_damaged_object_is_found(tmp_path, helpers):
    with Place("file://%s" % tmp_path).open() as store:
        with kvtier.Worker(store, keep_corrupt=1) as worker:
            keys, buffer = fill(store, worker, 3, helpers)
            path = tmp_path / store.object_name(keys[1])
            damaged = bytearray(path.read_bytes())
            damaged[100] ^= 1
            path.write_bytes(damaged)
            with kvtier.Rows(buffer, ROW) as rows:
                worker.submit_load_rows(2, keys, rows, range(3))
                result = helpers.take_one(worker)
        assert not result.ok
        assert result.succeeded == b"\1\0\1"
        assert result.key_status(1) is kvtier.Status.CORRUPT is result.status
        assert list(result.errors) == [0, kvtier.Code.ECORRUPT, 0]
        assert result.key_error(1) == kvtier.Code.ECORRUPT and result.key_error(0) == 0
        assert isinstance(result.exception(), kvtier.IntegrityError)
        assert str(result.exception()) == result.detail and result.detail
        assert store.verify().corrupt == 1
        assert store.verify(remove_corrupt=True).removed == 1
        assert len(store.list()) == 2


def test_a_failing_probe_raises_the_first_failure():
    with Place("fault+mem:", fail="put:1:ENOSPC").open() as store:
        lines = []
        with pytest.raises(kvtier.PermanentError) as caught:
            store.probe(lines.append)
        assert caught.value.code is kvtier.Code.ENOSPC
        assert [line.error for line in lines if line.error][0] == kvtier.Code.ENOSPC


@pytest.mark.parametrize("uri,arguments,error,said", [
    ("nosuch:x", {}, kvtier.InvalidArgumentError, "nosuch"),
    ("file://somewhere/x", {}, kvtier.InvalidArgumentError, "somewhere"),
    ("mem:", {"options": {"fan_out": "flat"}}, kvtier.InvalidArgumentError, "fanout"),
    ("mem:", {"namespace": "."}, kvtier.InvalidArgumentError, "namespace"),
    ("mem:", {"namespace": "a\0b"}, kvtier.InvalidArgumentError, "namespace"),
    ("mem:", {"mode": "rows"}, kvtier.InvalidArgumentError, "pointer, row or exact"),
    ("mem:", {"rank": -1}, kvtier.InvalidArgumentError, "rank"),
    ("mem:", {"namespace": None}, kvtier.InvalidArgumentError, ""),
    ("mem:", {"namespace": None, "fields": {"dtype": "x"}}, kvtier.InvalidArgumentError,
     "model_name"),
    ("s3://bucket/x", {"options": {"endpoint": "nonsense://x"}}, kvtier.Error, "nonsense"),
    ("file:///proc/nosuch/x", {}, kvtier.Error, "/proc/nosuch"),
])
def test_how_opening_fails(uri, arguments, error, said):
    with pytest.raises(error, match=said) as caught:
        kvtier.Store(uri, **dict({"namespace": "test"}, **arguments))
    assert "\n" not in str(caught.value) and str(caught.value) == caught.value.detail


def test_fields_make_the_namespace_and_are_compared(tmp_path):
    fields = {"model_name": "org/model", "dtype": "bfloat16", "tokens_per_hash": 16}
    uri = "file://%s" % tmp_path
    with kvtier.Store(uri, fields=fields, mode="row") as store:
        base = store.info.base_name
        assert base.startswith("org_model_") and len(base) == len("org_model_") + 12
        assert '"tokens_per_hash":16' in store.info.canonical.replace(" ", "")
    with kvtier.Store(uri, fields=dict(fields, dtype="float16"), mode="row") as store:
        assert store.info.base_name != base


def test_options_of_any_type_are_passed_as_text(tmp_path):
    options = {"fanout": "flat", "accept_raw": True, "low_watermark": 0.5,
               "max_bytes": 1 << 30, "hash_seed": None}
    with Place("file://%s" % tmp_path, **options).open(mode="row") as store:
        assert store.object_name(b"\x01\x23").count("/") == 2


def test_help_for_options():
    options = {option.name: option for option in kvtier.option_help("s3://bucket")}
    assert options["fanout"].default == "vllm"
    assert options["access_key"].default is None
    assert all(option.help for option in options.values())
    assert "engine" in {o.name for o in kvtier.option_help("file:///")}
    with pytest.raises(kvtier.InvalidArgumentError):
        kvtier.option_help("nosuch:")


def test_a_closed_store_refuses_everything(place):
    store = place.open()
    store.close()
    store.close()
    for call in (store.list, store.verify, store.gc, store.probe, lambda: store.info,
                 lambda: store.stat(b"k"), lambda: store.remove(b"k"),
                 lambda: store.object_name(b"k"), lambda: kvtier.Worker(store)):
        with pytest.raises(kvtier.ClosedError, match="closed"):
            call()


def test_a_store_is_not_closed_below_its_worker(mem_store):
    with kvtier.Worker(mem_store):
        with pytest.raises(kvtier.BusyError):
            mem_store.close()
        assert not mem_store.closed
        assert mem_store.list() == []


def test_lines_of_log_reach_the_caller(tmp_path, helpers):
    lines = []
    place = Place("fault+mem:", every="get:1:ECORRUPT")
    with place.open() as store:
        with kvtier.Worker(store, log=lambda level, line: lines.append((level, line)),
                           log_level=kvtier.LogLevel.DEBUG, breaker_failures=1,
                           attempts=1) as worker:
            with kvtier.Rows(bytearray(64), 64) as rows:
                worker.submit_load_rows(1, [b"key"], rows, [0])
                assert not helpers.take_one(worker).ok
    assert all(isinstance(level, kvtier.LogLevel) and isinstance(line, str) and "\n" not in line
               for level, line in lines)


def test_an_exception_in_the_log_function_harms_nobody(tmp_path):
    def fail(level, line):
        raise RuntimeError(line)

    with Place("file://%s" % tmp_path).open(log=fail, log_level=kvtier.LogLevel.DEBUG) as store:
        store.probe()


def test_errors_can_be_sent_to_another_process():
    import pickle
    error = pickle.loads(pickle.dumps(kvtier.error_from_code(-7, "the queue is full")))
    assert type(error) is kvtier.QueueFullError
    assert (error.code, error.detail, error.name) == (kvtier.Code.EAGAIN, "the queue is full",
                                                     "KVT_EAGAIN")
    unknown = kvtier.error_from_code(-999)
    assert type(unknown) is kvtier.InternalError and unknown.name == "KVT_E?"


def test_a_libcurl_that_is_too_old_is_named(tmp_path, monkeypatch, program):
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    if "KVT_TEST_INSTALLED" in os.environ:
        pytest.skip("the module of a wheel does not take functions from the program")
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    # The first members of curl_version_info_data, and room for the others.
    source.write_text("""
static struct { int age; const char *version; unsigned number; void *room[64]; } old;
void *curl_version_info(int age)
{
	old.age = age;
	old.version = "7.81.0";
	old.number = 0x075100;
	return &old;
}
""")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    status, output, errors = program("""
import kvtier
try:
    kvtier.Store("s3://bucket/x", namespace="x", options={"endpoint": "http://127.0.0.1:1"})
except kvtier.ConfigurationError as error:
    print(error.name, error)
""")
    assert status == 0, errors
    assert output == "KVT_EMODULE s3://bucket/x: libcurl 7.81.0, expected 7.87 or later\n"
