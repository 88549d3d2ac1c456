// Package grafana_test makes the dashboards in this folder from the descriptions in described_test.go, and checks that
// they name only metrics, labels and values that exist. `go test ./deploy/grafana -update` writes them.
package grafana_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/internal/metrics/metricstest"
)

var update = flag.Bool("update", false, "rewrite the dashboards")

// dashboard is one page of Grafana.
type dashboard struct {
	name, title string
	rows        []row
}

type row struct {
	title  string
	panels []panel
}

// panel is a graph. Its unit is one of Grafana's: short, s, bytes, reqps, percentunit.
type panel struct {
	title, unit string
	queries     []query
}

// query is an expression with the legend of its series. $i in it selects the pods that the page shows.
type query struct{ expr, legend string }

// promQL returns the expression as Grafana sends it, with variables of the page.
func (q query) promQL() string { return strings.ReplaceAll(q.expr, "$i", `instance=~"$instance"`) }

// graph returns a panel with one query.
func graph(title, unit, expr, legend string) panel {
	return panel{title, unit, []query{{expr, legend}}}
}

const (
	columns     = 3
	panelWidth  = 24 / columns
	panelHeight = 8
)

// object is an object of JSON.
type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// json returns the dashboard as Grafana reads it.
func (d dashboard) json() ([]byte, error) {
	var panels []object
	y := 0
	for _, r := range d.rows {
		panels = append(panels, object{
			"type": "row", "title": r.title, "id": len(panels) + 1, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1},
		})
		y++
		for i, p := range r.panels {
			panels = append(panels, p.json(len(panels)+1, object{
				"x": i % columns * panelWidth, "y": y + i/columns*panelHeight, "w": panelWidth, "h": panelHeight,
			}))
		}
		y += (len(r.panels) + columns - 1) / columns * panelHeight
	}
	text, err := json.MarshalIndent(object{
		"uid": "farhand-" + d.name, "title": "Farhand: " + d.title, "tags": []string{"farhand"}, "schemaVersion": 39,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-3h", "to": "now"},
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			{
				"name": "instance", "type": "query", "label": "Pod", "datasource": source, "refresh": 2, "sort": 1,
				"query": `label_values(up{job="farhand"}, instance)`, "multi": true, "includeAll": true,
				"allValue": ".+", "current": object{"text": "All", "value": "$__all"},
			},
		}},
		"links": []object{{
			"type": "dashboards", "tags": []string{"farhand"}, "title": "Farhand", "asDropdown": true,
			"includeVars": true, "keepTime": true,
		}},
		"panels": panels,
	}, "", "  ")
	return append(text, '\n'), err
}

func (p panel) json(id int, at object) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "legendFormat": q.legend,
			"expr": q.promQL(),
		})
	}
	return object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.description(), "gridPos": at,
		"datasource": source, "targets": targets, "options": object{
			"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi"},
		},
		"fieldConfig": object{
			"defaults":  object{"unit": p.unit, "min": 0, "custom": object{"fillOpacity": 10, "showPoints": "never"}},
			"overrides": []object{},
		},
	}
}

// description returns the help texts of the panel's metrics, each once.
func (p panel) description() string {
	var texts []string
	for _, q := range p.queries {
		used, _ := metricstest.Check(q.promQL())
		for _, m := range metrics.Table() {
			for _, name := range used {
				if (name == m.Name || m.Kind == metrics.Histogram && strings.HasPrefix(name, m.Name+"_")) &&
					!strings.Contains(strings.Join(texts, " "), m.Help) {
					texts = append(texts, m.Help)
				}
			}
		}
	}
	return strings.Join(texts, " ")
}

// TestDashboardsAreGenerated compares the files with the descriptions.
func TestDashboardsAreGenerated(t *testing.T) {
	files, err := filepath.Glob("*.json")
	if err != nil || !*update && len(files) != len(dashboards) {
		t.Errorf("%d files for %d dashboards (%v)", len(files), len(dashboards), err)
	}
	for _, d := range dashboards {
		want, err := d.json()
		if err != nil {
			t.Fatal(err)
		}
		path := d.name + ".json"
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the code says (%v); run go test ./deploy/grafana -update", path, err)
		}
	}
}

// legendLabel is a label in a legend.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// TestDashboardsNameWhatExists: each metric, label and value of each expression exists, and each label of a legend.
func TestDashboardsNameWhatExists(t *testing.T) {
	for _, d := range dashboards {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					exprs := []string{q.promQL()}
					for _, l := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
						exprs = append(exprs, "sum by ("+l[1]+") ("+exprs[0]+")")
					}
					for _, expr := range exprs {
						if _, errs := metricstest.Check(expr); len(errs) > 0 {
							t.Errorf("%s, %s: %s: %v", d.name, p.title, expr, errs)
						}
					}
				}
			}
		}
	}
}

// TestEveryMetricIsShown: each of Farhand's metrics is in a dashboard, so that a new one is not forgotten.
func TestEveryMetricIsShown(t *testing.T) {
	shown := make(map[string]bool)
	for _, d := range dashboards {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					used, _ := metricstest.Check(q.promQL())
					for _, name := range used {
						shown[name] = true
					}
				}
			}
		}
	}
	for _, m := range metrics.Table() {
		if !shown[m.Name] && !shown[m.Name+"_bucket"] && !shown[m.Name+"_count"] {
			t.Errorf("%s is in no dashboard", m.Name)
		}
	}
}
