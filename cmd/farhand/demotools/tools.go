// Package demotools has the tools that `farhand demo` and `farhand device` offer to agents: this machine's properties,
// its sensors, and the addresses that its owner shares. None of them changes anything. It may import only the device
// SDK. Start reading at Basic.
package demotools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// Tool is a tool with its handler.
type Tool struct {
	client.Tool
	Handler client.Handler
}

// maxSleep bounds the sleep tool.
const maxSleep = 10 * time.Minute

// Basic returns the tools every machine can offer: device_info, sensors, echo and sleep.
func Basic() []Tool {
	return []Tool{
		newTool("device_info",
			"Describe this machine: name, operating system, version, architecture, processors, memory and uptime.",
			`{"type":"object","properties":{},"additionalProperties":false}`, deviceInfo),
		newTool("sensors",
			"Read what this machine senses now: load, memory, temperatures and battery, where present.",
			`{"type":"object","properties":{"type":{"type":"string","enum":["load","memory","temperature","battery"],`+
				`"description":"read only this sensor"}},"additionalProperties":false}`, readSensors),
		newTool("echo", "Return the given text, to try things out.",
			`{"type":"object","properties":{"text":{"type":"string","description":"what to return"}},`+
				`"required":["text"]}`, echo),
		newTool("sleep", "Wait for the given number of seconds and then answer, to try out slow tools and timeouts.",
			`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":600}},`+
				`"required":["seconds"],"additionalProperties":false}`, sleep),
	}
}

// newTool returns a tool whose arguments are decoded into A.
func newTool[A any](name, description, parameters string, run func(context.Context, A) (any, error)) Tool {
	return Tool{
		Tool: client.Tool{Name: name, Description: description, Parameters: json.RawMessage(parameters)},
		Handler: func(ctx context.Context, call client.Call) (any, error) {
			var args A
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return nil, err
			}
			return run(ctx, args)
		},
	}
}

// Choose returns the tools with the given names, all of them if there are none.
func Choose(all []Tool, names []string) ([]Tool, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Tool
	for _, name := range names {
		i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no tool %q; this machine has %s", name, Names(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Names returns the names of tools, separated by commas.
func Names(tools []Tool) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}

func echo(_ context.Context, args struct{ Text string }) (any, error) { return args.Text, nil }

func sleep(ctx context.Context, args struct{ Seconds float64 }) (any, error) {
	d := min(max(time.Duration(args.Seconds*float64(time.Second)), 0), maxSleep)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return fmt.Sprintf("slept %v", d), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
