"""What Lambda does between two execution environments of a function, for tests that run several in one process."""


def forget() -> None:
    """Forget clients and credentials that were made for another environment."""
    import boto3

    from gpucost.runtime import aws

    for cached in (aws.client, aws.s3_client):
        cached.cache_clear()
    boto3.DEFAULT_SESSION = None  # it keeps the credentials that it found first
