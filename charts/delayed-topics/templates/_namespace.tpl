{{/* The objects that the operator and audits need in a namespace where they work. Each template takes a dict of root and namespace. */}}

{{/* The operator's rights on workers. */}}
{{- define "delayed-topics.workersBinding" }}
{{- $operator := printf "%s-operator" (include "delayed-topics.fullname" .root) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $operator }}
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "operator") | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "delayed-topics.clusterName" .root }}-operator-namespace}
subjects:
  - {kind: ServiceAccount, name: {{ $operator }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/* The operator's rights on Jobs and SparkApplications of audits. */}}
{{- define "delayed-topics.auditsBinding" }}
{{- $operator := printf "%s-operator" (include "delayed-topics.fullname" .root) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $operator }}-audits
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "operator") | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "delayed-topics.clusterName" .root }}-audits}
subjects:
  - {kind: ServiceAccount, name: {{ $operator }}, namespace: {{ .root.Release.Namespace }}}
{{- if .root.Values.audits.sparkApplications.enabled }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $operator }}-audits-spark-applications
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "operator") | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "delayed-topics.clusterName" .root }}-audits-spark-applications
subjects:
  - {kind: ServiceAccount, name: {{ $operator }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
{{- end }}

{{/* The ServiceAccount of Jobs of audits with executors. It may only create, list and delete pods in its own namespace. Such a pod can
mount everything in this namespace. Takes pullSecrets too. */}}
{{- define "delayed-topics.auditDriver" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: delayed-topics-audit-driver
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "audit") | nindent 4 }}
  {{- with .root.Values.serviceAccounts.audit.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- with .pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: delayed-topics-audit-driver
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "audit") | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [create, get, list, watch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: delayed-topics-audit-driver
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root "audit") | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: delayed-topics-audit-driver}
subjects:
  - {kind: ServiceAccount, name: delayed-topics-audit-driver, namespace: {{ .namespace }}}
{{- end }}
