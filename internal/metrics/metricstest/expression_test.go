package metricstest

import (
	"strings"
	"testing"
)

// TestCheckNoticesWhatDoesNotExist: each expression but the first ones has one mistake.
func TestCheckNoticesWhatDoesNotExist(t *testing.T) {
	for expr, mistake := range map[string]string{
		`up{job="farhand"} == 0`: "",
		`sum by (le, route) (rate(farhand_call_duration_seconds_bucket{route=~"local|remote"}[5m]))`: "",
		`histogram_quantile(0.99, rate(farhand_redis_round_trip_duration_seconds_bucket[5m])) > 0.1`: "",
		`farhand_sockets unless farhand_sockets offset 5m`:                                           "",
		`process_open_fds{job="farhand"} / on (instance) process_max_fds`:                            "",
		`topk(5, farhand_tenant_connections{tenant!="other"})`:                                       "",
		`rate(farhand_socket[5m])`:                                             "no metric farhand_socket",
		`farhand_call_duration_seconds`:                                        "no metric",
		`rate(farhand_sockets_count[5m])`:                                      "no metric",
		`sum by (rout) (farhand_calls_total)`:                                  `"rout"`,
		`sum(farhand_calls_total) by (rout)`:                                   `"rout"`,
		`farhand_calls_total{tool="x"}`:                                        `no label "tool"`,
		`farhand_calls_total{outcome=~"lost|gone"}`:                            `never "gone"`,
		`farhand_calls_total{endpoint!="web"}`:                                 `never "web"`,
		`sum by (le) (farhand_sockets)`:                                        `"le"`,
		`go_goroutine`:                                                         "no metric go_goroutine",
		`1 + 1`:                                                                "names no metric",
		`farhand_sockets / on (pool) farhand_pods_live`:                        `"pool"`,
		`sum by (instance) (rate(farhand_calls_total{outcome="losst"}[5m]))>1`: `never "losst"`,
	} {
		_, errs := Check(expr)
		switch {
		case mistake == "" && len(errs) > 0:
			t.Errorf("%s: %v", expr, errs)
		case mistake != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), mistake)):
			t.Errorf("%s: %v, want %q", expr, errs, mistake)
		}
	}
}
