"""What Lambda does between two sandboxes of a function, for tests that run several in one process."""

from contextlib import suppress

from gpucost import container as bootstrap


def forget() -> None:
    """Forget services, clients and credentials that were made for another environment."""
    import boto3

    from gpucost.runtime import aws

    caches = (*vars(bootstrap).values(), aws.client, aws.s3_client)
    for made in caches:
        with suppress(AttributeError):  # neither all of bootstrap is cached, nor is what a test puts in a place of it
            made.cache_clear()
    boto3.DEFAULT_SESSION = None  # it keeps the credentials that it found first
