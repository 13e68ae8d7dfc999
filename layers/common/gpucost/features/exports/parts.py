"""Exports' services and storage, each made when it is first used."""

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from gpucost.features.exports.export_service import ExportService
    from gpucost.features.exports.exported_days import ExportBucket
    from gpucost.features.exports.listing import ExportListing
    from gpucost.features.exports.storage import DynamoExports


class ExportParts(SharedParts):
    """Exports' services and storage."""

    @cached_property
    def exports(self) -> "DynamoExports":
        """Which days are exported."""
        from gpucost.features.exports.storage import DynamoExports

        env = self.environment
        return DynamoExports(self.table, timedelta(days=env.export_days))

    @cached_property
    def export_bucket(self) -> "ExportBucket":
        """The bucket of exports."""
        from gpucost.features.exports.storage import S3Bucket

        return S3Bucket(self.s3_client, self.environment.export_bucket)

    @cached_property
    def export_service(self) -> "ExportService":
        """For `functions/export`."""
        from gpucost.features.exports.export_service import ExportService
        from gpucost.features.exports.files import DuckDbFiles

        env = self.environment
        return ExportService(
            self.settings_store,
            self.ledger,
            self.exports,
            self.export_bucket,
            DuckDbFiles(),
            account=env.billing_account,
            retention=timedelta(days=env.export_days),
            clock=self.clock,
        )

    @cached_property
    def export_listing(self) -> "ExportListing":
        """For `functions/api`."""
        from gpucost.features.exports.listing import ExportListing

        return ExportListing(self.settings_store, self.ledger, self.exports, self.export_bucket, clock=self.clock)
