{{- /* Variables of a pod. Settings of the user come last, so they win. */ -}}
{{- define "farhand.env" -}}
{{- if eq .Values.redis.mode "bundled" -}}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.existingSecret }}, key: REDIS_PASSWORD}
- name: FARHAND_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "farhand.name" . }}-redis:6379/0
{{ else if eq .Values.redis.mode "external" -}}
- name: FARHAND_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.existingSecret }}, key: FARHAND_REDIS_URL}
{{ end -}}
{{- $env := dict
  "FARHAND_ADDR" "0.0.0.0:8080"
  "FARHAND_METRICS_ADDR" "0.0.0.0:9090"
  "FARHAND_DATA_DIR" "/data"
  "FARHAND_DRAIN_TIMEOUT" (printf "%ds" (int .Values.drainSeconds))
  "GOMEMLIMIT" .Values.goMemLimit -}}
{{- if include "farhand.single" . }}{{ $_ := set $env "FARHAND_BLOB_URL" "file:///data/blobs" }}{{ end -}}
{{- range $name, $value := merge (deepCopy .Values.settings) $env -}}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{ end -}}
{{- end }}
