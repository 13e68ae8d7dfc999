"""Resets a process like a new Lambda execution environment, for tests that run several."""


def forget() -> None:
    """Discard cached clients and credentials."""
    import boto3

    from gpucost.runtime import aws

    for cached in (aws.client, aws.s3_client):
        cached.cache_clear()
    boto3.DEFAULT_SESSION = None  # it keeps the credentials that it found first
