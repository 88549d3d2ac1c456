package grafana_test

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// composed is what deploy/compose.yaml says of its services.
type composed struct {
	Pod struct {
		Environment map[string]string `yaml:"environment"`
	} `yaml:"x-pod"`
	Services map[string]struct {
		Volumes  []string `yaml:"volumes"`
		Networks any      `yaml:"networks"`
		Configs  []struct{ Source, Target string }
	} `yaml:"services"`
	Configs map[string]struct{ Content string }
}

// readYAML reads a file or a text of YAML.
func readYAML(t *testing.T, name, text string, into any) {
	t.Helper()
	if text == "" {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// file returns the file of this repository that a service sees at a path, which must exist.
func (c *composed) file(t *testing.T, service, name string) string {
	t.Helper()
	for _, v := range c.Services[service].Volumes {
		part := strings.Split(v, ":")
		below, within := strings.CutPrefix(name, part[1])
		if !strings.HasPrefix(part[0], "./") || !within || below != "" && below[0] != '/' {
			continue
		}
		found := filepath.Join("..", part[0], below)
		if _, err := os.Stat(found); err != nil {
			t.Errorf("%s: %v", service, err)
		}
		return found
	}
	t.Fatalf("%s does not mount %s", service, name)
	return ""
}

// TestComposeShowsThem: without an image of either, Prometheus of deploy/compose.yaml finds the rules and the pods, and
// Grafana finds the dashboards and their data source.
func TestComposeShowsThem(t *testing.T) {
	var c composed
	readYAML(t, "../compose.yaml", "", &c)
	var scraped struct {
		RuleFiles []string `yaml:"rule_files"`
		Configs   []struct {
			Job     string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, c.file(t, "prometheus", "/etc/prometheus/prometheus.yml"), "", &scraped)
	for _, name := range scraped.RuleFiles {
		var rules struct{ Groups []any }
		if readYAML(t, c.file(t, "prometheus", name), "", &rules); len(rules.Groups) == 0 {
			t.Errorf("%s has no rules", name)
		}
	}
	if len(scraped.RuleFiles) == 0 || len(scraped.Configs) != 1 || scraped.Configs[0].Job != "farhand" {
		t.Fatalf("%+v", scraped) // the dashboards select job="farhand"
	}
	_, port, _ := strings.Cut(c.Pod.Environment["FARHAND_METRICS_ADDR"], ":")
	for name := range c.Services {
		if strings.HasPrefix(name, "farhand-") && !slices.Contains(scraped.Configs[0].Targets[0].Targets,
			name+":"+port) {
			t.Errorf("Prometheus does not scrape %s at port %s", name, port)
		}
	}

	provisioned := func(folder string, into any) {
		t.Helper()
		for _, f := range c.Services["grafana"].Configs {
			if path.Dir(f.Target) == "/etc/grafana/provisioning/"+folder {
				readYAML(t, f.Source, c.Configs[f.Source].Content, into)
				return
			}
		}
		t.Fatalf("Grafana has no %s", folder)
	}
	var sources struct {
		Datasources []struct{ UID, Type, URL string }
	}
	provisioned("datasources", &sources)
	at, err := url.Parse(sources.Datasources[0].URL)
	if err != nil || at.Port() != "9090" || !slices.Contains(c.Services[at.Hostname()].Networks.([]any),
		any("monitoring")) {
		t.Errorf("the data source is at %q, where no service is", sources.Datasources[0].URL)
	}
	var pages struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	provisioned("dashboards", &pages)
	files, err := filepath.Glob(c.file(t, "grafana", pages.Providers[0].Options.Path) + "/*.json")
	if err != nil || len(files) != len(dashboards) {
		t.Errorf("Grafana finds the dashboards %q (%v)", files, err)
	}
	for _, name := range files {
		checkSource(t, name, sources.Datasources[0].UID, sources.Datasources[0].Type)
	}
}

// checkSource checks that a dashboard asks the data source that its variable selects by type, or that with the id.
func checkSource(t *testing.T, name, uid, kind string) {
	t.Helper()
	var page struct {
		Templating struct {
			List []struct{ Name, Type, Query any }
		}
		Panels []struct{ Datasource struct{ Type, UID string } }
	}
	readYAML(t, name, "", &page) // JSON is YAML
	if v := page.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" || v.Query != kind {
		t.Errorf("%s selects its data source by %v", name, v)
	}
	for _, p := range page.Panels {
		if d := p.Datasource; d.UID != "" && (d.Type != kind || d.UID != "${datasource}" && d.UID != uid) {
			t.Errorf("%s has a panel of the data source %v", name, d)
		}
	}
}
