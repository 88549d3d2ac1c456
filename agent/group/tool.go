package group

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Name is the name of the tool.
const Name = "call_devices"

// Defaults of a call. Its other limits are in its parameters.
const (
	defaultConcurrency = 64
	defaultStagger     = 500 * time.Millisecond
	defaultTimeout     = 5 * time.Minute // of the whole call
)

// Args are the arguments of the tool.
type Args struct {
	Tool        string        `json:"tool"`
	Args        registry.JSON `json:"args,omitzero"`
	Devices     Devices       `json:"devices"`
	Mode        string        `json:"mode,omitempty"`              // default: registry.GroupAll
	Quorum      int           `json:"quorum,omitempty"`            // with registry.GroupQuorum: successes
	StaggerMS   int64         `json:"stagger_ms,omitempty"`        // with registry.GroupRace
	TimeoutMS   int64         `json:"device_timeout_ms,omitempty"` // of each child; zero: that of its tool
	Concurrency int           `json:"concurrency,omitempty"`       // children at a time
	Queue       *Queue        `json:"queue,omitempty"`             // nil: sleeping devices are not called
}

// Queue lets the calls of sleeping devices wait for them.
type Queue struct {
	TTLMS int64 `json:"ttl_ms"` // the longest wait
}

func (q *Queue) ttl() time.Duration {
	if q == nil {
		return 0
	}
	return time.Duration(q.TTLMS) * time.Millisecond
}

// Devices select the devices: a list, or those that match all the other members. All of the caller's devices: the zero
// value with All.
type Devices struct {
	All        bool              `json:"all,omitempty"`
	UserID     string            `json:"user_id,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	DeviceIDs  []string          `json:"device_ids,omitempty"`
	SessionIDs []string          `json:"session_ids,omitempty"`
}

// listed reports whether the devices are named by their ids.
func (d Devices) listed() bool { return len(d.DeviceIDs)+len(d.SessionIDs) > 0 }

const parameters = `{"type":"object","properties":{` +
	`"tool":{"type":"string","minLength":1,"maxLength":64,"description":"name of a tool that the devices offer"},` +
	`"args":{"type":"object","description":"arguments of that tool, the same for every device"},` +
	`"devices":{"type":"object","description":"which devices: device_ids or session_ids, or all those that match ` +
	`labels and user_id; {\"all\":true} for every device that you can use","properties":{` +
	`"all":{"type":"boolean"},"user_id":{"type":"string","minLength":1,"maxLength":256},` +
	`"labels":{"type":"object","maxProperties":32,"additionalProperties":{"type":"string"}},` +
	`"device_ids":{"type":"array","maxItems":1000,"items":{"type":"string","minLength":1,"maxLength":256}},` +
	`"session_ids":{"type":"array","maxItems":1000,"items":{"type":"string","minLength":1,"maxLength":256}}},` +
	`"additionalProperties":false},` +
	`"mode":{"type":"string","enum":["all","first","quorum","race"],"description":"all (default): every device; ` +
	`first: until one succeeds; quorum: until so many succeed; race: one after the other until one succeeds"},` +
	`"quorum":{"type":"integer","minimum":1,"maximum":1000000},` +
	`"stagger_ms":{"type":"integer","minimum":1,"maximum":3600000,"description":"for race: the next device is called ` +
	`after this time without an answer; default 500"},` +
	`"device_timeout_ms":{"type":"integer","minimum":1,"maximum":86400000,"description":"time limit of each device"},` +
	`"concurrency":{"type":"integer","minimum":1,"maximum":256,"description":"devices at a time; default 64"},` +
	`"queue":{"type":"object","description":"with mode all: also call the devices that sleep, whose calls wait for ` +
	`them","properties":{"ttl_ms":{"type":"integer","minimum":1000,"maximum":2592000000,"description":"how long"}},` +
	`"required":["ttl_ms"],"additionalProperties":false}},` +
	`"required":["tool","devices"],"additionalProperties":false}`

// tool is one call_devices. It implements agent.Tool.
type tool struct {
	service *Service
	sc      agent.SessionContext
	sink    Sink
}

// Tool returns the tool for one call, or for the calls of a turn. Rows go to sink. Nil: the result lists them, as far
// as they fit.
func (s *Service) Tool(sc agent.SessionContext, sink Sink) agent.Tool { return tool{s, sc, sink} }

// Spec implements agent.Tool. The devices may change anything, and their answers may contain untrusted content.
func (tool) Spec() registry.ToolSpec {
	return registry.ToolSpec{
		Name: Name,
		Description: "Call one tool of many devices at the same time, and get a row for each. Every device is called " +
			"at most once.",
		Parameters: json.RawMessage(parameters), TimeoutMS: defaultTimeout.Milliseconds(),
		Annotations: &registry.Annotations{
			ReadOnlyHint: new(false), DestructiveHint: new(true), OpenWorldHint: new(true),
		},
	}
}

// CallsDevices implements agent.DeviceCaller.
func (tool) CallsDevices() {}

// GroupMode implements agent.GroupTool.
func (tool) GroupMode(args json.RawMessage) string {
	var a Args
	_ = json.Unmarshal(args, &a) // Validate has refused what cannot be read
	return cmp.Or(a.Mode, registry.GroupAll)
}

// Validate implements agent.ArgsValidator.
func (tool) Validate(_ context.Context, args json.RawMessage) error {
	_, err := readArgs(args)
	return err
}

// readArgs returns the arguments with their defaults.
func readArgs(text json.RawMessage) (a Args, err error) {
	if err = json.Unmarshal(text, &a); err != nil {
		return a, err
	}
	d := a.Devices
	ways := 0
	for _, given := range []bool{
		d.All, d.UserID != "" || len(d.Labels) > 0, len(d.DeviceIDs) > 0, len(d.SessionIDs) > 0,
	} {
		if given {
			ways++
		}
	}
	switch {
	case !registry.ValidToolName(a.Tool):
		return a, fmt.Errorf("tool: %.80q is not a valid tool name", a.Tool)
	case ways != 1:
		return a, errors.New("devices: name them in one way: user_id or labels or both, or device_ids, or " +
			"session_ids, or all")
	case a.Mode == registry.GroupQuorum && a.Quorum == 0:
		return a, errors.New(`quorum: the mode "quorum" needs the number of successes`)
	case a.Mode != registry.GroupQuorum && a.Quorum != 0:
		return a, errors.New(`quorum: only the mode "quorum" has it`)
	case a.Mode != registry.GroupRace && a.StaggerMS != 0:
		return a, errors.New(`stagger_ms: only the mode "race" has it`)
	case a.Queue != nil && a.Mode != registry.GroupAll && a.Mode != "":
		return a, errors.New(`queue: only the mode "all" has it`)
	}
	seen := make(map[string]bool)
	for _, ids := range [][]string{d.DeviceIDs, d.SessionIDs} {
		for _, id := range ids {
			if seen[id] { // it would be called twice
				return a, fmt.Errorf("devices: %.80q appears twice", id)
			}
			seen[id] = true
		}
	}
	a.Mode = cmp.Or(a.Mode, registry.GroupAll)
	a.Concurrency = cmp.Or(a.Concurrency, defaultConcurrency)
	a.StaggerMS = cmp.Or(a.StaggerMS, defaultStagger.Milliseconds())
	return a, nil
}

// summary is the structured result of the tool.
type summary struct {
	Mode    string               `json:"mode"`
	Counts  registry.GroupCounts `json:"counts"`
	Devices []line               `json:"devices,omitempty"`
	More    int                  `json:"more,omitempty"` // devices that did not fit
}

// Execute implements agent.Tool. Its result is successful if the mode has what it asks for.
func (t tool) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	a, err := readArgs(args)
	if err != nil {
		return registry.Result{}, err
	}
	sink, table := t.sink, new(table)
	if sink == nil {
		sink = table
	}
	run, err := t.begin(ctx, a, sink)
	if err != nil {
		return registry.Result{}, err
	}
	why := run.do(ctx)
	ending := Ending{a.Mode, registry.StateFailed}
	defer func() { t.service.count(ending) }()
	if errors.Is(ctx.Err(), context.Canceled) {
		ending.State = registry.StateCancelled
		return registry.Result{}, run.cancelQueued(ctx)
	}
	said := summary{a.Mode, run.counts, table.lines, table.more}
	text, err := json.Marshal(said)
	if err != nil {
		return registry.Result{}, err
	}
	res := registry.Result{Success: run.reached(), Error: why, Output: describe(a.Tool, said)}
	if res.Success {
		ending.State, res.Error = registry.StateSucceeded, ""
	}
	res.Structured, err = registry.ParseJSON(text)
	return res, err
}
