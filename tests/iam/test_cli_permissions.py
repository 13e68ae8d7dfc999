"""The documented policies allow every command that takes `--stack`, and nothing that no command needs."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import click
import pytest

from gpucost_cli.main import cli
from gpucost_devstack.iam.authorizer import Authorizer, PermissionUse, evaluate
from gpucost_devstack.iam.policies import Policies, Statement
from gpucost_devstack.template import REPOSITORY
from tests.iam.recorded_commands import POLICY, Recorded, documented_policies, recorded_commands
from tests.iam.removal import unnoticed_parts, unnoticed_statements

PAGE = (REPOSITORY / "docs" / "reference" / "cli-permissions.md").read_text()
COMMANDS, STATEMENTS = PAGE.partition("## Commands")[2].split("## Statements")
ALLOWED_TWICE = ["ReadPolicy/ReadWithKey without kms:Decrypt"]
"""WriteWithKey allows the action, too, but is not part of ReadPolicy."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Authorizer, Recorded]]:
    with recorded_commands(tmp_path_factory.mktemp("commands")) as recorded:
        yield recorded


@pytest.fixture
def uses(run: tuple[Authorizer, Recorded]) -> list[PermissionUse]:
    _, recorded = run
    return sorted(frozenset().union(*recorded.values()), key=repr)


def test_no_command_is_denied_anything(run: tuple[Authorizer, Recorded]) -> None:
    authorizer, _ = run
    assert [f"{use.call.action} on {use.call.resource}" for use in authorizer.denials] == []


def test_every_command_with_a_stack_runs(run: tuple[Authorizer, Recorded]) -> None:
    _, recorded = run
    assert set(recorded) == set(commands_with_stack(cli))


def commands_with_stack(command: click.Command, *names: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            subcommand = command.get_command(click.Context(command), name)
            assert subcommand is not None
            yield from commands_with_stack(subcommand, *names, name)
    elif any("--stack" in parameter.opts for parameter in command.params):
        yield " ".join(names)


def test_each_statement_is_needed(uses: list[PermissionUse]) -> None:
    assert unnoticed_statements(documented_policies(), uses) == []


def test_each_action_and_resource_is_needed(uses: list[PermissionUse]) -> None:
    assert unnoticed_parts(documented_policies(), uses) == ALLOWED_TWICE


def test_removed_action_is_missed(uses: list[PermissionUse]) -> None:
    policies = documented_policies()
    (table,) = (statement for statement in policies.statements if statement.title == "ReadPolicy/ReadTable")
    smaller = policies.replacing(table, {**table.body, "Action": ["dynamodb:GetItem"]})
    denied = {use.call.action for use, allowed in zip(uses, evaluate(smaller, uses), strict=True) if not allowed}
    assert "dynamodb:Query" in denied


def test_superfluous_action_is_reported(uses: list[PermissionUse]) -> None:
    policies = documented_policies()
    (table,) = (statement for statement in policies.statements if statement.title == "ReadPolicy/ReadTable")
    larger = policies.replacing(table, {**table.body, "Action": [*table.body["Action"], "dynamodb:Scan"]})
    assert f"{table.title} without dynamodb:Scan" in unnoticed_parts(larger, uses)


def test_another_stack_is_denied(uses: list[PermissionUse]) -> None:
    """Only secrets do not belong to a stack."""
    others = documented_policies("other", api="other")
    allowed = {use.call.action for use, decision in zip(uses, evaluate(others, uses), strict=True) if decision}
    assert {action for action in allowed if not action.startswith("kms:")} == {"secretsmanager:GetSecretValue"}


def test_page_names_the_statements_of_each_command(run: tuple[Authorizer, Recorded]) -> None:
    _, recorded = run
    documented = {
        name: set(re.findall(r"`(\w+)`", cells))
        for names, cells in re.findall(r"^\| (`[a-z][a-z -]*`(?:, `[a-z -]+`)*) \| (`.*) \|$", COMMANDS, re.MULTILINE)
        for name in re.findall(r"`([a-z -]+)`", names)
    }
    assert documented == {name: needed_statements(uses) for name, uses in recorded.items()}


def needed_statements(uses: frozenset[PermissionUse]) -> set[str]:
    """Names of the statements without which a command is denied something, without those about keys."""
    policies = Policies(tuple(s for s in documented_policies().statements if s.title != "key policy"))
    calls = [use for use in uses if not use.call.action.startswith("kms:")]
    return {
        statement.title.rpartition("/")[2]
        for statement in policies.statements
        if not all(evaluate(policies.without(statement), calls))
    }


def test_page_lists_the_actions_of_each_statement() -> None:
    documented = {
        name: set(re.findall(r"`([a-z-]+:\w+)`", cells))
        for name, cells in re.findall(r"^\| `([A-Z]\w+)` \| (.*) \|$", STATEMENTS, re.MULTILINE)
    }
    assert documented == {
        statement.title.rpartition("/")[2]: actions_of(statement)
        for statement in documented_policies().statements
        if statement.title != "key policy"
    }


def actions_of(statement: Statement) -> set[str]:
    actions = statement.body["Action"]
    return {actions} if isinstance(actions, str) else set(actions)


def test_read_policy_alone_allows_the_commands_that_change_nothing(run: tuple[Authorizer, Recorded]) -> None:
    _, recorded = run
    reading = {"FindStack", "CallApi", "ReadTable"}
    policies = Policies(tuple(s for s in documented_policies().statements if not s.title.startswith("OperatePolicy/")))
    for name, uses in recorded.items():
        assert all(evaluate(policies, list(uses))) == (needed_statements(uses) <= reading), name


def test_read_policy_changes_nothing() -> None:
    reading = ("*:Describe*", "*:Get*", "*:Query", "*:BatchGet*", "execute-api:Invoke", "kms:Decrypt")
    for statement in documented_policies().statements:
        if statement.title.startswith("ReadPolicy/"):
            for action in actions_of(statement):
                assert any(fnmatchcase(action, pattern) for pattern in reading), action
    (api,) = (s for s in documented_policies().statements if s.title == "ReadPolicy/CallApi")
    assert api.body["Resource"].endswith("/GET/*")


def test_cfn_lint_finds_nothing() -> None:
    from cfnlint.api import lint_file  # takes a second

    assert [str(match) for match in lint_file(POLICY)] == []
