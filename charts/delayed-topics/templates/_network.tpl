{{/* The beginning of a NetworkPolicy, up to its rules. Takes a dict of root, name, namespace, part and pods, and keep: whether it stays
when the chart goes. */}}
{{- define "delayed-topics.networkPolicy" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- include "delayed-topics.labels" (list .root .part) | nindent 4 }}
  {{- if .keep }}
  annotations: {helm.sh/resource-policy: keep}
  {{- end }}
spec:
  podSelector:
    matchLabels: {{- toYaml .pods | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}

{{/* A list of ports, by number or by name. */}}
{{- define "delayed-topics.tcpPorts" -}}
{{- $ports := list }}
{{- range . }}
{{- $ports = append $ports (dict "protocol" "TCP" "port" (kindIs "string" . | ternary . (int64 .))) }}
{{- end }}
{{- uniq $ports | toYaml }}
{{- end -}}

{{/* Who may ask for metrics. Probes come from the node, which no policy holds back. */}}
{{- define "delayed-topics.scraped" -}}
- ports: [{protocol: TCP, port: http}]
  {{- with .Values.networkPolicies.scrapers }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* 5353 is where the pods of OpenShift's DNS listen, and a policy looks at these, not at their Service. */}}
{{- define "delayed-topics.toDns" -}}
- ports:
    {{- range list 53 5353 }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* Where brokers are isn't known before they are asked, so it is their ports that are let through, and those of token endpoints. */}}
{{- define "delayed-topics.toDnsAndKafka" -}}
{{- $ports := .Values.networkPolicies.kafkaPorts }}
{{- if .Values.evaluationKafka.enabled }}
{{- $ports = concat $ports (list 9092 9093) }}
{{- end }}
{{- range .Values.defaultConnection.bootstrapServers }}
{{- $ports = append $ports (regexFind "[0-9]+$" . | int64) }}
{{- end }}
{{- $ports = concat $ports .Values.networkPolicies.tokenEndpointPorts }}
{{- with .Values.defaultConnection.sasl }}
{{- with dig "oauth" "tokenEndpointUrl" "" . }}
{{- $ports = append $ports (regexFind ":[0-9]+$" (urlParse .).host | trimPrefix ":" | default "443" | int64) }}
{{- end }}
{{- end }}
{{- include "delayed-topics.toDns" . }}
- ports: {{- include "delayed-topics.tcpPorts" $ports | nindent 4 }}
{{- end -}}

{{/* Takes a dict of root and namespace, as what follows. Both are kept as the pods are that they are for: in a namespace that denies
everything else, workers would be cut off from Kafka. */}}
{{- define "delayed-topics.workersPolicy" }}
{{- $pods := dict "app.kubernetes.io/name" "delayed-topics-worker" "app.kubernetes.io/managed-by" "delayed-topics-operator" }}
{{- include "delayed-topics.networkPolicy" (dict "root" .root "name" "delayed-topics-worker" "namespace" .namespace "part" "worker"
  "pods" $pods "keep" true) }}
  ingress:
    {{- include "delayed-topics.scraped" .root | nindent 4 }}
  egress:
    {{- include "delayed-topics.toDnsAndKafka" .root | nindent 4 }}
{{- end }}

{{- define "delayed-topics.auditsPolicy" }}
{{- $pods := dict "app.kubernetes.io/name" "delayed-topics-audit" "app.kubernetes.io/managed-by" "delayed-topics-operator" }}
{{- $ports := concat .root.Values.networkPolicies.apiServerPorts .root.Values.networkPolicies.storagePorts }}
{{- include "delayed-topics.networkPolicy" (dict "root" .root "name" "delayed-topics-audit" "namespace" .namespace "part" "audit"
  "pods" $pods "keep" true) }}
  # Spark's executors and the Job that leads them find each other at ports that they choose.
  ingress:
    - from: [{podSelector: {matchLabels: {{ toJson $pods }}}}]
  egress:
    {{- include "delayed-topics.toDnsAndKafka" .root | nindent 4 }}
    - to: [{podSelector: {matchLabels: {{ toJson $pods }}}}]
    - ports: {{- include "delayed-topics.tcpPorts" $ports | nindent 8 }}
{{- end }}
