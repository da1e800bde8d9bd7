"""The fields of an audit that say where its account is kept."""

from typing import Annotated, ClassVar

from pydantic import Strict

from delayed_topics_crds.base import Rule, Spec, matches
from delayed_topics_crds.common import ObjectName


class S3(Spec):
    """A bucket in S3, or in a storage that speaks the S3 protocol."""

    bucket: Annotated[
        str,
        matches(
            r"[a-z0-9][a-z0-9.-]+[a-z0-9]",
            "must be a bucket's name: 3 or more of lower-case letters, digits, '.' and '-'",
            63,
        ),
    ]
    """The bucket. It must exist."""
    prefix: (
        Annotated[
            str,
            matches(
                r"[a-zA-Z0-9_=.-]+(/[a-zA-Z0-9_=.-]+)*",
                "must be names of letters, digits, '_', '=', '.' and '-' with '/' between them, such as audits/orders",
                512,
            ),
        ]
        | None
    ) = None
    """The folder in the bucket in which the audit creates the Job's folder. Unless set, this is the top of the bucket."""
    endpoint: (
        Annotated[
            str,
            matches(
                r"https?://([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?",
                "must be http:// or https:// and a host, without a path, such as https://minio.example.com:9000",
                269,
            ),
        ]
        | None
    ) = None
    """The address of the storage. Unless set, this is Amazon S3. With `https`, the storage's certificate must come from an authority that
    the image trusts."""
    region: Annotated[str, matches(r"[a-z0-9-]+", "must be a region's name, such as eu-central-1", 63)] | None = None
    """The bucket's region, for a storage that asks for it. In Amazon S3 the audit finds the region itself unless this is set."""
    secret_name: ObjectName
    """A Secret in the same namespace. Its key `credentials` has an AWS credentials file, and the audit uses the profile `default`."""


class Output(Spec):
    """Where to keep the full account, in addition to the verdict in the status. The DelayedTopic must use a KafkaConnection. The audit
    writes into a folder with the Job's name. `report.html` in it is for people."""

    rules: ClassVar = (
        Rule(cel="has(self.claimName) != has(self.s3)", message="must have one of claimName and s3, and not both"),
    )

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim in the same namespace. Executors write to it if `parquet` is set, and in audits with `sinceLast`. It must
    then be ReadWriteMany, unless the executors share a node."""
    s3: S3 | None = None
    """A bucket in S3, or in a storage that speaks the S3 protocol."""
    parquet: Annotated[bool, Strict()] = False
    """Whether to keep the account of every record too, as Parquet."""
