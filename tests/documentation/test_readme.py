"""The README is short: what gpucost does, what it needs, and one command for one's own clusters."""

from gpucost_devstack.template import REPOSITORY

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_has_at_most_700_words() -> None:
    assert len(TEXT.split()) <= 700


def test_own_clusters_come_before_the_demo_and_the_deployment() -> None:
    commands = ("gpucost serve --prometheus", "make demo", "make deploy")
    positions = [TEXT.index(command) for command in commands]
    assert positions == sorted(positions)
    assert len(TEXT[: positions[0]].split()) < 200
