{{- define "operator.labels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kuberay-operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The namespaces that it watches, with commas between; nothing is all. */}}
{{- define "operator.watched" -}}
{{- if .Values.watchNamespace }}{{ join "," .Values.watchNamespace }}{{ else if .Values.singleNamespaceInstall }}{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- /* What it does in the namespaces that it watches. */}}
{{- define "operator.rules" -}}
- apiGroups: [""]
  resources: [pods, services, events, serviceaccounts, secrets, endpoints, pods/status, services/status]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
- apiGroups: [""]
  resources: [pods/proxy, services/proxy, pods/resize]
  verbs: [create, get, patch, update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, delete, get, list, patch, update, watch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, get, list, update]
- apiGroups: [networking.k8s.io, extensions]
  resources: [ingresses]
  verbs: [create, delete, get, list, patch, update, watch]
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs, rayservices, raycronjobs]
  verbs: [create, delete, get, list, patch, update, watch]
- apiGroups: [ray.io]
  resources: [rayclusters/finalizers, rayjobs/finalizers, rayservices/finalizers, raycronjobs/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayclusters/status, rayjobs/status, rayservices/status, raycronjobs/status]
  verbs: [get, patch, update]
# It makes the autoscaler's role, and Kubernetes lets a role give only rights that its maker has.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create, delete, get, list, update, watch]
{{- end }}
