"""ClusterKafkaConnection and KafkaConnection: how to reach Kafka, and who may use it."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import ListMap, Resource, Rule, Spec, entries, limits, matches
from delayed_topics_crds.common import SecretRef, StatusBase
from delayed_topics_crds.delayed_topic import MAX_WORKERS, WorkerTemplate
from delayed_topics_crds.pods import LabelSelector, Quantity
from delayed_topics_crds.quota import Namespaces, Quota
from delayed_topics_crds.schedule import MAX_CORES, MAX_EXECUTORS, TTL_SECONDS, DiskSize, SparkMemory, TtlSeconds

SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

BootstrapServer = Annotated[
    str,
    matches(
        r"([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}",
        "must be host:port, without a scheme, such as kafka.example.com:9092",
        261,
    ),
]
TopicPrefix = Annotated[
    str,
    matches(r"[a-zA-Z0-9._-]*", "must be the beginning of a topic name: letters, digits, '.', '_' and '-'", 249),
]


SecretKey = Annotated[str, matches(r"[-._a-zA-Z0-9]+", "must be a key of the Secret", 253)]


class CaSecretRef(SecretRef):
    """The Secret with the certificate of the authority that signed the brokers' certificates."""

    key: SecretKey = "ca.crt"
    """The key in the Secret that has the certificates, in PEM format."""


class ClientCertSecretRef(SecretRef):
    """The Secret with a client certificate and its private key, both in PEM format."""

    certificate_key: SecretKey = "tls.crt"
    """The key in the Secret that has the certificate. In the Secret of a Strimzi KafkaUser, it is `user.crt`."""
    private_key_key: SecretKey = "tls.key"
    """The key in the Secret that has the private key. In the Secret of a Strimzi KafkaUser, it is `user.key`."""


class Tls(Spec):
    """TLS settings. With `tls: {}`, clients trust the authorities that the images trust."""

    ca_secret_ref: CaSecretRef | None = None
    """The authority that signed the brokers' certificates. Unless set, clients trust the authorities that the images trust."""
    client_cert_secret_ref: ClientCertSecretRef | None = None
    """A client certificate, for brokers that ask for one. The Secret has the type `kubernetes.io/tls`, or it has any other type and you
    name its keys."""


class LoginSecretRef(SecretRef):
    """The Secret with the password. It also has the user name unless the connection names the user."""

    username_key: SecretKey | None = None
    """The key in the Secret that has the user name. Defaults to `username`. It is not read if `sasl.username` is set."""
    password_key: SecretKey = "password"
    """The key in the Secret that has the password."""


class OAuthSecretRef(SecretRef):
    """The Secret with the client secret. It also has the client id unless the connection names the client."""

    client_id_key: SecretKey | None = None
    """The key in the Secret that has the client id. Defaults to `client-id`. It is not read if `oauth.clientId` is set."""
    client_secret_key: SecretKey = "client-secret"
    """The key in the Secret that has the client secret."""


class TokenEndpointCaSecretRef(SecretRef):
    """The Secret with the certificate of the authority that signed the token endpoint's certificate."""

    key: SecretKey = "ca.crt"
    """The key in the Secret that has the certificates, in PEM format."""


class OAuth(Spec):
    """An OAuth 2.0 client that gets its tokens with its own credentials (grant type `client_credentials`)."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.clientId) || !has(self.secretRef.clientIdKey)",
            message="clientId must not come with secretRef.clientIdKey: leave one of them out",
            field_path=".clientId",
        ),
    )

    token_endpoint_url: Annotated[
        str,
        matches(
            r"https://[-a-zA-Z0-9._~:/?&=%\[\]]+",
            "must be an HTTPS URL without credentials, such as https://login.example.com/oauth2/token",
            512,
        ),
    ]
    """The URL of the token endpoint, such as `https://login.example.com/oauth2/token`."""
    client_id: (
        Annotated[str, matches(r"\S(.*\S)?", "must be a client id, in one line and without spaces around it", 253)]
        | None
    ) = None
    """The client id, for a Secret that has none. Unless set, the client id comes from the Secret."""
    secret_ref: OAuthSecretRef
    """The Secret with the client secret."""
    scope: (
        Annotated[
            str,
            matches(r"[!#-\[\]-~]+( [!#-\[\]-~]+)*", "must be scopes of OAuth 2.0 with one space between them", 512),
        ]
        | None
    ) = None
    """The scope to ask for, as the token endpoint calls it. Unless set, the request has no scope."""
    extensions: (
        Annotated[
            Mapping[
                str,
                Annotated[
                    str, matches(r"[!-+\--~]+", "must be a value of visible ASCII characters without commas", 253)
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
    """SASL extensions that the brokers ask for, such as `logicalCluster` and `identityPoolId` of Confluent Cloud. Unless set, there are
    none."""
    ca_secret_ref: TokenEndpointCaSecretRef | None = None
    """The authority that signed the token endpoint's certificate. Unless set, clients trust the authorities that the images trust."""


class Sasl(Spec):
    """How clients of the connection authenticate, either with a user name and password, or with OAuth 2.0 tokens."""

    rules: ClassVar = (
        Rule(
            cel="(self.mechanism == 'OAUTHBEARER') == has(self.oauth)",
            message="oauth must come with the mechanism OAUTHBEARER, and with no other",
            field_path=".oauth",
        ),
        Rule(
            cel="(self.mechanism == 'OAUTHBEARER') != has(self.secretRef)",
            message="secretRef must be set, but not with OAUTHBEARER, which uses oauth.secretRef",
            field_path=".secretRef",
        ),
        Rule(
            cel="self.mechanism != 'OAUTHBEARER' || !has(self.username)",
            message="username must not come with OAUTHBEARER: name the client in oauth.clientId",
            field_path=".username",
        ),
        Rule(
            cel="!has(self.username) || !has(self.secretRef) || !has(self.secretRef.usernameKey)",
            message="username must not come with secretRef.usernameKey: leave one of them out",
            field_path=".username",
        ),
    )

    mechanism: SaslMechanism = "SCRAM-SHA-512"
    """The SASL mechanism. OAUTHBEARER uses tokens, the others use a password."""
    username: (
        Annotated[
            str,
            matches(r"\S(.*\S)?", "must be the name of a Kafka user, in one line and without spaces around it", 249),
        ]
        | None
    ) = None
    """The user name, for a Secret that has none, such as that of a Strimzi KafkaUser. Unless set, the user name comes from the Secret."""
    secret_ref: LoginSecretRef | None = None
    """The Secret with the password. It must be set unless the mechanism is OAUTHBEARER."""
    oauth: OAuth | None = None
    """Where tokens come from. It must be set with OAUTHBEARER, and only then."""


class SharedWorkers(Spec):
    """Workers that serve all DelayedTopics of the connection that have no workers of their own."""

    replicas: Annotated[int, limits(0, MAX_WORKERS, "workers")] = 2
    """How many shared workers there are. With 0, they release no record."""
    template: WorkerTemplate | None = None
    """Additions to the worker pods. A change replaces the pods one by one."""


class KafkaConnectionSpec(Spec):
    """How to reach Kafka."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.sasl) || !(self.sasl.mechanism in ['PLAIN', 'OAUTHBEARER']) || has(self.tls)",
            message=(
                "PLAIN and OAUTHBEARER must come with tls, because they send the password or token in plain text: add tls,"
                " or use SCRAM-SHA-512"
            ),
            field_path=".sasl",
        ),
    )

    bootstrap_servers: Annotated[tuple[BootstrapServer, ...], entries(1, 16, "servers (host:port)")]
    """The brokers that clients contact first, each as `host:port`."""
    tls: Tls | None = None
    """TLS settings. Unless set, connections are not encrypted."""
    sasl: Sasl | None = None
    """Authentication by user name and password, or by tokens. Unless set, clients do not authenticate."""
    broker_skew_ms: Annotated[int, limits(0, 60_000, "milliseconds (1 minute)")] | None = None
    """How much the clocks of the brokers may differ, in milliseconds. Workers release records that much later, so that no record is early.
    Defaults to 0 if there was never more than one broker, and to 5 otherwise."""
    shared_workers: SharedWorkers | None = None
    """Workers that several DelayedTopics share, so that a DelayedTopic with little to do costs no pod. They serve the DelayedTopics that
    have no `spec.workers` and the guarantee `AtLeastOnce`. Unless set, each DelayedTopic has its own workers."""


Names = Annotated[tuple[Annotated[str, Field(max_length=317)], ...], entries(0, 64, "names")]


class TemplateGrant(Spec):
    """What `workers.template` of a DelayedTopic may set on worker pods. These pods run in the operator's namespace."""

    labels: Names = ()
    """Keys of labels that a template may set. Policies and sidecar injectors act on labels and annotations, so none are allowed unless
    listed."""
    annotations: Names = ()
    """Keys of annotations that a template may set."""
    node_selectors: Names = ()
    """Keys of node labels that a template may ask for."""
    tolerations: Names = ()
    """Keys of taints that a template may tolerate. A toleration of every taint is never allowed."""
    affinity: Annotated[bool, Strict()] = False
    """Whether a template may set `affinity`, which decides near which nodes and pods workers run."""
    priority_classes: Names = ()
    """Names of PriorityClasses that a template may set."""
    max_cpu: Quantity = "2"
    """The most CPU that one worker may request or have as its limit."""
    max_memory: Quantity = "2Gi"
    """The most memory that one worker may request or have as its limit. A template with `resources` must have a memory limit above 0."""


class AuditGrant(Spec):
    """What one audit may use of the namespace in which audits of cluster connections run."""

    max_executors: Annotated[int, limits(0, MAX_EXECUTORS, "executors")] = 0
    """The most executors. Executors also need the chart value `audits.executors.enabled`."""
    max_cores: Annotated[int, limits(1, MAX_CORES, "cores")] = 4
    """The most CPU cores of each executor, or of the Job's pod if there are no executors."""
    max_memory: SparkMemory = "4g"
    """The largest heap of each Java process."""
    max_local_disk: DiskSize = "50Gi"
    """The most local disk of each pod. A pod that writes more is evicted."""
    max_ttl_seconds: TtlSeconds = TTL_SECONDS
    """How long the Job and its pod are kept after the audit at most, in seconds. An audit that asks for longer runs as well. Defaults to 1
    day."""
    storage_classes: Names = ()
    """Names of StorageClasses that an audit may use for local disk."""
    node_selectors: Names = ()
    """Keys of node labels that an audit may ask for."""
    tolerations: Names = ()
    """Keys of taints that an audit may tolerate. A toleration of every taint is never allowed."""


class Grant(Spec):
    """What the namespaces that the entry selects may do."""

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
    """Selects namespaces by their labels. `{}` selects every namespace."""
    topic_prefixes: Annotated[tuple[TopicPrefix, ...], entries(1, 32, 'prefixes ("" is every topic)')]
    """Prefixes of the front topics that DelayedTopics of these namespaces may own. `""` allows every topic."""
    ready_topic_prefixes: Annotated[tuple[TopicPrefix, ...], entries(0, 32, 'prefixes ("" is every topic)')] = ()
    """Prefixes of the topics that `ready.allowedTopics` may name, no matter who owns them. `""` allows every topic. Unless set, no topic is
    allowed."""
    max_partitions: Annotated[int, limits(1, 10_000, "partitions")] | None = None
    """How many partitions the front, the ready, and the delays topic of one DelayedTopic may each have. Unless set, there is no limit for
    one DelayedTopic."""
    max_workers: Annotated[int, limits(0, 1000, "workers")] | None = None
    """How many workers one DelayedTopic may have. The operator starts no more than these. Unless set, there is no limit for one
    DelayedTopic."""
    quota: Quota | None = None
    """What each of these namespaces may have in total. If several entries select a namespace, the highest number counts. Unless set, there
    is no limit."""
    template: TemplateGrant = TemplateGrant()
    """What `workers.template` of a DelayedTopic may set. Unless set, a template may set CPU and memory within limits, and nothing else."""
    audits: AuditGrant = AuditGrant()
    """How large audits may be. Unless set, an audit may have 4 cores, 4 GiB and no executors, and leaves a Job for 1 day."""
    adopt: Annotated[bool, Strict()] = False
    """Whether DelayedTopics there may adopt a front topic that exists already. The operator never deletes an adopted topic."""
    take_over: Annotated[bool, Strict()] = False
    """Whether a DelayedTopic there may take over the topics of a DelayedTopic in another Kubernetes cluster, for example after a restore or
    a move. An annotation on the DelayedTopic asks for it."""


class ClusterKafkaConnectionSpec(KafkaConnectionSpec):
    """How to reach Kafka, and which namespaces may use it."""

    allow: Annotated[tuple[Grant, ...], entries(0, 64, "grants")] = ()
    """Grants that say which namespaces may own which topics. One grant that fits is enough. Without grants, no namespace may own a
    topic."""


class KafkaConnectionStatus(StatusBase):
    """The state of the connection. The operator writes it."""

    cluster_id: str | None = None
    """The id of the Kafka cluster."""
    registry_topic_id: str | None = None
    """The id of the topic `delayedtopics.registry`, which records who owns which topic. If the topic is missing or has another id, the
    operator does not use the connection (`RegistryLost`)."""
    brokers: int | None = None
    """How many brokers answer."""
    brokers_seen: int | None = None
    """The highest number of brokers that ever answered. It decides how many replicas new topics get, so a broker that is away for a moment
    costs them no replica."""


class ClusterKafkaConnectionStatus(KafkaConnectionStatus):
    """The state of the connection, and the namespaces that use it. The operator writes it."""

    namespaces: Annotated[Namespaces, ListMap("namespace")] = ()
    """The first 50 namespaces that use this connection, sorted by name. Each has what the namespace uses (`used`) and may use (`hard`)."""
    namespace_count: int | None = None
    """How many namespaces use this connection in total."""


class ClusterKafkaConnection(Resource):
    """A Kafka cluster that namespaces may use as far as `allow` grants it. Its Secrets and the workers are in the operator's namespace.
    Audits run in a namespace of their own."""

    kind: Literal["ClusterKafkaConnection"]
    spec: ClusterKafkaConnectionSpec
    """How to reach Kafka, and which namespaces may use it."""
    status: ClusterKafkaConnectionStatus = Field(default_factory=ClusterKafkaConnectionStatus)
    """The state of the connection, and the namespaces that use it. The operator writes it."""


class KafkaConnection(Resource):
    """A Kafka cluster for the DelayedTopics of the same namespace. Its Secrets, the workers and the audits are in that namespace too."""

    kind: Literal["KafkaConnection"]
    spec: KafkaConnectionSpec
    """How to reach Kafka."""
    status: KafkaConnectionStatus = Field(default_factory=KafkaConnectionStatus)
    """The state of the connection. The operator writes it."""
