#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command-line tool from end to end, on folders of its own.

    KVTIER=build/kvtier KVT_TEST_DATA_DIR=tests/data tests/cli_test.py [CASE...]
"""
import hashlib
import html.parser
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOOL = os.environ.get("KVTIER", str(HERE.parent / "build" / "kvtier"))
DATA = pathlib.Path(os.environ.get("KVT_TEST_DATA_DIR", HERE / "data"))
TRACE = DATA / "trace_small.jsonl"
TIMEOUT_S = 120


def scratch_folder():
    """In memory where there is room: some file systems are slow to create files again that were
    deleted just now."""
    memory = pathlib.Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK):
        if shutil.disk_usage(memory).free > 512 << 20:
            return memory
    return None


def some_bytes(count, seed=b""):
    """Bytes that differ everywhere and do not compress."""
    out = bytearray()
    block = 0
    while len(out) < count:
        out += hashlib.sha512(seed + block.to_bytes(8, "big")).digest()
        block += 1
    return bytes(out[:count])


class ToolCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvtier-cli-", dir=scratch_folder()))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "root"
        self.root.mkdir(mode=0o700)
        self.store = ["--store", "file://%s" % self.root]
        self.common = self.store + ["--namespace", "ns"]

    def run_tool(self, *arguments, status=0, stdin=None, environment=None):
        done = subprocess.run(
            [TOOL, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=dict(os.environ, **(environment or {})),
            check=False,
        )
        self.assertEqual(
            done.returncode,
            status,
            "%s\nstdout: %s\nstderr: %s" % (arguments, done.stdout[-2000:], done.stderr[-2000:]),
        )
        return done

    def run_json(self, command, *arguments, status=0, **options):
        done = self.run_tool(command, *arguments, "--json", status=status, **options)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refused(self, *arguments, names=(), status=2):
        """The message must name the argument, the value and what was expected."""
        done = self.run_tool(*arguments, status=status)
        message = done.stderr.decode()
        for name in names:
            self.assertIn(name, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.startswith("kvtier"), message)
        return message

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def put(self, key, data, *more):
        return self.run_tool("put", *self.common, *more, key, self.write("payload", data))

    def object_path(self, key, rank=0):
        digits = key.split(":")[0]
        group = key.split(":")[1] if ":" in key else "0"
        return (
            self.root
            / ("ns_r%d" % rank)
            / digits[:3]
            / ("%s_g%s" % (digits[3:5], group))
            / ("%s.bin" % digits)
        )

    def flip(self, key, offset):
        path = self.object_path(key)
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)


class Commands(ToolCase):
    def test_help_lists_every_command_and_shows_examples(self):
        overview = self.run_tool("help").stdout.decode()
        for command in (
            "put get stat ls rm verify bench replay probe gc name plan version help".split()
        ):
            self.assertIn("\n  %s " % command, overview)
            text = self.run_tool("help", command).stdout.decode()
            self.assertIn("Examples:", text)
            self.assertIn("Usage: kvtier %s" % command, text)
            self.assertEqual(self.run_tool(command, "--help").stdout.decode(), text)
        self.assertEqual(self.run_tool("--help").stdout.decode(), overview)

    def test_version_is_the_library_s(self):
        (version,) = self.run_json("version")
        self.assertEqual(version["version"], version["library"])
        self.assertIn(version["version"], self.run_tool("--version").stdout.decode())

    def test_unknown_words_are_refused(self):
        self.refused("frobnicate", names=["frobnicate", "expected"])
        self.refused("ls", *self.common, "--lnog", names=["--lnog", "expected"])
        self.refused("ls", *self.common, "x", names=["'x'", "expected"])
        self.refused("put", *self.common, "00", names=["KEY and FILE"])
        self.refused("help", "frobnicate", names=["frobnicate"])
        self.run_tool(status=2)

    def test_values_are_checked(self):
        bench = ["bench", *self.common, "--op", "both", "--chunk-bytes", "4096", "--chunks", "4"]
        for option, value in (
            ("--rank", "-1"),
            ("--rank", "2147483648"),
            ("--chunks", "0"),
            ("--chunks", "4x"),
            ("--chunks", ""),
            ("--chunk-bytes", "4Q"),
            ("--chunk-bytes", "99999999999999999999"),
            ("--op", "everything"),
            ("--geometry", "4"),
            ("--geometry", "0x4"),
            ("--geometry", "2000000x2000000"),
            ("--partial", "1.5"),
            ("--partial", "nan"),
            ("--verify", "maybe"),
            ("--lanes", "65"),
            ("--depth", "0"),
        ):
            self.refused(*bench, option, value, names=[option, "'%s'" % value, "expected"])
        self.refused(*bench, "--geometry", "3x5", names=["--chunk-bytes", "4096", "15", "refs"])
        self.refused(*bench, "--partial", "0.5", names=["--partial", "0.5", "expected"])
        self.refused(*bench, "--depth", names=["--depth", "expected"])
        self.refused(*bench, "--json=yes", names=["--json", "yes", "expected"])
        self.refused("gc", *self.store, "--older-than", "7w", names=["--older-than", "7w"])
        self.refused("gc", *self.store, "--max-bytes", "x", names=["--max-bytes", "x"])

    def test_a_store_and_a_namespace_are_needed(self):
        for command, operands in (
            ("put", ["00", str(TRACE)]),
            ("get", ["00", "-"]),
            ("stat", ["00"]),
            ("rm", ["00"]),
            ("ls", []),
            ("verify", []),
            ("bench", ["--op", "both", "--chunk-bytes", "1", "--chunks", "1"]),
            ("replay", [str(TRACE)]),
        ):
            self.refused(command, "--namespace", "ns", *operands, names=["--store", "expected"])
            self.refused(command, *self.store, *operands, names=["--namespace", "expected"])
        self.refused("name", "00", names=["--namespace", "expected"])
        self.refused("probe", names=["--store"])
        self.refused("gc", names=["--store"])
        self.refused("ls", *self.common, "--fields", "f.json", names=["--fields", "--namespace"])
        self.refused("ls", *self.store, "--fields", "/nonexistent", names=["--fields", "/nonex"])
        self.refused("ls", *self.store, "--namespace", ".hidden", names=[".hidden"])
        self.refused("ls", "--store", "nowhere", "--namespace", "ns", names=["nowhere"])
        self.refused("ls", "--store", "smb://x", "--namespace", "ns", names=["smb"])
        self.refused("ls", *self.common, "-o", "no_such=1", names=["no_such"])
        self.refused("ls", *self.common, "-o", "fanout", names=["-o", "fanout", "NAME=VALUE"])

    def test_keys_are_checked(self):
        for key in ("", "0", "abc", "0g", "00" * 65, "00:", "00:-1", "00:4294967296", "00:x", "zz"):
            self.refused("stat", *self.common, key, names=["KEY", "expected"])
        # Nothing is removed when a later key is wrong.
        self.put("00ff17", b"x" * 100)
        self.refused("rm", *self.common, "00ff17", "00f", names=["00f"])
        self.run_tool("stat", *self.common, "00ff17")

    def test_secrets_never_stand_on_the_command_line(self):
        secret = "hunter2hunter2"
        path = self.write("secret", (secret + "\n").encode())
        names = ("secret_key", "session_token", "access_key", "sse_c_key", "store_config", "headers")
        for name in names:
            message = self.refused("ls", *self.common, "-o", "%s=%s" % (name, secret), names=[name])
            self.assertNotIn(secret, message)
            message = self.refused("ls", *self.common, "-o%s=%s" % (name, secret), names=[name])
            self.assertNotIn(secret, message)
            # Read and handed on: it is the file backend that does not know such an option.
            for source in ("@%s" % path, "env:KVT_CLI_TEST"):
                done = self.run_tool(
                    "ls",
                    *self.common,
                    "-o",
                    "%s=%s" % (name, source),
                    status=2,
                    environment={"KVT_CLI_TEST": secret},
                )
                self.assertNotIn(b"literal", done.stderr)
                self.assertIn(name.encode(), done.stderr)
                self.assertNotIn(secret.encode(), done.stderr)
            self.refused("ls", *self.common, "-o", "%s=@/nonexistent" % name, names=["/nonex"])
            self.refused("ls", *self.common, "-o", "%s=env:KVT_NOT_SET" % name, names=["KVT_NOT"])
        # Not signing is no secret.
        message = self.refused("ls", *self.common, "-o", "access_key=anonymous", names=["access_key"])
        self.assertNotIn("literal", message)


class Objects(ToolCase):
    def test_what_is_put_is_got(self):
        for number, size in enumerate((1, 1000, 4096, 65537, (10 << 20) + 3)):
            data = some_bytes(size)
            key = "%02xab" % number
            (put,) = self.run_json("put", *self.common, key, self.write("in", data))
            self.assertEqual((put["key"], put["status"], put["bytes"]), (key, "stored", size))
            self.assertTrue((self.root / put["name"]).is_file())
            self.assertEqual((self.root / put["name"]).read_bytes()[:size], data)
            out = self.folder / "out"
            out.write_bytes(b"old")
            (got,) = self.run_json("get", *self.common, key, out)
            self.assertEqual((got["status"], got["bytes"]), ("loaded", size))
            self.assertEqual(out.read_bytes(), data)
            done = self.run_tool("get", *self.common, key, "-")
            self.assertEqual(done.stdout, data)
            done = self.run_tool("get", *self.common, "--json", key, "-")
            self.assertEqual(done.stdout, data)
            self.assertEqual(json.loads(done.stderr)["status"], "loaded")
        # No temporary file stays beside the output.
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["in", "out", "root"])

    def test_an_object_that_is_there_is_skipped(self):
        self.put("00ff17", b"a" * 5000)
        (again,) = self.run_json("put", *self.common, "00ff17", self.folder / "payload")
        self.assertEqual(again["status"], "skipped")

    def test_ranks_and_groups_are_kept_apart(self):
        self.put("00ff17:7", b"a" * 50, "--rank", "3")
        self.assertTrue(self.object_path("00ff17:7", rank=3).is_file())
        self.run_tool("get", *self.common, "00ff17", "-", status=3)
        self.run_tool("get", *self.common, "00ff17:7", "-", status=3)
        done = self.run_tool("get", *self.common, "--rank", "3", "00ff17:7", "-")
        self.assertEqual(done.stdout, b"a" * 50)

    def test_put_refuses_what_is_no_payload(self):
        self.refused("put", *self.common, "00", self.write("e", b""), names=["FILE", "0 bytes"])
        self.refused("put", *self.common, "00", self.folder, names=["FILE", "regular file"])
        self.refused("put", *self.common, "00", self.folder / "no", names=["FILE", "/no"])
        os.mkfifo(self.folder / "pipe")
        self.refused("put", *self.common, "00", self.folder / "pipe", names=["regular file"])

    def test_a_miss_is_status_3_and_leaves_the_file_alone(self):
        out = self.write("out", b"old")
        self.refused("get", *self.common, "00ff17", out, names=["ns"], status=3)
        self.assertEqual(out.read_bytes(), b"old")
        self.refused("stat", *self.common, "00ff17", status=3)
        self.refused("rm", *self.common, "00ff17", status=3)
        self.refused("get", *self.common, "00ff17", "/nonexistent/out", status=3)
        self.put("00ff17", b"x")
        self.refused("get", *self.common, "00ff17", "/nonexistent/out", names=["/nonexistent/out"])

    def test_a_file_that_cannot_be_written_is_named(self):
        self.put("00ff17", some_bytes(5000))
        for path in ("", self.folder, self.folder / "none" / "out", self.folder / "payload" / "out"):
            self.refused("get", *self.common, "00ff17", path,
                         names=["FILE", "'%s'" % path, "expected a file that can be written"])

    def test_a_changed_byte_is_status_4(self):
        for offset in (0, 4999, 6000, -1, -64, -8):
            self.put("00ff17", some_bytes(5000))
            self.flip("00ff17", offset)
            out = self.write("out", b"old")
            self.refused("get", *self.common, "00ff17", out, status=4)
            self.assertEqual(out.read_bytes(), b"old")
            self.object_path("00ff17").unlink(missing_ok=True)

    def test_another_key_s_object_is_status_4(self):
        self.put("00ff17", some_bytes(5000))
        other = self.object_path("00ff18")
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.object_path("00ff17"), other)
        self.refused("get", *self.common, "00ff18", "-", status=4)
        (stat,) = self.run_json("stat", *self.common, "00ff18", status=4)
        self.assertEqual(stat["state"], "mismatch")
        # Never removed: it is somebody's object, only not this one.
        self.assertTrue(other.is_file())

    def test_raw_chunks_are_foreign_until_they_are_accepted(self):
        path = self.object_path("00ff17")
        path.parent.mkdir(parents=True)
        path.write_bytes(some_bytes(8192))
        self.refused("get", *self.common, "00ff17", "-", status=4)
        (stat,) = self.run_json("stat", *self.common, "00ff17", status=4)
        self.assertEqual((stat["state"], stat["object_bytes"]), ("foreign", 8192))
        out = self.folder / "out"
        (got,) = self.run_json("get", *self.common, "-o", "accept_raw=true", "00ff17", out)
        self.assertEqual(got["status"], "loaded_unverified")
        self.assertEqual(out.read_bytes(), some_bytes(8192))

    def test_stat_tells_the_trailer(self):
        self.put("00ff17:2", some_bytes(5000), "--rank", "4")
        (stat,) = self.run_json("stat", *self.common, "--rank", "4", "00ff17:2")
        self.assertEqual(stat["object_bytes"], self.object_path("00ff17:2", 4).stat().st_size)
        self.assertEqual(stat["object_bytes"], stat["payload_bytes"] + stat["trailer_bytes"])
        digest = hashlib.sha256(b"ns").hexdigest()[:16]
        for name, value in dict(
            key="00ff17:2",
            state="whole",
            format_version=1,
            payload_bytes=5000,
            blocks_per_chunk=1,
            refs=1,
            slots=1,
            present_slots=1,
            rank=4,
            group=2,
            hash="00ff17",
            namespace_digest=digest,
            ref_bytes=[5000],
        ).items():
            self.assertEqual(stat[name], value, name)
        self.assertTrue(0 <= stat["age_s"] < TIMEOUT_S)
        text = self.run_tool("stat", *self.common, "--rank", "4", "00ff17:2").stdout.decode()
        self.assertIn("whole", text)

    def test_ls_and_rm_agree(self):
        keys = {"00ff17", "00ff17:1", "ab", "00" * 64 + ":4294967295"}
        for key in keys:
            self.put(key, some_bytes(300))
        listed = self.run_json("ls", *self.common)
        self.assertEqual({entry["key"] for entry in listed}, keys)
        for entry in listed:
            self.assertEqual(entry["object_bytes"], 4096)
            self.assertTrue((self.root / entry["name"]).is_file())
        text = self.run_tool("ls", *self.common).stdout.decode()
        self.assertEqual(set(text.split()), keys)
        self.assertIn("4 objects", self.run_tool("ls", *self.common, "--long").stdout.decode())
        (removed,) = self.run_json("rm", *self.common, "ab")
        self.assertEqual((removed["key"], removed["removed"]), ("ab", True))
        self.run_tool("rm", *self.common, "ab", "00ff17", status=3)
        left = {entry["key"] for entry in self.run_json("ls", *self.common)}
        self.assertEqual(left, keys - {"ab", "00ff17"})

    def test_failures_of_the_store_have_the_status_of_their_class(self):
        payload = self.write("payload", some_bytes(5000))
        for error, status in (("ENOSPC", 8), ("EACCES", 9), ("EIO", 6)):
            common = ["--store", "fault+file://%s" % self.root, "--namespace", "ns"]
            # The first put makes config.json.
            self.run_tool("put", *common, "00ff16", payload)
            done = self.run_tool(
                "put", *common, "-o", "fail=put:1+:%s" % error, "00ff17", payload, status=status
            )
            self.assertIn(b"00ff17", done.stderr)
            self.run_tool("get", *common, "00ff17", "-", status=3)

    def test_a_progress_bar_is_drawn_on_a_terminal_only(self):
        shape = ("--op", "store", "--chunk-bytes", "256KiB", "--chunks", "400")
        done = self.run_tool("bench", *self.common, *shape)
        self.assertEqual(done.stderr, b"")
        master, slave = pty.openpty()
        tool = subprocess.Popen(
            [TOOL, "bench", *self.common, *shape], stdout=subprocess.PIPE, stderr=slave
        )
        os.close(slave)
        drawn = b""
        try:
            while True:
                part = os.read(master, 65536)
                if not part:
                    break
                drawn += part
        except OSError:  # how the end of a terminal is told
            pass
        os.close(master)
        stdout, _ = tool.communicate(timeout=TIMEOUT_S)
        self.assertEqual(tool.returncode, 0)
        self.assertIn(b"store [", drawn)
        self.assertNotIn(b"[", stdout)

    def test_verify_finds_every_bad_object(self):
        for number in range(6):
            self.put("%02xff" % number, some_bytes(5000))
        (summary,) = self.run_json("verify", *self.common)
        self.assertEqual((summary["objects"], summary["whole"], summary["bad"]), (6, 6, 0))
        self.flip("01ff", 17)
        self.flip("02ff", -100)
        self.object_path("03ff").write_bytes(b"raw")
        shutil.copy(self.object_path("05ff"), self.object_path("04ff"))
        *bad, summary = self.run_json("verify", *self.common, status=1)
        found = {pathlib.Path(entry["name"]).stem: entry["state"] for entry in bad}
        self.assertEqual(
            found, {"01ff": "corrupt", "02ff": "corrupt", "03ff": "foreign", "04ff": "mismatch"}
        )
        self.assertEqual((summary["corrupt"], summary["bad"], summary["removed"]), (2, 4, 0))
        text = self.run_tool("verify", *self.common, status=1).stdout.decode()
        self.assertIn("4 bad", text)
        summary = self.run_json("verify", *self.common, "--remove-corrupt", status=1)[-1]
        self.assertEqual(summary["removed"], 2)
        self.assertFalse(self.object_path("01ff").exists())
        self.assertTrue(self.object_path("03ff").exists())

    def test_fields_make_the_namespace(self):
        fields = {"model_name": "org/model", "dtype": "bfloat16", "tokens_per_hash": 16}
        path = self.write("fields.json", json.dumps(fields).encode())
        common = [*self.store, "--fields", path]
        payload = self.write("payload", some_bytes(100))
        (put,) = self.run_json("put", *common, "00ff17", payload)
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        base = "org_model_" + hashlib.sha256(canonical.encode()).hexdigest()[:12]
        self.assertEqual(put["name"], base + "_r0/00f/f1_g0/00ff17.bin")
        self.assertTrue((self.root / base / "config.json").is_file())
        (name,) = self.run_json("name", *common, "00ff17")
        self.assertEqual(name["name"], put["name"])
        path.write_text("{")
        self.run_tool("ls", *common, status=2)


class Explanations(ToolCase):
    def test_names_are_vllm_s(self):
        vectors = json.loads((DATA / "name_vectors.json").read_text())
        self.assertGreaterEqual(len(vectors), 13)
        for vector in vectors:
            with self.subTest(vector["name"]):
                key = "%s:%d" % (vector["key_hex"][:-8], int(vector["key_hex"][-8:], 16))
                fields = self.write("fields.json", vector["canonical_json"].encode())
                arguments = ["--fields", fields, "--rank", vector["args"].get("rank", 0)]
                (name,) = self.run_json("name", *arguments, key)
                root = vector["args"]["root_dir"]
                self.assertEqual(name["key"], key)
                self.assertEqual(name["name"], vector["file"][len(root) :].lstrip("/"))
                text = self.run_tool("name", *arguments, key).stdout.decode()
                self.assertEqual(text, name["name"] + "\n")

    def test_flat_names(self):
        done = self.run_tool("name", "--namespace", "n", "-o", "fanout=flat", "00ff17:3")
        self.assertEqual(done.stdout, b"n_r0/00f/00ff17_g3.bin\n")

    @staticmethod
    def expected_plan(vector):
        """The specification's algorithm, from its words."""
        factor, chunks, pointer = vector["blocks_per_chunk"], [], 0
        for blocks, refs, index in zip(
            vector["group_block_counts"],
            vector["group_data_ref_counts"],
            vector["block_indices"],
        ):
            start, done = index % factor, 0
            while done < blocks:
                count = min(factor - start, blocks - done)
                ops, base = [], 0
                for ref in range(refs):
                    first = pointer + ref * blocks
                    size = vector["sizes"][first]
                    for block in range(count):
                        place = first + done + block
                        offset = base + (start + block) * size
                        ops.append([vector["ptrs"][place], size, offset])
                    base += factor * size
                chunks.append({"key_index": len(chunks), "ops": ops})
                done += count
                start = 0
            pointer += blocks * refs
        return chunks

    def test_plans_are_the_vectors(self):
        vectors = json.loads((DATA / "plan_vectors.json").read_text())["vectors"]
        self.assertGreaterEqual(len(vectors), 23)
        for vector in vectors:
            with self.subTest(vector["name"]):
                path = self.write("plan.json", json.dumps(vector).encode())
                if vector["expect_error"] or vector["name"].startswith("18_"):
                    done = self.run_tool("plan", path, status=2)
                    self.assertTrue(json.loads(done.stdout)["error"])
                    continue
                done = self.run_tool("plan", path)
                self.assertEqual(json.loads(done.stdout), self.expected_plan(vector))
                if vector["name"][:2] not in ("09", "10"):
                    self.assertEqual(json.loads(done.stdout), vector["expect"])

    def test_plans_that_cannot_be_read_are_errors(self):
        plan = {
            "blocks_per_chunk": 2,
            "group_block_counts": [2],
            "group_data_ref_counts": [1],
            "block_indices": [0],
            "ptrs": [1, 2],
            "sizes": [8, 8],
            "n_keys": 1,
        }
        changes = [
            ("blocks_per_chunk", 0),
            ("blocks_per_chunk", -1),
            ("blocks_per_chunk", None),
            ("group_block_counts", 2),
            ("group_block_counts", [-2]),
            ("group_data_ref_counts", [1, 1]),
            ("block_indices", [0.5]),
            ("sizes", [8]),
            ("sizes", [0, 8]),
            ("sizes", [2**62, 2**62]),
            ("ptrs", [2**70, 1]),
            ("n_keys", "1"),
            ("keys", ["0"]),
            ("keys", [7]),
            ("op", "move"),
        ]
        for name, value in changes:
            with self.subTest(name=name, value=value):
                text = json.dumps(dict(plan, **{name: value})).encode()
                done = self.run_tool("plan", "-", stdin=text, status=2)
                self.assertTrue(json.loads(done.stdout)["error"])
        for text in (b"", b"{", b"[]", b"\xff"):
            done = self.run_tool("plan", "-", stdin=text, status=2)
            self.assertTrue(json.loads(done.stdout)["error"])
        done = self.run_tool("plan", "/nonexistent", status=2)
        self.assertTrue(json.loads(done.stdout)["error"])
        # Equal keys: a load may, a store may not.
        twice = dict(plan, blocks_per_chunk=1, keys=["ab", "ab"])
        done = self.run_tool("plan", "-", stdin=json.dumps(twice).encode(), status=2)
        self.assertTrue(json.loads(done.stdout)["error"])
        twice["op"] = "load"
        done = self.run_tool("plan", "-", stdin=json.dumps(twice).encode())
        self.assertEqual(len(json.loads(done.stdout)), 2)


class Stores(ToolCase):
    def test_probe_leaves_nothing_behind(self):
        found = {entry["probe"]: entry for entry in self.run_json("probe", *self.store)}
        self.assertEqual(found["backend"]["value"], "file")
        self.assertEqual(found["self_test"]["value"], "passed")
        self.assertEqual({entry["error"] for entry in found.values()}, {None})
        left = [p for p in self.root.rglob("*") if p.is_file() and ".kvtier" not in p.parts]
        self.assertEqual(left, [])
        self.assertIn("passed", self.run_tool("probe", *self.store).stdout.decode())

    def test_probe_lists_options(self):
        options = {entry["option"] for entry in self.run_json("probe", *self.store, "--options")}
        self.assertLessEqual({"fanout", "direct"}, options)
        self.run_tool("probe", "--store", "smb://x", "--options", status=2)

    def test_a_root_that_cannot_be_is_refused(self):
        self.write("plain", b"")
        uri = "file://%s/plain/x" % self.folder
        done = self.run_tool("ls", "--store", uri, "--namespace", "n", status=9)
        self.assertIn(b"plain", done.stderr)

    def test_gc_works_on_the_root_or_a_namespace(self):
        payload = self.write("payload", some_bytes(100000))
        for namespace in ("one", "two"):
            for number in range(4):
                key = "%02xff" % number
                self.run_tool("put", *self.store, "--namespace", namespace, key, payload)

        def count(namespace):
            return len(self.run_json("ls", *self.store, "--namespace", namespace))

        (dry,) = self.run_json("gc", *self.store, "--max-bytes", "1", "--dry-run")
        self.assertEqual((dry["objects"], dry["removed_objects"]), (8, 8))
        (old,) = self.run_json("gc", *self.store, "--older-than", "1d")
        self.assertEqual((old["objects"], old["removed_objects"]), (8, 0))
        (uploads,) = self.run_json("gc", *self.store, "--uploads", "--older-than", "1s")
        self.assertEqual((uploads["objects"], uploads["removed_objects"]), (0, 0))
        (one,) = self.run_json("gc", *self.store, "--namespace", "one", "--max-bytes", "250000")
        self.assertEqual((one["objects"], one["removed_objects"]), (4, 2))
        self.assertEqual((count("one"), count("two")), (2, 4))
        (both,) = self.run_json("gc", *self.store, "--max-bytes", "110K")
        self.assertEqual((both["objects"], both["removed_objects"]), (6, 5))
        self.assertEqual(count("one") + count("two"), 1)


    def test_gc_of_uploads_removes_old_leftovers_and_nothing_else(self):
        payload = self.write("payload", some_bytes(1000))
        self.run_tool("put", *self.store, "--namespace", "one", "00ff", payload)
        # A plain file there is nobody's, so its age alone decides.
        left = self.root / ".kvtier" / "tmp" / "left"
        left.write_bytes(b"x")
        os.utime(left, (time.time() - 7200,) * 2)
        (young,) = self.run_json("gc", *self.store, "--uploads")
        self.assertEqual((young["removed_leftovers"], left.exists()), (0, True))
        (old,) = self.run_json("gc", *self.store, "--uploads", "--older-than", "1h")
        self.assertEqual((old["removed_leftovers"], left.exists()), (1, False))
        self.assertEqual((old["objects"], old["removed_objects"]), (0, 0))
        text = self.run_tool("gc", *self.store, "--uploads").stdout
        self.assertEqual(text, b"removed 0 leftovers\n")
        self.assertEqual(len(self.run_json("ls", *self.store, "--namespace", "one")), 1)

    def test_gc_of_uploads_takes_nothing_that_is_about_objects(self):
        for odd in (["--max-bytes", "1"], ["--dry-run"], ["--namespace", "one"]):
            self.refused("gc", *self.store, "--uploads", *odd, names=[odd[0], "--uploads"])


class Bench(ToolCase):
    KEYS = {"op", "chunk_bytes", "chunks", "errors", "GBps", "cpu_s_per_GB", "p50_us", "p99_us"}

    def bench(self, *arguments, store=None, status=0):
        common = ["--store", store, "--namespace", "ns"] if store else self.common
        return self.run_json("bench", *common, *arguments, status=status)

    def check(self, figures, op, chunks, chunk_bytes):
        self.assertLessEqual(self.KEYS, set(figures))
        self.assertEqual(
            (figures["op"], figures["chunks"], figures["chunk_bytes"], figures["errors"]),
            (op, chunks, chunk_bytes, 0),
        )
        self.assertGreater(figures["GBps"], 0)
        self.assertLessEqual(figures["p50_us"], figures["p99_us"])
        self.assertEqual((figures["skipped"], figures["corrupt"]), (0, 0))

    def test_both_are_measured_and_nothing_stays(self):
        for store in (None, "mem:"):
            arguments = ("--op", "both", "--chunk-bytes", "64KiB", "--chunks", "100")
            stored, loaded = self.bench(*arguments, store=store)
            self.check(stored, "store", 100, 65536)
            self.check(loaded, "load", 100, 65536)
            self.assertEqual(stored["bytes"], 100 * 65536)
            self.assertEqual(stored["backend"], "")  # files have nothing to learn
            self.assertIn(stored["limited_by"], ("storage", "CPU", "staging", "device", "queue"))
        self.assertEqual(self.run_json("ls", *self.common), [])

    def test_what_a_backend_has_learnt_is_shown(self):
        modules = pathlib.Path(TOOL).resolve().parent / "modules"
        if not (modules / "kvtier-backend-skeleton.so").exists():
            self.skipTest("no module of the skeleton in %s" % modules)
        store = ["--store", "skeleton:", "-o", "module_dir=%s" % modules]
        small = ["--op", "store", "--chunk-bytes", "4KiB", "--chunks", "20", "--keep"]
        (stored,) = self.run_json("bench", *store, "--namespace", "ns", *small)
        self.assertEqual(stored["backend"], "objects=21")  # and config.json
        text = self.run_tool("bench", *store, "--namespace", "ns", *small).stdout
        self.assertIn(b"backend: objects=21\n", text)
        findings = {line["probe"]: line["value"] for line in self.run_json("probe", *store)}
        self.assertEqual(findings["learnt"], "objects=0")
        (figures,) = self.run_json(
            "replay", *store, "--namespace", "ns", "--block-bytes", "4KiB", "--requests", "3", TRACE
        )
        self.assertRegex(figures["backend"], "^objects=[0-9]+$")

    def test_geometry_and_partial_chunks(self):
        shape = ("--chunk-bytes", "48000", "--chunks", "60", "--geometry", "4x3")
        stored, loaded = self.bench("--op", "both", *shape, "--partial", "0.5", "--keep")
        self.assertEqual((stored["errors"], loaded["errors"]), (0, 0))
        self.assertEqual(stored["bytes"], 30 * 48000 + 30 * 24000)
        self.assertEqual(loaded["bytes"], stored["bytes"])
        states = {}
        for entry in self.run_json("ls", *self.common):
            (stat,) = self.run_json("stat", *self.common, entry["key"])
            states.setdefault(stat["state"], []).append((entry, stat))
        self.assertEqual({s: len(found) for s, found in states.items()}, {"whole": 30, "partial": 30})
        entry, stat = states["whole"][0]
        self.assertEqual((stat["blocks_per_chunk"], stat["refs"]), (4, 3))
        # Several refs and blocks are got as the payload in object order.
        payload = (self.root / entry["name"]).read_bytes()[:48000]
        self.assertEqual(self.run_tool("get", *self.common, entry["key"], "-").stdout, payload)
        self.refused("get", *self.common, states["partial"][0][0]["key"], "-", status=3)
        (summary,) = self.run_json("verify", *self.common)
        self.assertEqual((summary["whole"], summary["partial"]), (30, 30))

    def test_loads_find_what_an_earlier_run_kept(self):
        shape = ("--chunk-bytes", "10000", "--chunks", "33", "--jobs", "5", "--seed", "9")
        (stored,) = self.bench("--op", "store", *shape, "--keep")
        self.check(stored, "store", 33, 10000)
        (loaded,) = self.bench("--op", "load", *shape, "--lanes", "2", "--depth", "3")
        self.check(loaded, "load", 33, 10000)
        self.assertEqual(len(self.run_json("ls", *self.common)), 33)
        (again,) = self.bench("--op", "store", *shape)
        self.assertEqual((again["skipped"], again["bytes"]), (33, 0))
        # Rounds: not all chunks fit in memory.
        (small,) = self.bench("--op", "load", *shape, "--memory-bytes", "100000")
        self.check(small, "load", 33, 10000)
        self.assertEqual(len(self.run_json("ls", *self.common)), 33)

    def test_wrong_bytes_are_errors(self):
        shape = ("--chunk-bytes", "8192", "--chunks", "20")
        self.bench("--op", "store", *shape, "--keep")
        key = self.run_json("ls", *self.common)[0]["key"]
        self.flip(key, 100)
        (loaded,) = self.bench("--op", "load", *shape, status=4)
        self.assertEqual(loaded["errors"], 1)
        (missing,) = self.bench("--op", "load", *shape, "--seed", "2", status=3)
        self.assertEqual(missing["errors"], 20)

    def test_right_checksums_do_not_hide_another_chunk_s_bytes(self):
        """The bytes are compared with what was meant, not only with their checksum."""
        shape = ("--chunk-bytes", "8192", "--chunks", "1")
        self.bench("--op", "store", *shape, "--keep")
        key = self.run_json("ls", *self.common)[0]["key"]
        self.run_tool("rm", *self.common, key)
        self.put(key, some_bytes(8192))
        (loaded,) = self.bench("--op", "load", *shape, status=4)
        self.assertEqual((loaded["corrupt"], loaded["errors"]), (1, 1))


class ReportParser(html.parser.HTMLParser):
    VOID = {"meta", "line", "path", "rect"}

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], {}

    def handle_starttag(self, tag, attrs):
        self.seen.setdefault(tag, []).append(dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()


class Replay(ToolCase):
    SMALL = ("--block-bytes", "8KiB")

    @staticmethod
    def simulate(requests=None):
        seen, hits, blocks, distinct = set(), 0, 0, set()
        for line in TRACE.read_text().splitlines()[:requests]:
            ids = json.loads(line)["hash_ids"]
            for place in ids:
                if place not in seen:
                    break
                hits += 1
            blocks += len(ids)
            seen.update(ids)
            distinct.update(ids)
        return blocks, hits, len(distinct)

    def replay(self, *arguments, trace=TRACE, status=0):
        return self.run_json("replay", *self.common, *self.SMALL, *arguments, trace, status=status)

    def test_hits_are_those_of_an_unbounded_cache(self):
        blocks, hits, distinct = self.simulate()
        (figures,) = self.replay()
        self.assertEqual(figures["requests"], 200)
        self.assertEqual(figures["backend"], "")
        self.assertEqual((figures["blocks"], figures["hits"]), (blocks, hits))
        self.assertEqual(figures["hit_bytes"], hits * 8192)
        self.assertEqual(figures["stored_bytes"], distinct * 8192)
        self.assertEqual((figures["corrupt"], figures["errors"]), (0, 0))
        self.assertGreater(figures["seconds_saved"], 0)
        self.assertGreater(figures["load_p50_us"], 0)
        self.assertLessEqual(figures["load_p50_us"], figures["load_p95_us"])
        self.assertLessEqual(figures["load_p95_us"], figures["load_p99_us"])
        # What one run stored, the next one loads.
        (again,) = self.replay("--concurrency", "7")
        self.assertEqual((again["hits"], again["stored_bytes"]), (blocks, 0))

    def test_objects_carry_the_name_of_pointer_mode(self):
        self.replay("--requests", "2")
        self.assertTrue((self.root / "ns.kvtier1_r0").is_dir())
        self.assertEqual(self.run_json("ls", *self.common), [])

    def test_concurrent_requests_lose_nothing(self):
        blocks, hits, distinct = self.simulate()
        (figures,) = self.replay("--concurrency", "16", "--memory-bytes", "300K", "--lanes", "3")
        self.assertEqual((figures["requests"], figures["blocks"]), (200, blocks))
        self.assertEqual(figures["stored_bytes"], distinct * 8192)
        self.assertEqual((figures["corrupt"], figures["errors"]), (0, 0))
        self.assertGreater(figures["hits"], hits // 2)

    def test_requests_and_speed(self):
        blocks, hits, _ = self.simulate(20)
        (figures,) = self.replay("--requests", "20", "--speed", "1e6", "--verify", "off")
        self.assertEqual(
            (figures["requests"], figures["blocks"], figures["hits"]), (20, blocks, hits)
        )
        self.refused("replay", *self.common, TRACE, "--speed", "0", names=["--speed", "'0'"])
        self.refused("replay", *self.common, TRACE, "--speed", "fast", names=["--speed", "fast"])

    def test_corrupt_blocks_are_found_and_stored_again(self):
        self.replay("--requests", "30")
        objects = sorted((self.root / "ns.kvtier1_r0").rglob("*.bin"))
        for path in objects[:3]:
            data = bytearray(path.read_bytes())
            data[4000] ^= 0x40
            path.write_bytes(data)
        (figures,) = self.replay("--requests", "30", status=4)
        self.assertEqual(figures["corrupt"], 3)
        (mended,) = self.replay("--requests", "30")
        self.assertEqual((mended["corrupt"], mended["hits"]), (0, mended["blocks"]))

    def test_bytes_follow_from_the_hash_id(self):
        """Whole objects of other bytes, put under the right names, do not pass for the right ones.
        """
        self.replay("--requests", "1")
        folder = self.root / "ns.kvtier1_r0"
        path = sorted(folder.rglob("*.bin"))[0]
        path.unlink()
        payload = self.write("payload", some_bytes(8192))
        common = [*self.store, "--namespace", "ns.kvtier1"]
        self.run_tool("put", *common, path.stem, payload)
        (figures,) = self.replay("--requests", "1", status=4)
        self.assertEqual(figures["corrupt"], 1)
        self.replay("--requests", "1", "--verify", "off")

    def test_bad_traces_are_named_with_their_line(self):
        good = b'{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2]}\n'
        for bad, names in (
            (b"{\n", ["line 2"]),
            (b'{"timestamp":0}\n', ["line 2", "input_length", "absent"]),
            (good.replace(b"[1,2]", b"[1,-2]"), ["line 2", "hash_ids[1]"]),
            (good.replace(b"600", b"-600"), ["line 2", "input_length", "-600"]),
            (b"[" + b"1," * (3 << 20) + b"1]\n", ["line 2", "longer than"]),
        ):
            trace = self.write("trace", good + bad + good)
            done = self.run_tool("replay", *self.common, *self.SMALL, trace, status=2)
            for name in names:
                self.assertIn(name, done.stderr.decode())
        self.refused("replay", *self.common, "/nonexistent", names=["TRACE", "/nonexistent"])
        empty = self.write("empty", b"\n")
        (figures,) = self.replay(trace=empty)
        self.assertEqual((figures["requests"], figures["load_p50_us"]), (0, 0))
        none = self.write("none", good.replace(b"[1,2]", b"[]"))
        (figures,) = self.replay(trace=none)
        self.assertEqual((figures["requests"], figures["blocks"]), (1, 0))

    def test_an_id_may_come_twice_in_one_request(self):
        line = b'{"timestamp":0,"input_length":2000,"output_length":1,"hash_ids":[1,2,1,1]}\n'
        (figures,) = self.replay(trace=self.write("twice", line * 2))
        self.assertEqual((figures["errors"], figures["corrupt"]), (0, 0))
        self.assertEqual((figures["blocks"], figures["hits"]), (8, 4))

    def test_the_report_is_one_file_that_needs_nothing_else(self):
        report = self.folder / "report.html"
        hostile = self.write("<b>&trace", TRACE.read_bytes())
        self.replay("--report", report, trace=hostile)
        text = report.read_text()
        parser = ReportParser()
        parser.feed(text)
        parser.close()
        self.assertEqual(parser.open, [])
        self.assertEqual(len(parser.seen["svg"]), 3)
        for svg in parser.seen["svg"]:
            self.assertEqual(svg["role"], "img")
            self.assertIn("aria-labelledby", svg)
        self.assertGreaterEqual(len(parser.seen["table"]), 2)
        for tag in ("script", "link", "img", "iframe", "b&trace"):
            self.assertNotIn(tag, parser.seen)
        for word in ("http:", "https:", "url(", "@import", "nan", "inf\""):
            self.assertNotIn(word, text)
        self.assertIn("&lt;b&gt;&amp;trace", text)
        self.refused(
            "replay", *self.common, TRACE, "--requests", "1", "--report", "/nonexistent/r",
            names=["--report", "/nonexistent/r"],
        )
        # Nothing but a file is ever replaced, and that is said before the work.
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for path in (pipe, self.folder):
            self.refused(
                "replay", *self.common, TRACE, "--requests", "1", "--report", path,
                names=["--report", "not a regular file"],
            )
        self.assertTrue(pipe.is_fifo())
        for lines in (b"", TRACE.read_bytes().split(b"\n", 1)[0]):
            self.replay("--report", report, trace=self.write("short", lines))
            self.assertNotIn("nan", report.read_text())

    def test_an_interrupt_ends_it_orderly(self):
        tool = subprocess.Popen(
            [TOOL, "replay", *self.common, *self.SMALL, "--json", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            with TRACE.open("rb") as trace:
                for _ in range(3):
                    tool.stdin.write(trace.readline())
            tool.stdin.flush()
            # The gate: it waits for a fourth line once the third request is on its way.
            while not list(self.root.rglob("*.bin")):
                self.assertIsNone(tool.poll())
            tool.send_signal(signal.SIGINT)
            stdout, stderr = tool.communicate(timeout=TIMEOUT_S)
        finally:
            tool.kill()
            tool.wait()
        self.assertEqual(tool.returncode, 10, stderr)
        self.assertIn(b"interrupted", stderr)


class Completion(ToolCase):
    def complete(self, *words):
        bash = shutil.which("bash")
        if bash is None:
            self.skipTest("bash is not installed")
        script = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_kvtier; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        source = HERE.parent / "tools" / "completion" / "kvtier.bash"
        done = subprocess.run(
            [bash, "-c", script, "bash", source, TOOL, *words],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return done.stdout.decode().split()

    def test_commands_options_and_values(self):
        self.assertEqual(self.complete("re"), ["replay"])
        self.assertEqual(self.complete("help", "ben"), ["bench"])
        self.assertEqual(self.complete("bench", "--op", "l"), ["load"])
        self.assertEqual(self.complete("bench", "--chunk-"), ["--chunk-bytes"])
        self.assertEqual(self.complete("replay", "--rep"), ["--report"])
        self.assertEqual(self.complete("verify", "--nam"), ["--namespace"])


if __name__ == "__main__":
    unittest.main()
