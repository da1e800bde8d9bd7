{{/* "true" if there is a default connection: it is enabled, and the address of Kafka is known. */}}
{{- define "delayed-topics.hasDefaultConnection" -}}
{{- if and .Values.defaultConnection.enabled (or .Values.defaultConnection.bootstrapServers .Values.evaluationKafka.enabled) -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if the default connection is to the evaluation Kafka. */}}
{{- define "delayed-topics.defaultIsEvaluation" -}}
{{- if and .Values.evaluationKafka.enabled (not .Values.defaultConnection.bootstrapServers) -}}true{{- end -}}
{{- end -}}

{{- define "delayed-topics.defaultConnection" -}}
{{- $connection := .Values.defaultConnection -}}
{{- $evaluation := include "delayed-topics.defaultIsEvaluation" . -}}
{{- $listener := .Values.evaluationKafka.secureListener -}}
apiVersion: delayedtopics.io/v1alpha1
kind: ClusterKafkaConnection
metadata:
  name: {{ $connection.name }}
spec:
  {{- if and $evaluation $listener.enabled $listener.forDefaultConnection }}
  bootstrapServers: ["{{ include "delayed-topics.kafkaHost" . }}:9093"]
  tls: {caSecretRef: {name: {{ include "delayed-topics.kafkaName" . }}-tls}}
  sasl: {secretRef: {name: {{ include "delayed-topics.kafkaUserSecret" (list . (first $listener.users)) }}}}
  {{- else if $evaluation }}
  bootstrapServers: ["{{ include "delayed-topics.kafkaHost" . }}:9092"]
  {{- else }}
  bootstrapServers: {{- toYaml $connection.bootstrapServers | nindent 4 }}
  {{- /* Empty `tls` or `sharedWorkers` are not the same as none, and a skew of 0 is not either, so these are compared with null. */}}
  {{- if not (kindIs "invalid" $connection.tls) }}
  tls: {{- toYaml $connection.tls | nindent 4 }}
  {{- end }}
  {{- with $connection.sasl }}
  sasl: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if not (kindIs "invalid" $connection.brokerSkewMs) }}
  brokerSkewMs: {{ $connection.brokerSkewMs }}
  {{- end }}
  {{- if not (kindIs "invalid" $connection.sharedWorkers) }}
  sharedWorkers: {{- toYaml $connection.sharedWorkers | nindent 4 }}
  {{- end }}
  {{- if $connection.allow }}
  allow: {{- toYaml $connection.allow | nindent 4 }}
  {{- else if $evaluation }}
  allow:
    - namespaceSelector: {}
      topicPrefixes: [""]
      readyTopicPrefixes: [""]
      {{- if .Values.audits.executors.enabled }}
      audits: {maxExecutors: 4}
      {{- end }}
  {{- end }}
{{- end -}}
