package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

const (
	whoRules = 50
	// whoKeys is enough for callers to stay below the largest possible limit on any machine.
	whoKeys = 256
	// whoCost is the maximum cost of identity, policy, limits and audit, as a share of a call's median and of the rate.
	whoCost = 0.15
)

// rowWho measures a call across pods by an API key, with a policy of 50 rules, a rate limit and the audit log. It is
// compared with a call by the shared token without policy and limit. Both sides validate arguments and write the audit
// log.
func rowWho(ctx context.Context, l *lab) ([]verdict, error) {
	dir, err := os.MkdirTemp("", "farhand-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(whoPolicy()), 0o600); err != nil {
		return nil, err
	}
	o := l.Options
	o.Spread, o.Devices = bench.SpreadUniform, l.limited(200)
	var sides []*bench.Side
	for name, settings := range map[string][]string{
		"token": nil, "key": {"FARHAND_POLICY_FILE=" + file, "FARHAND_LIMIT_IDENTITY=10000"},
	} {
		f, err := l.startFleet(ctx, 2, settings...)
		if err != nil {
			return nil, err
		}
		defer f.close()
		s := sideOf(name, f.pods...)
		if len(settings) > 0 {
			keys, err := makeKeys(ctx, f.pods[0].url, whoKeys)
			if err != nil {
				return nil, err
			}
			s.NewCaller = func(pod string, sessions []string, i int) bench.Caller {
				return newKeyCaller(&o, pod, keys, sessions, i)
			}
			sides = append([]*bench.Side{s}, sides...)
		} else {
			sides = append(sides, s)
		}
		if err := s.Connect(ctx, &o); err != nil {
			return nil, err
		}
		defer s.Devices.Close()
	}
	lines, err := o.Compare(ctx, nil, []string{bench.RouteCross}, l.crowds(1, fewCallers), sides...)
	if err != nil {
		return nil, err
	}
	var list []verdict
	for _, line := range lines {
		key, token := line.Sides[0], line.Sides[1]
		what := fmt.Sprintf("calls across pods by key, %d rules, a limit and audit, %d callers", whoRules, line.Callers)
		v := atLeast(what, key.PerSecond, token.PerSecond, 1-whoCost, "calls/s", "the one token")
		v.Met = v.Met && key.Failed()+token.Failed() == 0
		v.Detail = noErrors(key) + noErrors(token)
		list = append(list, v,
			atMost(what+": p50", micros(key.P50), micros(token.P50), 1+whoCost, "µs", "the one token"))
	}
	return list, nil
}

// whoPolicy returns a policy whose rules must all be evaluated and allow the callers.
func whoPolicy() string {
	var b strings.Builder
	b.WriteString("version: 1\ncalls:\n")
	for i := range whoRules {
		fmt.Fprintf(&b, "  - id: rule-%d\n    users: guest-%d*\n    deny: [secret_%d*, group_%d_?]\n", i, i, i, i)
	}
	return b.String()
}

// makeKeys makes API keys of callers.
func makeKeys(ctx context.Context, url string, n int) ([]string, error) {
	keys := make([]string, n)
	for i := range keys {
		body := fmt.Sprintf(`{"roles":["caller"],"user_id":"user-%d"}`, i)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/keys", bytes.NewReader([]byte(body)))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+benchToken)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		var answer struct{ Key, Detail string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || answer.Key == "" {
			return nil, fmt.Errorf("no API key: %s %s: %w", resp.Status, answer.Detail, err)
		}
		keys[i] = answer.Key
	}
	return keys, nil
}
