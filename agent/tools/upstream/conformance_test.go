package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/testkit"
)

// conformanceClient is the client that the MCP project's conformance suite starts with the URL of a scenario: this test
// program with TEST_MCP_SERVER=conformance. It lists the tools as a gateway does, and calls those of the scenario.
func conformanceClient(url string) int {
	rules, err := policy.New(policy.Options{})
	if err != nil {
		return 1
	}
	servers := upstream.New(upstream.Config{
		Servers:   []upstream.Server{{Name: "suite", URL: url}},
		Admission: agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{}), Version: "test",
	})
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
	defer cancel()
	set := servers.Live()
	for len(set.Tools) == 0 && !servers.Status()[0].Connected && ctx.Err() == nil {
		select {
		case <-set.Changed:
		case <-ctx.Done():
		}
		set = servers.Live()
	}
	code := 0
	for name, args := range scenarioCalls(set.Tools) {
		for _, t := range set.Tools {
			if t.Spec().Name != name {
				continue
			}
			if _, err := t.Execute(ctx, args); err != nil {
				fmt.Fprintln(os.Stderr, name, err)
				code = 1
			}
		}
	}
	if err := servers.Close(ctx); err != nil {
		return 1
	}
	return code
}

// scenarioCalls returns the calls of the scenario that runs: the names of tools here, and their arguments.
func scenarioCalls(tools []agent.Tool) map[string]json.RawMessage {
	calls := make(map[string]json.RawMessage)
	switch os.Getenv("MCP_CONFORMANCE_SCENARIO") {
	case "tools_call":
		calls["suite__add_numbers"] = json.RawMessage(`{"a":5,"b":3}`)
	case "sse-retry":
		calls["suite__test_reconnection"] = json.RawMessage(`{}`)
	case "http-standard-headers", "http-invalid-tool-headers":
		for _, t := range tools {
			calls[t.Spec().Name] = json.RawMessage(`{"region":"us-west1"}`)
		}
	case "json-schema-2020-12-preservation":
		for _, t := range tools {
			if t.Spec().Name == "suite__json_schema_2020_12_tool" {
				calls["suite__json_schema_echo"] = slices.Concat([]byte(`{"schema":`), t.Spec().Parameters, []byte(`}`))
			}
		}
	case "http-custom-headers":
		var given struct {
			Calls []struct {
				Name string          `json:"name"`
				Args json.RawMessage `json:"arguments"`
			} `json:"toolCalls"`
		}
		_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given)
		for _, c := range given.Calls {
			calls["suite__"+c.Name] = c.Args
		}
	}
	return calls
}
