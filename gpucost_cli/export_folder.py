"""The folder of exports of `gpucost serve`, in place of the S3 bucket."""

import hashlib
import os
import shutil
from pathlib import Path

from gpucost.core.errors import ConflictError, InvalidInputError, SourceError


class ExportFolder:
    """Stores exports in a folder, under the names of the bucket. Implements `exported_days.ExportBucket`.

    Args:
        folder: where to store them; it is created if it is missing.

    Raises:
        InvalidInputError: the folder cannot be used, or the package that writes the files is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import duckdb  # noqa: F401 - imported here, so that its absence is noticed when the command starts
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                "--exports: the Python package duckdb is not installed. Install gpucost with its extra demo: "
                "'gpucost[demo]'"
            ) from error
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(f"--exports: the folder {folder} cannot be used: {error.strerror}") from error
        self._folder = folder.resolve()

    def etag(self, key: str) -> str | None:
        """Return the digest of a file; None if there is no file."""
        try:
            with (self._folder / key).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Copy a file, atomically, if the stored one still has the digest `if_match`; None means that there is none.

        Raises:
            ConflictError: the stored file was changed in the meantime.
            SourceError: the file cannot be written.
        """
        if self.etag(key) != if_match:
            raise ConflictError(f"the export was changed in the meantime: {key}")
        target = self._folder / key
        partial = target.with_name(f".{target.name}.partial")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, partial)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(target)
        except OSError as error:
            raise SourceError(f"the export {target} could not be written: {error.strerror}") from error

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """Return the address of a file on this machine."""
        return (self._folder / key).as_uri()
