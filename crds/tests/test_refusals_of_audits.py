"""The audits that a real API server refuses, and its messages."""

import re
from typing import Any
from uuid import uuid4

import pytest
import yaml
from delayed_topics_crds import API_VERSION, parse, to_dict
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.errors import CommandFailedError

pytestmark = pytest.mark.api


def audit(**spec: Any) -> dict[str, Any]:
    whole = {"delayedTopicRef": {"name": "of-nobody"}} | spec
    metadata = {"name": f"test-{uuid4().hex[:8]}", "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": "DelayedTopicAudit", "metadata": metadata, "spec": whole}


S3 = {"bucket": "accounts", "secretName": "accounts-s3"}
ACCEPTED = {
    "an audit": audit(maxLatenessMs=50, spark={"cores": 2}, ttlSecondsAfterFinished=0, activeDeadlineSeconds=3600),
    "an audit on several pods": audit(spark={"executors": 2, "clientRack": "eu-1a", "memory": "512m"}),
    "an audit with settings of Spark": audit(spark={"conf": {"spark.sql.shuffle.partitions": "16"}}),
    "an audit that is kept on a claim": audit(output={"claimName": "accounts", "parquet": True}),
    "an audit that is kept in a bucket": audit(output={"s3": S3}),
    "an audit that is kept in a bucket of somebody else's storage": audit(
        output={"s3": {**S3, "prefix": "a/b=c", "endpoint": "http://[::1]:9000", "region": "eu-1"}, "parquet": True}
    ),
    "an audit of a sample": audit(sample={"oneIn": 100}),
    "an audit that goes on from the last": audit(window={"sinceLast": True}),
    "an audit of an hour by another clock": audit(
        window={"from": "2026-01-02T00:00:00+05:30", "to": "2026-01-02T01:00:00.5+05:30"}
    ),
    "an audit of an hour": audit(window={"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T01:00:00Z"}),
}
REFUSED = {
    "a window that ends before it begins": (
        audit(window={"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}),
        "must end after it begins",
    ),
    "a time with a small z": (audit(window={"to": "2026-01-02T00:00:00z"}), "must have times such as 2026-01-02T00:00"),
    "a time in no time zone": (
        audit(window={"from": "2026-01-02T00:00:00+25:00"}),
        "must have times such as 2026-01-02T00:00:00Z",
    ),
    "a window of two kinds": (
        audit(window={"from": "2026-01-02T00:00:00Z", "sinceLast": True}),
        "must be either sinceLast or from and to",
    ),
    "a sample in a chain": (audit(sample={"oneIn": 2}, window={"sinceLast": True}), "must not go with window"),
    "fewer executors than at first": (audit(spark={"minExecutors": 3}), "minExecutors must not be above executors"),
    "a lonely SparkApplication": (audit(spark={"mode": "SparkApplication"}), "a SparkApplication must have executors"),
    "an audit's memory": (audit(spark={"memory": "1GB"}), "must be a whole number with m or g"),
    "whose rights an audit has": (
        audit(spark={"conf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "admin"}}),
        "must have no other keys than spark.default.parallelism",
    ),
    "where an audit runs": (
        audit(spark={"conf": {"spark.master": "local"}}),
        "the operator controls the other settings",
    ),
    "an output that is nowhere": (audit(output={"parquet": True}), "must have one of claimName and s3, and not both"),
    "two outputs": (audit(output={"claimName": "a", "s3": S3}), "must have one of claimName and s3, and not both"),
    "a bucket's name": (audit(output={"s3": {**S3, "bucket": "a_b"}}), "must be a bucket's name"),
    "a prefix that begins with a slash": (audit(output={"s3": {**S3, "prefix": "/a"}}), "with '/' between them"),
    "an endpoint without a scheme": (
        audit(output={"s3": {**S3, "endpoint": "minio:9000"}}),
        "must be http:// or https:// and a host, without a path",
    ),
    "too small a heap": (audit(spark={"memory": "511m"}), "at least 512m"),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_right_is_accepted_and_understood(api_server: ApiServer, document: dict[str, Any]) -> None:
    accepted, ours = api_server.dry_run(document), to_dict(parse("DelayedTopicAudit", document))
    assert to_dict(parse("DelayedTopicAudit", accepted))["spec"] == ours["spec"]


@pytest.mark.parametrize(("document", "says"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_in_our_words(
    api_server: ApiServer, document: dict[str, Any], says: str
) -> None:
    with pytest.raises(CommandFailedError, match=re.escape(says)):
        api_server.dry_run(document)


def test_an_audit_stays_as_it_was_created(api_server: ApiServer) -> None:
    created = audit()
    api_server.kubectl("apply", "--server-side", "--filename=-", text_in=yaml.safe_dump(created))
    created["spec"]["maxLatenessMs"] = 5
    with pytest.raises(CommandFailedError, match="must stay as it was created"):
        api_server.dry_run(created)
