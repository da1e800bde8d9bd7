"""Where the account of an audit is kept."""

from typing import Annotated, ClassVar

from pydantic import Strict

from delayed_topics_crds.base import Matches, Rule, Spec
from delayed_topics_crds.common import ObjectName


class S3(Spec):
    """A bucket of S3, or of a storage that speaks its protocol."""

    bucket: Annotated[
        str,
        Matches(
            r"[a-z0-9][a-z0-9.-]+[a-z0-9]",
            "must be a bucket's name: 3 or more of lower-case letters, digits, '.' and '-'",
            63,
        ),
    ]
    """The bucket; it has to be there."""
    prefix: (
        Annotated[
            str,
            Matches(
                r"[a-zA-Z0-9_=.-]+(/[a-zA-Z0-9_=.-]+)*",
                "must be names of letters, digits, '_', '=', '.' and '-' with '/' between them, as audits/orders",
                512,
            ),
        ]
        | None
    ) = None
    """The folder of the bucket that the Job's folder is made in; the bucket itself unless set."""
    endpoint: (
        Annotated[
            str,
            Matches(
                r"https?://([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?",
                "must be http:// or https:// and a host, without a path, as https://minio.example.com:9000",
                269,
            ),
        ]
        | None
    ) = None
    """Where the storage is; Amazon's own unless set. With `https` its certificate must be from an authority that the image trusts."""
    region: Annotated[str, Matches(r"[a-z0-9-]+", "must be a region's name, as eu-central-1", 63)] | None = None
    """The bucket's region, for a storage that asks for it; Amazon's is found unless set."""
    secret_name: ObjectName
    """A Secret of the same namespace with the key `credentials`: a credentials file of AWS, whose profile `default` counts."""


class Output(Spec):
    """Where the whole account is kept, beside the verdict in the status; for a DelayedTopic with a KafkaConnection of its own.
    It is in a folder with the Job's name: `report.html` for people."""

    rules: ClassVar = (
        Rule(cel="has(self.claimName) != has(self.s3)", message="must have one of claimName and s3, and not both"),
    )

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim of the same namespace. With executors and `parquet` all of them write to it: it must be
    ReadWriteMany then, unless they share a node."""
    s3: S3 | None = None
    """A bucket of S3, or of a storage that speaks its protocol."""
    parquet: Annotated[bool, Strict()] = False
    """Also keep the account of every record, as Parquet."""
