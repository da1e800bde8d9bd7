{{/* The release's name, followed by the chart's name unless the release's name contains it. */}}
{{- define "delayed-topics.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The prefix of the names of cluster-scoped objects. It has the namespace, so that releases in several namespaces don't collide. */}}
{{- define "delayed-topics.clusterName" -}}
{{ .Release.Namespace }}:{{ include "delayed-topics.fullname" . }}
{{- end -}}

{{/* Labels by which pods are selected. Takes (list $ component). */}}
{{- define "delayed-topics.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object. Takes (list $ component). */}}
{{- define "delayed-topics.labels" -}}
{{- $root := index . 0 -}}
{{ include "delayed-topics.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels of objects for monitoring, including those of the values. Takes (list $ labels). */}}
{{- define "delayed-topics.monitoringLabels" -}}
{{ include "delayed-topics.labels" (list (index . 0) "monitoring") }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image's full name. Takes (list $ name). */}}
{{- define "delayed-topics.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* The fields that the "restricted" Pod Security Standard requires of a pod. They set no user, because OpenShift refuses a pod that
requests one: the user is that of the image, a number, or one that the cluster chooses. */}}
{{- define "delayed-topics.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The fields that the same standard requires of a container, and a read-only root file system. */}}
{{- define "delayed-topics.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The namespace in which audits of cluster connections run, away from the operator's Secrets. */}}
{{- define "delayed-topics.auditNamespace" -}}
{{- $name := .Values.audits.namespace | default (printf "%s-audits" (.Release.Namespace | trunc 56)) -}}
{{- if has $name (prepend .Values.tenantNamespaces .Release.Namespace) -}}
{{- fail (printf "audits.namespace must be a namespace of its own: %s is the operator's or a tenant's" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "delayed-topics.kafkaName" -}}
{{ include "delayed-topics.fullname" . }}-kafka
{{- end -}}

{{- define "delayed-topics.kafkaHost" -}}
{{ include "delayed-topics.kafkaName" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The Secret of a user of the evaluation Kafka. Takes (list $ user). */}}
{{- define "delayed-topics.kafkaUserSecret" -}}
{{ include "delayed-topics.kafkaName" (index . 0) }}-user-{{ index . 1 }}
{{- end -}}
