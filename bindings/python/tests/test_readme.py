# SPDX-License-Identifier: Apache-2.0
"""The code that the documentation shows runs as it stands."""
import re

import pytest

import kvtier
from conftest import HERE, SOURCE


def blocks():
    for path in (SOURCE / "README.md", HERE.parent / "README.md"):
        if path.exists():
            for code in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"),
                                   re.S | re.M):
                yield pytest.param(code, id=str(path.relative_to(SOURCE)))
    code = re.search(r"\n\n((?: {4}.*\n|\n)+)", kvtier.__doc__).group(1)
    yield pytest.param(re.sub("^ {4}", "", code, flags=re.M), id="help(kvtier)")


@pytest.mark.parametrize("code", blocks())
def test_code_of_the_documentation_runs(code, tmp_path, capfd):
    assert "import kvtier" in code and "file:///srv/kv" in code
    exec(compile(code.replace("file:///srv/kv", "file://%s" % tmp_path), "block", "exec"), {})
    assert "True" in capfd.readouterr().out
    assert list(tmp_path.iterdir())
