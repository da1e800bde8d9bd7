"""ClusterKafkaConnection and KafkaConnection: how to reach Kafka, and who may."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import Entries, Limits, ListMap, Matches, Resource, Rule, Spec
from delayed_topics_crds.common import SecretRef, StatusBase
from delayed_topics_crds.delayed_topic import MAX_WORKERS, WorkerTemplate
from delayed_topics_crds.pods import LabelSelector, Quantity
from delayed_topics_crds.quota import Namespaces, Quota
from delayed_topics_crds.schedule import MAX_CORES, MAX_EXECUTORS, DiskSize, SparkMemory

SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

BootstrapServer = Annotated[
    str,
    Matches(
        r"([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}",
        "must be host:port, without a scheme, as kafka.example.com:9092",
        261,
    ),
]
TopicPrefix = Annotated[
    str,
    Matches(r"[a-zA-Z0-9._-]*", "must be the beginning of a topic name: letters, digits, '.', '_' and '-'", 249),
]


SecretKey = Annotated[str, Matches(r"[-._a-zA-Z0-9]+", "must be a key of the Secret", 253)]


class CaSecretRef(SecretRef):
    """The Secret with the certificate of the authority that signed the brokers' certificates."""

    key: SecretKey = "ca.crt"
    """The key with the PEM certificates."""


class ClientCertSecretRef(SecretRef):
    """The Secret with a client certificate and its key, both PEM."""

    certificate_key: SecretKey = "tls.crt"
    """The key with the certificate, `user.crt` in the Secret of a KafkaUser of Strimzi."""
    private_key_key: SecretKey = "tls.key"
    """The key with the private key, `user.key` in the Secret of a KafkaUser of Strimzi."""


class Tls(Spec):
    """Encryption; `tls: {}` trusts the authorities that the images trust."""

    ca_secret_ref: CaSecretRef | None = None
    """The authority that signed the brokers' certificates."""
    client_cert_secret_ref: ClientCertSecretRef | None = None
    """A client certificate, for brokers that ask for one: a Secret of type kubernetes.io/tls, or any other with its keys named."""


class LoginSecretRef(SecretRef):
    """The Secret with the password, and with the user name unless that is said in the connection."""

    username_key: SecretKey | None = None
    """The key with the user name; `username` unless set. Not read if `sasl.username` is set."""
    password_key: SecretKey = "password"
    """The key with the password."""


class OAuthSecretRef(SecretRef):
    """The Secret with the client secret, and with the client id unless that is said in the connection."""

    client_id_key: SecretKey | None = None
    """The key with the client id; `client-id` unless set. Not read if `oauth.clientId` is set."""
    client_secret_key: SecretKey = "client-secret"
    """The key with the client secret."""


class TokenEndpointCaSecretRef(SecretRef):
    """The Secret with the certificate of the authority that signed the token endpoint's certificate."""

    key: SecretKey = "ca.crt"
    """The key with the PEM certificates."""


class OAuth(Spec):
    """An OAuth 2.0 client, which gets its tokens by its own credentials (grant type `client_credentials`)."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.clientId) || !has(self.secretRef.clientIdKey)",
            message="clientId must not come with secretRef.clientIdKey: leave one of them out",
            field_path=".clientId",
        ),
    )

    token_endpoint_url: Annotated[
        str,
        Matches(
            r"https://[-a-zA-Z0-9._~:/?&=%\[\]]+",
            "must be an https URL without credentials, as https://login.example.com/oauth2/token",
            512,
        ),
    ]
    """Where tokens are asked for, as https://login.example.com/oauth2/token."""
    client_id: (
        Annotated[str, Matches(r"\S(.*\S)?", "must be a client id, in one line and without spaces around it", 253)]
        | None
    ) = None
    """The client id, where the Secret has none; from the Secret unless set."""
    secret_ref: OAuthSecretRef
    """The Secret with the client secret."""
    scope: (
        Annotated[
            str,
            Matches(r"[!#-\[\]-~]+( [!#-\[\]-~]+)*", "must be scopes of OAuth 2.0 with one space between them", 512),
        ]
        | None
    ) = None
    """What the token shall be good for, as the token endpoint calls it; not sent unless set."""
    extensions: (
        Annotated[
            Mapping[
                str,
                Annotated[
                    str, Matches(r"[!-+\--~]+", "must be a value of visible ASCII characters without commas", 253)
                ],
            ],
            Rule(
                cel="self.all(key, key.matches('^[A-Za-z]+$') && key != 'auth')",
                message="must have keys of letters, and none that is auth",
            ),
            Field(max_length=16),
        ]
        | None
    ) = None
    """SASL extensions that the brokers ask for, as `logicalCluster` and `identityPoolId` of Confluent Cloud; none unless set."""
    ca_secret_ref: TokenEndpointCaSecretRef | None = None
    """The authority that signed the token endpoint's certificate; those that the images trust unless set."""


class Sasl(Spec):
    """How the connection shows who it is: user name and password, or tokens of OAuth 2.0."""

    rules: ClassVar = (
        Rule(
            cel="(self.mechanism == 'OAUTHBEARER') == has(self.oauth)",
            message="oauth must come with the mechanism OAUTHBEARER, and with no other",
            field_path=".oauth",
        ),
        Rule(
            cel="(self.mechanism == 'OAUTHBEARER') != has(self.secretRef)",
            message="secretRef must be set, but not with OAUTHBEARER, whose Secret is oauth.secretRef",
            field_path=".secretRef",
        ),
        Rule(
            cel="self.mechanism != 'OAUTHBEARER' || !has(self.username)",
            message="username must not come with OAUTHBEARER: the client is oauth.clientId",
            field_path=".username",
        ),
        Rule(
            cel="!has(self.username) || !has(self.secretRef) || !has(self.secretRef.usernameKey)",
            message="username must not come with secretRef.usernameKey: leave one of them out",
            field_path=".username",
        ),
    )

    mechanism: SaslMechanism = "SCRAM-SHA-512"
    """How the password is proven, or OAUTHBEARER for tokens."""
    username: (
        Annotated[
            str,
            Matches(r"\S(.*\S)?", "must be the name of a Kafka user, in one line and without spaces around it", 249),
        ]
        | None
    ) = None
    """The user name, where the Secret has none, as that of a KafkaUser of Strimzi; from the Secret unless set."""
    secret_ref: LoginSecretRef | None = None
    """The Secret with the password; has to be set unless the mechanism is OAUTHBEARER."""
    oauth: OAuth | None = None
    """Where tokens come from; has to be set with OAUTHBEARER, and only then."""


class SharedWorkers(Spec):
    """The pods that move the records of all DelayedTopics which have none of their own."""

    replicas: Annotated[int, Limits(0, MAX_WORKERS, "workers")] = 2
    """How many there are; 0 stops releasing."""
    template: WorkerTemplate | None = None
    """What is added to the pods. Changing it rolls them."""


class KafkaConnectionSpec(Spec):
    """How to reach Kafka."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.sasl) || !(self.sasl.mechanism in ['PLAIN', 'OAUTHBEARER']) || has(self.tls)",
            message="PLAIN and OAUTHBEARER must come with tls, they send the password or token as it is: add tls, or use SCRAM-SHA-512",
            field_path=".sasl",
        ),
    )

    bootstrap_servers: Annotated[tuple[BootstrapServer, ...], Entries(1, 16, "servers (host:port)")]
    """Brokers to ask first, as host:port."""
    tls: Tls | None = None
    """Encryption; none unless set."""
    sasl: Sasl | None = None
    """User name and password, or tokens; none unless set."""
    broker_skew_ms: Annotated[int, Limits(0, 60_000, "milliseconds (1 minute)")] | None = None
    """By how much the brokers' clocks may differ, in milliseconds; records are released that much later, so that none is
    early. 0 if there was never more than one broker, and 5 otherwise, unless set."""
    shared_workers: SharedWorkers | None = None
    """Workers that several DelayedTopics share, so that one with little to do costs no pod: those without `spec.workers`, with the
    guarantee AtLeastOnce. None unless set; each DelayedTopic has its own then."""


Names = Annotated[tuple[Annotated[str, Field(max_length=317)], ...], Entries(0, 64, "names")]


class TemplateGrant(Spec):
    """What `workers.template` may set on pods that run in the operator's namespace."""

    labels: Names = ()
    """Keys of labels. Policies and sidecar injectors act on labels and annotations, so there are none unless listed."""
    annotations: Names = ()
    """Keys of annotations."""
    node_selectors: Names = ()
    """Labels of nodes that they may ask for."""
    tolerations: Names = ()
    """Taints that they may tolerate, by key. To tolerate every taint is never allowed."""
    affinity: Annotated[bool, Strict()] = False
    """Whether they may say near which nodes and pods workers run."""
    priority_classes: Names = ()
    """PriorityClasses, by name."""
    max_cpu: Quantity = "2"
    """The most CPU that one worker may request or have as its limit."""
    max_memory: Quantity = "2Gi"
    """The most memory that one worker may request and have as its limit. A template with `resources` must have a memory
    limit."""


class AuditGrant(Spec):
    """What one audit may take of the namespace that audits of cluster connections run in."""

    max_executors: Annotated[int, Limits(0, MAX_EXECUTORS, "executors")] = 0
    """The most executors. They need the chart's value `audits.executors.enabled` too."""
    max_cores: Annotated[int, Limits(1, MAX_CORES, "cores")] = 4
    """The most CPU cores, of each executor if there are any."""
    max_memory: SparkMemory = "4g"
    """The largest heap of each Java machine."""
    max_local_disk: DiskSize = "50Gi"
    """The most local disk of each pod. A pod that writes more is evicted."""
    storage_classes: Names = ()
    """StorageClasses of which volumes may be made for local disk, by name."""
    node_selectors: Names = ()
    """Labels of nodes that they may ask for."""
    tolerations: Names = ()
    """Taints that they may tolerate, by key. To tolerate every taint is never allowed."""


class Grant(Spec):
    """What some namespaces may do."""

    namespace_selector: Annotated[
        LabelSelector,
        Rule(
            cel=(
                "!has(self.matchExpressions) || self.matchExpressions.all(e,"
                " (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))"
            ),
            message="matchExpressions must have values with In and NotIn, and none with Exists and DoesNotExist",
        ),
    ]
    """The namespaces, by their labels; `{}` is every namespace."""
    topic_prefixes: Annotated[tuple[TopicPrefix, ...], Entries(1, 32, 'prefixes ("" is every topic)')]
    """Front topics that they may own begin with one of these; `""` is every topic."""
    ready_topic_prefixes: Annotated[tuple[TopicPrefix, ...], Entries(0, 32, 'prefixes ("" is every topic)')] = ()
    """Topics that `ready.allowedTopics` may name begin with one of these, whoever they belong to; `""` is every topic. None unless set."""
    max_partitions: Annotated[int, Limits(1, 10_000, "partitions")] | None = None
    """Partitions that the delays topic of one DelayedTopic may have; no limit of its own unless set."""
    max_workers: Annotated[int, Limits(0, 1000, "workers")] | None = None
    """Workers that one DelayedTopic may have; no limit of its own unless set. More that are asked for are not started."""
    quota: Quota | None = None
    """What each of these namespaces may have in sum; no limit unless set. Of several entries for a namespace the highest
    number counts."""
    template: TemplateGrant = TemplateGrant()
    """What `workers.template` may set; CPU and memory within limits, and nothing else, unless set."""
    audits: AuditGrant = AuditGrant()
    """How large audits may be; no executors, 4 cores and 4 GiB unless set."""
    adopt: Annotated[bool, Strict()] = False
    """Whether they may take over a front topic that exists already. What was adopted is never deleted."""
    take_over: Annotated[bool, Strict()] = False
    """Whether a DelayedTopic there may, by annotation, take over the topics of a DelayedTopic of another Kubernetes cluster,
    as after a restore or a move."""


class ClusterKafkaConnectionSpec(KafkaConnectionSpec):
    """How to reach Kafka, and who may."""

    allow: Annotated[tuple[Grant, ...], Entries(0, 64, "grants")] = ()
    """Who may own which topics; one grant that fits is enough. Without any, nobody may."""


class KafkaConnectionStatus(StatusBase):
    """What was found, written by the operator."""

    cluster_id: str | None = None
    """The id of the Kafka cluster."""
    registry_topic_id: str | None = None
    """The id of the topic `delayedtopics.registry`, which has who owns which topic. With another one, or none, the
    connection is not used (`RegistryLost`)."""
    brokers: int | None = None
    """How many brokers answer."""
    brokers_seen: int | None = None
    """The highest number of brokers that ever answered. New topics get their replicas by it, so that a broker that is
    away for a moment costs them none."""


class ClusterKafkaConnectionStatus(KafkaConnectionStatus):
    """What was found, and who uses it, written by the operator."""

    namespaces: Annotated[Namespaces, ListMap("namespace")] = ()
    """The first 50 namespaces that use this connection, by name, each with what it has (`used`) and may have (`hard`)."""
    namespace_count: int | None = None
    """How many namespaces use this connection in all."""


class ClusterKafkaConnection(Resource):
    """A Kafka cluster that namespaces may use as far as `allow` grants. Its Secrets and the workers live in the
    operator's namespace, the audits in one of their own."""

    kind: Literal["ClusterKafkaConnection"]
    spec: ClusterKafkaConnectionSpec
    """How to reach Kafka, and who may."""
    status: ClusterKafkaConnectionStatus = Field(default_factory=ClusterKafkaConnectionStatus)
    """What was found, and who uses it, written by the operator."""


class KafkaConnection(Resource):
    """A Kafka cluster for the DelayedTopics of the same namespace, where its Secrets, the workers and the audits live."""

    kind: Literal["KafkaConnection"]
    spec: KafkaConnectionSpec
    """How to reach Kafka."""
    status: KafkaConnectionStatus = Field(default_factory=KafkaConnectionStatus)
    """What was found, written by the operator."""
