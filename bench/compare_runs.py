# SPDX-License-Identifier: Apache-2.0
"""The running half of compare: programs, their figures and the folders they work in.

Each program comes as a function that runs it once in a fresh folder and returns
{"store": {"GBps": ...}, "load": {...}}; CPU figures are there where they can be compared.
"""
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

KIB, MIB, GB = 1 << 10, 1 << 20, 1e9
PYTHON_THREADS, PYTHON_JOB = 16, 8


class Failure(Exception):
    """Nothing more can be measured; the text says why."""


def figure(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Row:
    """One line of the table. `samples` are what is held against the target, one for each repeat."""

    def __init__(self, what, target, shown, samples, at_least=None, at_most=None):
        self.what, self.target, self.shown, self.samples = what, target, shown, samples
        self.at_least, self.at_most = at_least, at_most
        self.value = statistics.median(samples)

    @property
    def met(self):
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.at_most is None or self.value <= self.at_most

    def markdown(self, measure):
        spread = f"{figure(min(self.samples))} to {figure(max(self.samples))}"
        judged = self.at_least is not None or self.at_most is not None
        verdict = ("met" if self.met else "**missed**") if judged else "for information"
        return (f"| {self.what} | {self.target} | {self.shown} | **{figure(self.value)}** "
                f"({spread}) | {verdict} | {measure} |")


class Bench:
    """Runs programs, keeps their figures, and knows every folder that it made."""

    def __init__(self, options):
        self.options = options
        self.raw = open(options.raw, "w", encoding="utf-8")
        self.folders = []
        self.commands = {}  # measure: {program: command of the first repeat}
        self.memory_runs = {}  # of core_bench, which serves several measures

    def close(self):
        self.raw.close()
        print("removing what was stored", file=sys.stderr)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def base(self, place):
        """A folder of our own in `place`."""
        folder = tempfile.mkdtemp(prefix="kvtier-compare-", dir=place)
        self.folders.append(folder)
        return folder

    def run(self, measure, repeat, program, command):
        """Runs a program; returns its lines of JSON."""
        self.commands.setdefault(measure, {}).setdefault(program, command)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{shlex.join(command)}: exit status {done.returncode}\n"
                          f"{(done.stderr or done.stdout)[-2000:]}")
        try:
            if program.startswith("fio"):
                found = [json.loads(done.stdout)]
            else:
                found = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise Failure(f"{shlex.join(command)}: no JSON: {error}\n"
                          f"{done.stdout[-500:]}") from None
        self.raw.write(json.dumps({"measure": measure, "repeat": repeat, "program": program,
                                   "command": shlex.join(command), "output": found}) + "\n")
        self.raw.flush()
        return found

    def rounds(self, measure, programs, place, in_memory):
        """Every program once in each repeat; returns {program: [{op: figures} of each repeat]}."""
        results = {name: [] for name, _ in programs}
        base = self.base(place)
        for repeat in range(self.options.repeats):
            turn = repeat % len(programs)
            for name, function in programs[turn:] + programs[:turn]:
                folder = os.path.join(base, f"{measure}-{repeat + 1}-{name.split()[0]}")
                os.mkdir(folder)
                if not in_memory:
                    # What the run before left to be written is not this one's burden.
                    subprocess.run(["sync", "-f", folder], check=False)
                result = function(measure, repeat + 1, name, folder)
                results[name].append(result)
                print(f"{measure} {repeat + 1}/{self.options.repeats} {name}: " + ", ".join(
                    f"{op} {r['GBps']:.3f} GB/s" + (f" {r['cpu_s_per_GB']:.3f} CPU s/GB"
                                                    if "cpu_s_per_GB" in r else "")
                    for op, r in result.items()), file=sys.stderr)
                if in_memory:
                    shutil.rmtree(folder)
        return results

    # ---- Programs: each returns {"store": {"GBps": ...}, "load": {...}} ----

    def kvtier(self, size, count, depth, *store_options):
        """depth: requests in flight, of all lanes together."""
        lanes = self.options.lanes

        def function(measure, repeat, name, folder):
            command = [self.options.kvtier, "bench", "--store", "file://" + folder]
            for option in store_options:
                command += ["-o", option]
            command += ["--namespace", "bench", "--op", "both", "--chunk-bytes", str(size),
                        "--chunks", str(count), "--lanes", str(lanes)]
            if depth:
                command += ["--depth", str(max(1, depth // lanes))]
            command += ["--memory-bytes", str(size * count), "--keep", "--json"]
            lines = self.run(measure, repeat, name, command)
            for line in lines:
                if line["errors"] or line["skipped"] or line["bytes"] != size * count:
                    raise Failure(f"{shlex.join(command)}: not every chunk was moved: {line}")
            return {line["op"]: line for line in lines}

        return function

    def fio(self, size, count, depth):
        jobs = self.options.fio_jobs

        def function(measure, repeat, name, folder):
            result = {}
            for op, direction in (("store", "write"), ("load", "read")):
                command = ["fio", "--name=chunk", f"--directory={folder}", "--ioengine=io_uring",
                           "--direct=1", f"--rw={direction}", f"--bs={size}",
                           f"--filesize={size}", f"--nrfiles={count // jobs}",
                           f"--size={count // jobs * size}",
                           f"--iodepth={max(1, depth // jobs)}",
                           f"--openfiles={max(256, 2 * depth)}", "--fallocate=none",
                           "--output-format=json"]
                if op == "store":
                    command.append("--create_on_open=1")
                else:
                    command.append("--invalidate=0")
                if jobs > 1:
                    command += [f"--numjobs={jobs}", "--group_reporting"]
                found = self.run(measure, repeat, f"{name} {op}", command)[0]["jobs"][0]
                moved = found[direction]
                if found["error"] or moved["io_bytes"] != count // jobs * jobs * size:
                    raise Failure(f"{shlex.join(command)}: not every file was moved")
                # No CPU figure: fio's own leaves out the kernel's threads.
                result[op] = {"GBps": moved["bw_bytes"] / GB}
            return result

        return function

    def python(self, size, count, direct):
        def function(measure, repeat, name, folder):
            command = ["python3", self.options.python_peer, folder, str(size), str(count),
                       str(PYTHON_THREADS), str(PYTHON_JOB), str(direct)]
            found = self.run(measure, repeat, name, command)[0]
            if direct and not found.get("o_direct", True):
                raise Failure(f"{folder}: does not take O_DIRECT")
            return {op: found[op] for op in ("store", "load")}

        return function

    def bare(self, size, count):
        def function(measure, repeat, name, folder):
            command = [self.options.bare_loop, folder, str(size), str(count),
                       str(self.options.lanes), "vllm"]
            return {line["op"]: line for line in self.run(measure, repeat, name, command)}

        return function

    def core(self, measure):
        """{field: [value of each repeat]} of what core_bench prints."""
        if not self.memory_runs:
            command = [self.options.core_bench, "1", str(self.options.lanes)]
            for repeat in range(self.options.repeats):
                for line in self.run("mem", repeat + 1, "core_bench", command):
                    for field, value in line.items():
                        if isinstance(value, (int, float)):
                            self.memory_runs.setdefault(field, []).append(value)
                print(f"core_bench {repeat + 1}/{self.options.repeats}", file=sys.stderr)
        self.commands[measure] = self.commands["mem"]
        return self.memory_runs
