"""Where the whole account goes: a folder that Hadoop can write to, on a mounted volume or in a bucket of S3."""

import posixpath
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from delayed_topics_core.audit_table import TableDescription
from delayed_topics_core.audit_window import AuditWindow
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delayed_topics_audit import session
from delayed_topics_audit.errors import AuditFailed

_CLOUD: Final = "org.apache.spark.internal.io.cloud"
SETTINGS: Final = {
    # It reads the file that AWS_SHARED_CREDENTIALS_FILE names: no setting of Spark's, which it tells about, has the secret.
    "spark.hadoop.fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    # A storage that is away is waited for 3 minutes at most, by its defaults for a multiple of that.
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
    "spark.hadoop.fs.s3a.connection.timeout": "15s",
    "spark.hadoop.fs.s3a.retry.limit": "4",
    # Spark's usual way is to rename what a task wrote. S3 can't, and a copy in its place is neither quick nor all or nothing.
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
}
"""Of Spark, where it writes the account. What the bucket needs beside is told by --conf."""

_SECRET: Final = (
    "Check that the Secret exists. Its key credentials must have "
    "aws_access_key_id and aws_secret_access_key below [default]"
)
_ENDPOINT: Final = "Either correct the endpoint, or try again when it answers"
_AWAY: Final = ("ConnectException", "ConnectTimeoutException", "SocketTimeoutException", "UnknownHostException")
_WHAT_TO_DO: Final = {
    **dict.fromkeys(("NoAuthWithAWSException", "Expected a profile", "Expected an '='"), _SECRET),
    "AccessDeniedException": "Check that the access key in the Secret is right, and that it may read and write there",
    "UnknownStoreException": "Either create the bucket, or correct its name",
    "PKIX": "Use an endpoint whose certificate comes from an authority that the image trusts",
    **dict.fromkeys(_AWAY, _ENDPOINT),
    "No space left": "Make room on the claim",
}
"""By a word of what Java says, none that a stack trace has anyway."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """`folder`: a path, or a URL as s3a://bucket/folder. Whatever can't be written raises AuditFailed."""

    folder: str
    parquet: bool

    def prepare(self, spark: SparkSession) -> None:
        """Before hours of reading rather than after."""
        with self.said():
            path, files = _hadoop(spark, self.folder)
            if not files.mkdirs(path):  # of a folder on a volume Java says no more
                raise AuditFailed(f"the account could not be written to {self.folder}. Make the claim writable")

    def write_places(self, places: DataFrame, window: AuditWindow) -> None:
        """The table says whose it is, for those who find nothing but its folder."""
        table = TableDescription.of(window, self.name)
        self.write_table(places.withMetadata("place", table.metadata()), f"{self.folder}/places")

    def write_page(self, spark: SparkSession, page: str) -> None:
        self.write_text(spark, f"{self.folder}/report.html", page)

    def carried(self, topic_id: str) -> str:
        """The folder, beside those of all audits, of what a chain carries: a folder of each audit's name in it."""
        return f"{self.parent}/carried/{topic_id}"

    @property
    def name(self) -> str:
        """Of the audit's own folder."""
        return posixpath.basename(self.folder.rstrip("/"))

    @property
    def parent(self) -> str:
        """The folder of all audits' folders."""
        return posixpath.dirname(self.folder.rstrip("/")) or "."

    def write_table(self, rows: DataFrame, place: str) -> None:
        with self.said():
            rows.write.mode("overwrite").parquet(place)

    def write_file(self, rows: DataFrame, place: str) -> None:
        """A few rows as one Parquet file of this name; Spark itself writes folders."""
        folder, _, name = place.rpartition("/")
        written = f"{folder}/_{name}"  # whoever reads the folder passes over that
        self.write_table(rows.coalesce(1), written)
        (part,) = (found for found in self.names_in(rows.sparkSession, written) if found.endswith(".parquet"))
        with self.said():
            path, files = _hadoop(rows.sparkSession, place)
            made, _ = _hadoop(rows.sparkSession, f"{written}/{part}")
            files.delete(path, False)
            if not files.rename(made, path):
                raise AuditFailed(f"could not write {place} because {made} can't be renamed")
            files.delete(made.getParent(), True)

    def write_text(self, spark: SparkSession, place: str, text: str) -> None:
        with self.said():
            path, files = _hadoop(spark, place)
            stream = files.create(path)
            stream.write(bytearray(text.encode()))
            stream.close()

    def read_text(self, spark: SparkSession, place: str) -> str:
        """Raises what Spark raises: whoever asks knows what it means that it is not there."""
        return str(spark.read.text(place, wholetext=True).collect()[0][0])

    def names_in(self, spark: SparkSession, folder: str) -> list[str]:
        with self.said():
            path, files = _hadoop(spark, folder)
            return [str(status.getPath().getName()) for status in files.listStatus(path)]

    def keep_only(self, spark: SparkSession, folder: str, names: Collection[str]) -> None:
        """Whatever else is in `folder` is removed."""
        with self.said():
            path, files = _hadoop(spark, folder)
            for status in files.listStatus(path):
                if status.getPath().getName() not in names:
                    files.delete(status.getPath(), True)

    @contextmanager
    def said(self) -> Iterator[None]:
        """What goes wrong is an AuditFailed that says what to do."""
        try:
            yield
        except (PySparkException, Py4JError, ConnectionError) as e:
            reason = session.reason(e, _WHAT_TO_DO)
            raise AuditFailed(f"the account could not be written to {self.folder}: {reason}") from e


def _hadoop(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Path and FileSystem, of Hadoop."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())
