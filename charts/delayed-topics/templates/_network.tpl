{{/* The beginning of a NetworkPolicy, up to its rules. Takes a dict of root, name, namespace, part and pods, and keep: whether the policy
stays when the chart is uninstalled. */}}
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

{{/* The rule about who may scrape metrics. Probes come from the node, to which no policy applies. */}}
{{- define "delayed-topics.scraped" -}}
- ports: [{protocol: TCP, port: http}]
  {{- with .Values.networkPolicies.scrapers }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Port 5353 is that of OpenShift's DNS pods: a policy sees the ports of pods, not those of their Service. */}}
{{- define "delayed-topics.toDns" -}}
- ports:
    {{- range list 53 5353 }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* Allows the ports of brokers and token endpoints at any address, because only Kafka's metadata says where the brokers are. */}}
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

{{/* Takes a dict of root and namespace, as does the next template. Both policies stay when the chart is uninstalled, as their pods do:
without them, workers in a namespace that denies all other traffic would be cut off from Kafka. */}}
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
  # Spark's driver and executors connect to each other at random ports.
  ingress:
    - from: [{podSelector: {matchLabels: {{ toJson $pods }}}}]
  egress:
    {{- include "delayed-topics.toDnsAndKafka" .root | nindent 4 }}
    - to: [{podSelector: {matchLabels: {{ toJson $pods }}}}]
    - ports: {{- include "delayed-topics.tcpPorts" $ports | nindent 8 }}
{{- end }}
