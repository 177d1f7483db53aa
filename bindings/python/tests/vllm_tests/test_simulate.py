# SPDX-License-Identifier: Apache-2.0
"""The simulation of vLLM's scheduler, on files and on S3; and that it finds a tier out that
misbehaves."""
import ctypes
import json
import os
import pathlib
import types

import numpy
import pytest

from kvtier.simulate import ContractError, Primary, Scheduler, simulate, trace
from kvtier.simulate import __main__ as command
from kvtier.vllm import _standalone as plain
from scene import keys_of

SOURCE = pathlib.Path(
    os.environ.get("KVT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[4])
)
TRACE = SOURCE / "tests" / "data" / "trace_small.jsonl"


def requests(count):
    return [[trace.key_of(block) for block in blocks] for blocks in trace.read(str(TRACE), count)]


@pytest.fixture(params=["file", "s3"])
def config(request, tmp_path):
    if request.param == "file":
        return {"root_dir": str(tmp_path / "store")}
    place = request.getfixturevalue("s3_place")
    return {"store": place.uri, "options": place.options}


def test_a_service_runs_through_promotions_cascades_evictions_aborts_and_resets(config):
    done = simulate(requests(80), rows=48, row_bytes=16384, tier=config, abort_share=0.2,
                    reset_every=30)
    assert done["requests"] == 80
    for what in ("stores", "loads", "evictions", "aborted", "resets", "promoted_chunks"):
        assert done[what] > 0, what
    assert done["failed_stores"] == done["failed_loads"] == 0
    assert done["verified_bytes"] > done["store_bytes"] + done["load_bytes"]


def test_a_second_instance_finds_everything(config):
    first = simulate(requests(40), rows=512, row_bytes=4096, tier=config)
    second = simulate(requests(40), rows=512, row_bytes=4096, tier=config)
    assert first["computed_chunks"] > 0
    assert second["computed_chunks"] == second["stores"] == 0
    assert second["found_chunks"] == second["chunks"]


def test_faults_cost_recomputation_and_nothing_else(tmp_path):
    """Reads, writes and questions that fail, and bytes that change on the way, each now and
    then."""
    simulate(requests(1), rows=48, row_bytes=16384, tier={"root_dir": str(tmp_path)})
    config = {
        "store": "fault+file://%s" % tmp_path,
        "attempts": 1,
        "options": {"every": "get:17:EIO,put:31:ENOSPC,head:41:EIO", "flip": "get:/29"},
    }
    done = simulate(requests(120), rows=48, row_bytes=16384, tier=config, reset_every=30)
    assert done["requests"] == 120
    assert done["loads"] > 0 and done["failed_loads"] > 0
    assert done["stores"] > 0 and done["failed_stores"] > 0


# ---- the command ----


def test_the_command_reports_each_pass_as_json(tmp_path, capsys):
    status = command.main([
        "--store", "file://%s" % tmp_path, "--rows", "64", "--row-bytes", "8K", "--requests", "20",
        "--passes", "2", "--json", "-o", "fanout=flat", str(TRACE),
    ])
    passes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert [p["number"] for p in passes] == [1, 2]
    assert passes[1]["promoted_chunks"] > 0
    assert passes[0]["calls"]["submit_store"]["calls"] > 0


def test_the_command_makes_requests_up(tmp_path, capsys):
    assert command.main(["--store", "mem:", "--rows", "64", "--row-bytes", "4096", "--requests",
                         "10"]) == 0
    assert "requests 10" in capsys.readouterr().out


def test_a_store_that_cannot_be_used_is_exit_status_2(capsys):
    assert command.main(["--store", "nowhere:", "--requests", "1"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["{", '{"timestamp": 1}', "[1]", '{"hash_ids": ["x"]}', "\xff"])
def test_a_trace_that_is_none_is_named_with_its_line(line, tmp_path, capsys):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"hash_ids": [1]}\n' + line.encode("latin-1") + b"\n")
    assert command.main(["--store", "mem:", str(path)]) == 2
    assert "%s: line 2: expected" % path in capsys.readouterr().err


@pytest.mark.parametrize("config", ["[1]", "{", '{"options": "x"}'])
def test_a_configuration_that_is_none_is_exit_status_2(config, capsys):
    assert command.main(["--store", "mem:", "--requests", "1", "--config", config]) == 2
    assert "kvtier.simulate: " in capsys.readouterr().err


def test_a_broken_contract_is_exit_status_1(capsys, monkeypatch):
    def broken(*_arguments, **_options):
        raise ContractError("row 3: not the bytes of chunk 00")

    monkeypatch.setattr(command, "simulate", broken)
    assert command.main(["--store", "mem:", "--requests", "1"]) == 1
    assert "broken contract: row 3" in capsys.readouterr().err


@pytest.mark.parametrize("text, count", [("4096", 4096), ("64K", 65536), ("2MiB", 1 << 21)])
def test_sizes_may_have_units(text, count):
    assert command._bytes(text) == count


# ---- the witness ----


class HonestTier:
    """Keeps chunks in a dictionary, as a tier that does what it should."""

    def __init__(self, memory):
        self.rows = numpy.frombuffer(memory._memory, dtype=numpy.uint8)
        self.rows = self.rows.reshape(memory.row_count, -1)
        self.chunks = {}
        self.results = []

    def lookup(self, key, req_context):
        return plain.LookupResult.HIT if key in self.chunks else plain.LookupResult.MISS

    def submit_store(self, job):
        for key, row in zip(job.keys, job.chunk_ids):
            self.chunks[key] = self.rows[row].copy()
        self.results.append(plain.JobResult(job.job_id, True))

    def submit_load(self, job):
        for key, row in zip(job.keys, job.chunk_ids):
            self.rows[row] = self.chunks[key]
        self.results.append(plain.JobResult(job.job_id, True))

    def get_finished_jobs(self):
        results, self.results = self.results, []
        return results

    def on_new_request(self, req_context): ...

    def on_request_finished(self, req_context): ...

    def on_schedule_end(self, context): ...

    def touch(self, keys, req_context): ...

    def drain_jobs(self): ...

    def shutdown(self):
        self.rows = None


def drive(tier_class, **replaced):
    memory = Primary(8, 4096)
    tier = tier_class(memory)
    for name, function in replaced.items():
        setattr(tier, name, types.MethodType(function, tier))
    scheduler = Scheduler(tier, memory, concurrency=2)
    for _ in range(2):
        scheduler.run(requests(6))
        scheduler.reset()
    scheduler.shutdown()
    return scheduler.totals


def test_a_tier_that_keeps_the_contract_passes():
    totals = drive(HonestTier)
    assert totals.loads > 0 and totals.stores > 0


def test_a_job_that_is_reported_twice_is_found_out():
    def twice(self):
        return HonestTier.get_finished_jobs(self) * 2

    with pytest.raises(ContractError, match="reported twice"):
        drive(HonestTier, get_finished_jobs=twice)


def test_a_job_that_is_never_reported_is_found_out():
    memory = Primary(8, 4096)
    tier = HonestTier(memory)
    scheduler = Scheduler(tier, memory)
    scheduler.admit(keys_of(2))
    scheduler.step()
    tier.results.clear()
    with pytest.raises(ContractError, match="no result after drain_jobs"):
        scheduler.reset()


def test_wrong_bytes_are_found_out():
    def load(self, job):
        HonestTier.submit_load(self, job)
        self.rows[job.chunk_ids[-1], 17] ^= 1

    with pytest.raises(ContractError, match="not the bytes of chunk"):
        drive(HonestTier, submit_load=load)


def test_a_row_that_is_written_to_after_its_result_is_found_out():
    def load(self, job):
        self.results.append(plain.JobResult(job.job_id, False))
        self.late = job.chunk_ids

    def touch(self, keys, req_context):
        """Called long after the result was given."""
        if getattr(self, "late", None) is not None:
            self.rows[self.late] ^= 1

    with pytest.raises(ContractError, match="written to after its job's result|not the bytes"):
        drive(HonestTier, submit_load=load, touch=touch)


def test_keys_that_were_not_asked_for_are_found_out():
    def load(self, job):
        result = plain.JobResult(job.job_id, False, successful_keys=keys_of(1, "other"))
        self.results.append(result)

    with pytest.raises(ContractError, match="keys succeeded that it does not have"):
        drive(HonestTier, submit_load=load)


@pytest.mark.parametrize("keep", [numpy.asarray, ctypes.c_char.from_buffer])
def test_rows_that_stay_exported_are_found_out(keep):
    class Keeping(HonestTier):
        def __init__(self, memory):
            super().__init__(memory)
            self.kept = keep(memory.view)

    with pytest.raises(ContractError, match="still exported after shutdown"):
        drive(Keeping)
