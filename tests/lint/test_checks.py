"""The static checks: hooks run the same ones as `make check`, and texts of tests only cause warnings."""

import json
from pathlib import Path

import codespell_lib
import pytest
import yaml

from gpucost_devstack.template import REPOSITORY
from lint import language
from lint.sources import Source, parse
from scripts import check


def test_hooks_before_a_commit_run_every_check() -> None:
    (local,) = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    hooks = {hook["id"]: hook for hook in local["hooks"]}
    assert hooks.keys() == check.CHECKS.keys()
    for name, hook in hooks.items():
        assert hook["entry"] == f".venv/bin/python -m scripts.check {name}"
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_unknown_check_is_refused_with_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["ruff", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("check: there is no check 'nonsense'. Checks: types, page,")


def with_a_further_name(word: str, path: str) -> list[Source]:
    """A file that binds a name more often than the whole repository may."""
    recorded = json.loads(language.BASELINE.read_text())
    allowed = sum(part["filler_names"].get(word, 0) for part in recorded.values())
    return [parse(f"{word} = 1\n" * (allowed + 1), path)]


def test_filler_name_in_the_product_fails(capsys: pytest.CaptureFixture[str]) -> None:
    (sentence,) = language.check(with_a_further_name("thing", "layers/common/gpucost/core/example.py"))
    assert sentence.startswith("'thing' (filler_names): 1 times, 0 allowed.")
    assert not capsys.readouterr().err


def test_filler_name_in_a_test_only_warns(capsys: pytest.CaptureFixture[str]) -> None:
    assert language.check(with_a_further_name("thing", "tests/core/test_example.py")) == []
    assert capsys.readouterr().err.startswith("warning: in tests, 'thing' (filler_names): 1 times, 0 allowed.")


@pytest.mark.parametrize("text", ["The hour is put aside.", "told_at = 1", "class BillKeeper:"])
def test_word_of_this_project_alone_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "example.md"
    page.write_text(text)
    monkeypatch.chdir(REPOSITORY)
    assert codespell_lib.main(str(page)) == 65
