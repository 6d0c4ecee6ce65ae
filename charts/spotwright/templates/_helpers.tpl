{{/* The name of objects outside the release's namespace: another controller has another namespace. */}}
{{- define "spotwright.name" -}}
{{- if eq .Release.Namespace "spotwright" }}spotwright{{ else }}{{ printf "spotwright-%s" .Release.Namespace | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The selector labels of one process's pods. Argument: a list of the process (webhook or recorder) and the root. */}}
{{- define "spotwright.selector" -}}
app.kubernetes.io/name: spotwright
app.kubernetes.io/instance: {{ (last .).Release.Name | quote }}
app.kubernetes.io/component: {{ first . }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "spotwright.labels" -}}
helm.sh/chart: {{ printf "spotwright-%s" .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: spotwright
{{- end }}

{{/* Metadata with a name in the release's namespace and the labels. */}}
{{- define "spotwright.metadata" -}}
name: spotwright
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "spotwright.labels" . | nindent 2 }}
{{- end }}

{{- define "spotwright.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The problems of the values, as sentences: a schema would name a pattern. Every value except maps and lists of Kubernetes' kinds
     has its form here, so none can bring other YAML into a manifest. */}}
{{- define "spotwright.check" -}}
{{- $values := .Values }}
{{- $name := "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?" }}
{{- $namespace := "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?" }}
{{- $forms := list
  (list "image.repository" $values.image.repository "([a-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?/)?[a-z0-9]([a-z0-9._/-]*[a-z0-9])?" "the name of an image without tag and digest, such as registry.example.com/spotwright")
  (list "image.digest" $values.image.digest "(sha256:[0-9a-f]{64})?" "a digest: sha256: and 64 hexadecimal digits")
  (list "image.tag" $values.image.tag "([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?" "a tag, such as 0.1.0")
  (list "logs.volume.size" $values.logs.volume.size "([1-9][0-9]*(\\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?)?" "a quantity, such as 20Gi")
  (list "logs.volume.storageClass" $values.logs.volume.storageClass (printf "(%s)?" $name) "the name of a StorageClass")
  (list "logs.volume.existingClaim" $values.logs.volume.existingClaim (printf "(%s)?" $name) "the name of a PersistentVolumeClaim")
  (list "logs.url" $values.logs.url "(((s3|gs|az|azure)://[A-Za-z0-9][A-Za-z0-9._-]*|abfss?://[a-z0-9-]+@[A-Za-z0-9.-]+)(/[A-Za-z0-9._/=-]*)?)?" "the address of an object store without credentials, such as s3://BUCKET/FOLDER")
  (list "logs.secret" $values.logs.secret (printf "(%s)?" $name) "the name of a Secret")
  (list "records.repairGroup" $values.records.repairGroup "[A-Za-z0-9._:/@-]*" "the name of a group of users, such as spotwright:repair")
  (list "certificates.secret" $values.certificates.secret (printf "(%s)?" $name) "the name of a Secret")
  (list "certificates.issuer.name" $values.certificates.issuer.name (printf "(%s)?" $name) "the name of an Issuer")
  (list "checkpoints.claimSize" $values.checkpoints.claimSize "([1-9][0-9]*(\\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?)?" "a quantity, such as 20Gi")
  (list "checkpoints.claimClass" $values.checkpoints.claimClass (printf "(%s)?" $name) "the name of a StorageClass")
  (list "controller.logLimit" $values.controller.logLimit "[0-9]+(\\.[0-9]+)?(k|M|G|Ki|Mi|Gi)?" "a size, such as 64Mi")
  (list "controller.namespaceLogLimit" $values.controller.namespaceLogLimit "[0-9]+(\\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?" "a size, such as 5Gi")
  (list "controller.maxNodeProvisionTime" $values.controller.maxNodeProvisionTime "([0-9]+(\\.[0-9]+)?(s|m|h|d))+" "a duration, such as 15m")
  (list "refusal.image" $values.refusal.image "([a-zA-Z0-9][a-zA-Z0-9._:/@-]*)?" "the name of an image")
  (list "priorityClassName" $values.priorityClassName (printf "(%s)?" $name) "the name of a PriorityClass")
  (list "test.namespace" $values.test.namespace (printf "(%s)?" $namespace) "the name of a namespace")
}}
{{- range $values.namespaces }}{{- $forms = append $forms (list "namespaces" . $namespace "names of namespaces, in lower case") }}{{- end }}
{{- range $values.image.pullSecrets }}{{- $forms = append $forms (list "image.pullSecrets" . $name "names of Secrets") }}{{- end }}
{{- range $values.refusal.argoExecutorImages }}{{- $forms = append $forms (list "refusal.argoExecutorImages" . "[a-zA-Z0-9][a-zA-Z0-9._:/@-]*" "names of images") }}{{- end }}
{{- range $values.networkPolicy.apiServer.cidrs }}{{- $forms = append $forms (list "networkPolicy.apiServer.cidrs" . "[0-9a-fA-F.:]+/[0-9]{1,3}" "blocks of addresses, such as 10.0.0.1/32") }}{{- end }}
{{- range $forms }}
{{- if not (regexMatch (printf "^(%s)$" (index . 2)) (index . 1)) }}
{{- fail (printf "%s: expected %s, found %q" (index . 0) (index . 3) (index . 1)) }}
{{- end }}
{{- end }}
{{- with $values }}
{{- if and .clusterWide .namespaces }}
{{- fail "namespaces: clusterWide serves every labelled namespace: leave out the list, or clusterWide" }}
{{- end }}
{{- if not (or .clusterWide .namespaces) }}
{{- fail "namespaces: none is served: list them, as in --set 'namespaces={team-a,team-b}', or set clusterWide=true for all with the label spotwright.dev/enabled=true" }}
{{- end }}
{{- range .namespaces }}
{{- if has . (list $.Release.Namespace "kube-system" "kube-public" "kube-node-lease") }}
{{- fail (printf "namespaces: %s cannot be served: it has the controller's or Kubernetes' own work, which must not be on spot nodes" .) }}
{{- end }}
{{- end }}
{{- with get (fromYaml .config) "Error" }}
{{- fail (printf "config: not the text of a spotwright.yaml (%s); use --set-file config=spotwright.yaml" .) }}
{{- end }}
{{- if and .image.tag .image.digest }}
{{- fail "image: the digest names the image already: leave out the tag" }}
{{- end }}
{{- if and .logs.secret (not .logs.url) }}
{{- fail "logs: `secret` has the credentials of an object store: name the store in `url`" }}
{{- end }}
{{- if and .logs.url (include "spotwright.hasVolume" $) }}
{{- fail "logs: they are kept in the store that `url` names, or on `volume`: leave out one of them" }}
{{- end }}
{{- with .logs.volume }}
{{- if and .existingClaim (or .size .storageClass) }}
{{- fail "logs.volume: existingClaim has a size and a StorageClass already: leave them out" }}
{{- end }}
{{- if and .storageClass (not .size) }}
{{- fail "logs.volume: storageClass belongs to a claim that is made: set size" }}
{{- end }}
{{- end }}
{{- with .certificates }}
{{- if and .certManager .secret }}
{{- fail "certificates: cert-manager makes the Secret itself: leave out `secret`, or certManager" }}
{{- end }}
{{- if and .certManager .authority }}
{{- fail "certificates: cert-manager writes the authority into the registration itself: leave out `authority`" }}
{{- end }}
{{- if and .secret (not .authority) }}
{{- fail "certificates: API servers need the authority that signed the certificate in `secret`: --set-file certificates.authority=ca.crt" }}
{{- end }}
{{- if and .authority (not .secret) }}
{{- fail "certificates: `authority` belongs to a certificate of yours: name its Secret in `secret`" }}
{{- end }}
{{- if and .authority (not (contains "-----BEGIN CERTIFICATE-----" .authority)) }}
{{- fail "certificates: `authority` is the text of a PEM file, with -----BEGIN CERTIFICATE-----: --set-file certificates.authority=ca.crt" }}
{{- end }}
{{- if and .clientAuthority (not (contains "-----BEGIN CERTIFICATE-----" .clientAuthority)) }}
{{- fail "certificates: `clientAuthority` is the text of a PEM file, with -----BEGIN CERTIFICATE-----: --set-file certificates.clientAuthority=clients.crt" }}
{{- end }}
{{- if and .issuer.name (not .certManager) }}
{{- fail "certificates: only cert-manager has an issuer: set certificates.certManager=true" }}
{{- end }}
{{- end }}
{{- if and .checkpoints.claimClass (not .checkpoints.claimSize) }}
{{- fail "checkpoints: claimClass belongs to claims that are made: set claimSize" }}
{{- end }}
{{- if and .test.namespace .namespaces (not (has .test.namespace .namespaces)) }}
{{- fail (printf "test.namespace: %s is not served: name one of `namespaces`" .test.namespace) }}
{{- end }}
{{- range $key, $value := .nodeSelector }}
{{- if has $value (index ($.Files.Get "files/spot.yaml" | fromYaml) $key | default list) }}
{{- fail (printf "nodeSelector: %s=%s selects spot nodes, on which the controller would go with what it has to save" $key $value) }}
{{- end }}
{{- end }}
{{- range $key, $value := .podLabels }}
{{- if hasPrefix "app.kubernetes.io/" $key }}
{{- fail (printf "podLabels: %s is the chart's: by it the Service, the NetworkPolicy and readers find the pod" $key) }}
{{- end }}
{{- end }}
{{- range $key, $value := .podAnnotations }}
{{- if or (contains "apparmor" $key) (contains "seccomp" $key) }}
{{- fail (printf "podAnnotations: %s would change the container's security, which is not allowed" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The pod and container settings for `restricted`; every pod has both. */}}
{{- define "spotwright.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "spotwright.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The node affinity that excludes spot nodes, by the labels of files/spot.yaml. */}}
{{- define "spotwright.affinity" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      {{- range $key, $values := .Files.Get "files/spot.yaml" | fromYaml }}
      - {key: {{ $key | quote }}, operator: NotIn, values: {{ toJson $values }}}
      {{- end }}
{{- end }}

{{/* Whether logs are kept on a volume. */}}
{{- define "spotwright.hasVolume" -}}
{{- if or .Values.logs.volume.size .Values.logs.volume.existingClaim }}true{{ end }}
{{- end }}

{{/* The replicas of a process; the argument is as for spotwright.selector. A volume is on one node, so one recorder uses it. */}}
{{- define "spotwright.replicas" -}}
{{- if and (eq (first .) "recorder") (include "spotwright.hasVolume" (last .)) }}1{{ else }}{{ int (last .).Values.replicas }}{{ end }}
{{- end }}

{{/* The common part of both Deployments; the argument is as for spotwright.selector. The caller
     adds the options of its container. */}}
{{- define "spotwright.deployment" -}}
{{- $process := index . 0 }}{{- $root := index . 1 }}
{{- $selector := include "spotwright.selector" (list $process $root) }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: spotwright-{{ $process }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "spotwright.labels" $root | nindent 4 }}
spec:
  replicas: {{ include "spotwright.replicas" (list $process $root) }}
  {{- if and (eq $process "recorder") (include "spotwright.hasVolume" $root) }}
  strategy: {type: Recreate}
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  {{- end }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- with $root.Values }}
      serviceAccountName: spotwright-{{ $process }}
      automountServiceAccountToken: true
      {{- with .image.pullSecrets }}
      imagePullSecrets:
      {{- range . }}
      - {name: {{ . | quote }}}
      {{- end }}
      {{- end }}
      {{- with .priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "spotwright.podSecurity" $root | nindent 8 }}
      {{- with .nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- include "spotwright.affinity" $root | nindent 8 }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  {{- $selector | nindent 18 }}
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
      {{- with .tolerations }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      volumes:
      - name: authority
        emptyDir: {sizeLimit: 1Mi}
      - name: tmp
        emptyDir: {medium: Memory, sizeLimit: 64Mi}
      {{- if include "spotwright.givenCertificate" $root }}
      - name: serving
        secret: {secretName: {{ include "spotwright.certificateSecret" $root | quote }}}
      {{- end }}
      {{- if and (eq $process "webhook") .certificates.clientAuthority }}
      - name: clients
        configMap: {name: spotwright-clients}
      {{- end }}
      {{- if and (eq $process "recorder") (include "spotwright.hasVolume" $root) }}
      - name: logs
        persistentVolumeClaim: {claimName: {{ .logs.volume.existingClaim | default "spotwright-logs" | quote }}}
      {{- end }}
      {{- end }}
{{- end }}

{{/* The first options of a container; the argument is as for spotwright.selector. */}}
{{- define "spotwright.container" -}}
{{- $root := last . }}
- name: {{ first . }}
  image: {{ include "spotwright.image" $root | quote }}
  imagePullPolicy: IfNotPresent
  env:
  - {name: HOME, value: /tmp}
  resources:
    {{- toYaml (get $root.Values (first .)).resources | nindent 4 }}
  securityContext:
    {{- include "spotwright.containerSecurity" $root | nindent 4 }}
  volumeMounts:
  - {name: authority, mountPath: /var/lib/spotwright}
  - {name: tmp, mountPath: /tmp}
  {{- if include "spotwright.givenCertificate" $root }}
  - {name: serving, mountPath: /etc/spotwright/serving, readOnly: true}
  {{- end }}
  {{- if and (eq (first .) "webhook") $root.Values.certificates.clientAuthority }}
  - {name: clients, mountPath: /etc/spotwright/clients, readOnly: true}
  {{- end }}
  {{- if and (eq (first .) "recorder") (include "spotwright.hasVolume" $root) }}
  - {name: logs, mountPath: /var/lib/spotwright-logs}
  {{- end }}
  args:
  - controller
  - {{ first . }}
  - --authority-folder=/var/lib/spotwright/authority
  - --home={{ $root.Release.Namespace }}
  - --name={{ include "spotwright.name" $root }}
  {{- with $root.Values.namespaces }}
  - --namespaces={{ join "," . }}
  {{- end }}
  - --metrics-listen=0.0.0.0:9445
  {{- if include "spotwright.givenCertificate" $root }}
  - --certificate=/etc/spotwright/serving/tls.crt
  - --key=/etc/spotwright/serving/tls.key
  - --authority=/etc/spotwright/serving/ca.crt
  {{- end }}
  {{- if $root.Values.controller.verbose }}
  - --verbose
  {{- end }}
{{- end }}

{{/* Whether the serving certificate comes from elsewhere. */}}
{{- define "spotwright.givenCertificate" -}}
{{- if or .Values.certificates.certManager .Values.certificates.secret }}true{{ end }}
{{- end }}

{{- define "spotwright.certificateSecret" -}}
{{- .Values.certificates.secret | default "spotwright-serving" }}
{{- end }}

{{/* Annotations of objects for `helm test` only. */}}
{{- define "spotwright.hook" }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
    helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end }}
