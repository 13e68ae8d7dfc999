"""Sessions of a process share the definitions of services, which take a third of a short command's time to read."""

from gpucost.runtime.aws import new_session


def test_sessions_share_the_definitions_of_services() -> None:
    first, second = (new_session().get_component("data_loader") for _ in range(2))
    assert first is second
