// Package hands holds the tools that `farhand device` gives to agents: what this machine is, what it senses, whose
// addresses its owner chose to share. None of them changes anything.
package hands

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// Hand is a tool with what runs when it is called.
type Hand struct {
	Tool    client.Tool
	Handler client.Handler
}

// maxSleep bounds the sleep tool.
const maxSleep = 10 * time.Minute

// Basic returns the tools every machine can offer: device_info, sensors, echo and sleep.
func Basic() []Hand {
	return []Hand{
		{
			Tool: client.Tool{
				Name:        "device_info",
				Description: "Describe this machine: name, operating system, version, architecture, processors, memory and uptime.",
				Parameters:  json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
			},
			Handler: func(ctx context.Context, _ client.Call) (any, error) { return deviceInfo(ctx) },
		},
		{
			Tool: client.Tool{
				Name:        "sensors",
				Description: "Read what this machine senses now: load, memory, temperatures and battery, where present.",
				Parameters: json.RawMessage(`{"type":"object","properties":{"type":{"type":"string",` +
					`"enum":["load","memory","temperature","battery"],"description":"read only this sensor"}},"additionalProperties":false}`),
			},
			Handler: readSensors,
		},
		{
			Tool: client.Tool{
				Name:        "echo",
				Description: "Return the given text, to try things out.",
				Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"what to return"}},` +
					`"required":["text"]}`),
			},
			Handler: echo,
		},
		{
			Tool: client.Tool{
				Name:        "sleep",
				Description: "Wait for the given number of seconds and then answer, to try out slow tools and timeouts.",
				Parameters: json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":600}},` +
					`"required":["seconds"],"additionalProperties":false}`),
			},
			Handler: sleep,
		},
	}
}

// Choose returns the hands with the given names, all of them if there are none.
func Choose(all []Hand, names []string) ([]Hand, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Hand
	var known []string
	for _, h := range all {
		known = append(known, h.Tool.Name)
	}
	for _, name := range names {
		found := false
		for _, h := range all {
			if h.Tool.Name == name {
				chosen, found = append(chosen, h), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no tool %q; this machine has %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

func echo(_ context.Context, call client.Call) (any, error) {
	var args struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return nil, err
	}
	return args.Text, nil
}

func sleep(ctx context.Context, call client.Call) (any, error) {
	var args struct {
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return nil, err
	}
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
