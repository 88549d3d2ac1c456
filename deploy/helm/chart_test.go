// Package helm_test renders the Helm chart, validates it against the schemas of Kubernetes, and checks what they cannot
// say: that a pod's grace period is longer than its drain, that its settings exist, and that selectors select.
package helm_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/farhand/farhand/internal/metrics/metricstest"
)

var (
	chosen = flag.Bool("chart", false, "test the Helm chart, with what sh .ci/deps chart installs")
	update = flag.Bool("update", false, "write deploy/kubernetes/farhand.yaml")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !*chosen {
		fmt.Println("the Helm chart is not tested: only a change of it breaks its tests, which -chart runs")
		return
	}
	os.Exit(m.Run())
}

const (
	tools       = "../../.cache/bin/"
	schemas     = "../../.cache/kubernetes-schemas"
	kubeVersion = "1.37.0" // of the schemas
	manifest    = "../kubernetes/farhand.yaml"
)

// bundled are the arguments of the manifest: a fleet with a Redis of its own.
var bundled = []string{"--set", "redis.mode=bundled"}

// releases are the arguments of what is tested.
var releases = map[string][]string{
	"single":  {"-f", "values-single.yaml"},
	"fleet":   {"-f", "values-fleet.yaml"},
	"bundled": bundled,
}

func TestChart(t *testing.T) {
	for name, args := range releases {
		t.Run(name, func(t *testing.T) {
			if out, err := helm(t, "lint", args...); err != nil {
				t.Fatalf("lint: %v\n%s", err, out)
			}
			text := render(t, args...)
			conform(t, text)
			all := parse(t, text)
			checkPods(t, all)
			checkSecrets(t, all)
			checkScaling(t, all)
			checkSelectors(t, all)
		})
	}
}

// TestFleetHasEverything: the values of the fleet turn everything on, those of the single pod nothing that needs two.
func TestFleetHasEverything(t *testing.T) {
	for name, want := range map[string]string{
		"fleet": "Deployment HorizontalPodAutoscaler Ingress NetworkPolicy PodDisruptionBudget Service Service " +
			"ServiceAccount ServiceMonitor",
		"single": "Deployment NetworkPolicy PersistentVolumeClaim Service Service ServiceAccount",
		"bundled": "Deployment NetworkPolicy NetworkPolicy PodDisruptionBudget Service Service Service " +
			"ServiceAccount StatefulSet",
	} {
		var kinds []string
		for _, o := range parse(t, render(t, releases[name]...)) {
			kinds = append(kinds, text(o, "kind"))
		}
		slices.Sort(kinds)
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// TestSchemaRefuses: values that are misspelled, or in the wrong place, are refused.
func TestSchemaRefuses(t *testing.T) {
	for _, value := range []string{
		"replica=2", "replicas=none", "redis.mode=memory", "existingSecret=", "settings.FARHAND_TOKEN=secret",
		"settings.PUBLIC_URL=x", "settings.FARHAND_DRAIN_TIMEOUT=1h", "ingress.enabled=true", "drainSeconds=0",
	} {
		if out, err := helm(t, "template", "--set", value); err == nil || !strings.Contains(string(out), "schema") {
			t.Errorf("%s is not refused: %.300s", value, out)
		}
	}
}

func TestManifestIsRendered(t *testing.T) {
	want := "# Rendered from the chart: a fleet of three pods with one Redis. docs/deploy.md makes its Secret.\n#\n" +
		"#   go test ./deploy/helm -chart -update\n" + string(render(t, bundled...))
	if *update {
		if err := os.WriteFile(manifest, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(manifest); err != nil || string(got) != want {
		t.Errorf("%s is not what the chart renders (%v): run with -update", manifest, err)
	}
}

// helm runs a command on the chart, as release farhand.
func helm(t *testing.T, command string, args ...string) ([]byte, error) {
	t.Helper()
	all := []string{command}
	if command == "template" {
		all = append(all, "farhand")
	} else {
		all = append(all, "--strict")
	}
	all = append(append(all, "farhand", "--kube-version", kubeVersion), args...)
	cmd := exec.Command(tools+"helm", all...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir())
	return cmd.CombinedOutput()
}

func render(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := helm(t, "template", args...)
	if err != nil {
		t.Fatalf("template: %v\n%s", err, out)
	}
	return out
}

// conform validates manifests strictly. A ServiceMonitor is not Kubernetes' own, so there is no schema of it here.
func conform(t *testing.T, manifests []byte) {
	t.Helper()
	dir, err := filepath.Abs(schemas)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tools+"kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor", "-schema-location",
		dir+"/{{.ResourceKind}}{{.KindSuffix}}.json")
	cmd.Stdin = bytes.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Valid: 0") {
		t.Errorf("kubeconform: %v\n%s", err, out)
	}
}

type object = map[string]any

func parse(t *testing.T, text []byte) (all []object) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// at returns what is at a path of keys, or nil.
func at(o any, path ...string) any {
	for _, key := range path {
		m, _ := o.(object)
		o = m[key]
	}
	return o
}

func text(o any, path ...string) string {
	s, _ := at(o, path...).(string)
	return s
}

// list returns the objects of a list.
func list(o any, path ...string) (all []object) {
	items, _ := at(o, path...).([]any)
	for _, item := range items {
		m, _ := item.(object)
		all = append(all, m)
	}
	return all
}

// checkPods checks the drain, the settings and the security of all pods.
func checkPods(t *testing.T, all []object) {
	t.Helper()
	known := settings(t)
	for _, o := range all {
		spec := at(o, "spec", "template", "spec")
		if spec == nil {
			continue
		}
		c := list(spec, "containers")[0]
		if at(spec, "securityContext", "runAsNonRoot") != true ||
			at(c, "securityContext", "readOnlyRootFilesystem") != true ||
			at(c, "securityContext", "allowPrivilegeEscalation") != false {
			t.Errorf("%s may be root, or write to its image", text(o, "metadata", "name"))
		}
		if text(c, "name") != "farhand" {
			continue
		}
		var drain time.Duration
		for _, v := range list(c, "env") {
			name, value := text(v, "name"), text(v, "value")
			if strings.HasPrefix(name, "FARHAND_") && !known[name] {
				t.Errorf("the program has no setting %s", name)
			}
			if name == "FARHAND_DRAIN_TIMEOUT" {
				drain, _ = time.ParseDuration(value)
			}
		}
		grace, _ := at(spec, "terminationGracePeriodSeconds").(int)
		preStop, _ := at(c, "lifecycle", "preStop", "sleep", "seconds").(int)
		if preStop <= 0 || drain <= 0 || time.Duration(grace-preStop)*time.Second <= drain {
			t.Errorf("a grace period of %d s does not fit preStop of %d s and a drain of %v", grace, preStop, drain)
		}
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			if at(c, probe, "httpGet") == nil {
				t.Errorf("there is no %s", probe)
			}
		}
	}
}

// settings are the variables of the program, from its generated documentation.
func settings(t *testing.T) map[string]bool { return documented(t, "(?m)^\\| `(FARHAND_[A-Z0-9_]+)`") }

// documented are the variables of the rows of docs/configuration.md that a pattern finds.
func documented(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range regexp.MustCompile(pattern).FindAllSubmatch(page, -1) {
		known[string(row[1])] = true
	}
	return known
}

// checkSecrets checks that no manifest has the value of a secret: pods get it by reference. Some URLs are secrets
// because they may have a password; such a URL may be a value if it has none, or one by reference.
func checkSecrets(t *testing.T, all []object) {
	t.Helper()
	secret := documented(t, "(?m)^\\| `(FARHAND_[A-Z0-9_]+)_FILE` \\|[^|]*\\| File that contains")
	if len(secret) < 5 || !secret["FARHAND_TOKEN"] || !secret["FARHAND_REDIS_URL"] {
		t.Fatalf("the secrets are %v", secret)
	}
	secret["REDIS_PASSWORD"] = true
	plain := regexp.MustCompile(`//[^$@/]*:[^$@/]+@`) // a URL with a password that is no variable
	for _, o := range all {
		name := text(o, "metadata", "name")
		if o["kind"] == "Secret" {
			t.Errorf("%s is a Secret: its values would be in the release", name)
		}
		for _, c := range list(o, "spec", "template", "spec", "containers") {
			for _, from := range list(c, "envFrom") {
				if text(from, "secretRef", "name") != "farhand-secrets" &&
					text(from, "secretRef", "name") != "farhand" {
					t.Errorf("%s reads %v", name, from)
				}
			}
			for _, v := range list(c, "env") {
				value := strings.ReplaceAll(text(v, "value"), "$(REDIS_PASSWORD)", "$")
				if secret[text(v, "name")] && text(v, "valueFrom", "secretKeyRef", "key") != text(v, "name") &&
					(!strings.Contains(value, "://") || plain.MatchString(value)) {
					t.Errorf("%s has %s, not a reference to a Secret", name, text(v, "name"))
				}
			}
		}
	}
}

// checkScaling checks that pods spread over zones and nodes, and that a fleet that scales does so by processor time and
// by a metric of sessions that exists.
func checkScaling(t *testing.T, all []object) {
	t.Helper()
	for _, o := range all {
		switch o["kind"] {
		case "Deployment":
			var keys []string
			for _, c := range list(o, "spec", "template", "spec", "topologySpreadConstraints") {
				if matching(at(c, "labelSelector", "matchLabels"), []object{
					at(o, "spec", "template", "metadata", "labels").(object),
				}) != 1 {
					t.Errorf("the spread over %s is of other pods", text(c, "topologyKey"))
				}
				keys = append(keys, text(c, "topologyKey"))
			}
			if got := strings.Join(keys, " "); got != "topology.kubernetes.io/zone kubernetes.io/hostname" {
				t.Errorf("pods spread over %s", got)
			}
		case "HorizontalPodAutoscaler":
			metrics := list(o, "spec", "metrics")
			if len(metrics) != 2 || text(metrics[0], "resource", "name") != "cpu" ||
				text(metrics[1], "pods", "target", "averageValue") != "20000" { // of values-fleet.yaml
				t.Fatalf("it scales by %v", metrics)
			}
			if _, errs := metricstest.Check(text(metrics[1], "pods", "metric", "name")); len(errs) > 0 {
				t.Error(errs)
			}
		}
	}
}

// checkSelectors checks that every selector selects pods, or Services, of the release, and that named ports exist.
func checkSelectors(t *testing.T, all []object) {
	t.Helper()
	pods, services, ports := []object{}, []object{}, map[any]bool{}
	for _, o := range all {
		if labels, ok := at(o, "spec", "template", "metadata", "labels").(object); ok {
			pods = append(pods, labels)
			for _, p := range list(list(o, "spec", "template", "spec", "containers")[0], "ports") {
				ports[p["name"]] = true
			}
		}
		if labels, ok := at(o, "metadata", "labels").(object); ok && o["kind"] == "Service" {
			services = append(services, labels)
		}
	}
	for _, o := range all {
		var selector any
		among := pods
		switch o["kind"] {
		case "Service":
			selector = at(o, "spec", "selector")
			for _, p := range list(o, "spec", "ports") {
				if !ports[p["targetPort"]] {
					t.Errorf("no pod has the port %v of %s", p["targetPort"], text(o, "metadata", "name"))
				}
			}
		case "NetworkPolicy":
			selector = at(o, "spec", "podSelector", "matchLabels")
		case "ServiceMonitor":
			selector, among = at(o, "spec", "selector", "matchLabels"), services
		case "Deployment", "StatefulSet", "PodDisruptionBudget":
			selector = at(o, "spec", "selector", "matchLabels")
		default:
			continue
		}
		if matching(selector, among) != 1 {
			t.Errorf("%s %s selects %d, want one", o["kind"], text(o, "metadata", "name"), matching(selector, among))
		}
	}
}

// matching counts the sets of labels that a selector selects.
func matching(selector any, all []object) (n int) {
	wanted, _ := selector.(object)
	for _, labels := range all {
		selected := len(wanted) > 0
		for key, value := range wanted {
			selected = selected && labels[key] == value
		}
		if selected {
			n++
		}
	}
	return n
}
