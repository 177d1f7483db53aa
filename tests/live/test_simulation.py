# SPDX-License-Identifier: Apache-2.0
"""vLLM's scheduler, simulated, on the Python package's tier and a real object store: promotions,
cascades, evictions, aborts and resets, with every byte compared."""
import importlib.util
import json
import pathlib
import sys

import live

SOURCE = live.HERE.parent.parent
PYTHON = SOURCE / "bindings" / "python"
LIBRARY = live.PROGRAMS.parent / "libkvtier.so.0.1"


class Simulation(live.LiveCase):
    def simulate(self, *arguments):
        """The passes' reports."""
        done = self.run_command(
            [sys.executable, "-B", "-m", "kvtier.simulate", "--store", self.uri, "--json",
             "--option", "endpoint=%s" % live.ENDPOINT, "--requests", "60", *arguments,
             live.TRACE],
            environment={"PYTHONPATH": str(PYTHON), "KVTIER_LIBRARY": str(LIBRARY),
                         "PYTHONHASHSEED": "0"},
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_service_runs_through_evictions_aborts_and_resets(self):
        (done,) = self.simulate("--rows", "48", "--row-bytes", "64K", "--abort-share", "0.2",
                                "--reset-every", "20")
        self.assertEqual(done["requests"], 60)
        for what in ("stores", "loads", "evictions", "aborted", "resets"):
            self.assertGreater(done[what], 0, what)
        self.assertEqual((done["failed_stores"], done["failed_loads"]), (0, 0))

    def test_another_instance_finds_everything(self):
        """Rows of 9 MiB are more than one part."""
        config = json.dumps({"max_wait_s": 60})
        first, second = self.simulate("--rows", "64", "--row-bytes", "9M", "--requests", "4",
                                      "--abort-share", "0", "--passes", "2", "--config", config)
        self.assertGreater(first["stores"], 0)
        self.assertEqual((second["stores"], second["computed_chunks"]), (0, 0))
        self.assertEqual(second["found_chunks"], second["chunks"])


if __name__ == "__main__":
    if importlib.util.find_spec("numpy") is None:
        live.skip_all("numpy is not installed; scripts/install-deps test installs it")
    if not pathlib.Path(LIBRARY).exists():
        live.skip_all("%s is not built" % LIBRARY)
    live.main()
