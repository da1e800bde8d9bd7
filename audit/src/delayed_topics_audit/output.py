"""The output of an audit: a folder that Hadoop can write to, on a mounted volume or in an S3 bucket."""

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
    # This provider reads the file that AWS_SHARED_CREDENTIALS_FILE names, so the secret is in none of Spark's settings, which Spark shows.
    "spark.hadoop.fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    # With these settings, Hadoop waits at most 3 minutes for a storage that does not answer. The defaults take a multiple of that.
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
    "spark.hadoop.fs.s3a.connection.timeout": "15s",
    "spark.hadoop.fs.s3a.retry.limit": "4",
    # Spark's default committer renames the files of a task. S3 can't rename, and copying instead is neither fast nor atomic.
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
}
"""Settings of Spark for writing the account. Further settings that the bucket needs come with --conf."""

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
"""Advice by a word of Java's message. None of these words is in every stack trace."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The folder to which an audit writes: a path, or a URL such as s3a://bucket/folder. Methods raise AuditFailed if they can't write."""

    folder: str
    parquet: bool

    def prepare(self, spark: SparkSession) -> None:
        """Creates the folder, so that the audit fails before hours of reading rather than after."""
        with self.raising_audit_failed():
            path, files = _hadoop(spark, self.folder)
            if not files.mkdirs(path):  # for a folder on a volume, Java gives no reason
                raise AuditFailed(f"the account could not be written to {self.folder}. Make the claim writable")

    def write_places(self, places: DataFrame, window: AuditWindow) -> None:
        """Writes the table of places, with a description of the audit for readers that find only its folder."""
        table = TableDescription.of(window, self.name)
        self.write_table(places.withMetadata("place", table.metadata()), f"{self.folder}/places")

    def write_page(self, spark: SparkSession, page: str) -> None:
        self.write_text(spark, f"{self.folder}/report.html", page)

    def carried(self, topic_id: str) -> str:
        """Returns the folder, beside those of all audits, for the tables of a chain. Each audit has a folder of its own name in it."""
        return f"{self.parent}/carried/{topic_id}"

    @property
    def name(self) -> str:
        """The name of the audit's own folder."""
        return posixpath.basename(self.folder.rstrip("/"))

    @property
    def parent(self) -> str:
        """The folder that contains the folders of all audits."""
        return posixpath.dirname(self.folder.rstrip("/")) or "."

    def write_table(self, rows: DataFrame, place: str) -> None:
        with self.raising_audit_failed():
            rows.write.mode("overwrite").parquet(place)

    def write_file(self, rows: DataFrame, place: str) -> None:
        """Writes a few rows as one Parquet file of this name, although Spark itself only writes folders."""
        folder, _, name = place.rpartition("/")
        written = f"{folder}/_{name}"  # readers of the folder ignore names that begin with _
        self.write_table(rows.coalesce(1), written)
        (part,) = (found for found in self.names_in(rows.sparkSession, written) if found.endswith(".parquet"))
        with self.raising_audit_failed():
            path, files = _hadoop(rows.sparkSession, place)
            made, _ = _hadoop(rows.sparkSession, f"{written}/{part}")
            files.delete(path, False)
            if not files.rename(made, path):
                raise AuditFailed(f"could not write {place} because {made} can't be renamed")
            files.delete(made.getParent(), True)

    def write_text(self, spark: SparkSession, place: str, text: str) -> None:
        with self.raising_audit_failed():
            path, files = _hadoop(spark, place)
            stream = files.create(path)
            stream.write(bytearray(text.encode()))
            stream.close()

    def read_text(self, spark: SparkSession, place: str) -> str:
        """Returns the text of a file. Raises Spark's own errors, because the caller knows what a missing file means."""
        return str(spark.read.text(place, wholetext=True).collect()[0][0])

    def names_in(self, spark: SparkSession, folder: str) -> list[str]:
        with self.raising_audit_failed():
            path, files = _hadoop(spark, folder)
            return [str(status.getPath().getName()) for status in files.listStatus(path)]

    def keep_only(self, spark: SparkSession, folder: str, names: Collection[str]) -> None:
        """Removes everything else from `folder`."""
        with self.raising_audit_failed():
            path, files = _hadoop(spark, folder)
            for status in files.listStatus(path):
                if status.getPath().getName() not in names:
                    files.delete(status.getPath(), True)

    @contextmanager
    def raising_audit_failed(self) -> Iterator[None]:
        """Turns errors of Spark and Java into an AuditFailed that says what to do."""
        try:
            yield
        except (PySparkException, Py4JError, ConnectionError) as e:
            reason = session.reason(e, _WHAT_TO_DO)
            raise AuditFailed(f"the account could not be written to {self.folder}: {reason}") from e


def _hadoop(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Returns Hadoop's Path and FileSystem."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())
