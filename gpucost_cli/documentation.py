"""Where the pages of the documentation are that messages name."""

from gpucost_devstack.template import IS_INSTALLED, REPOSITORY


def page_path(page: str) -> str:
    """The path of a page such as `docs/how-to/pricing.md`: in a wheel, of the page that the wheel contains."""
    return str(REPOSITORY / page) if IS_INSTALLED else page
