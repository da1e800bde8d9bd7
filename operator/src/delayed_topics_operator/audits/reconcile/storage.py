"""Where an audit's account is written, to a claim or a bucket, and what every pod that writes there needs. Pure."""

from dataclasses import dataclass, field

from delayed_topics_operator.audits.reconcile.observation import AuditObservation
from delayed_topics_operator.values.manifest import Manifest

VOLUME = "output"
CLAIM = "/var/lib/delayed-topics-audit"
SECRET = "/etc/delayed-topics/s3"
CREDENTIALS_KEY = "credentials"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """`folder`: the address for Spark. `shown`: the address for people. `settings`: of Spark. The other fields are parts of a pod and its
    container."""

    folder: str
    shown: str
    volume: Manifest
    mount: Manifest
    environment: tuple[Manifest, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    security: Manifest = field(default_factory=dict)


def storage(o: AuditObservation) -> Storage | None:
    output = o.audit.spec.output
    if output is None:
        return None
    if output.s3 is None:
        group = o.job_settings.fs_group
        return Storage(
            folder=f"{CLAIM}/{o.job_name}",
            shown=f"{output.claim_name}:{o.job_name}",
            volume={"name": VOLUME, "persistentVolumeClaim": {"claimName": output.claim_name}},
            mount={"name": VOLUME, "mountPath": CLAIM},
            security={"fsGroup": group} if group is not None else {},
        )
    place = "/".join(part for part in (output.s3.bucket, output.s3.prefix, o.job_name) if part)
    # A storage other than AWS seldom has a host name for each bucket.
    own = {"endpoint": output.s3.endpoint, "path.style.access": "true"} if output.s3.endpoint else {}
    settings = own | ({"endpoint.region": output.s3.region} if output.s3.region else {})
    return Storage(
        folder=f"s3a://{place}",
        shown=f"s3://{place}",
        # Optional, so that the Job can report that the Secret is missing. Otherwise the pod would wait forever, and only Events say why.
        volume={"name": VOLUME, "secret": {"secretName": output.s3.secret_name, "optional": True}},
        mount={"name": VOLUME, "mountPath": SECRET, "readOnly": True},
        environment=({"name": "AWS_SHARED_CREDENTIALS_FILE", "value": f"{SECRET}/{CREDENTIALS_KEY}"},),
        settings={f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()},
    )
