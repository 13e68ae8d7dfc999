"""The demo fails if a function lacks a permission, and names it."""

import os
import re
import subprocess
from pathlib import Path

from gpucost_devstack.template import REPOSITORY, TEMPLATE
from tests.system.running_demo import GPUCOST


def run_demo(template: Path, state: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "XDG_CACHE_HOME": str(state), "COLUMNS": "1000"}
    command = [str(GPUCOST), "demo", "--once", "--hours", "1", "--port", "0", "--template", str(template)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=REPOSITORY)


def test_demo_fails_when_attribute_may_not_put_items(tmp_path: Path) -> None:
    text = TEMPLATE.read_text()
    attribute = text.index("  AttributeFunction:\n")
    without = text[:attribute] + re.sub(r" +- dynamodb:PutItem\n", "", text[attribute:], count=1)
    assert len(without) < len(text)
    template = tmp_path / "template.yaml"
    template.write_text(without)
    done = run_demo(template, tmp_path)
    assert done.returncode != 0
    assert re.search(
        r"gpucost: access denied: AttributeFunction \(arn:aws:iam::123456789012:role/local-AttributeFunctionRole\) "
        r"may not call dynamodb:PutItem on arn:aws:dynamodb:eu-central-1:123456789012:table/local-Table-\w+, "
        r"dynamodb:LeadingKeys: C#[^;]+; allow it in a policy of the template, or do not call it",
        done.stderr,
    ), done.stderr
    assert "Traceback" not in done.stderr
