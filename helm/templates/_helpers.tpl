{{/* Names and parts that several templates share. */}}

{{- define "lastcall.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lastcall.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "lastcall.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lastcall.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lastcall.adminName" -}}
{{- printf "%s-admin" (include "lastcall.fullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}

{{- define "lastcall.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lastcall.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lastcall.labels" -}}
{{ include "lastcall.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lastcall.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lastcall.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "lastcall.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The container port that serves /metrics, by name. */}}
{{- define "lastcall.metricsPort" -}}
{{- if .Values.config.server.metrics_port }}metrics{{ else }}http{{ end }}
{{- end }}

{{/* Whether sessions live outside the pods. */}}
{{- define "lastcall.shared" -}}
{{- if or .Values.redis.existingSecret .Values.redis.url .Values.redis.hosts (not (has .Values.config.store.url (list "${REDIS_URL:-memory://}" "memory://"))) }}yes{{ end }}
{{- end }}

{{/* The URL from its parts; the kubelet puts the password in. */}}
{{- define "lastcall.redisUrl" -}}
{{- $redis := .Values.redis }}
{{- if $redis.url }}
{{- $redis.url }}
{{- else }}
{{- $scheme := ternary "rediss" "redis" $redis.tls }}
{{- $hosts := list }}
{{- range $redis.hosts }}
{{- $hosts = append $hosts (ternary . (printf "%s:%d" . (int $redis.port)) (contains ":" .)) }}
{{- end }}
{{- $user := ternary (printf "%s:$(REDIS_PASSWORD)@" $redis.username) (ternary (printf "%s@" $redis.username) "" (ne $redis.username "")) (ne $redis.passwordSecret "") }}
{{- if eq $redis.mode "sentinel" }}
{{- printf "%s+sentinel://%s%s/%s/%d" $scheme $user (join "," $hosts) $redis.master (int $redis.database) }}
{{- else if eq $redis.mode "cluster" }}
{{- printf "%s+cluster://%s%s" $scheme $user (join "," $hosts) }}
{{- else }}
{{- printf "%s://%s%s/%d" $scheme $user (first $hosts) (int $redis.database) }}
{{- end }}
{{- with $redis.options }}{{ printf "?%s" . }}{{ end }}
{{- end }}
{{- end }}

{{/* Combinations that cannot work, told before anything is installed. */}}
{{- define "lastcall.check" -}}
{{- $shared := include "lastcall.shared" . }}
{{- $replicas := ternary (int .Values.autoscaling.maxReplicas) (int .Values.replicaCount) .Values.autoscaling.enabled }}
{{- if and (gt $replicas 1) (not $shared) (not .Values.existingConfigMap) }}
{{- fail (printf "%d replicas share sessions only through Redis: set redis.existingSecret, redis.url or redis.hosts, or replicaCount: 1 without autoscaling" $replicas) }}
{{- end }}
{{- if and (gt (int .Values.config.server.workers) 1) (not $shared) (not .Values.existingConfigMap) }}
{{- fail "several workers share sessions only through Redis: set redis.existingSecret, redis.url or redis.hosts, or config.server.workers: 1" }}
{{- end }}
{{- if and .Values.config.server.admin_port (not .Values.config.server.admin_key) (not .Values.existingConfigMap) }}
{{- fail "config.server.admin_port serves nothing without config.server.admin_key: give it the hash that `lastcall keygen` prints, or ${A_VARIABLE}" }}
{{- end }}
{{- if and (eq .Values.redis.mode "standalone") (gt (len .Values.redis.hosts) 1) }}
{{- fail (printf "redis.hosts has %d entries; redis.mode: standalone takes one, sentinel and cluster several" (len .Values.redis.hosts)) }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: name the Gateway, as in [{name: public, namespace: gateways}]" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "ingress.enabled needs ingress.hosts, as in [{host: lastcall.example.com, paths: [/]}]" }}
{{- end }}
{{- end }}

{{/* Where Redis is, then what the user adds. Without either the list is empty. */}}
{{- define "lastcall.env" -}}
{{- $redis := .Values.redis }}
{{- $env := list }}
{{- if $redis.existingSecret }}
{{- $env = append $env (dict "name" "REDIS_URL" "valueFrom" (dict "secretKeyRef" (dict "name" $redis.existingSecret "key" $redis.existingSecretKey))) }}
{{- else if or $redis.url $redis.hosts }}
{{- if $redis.passwordSecret }}
{{- $env = append $env (dict "name" "REDIS_PASSWORD" "valueFrom" (dict "secretKeyRef" (dict "name" $redis.passwordSecret "key" $redis.passwordSecretKey))) }}
{{- end }}
{{- $env = append $env (dict "name" "REDIS_URL" "value" (include "lastcall.redisUrl" .)) }}
{{- end }}
{{- toYaml (concat $env .Values.extraEnv) }}
{{- end }}

{{/* Ports on which Redis is reached, as a list: those of the hosts, and the usual one where it cannot be known. */}}
{{- define "lastcall.redisPorts" -}}
{{- $ports := list }}
{{- range .Values.redis.hosts }}
{{- $ports = append $ports (ternary (last (splitList ":" .) | int) (int $.Values.redis.port) (contains ":" .)) }}
{{- end }}
{{- if or .Values.redis.existingSecret .Values.redis.url (and $ports (eq .Values.redis.mode "sentinel")) }}
{{- $ports = append $ports 6379 }}
{{- end }}
{{- toYaml ($ports | uniq) }}
{{- end }}
