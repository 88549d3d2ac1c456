package driver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// goDriver is the driver of the Go SDK. It runs in a process of its own: a test's program with goVariable set.
type goDriver struct {
	store  string // the file that outlives the program
	out    sync.Mutex
	client *client.Client
	stop   context.CancelFunc
	abort  atomic.Pointer[context.CancelFunc] // of the turn; nil: none runs
	runs   atomic.Int64
	gates  sync.Map // call → chan struct{}
}

// run carries out commands until its input ends.
func (d *goDriver) run() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var c struct {
			Do, URL, Tool, Call, Security, Content string
			Debug, On                              bool
			Effects                                *client.Effects
			Tags                                   []string
			Acknowledged                           []string
			Options                                goOptions
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			d.report("problem", err.Error())
			continue
		}
		var err error
		switch c.Do {
		case "start":
			go d.start(c.URL, c.Options)
		case "stop":
			d.stop()
		case "end": // the process is killed
		case "add":
			err = d.client.AddTool(client.Tool{
				Name: c.Tool, SecurityLevel: c.Security, Effects: c.Effects, Tags: c.Tags,
				Description: "The tool " + c.Tool + ".", Parameters: json.RawMessage(`{"type":"object"}`),
			}, d.handle)
		case "remove":
			err = d.client.RemoveTool(c.Tool)
		case "foreground":
			d.client.SetForeground(c.On)
		case "default":
			d.client.SetDefault()
		case "release":
			close(d.gate(c.Call))
		case "say", "regenerate":
			go d.turn(c.Do, c.Content, c.Debug)
		case "abort":
			(*d.abort.Load())()
		case "settle":
			go d.settle(c.Acknowledged)
		default:
			err = fmt.Errorf("the command %s is unknown", c.Do)
		}
		if err != nil {
			d.report("problem", err.Error())
		}
	}
}

type goOptions struct {
	Session, Name, Platform, Token, Approver string
	DeviceID                                 string `json:"device_id"`
	DeviceName                               string `json:"device_name"`
	Labels                                   map[string]string
	Tools                                    []string
	Parallelism                              int
	SilenceMS                                int `json:"silence_ms"`
	Pair, Store                              bool
	Wake                                     *client.Wake
}

func (d *goDriver) start(url string, o goOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	options := []client.Option{
		client.WithBackoff(time.Millisecond, 5*time.Millisecond), client.WithSession(o.Session),
		client.WithName(o.Name), client.WithDevice(o.DeviceID, o.DeviceName, o.Platform), client.WithLabels(o.Labels),
		client.WithToken(o.Token), client.WithState(d.state),
	}
	if o.Store {
		options = append(options, client.WithJournal(d.store))
	}
	if o.Pair {
		pairing := client.PairOptions{
			DeviceID: o.DeviceID, DeviceName: o.DeviceName, Platform: o.Platform, Tools: o.Tools,
			Show: func(code string, _ time.Time) { d.report("code", code) },
		}
		if o.Store {
			pairing.Store = client.FileStore(d.store + ".credential")
		}
		credential, err := client.Pair(ctx, url, pairing)
		if err != nil {
			d.report("problem", err.Error())
			return
		}
		options = append(options, client.WithCredential(credential))
	}
	if o.Parallelism > 0 {
		options = append(options, client.WithParallelism(o.Parallelism))
	}
	if o.SilenceMS > 0 {
		options = append(options, client.WithSilence(time.Duration(o.SilenceMS)*time.Millisecond))
	}
	if o.Approver != "" {
		options = append(options, client.WithApprover(d.approver(o.Approver)))
	}
	if o.Wake != nil {
		options = append(options, client.WithWake(func(client.WakeOffer) *client.Wake { return o.Wake }))
	}
	for _, name := range o.Tools {
		options = append(options, client.WithTool(client.Tool{Name: name, Description: "The tool " + name + ".",
			Parameters: json.RawMessage(`{"type":"object"}`)}, d.handle))
	}
	device, err := client.New(url, options...)
	if err != nil {
		d.report("problem", err.Error())
		return
	}
	d.client = device
	err = device.Run(ctx)
	if ctx.Err() != nil {
		d.report("state", "closed")
		return
	}
	d.report("state", "refused", "why", why(err))
}

// turn takes a turn of the conversation.
func (d *goDriver) turn(do, content string, debug bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := client.Turn{Debug: debug, OnEvent: func(e client.TurnEvent) {
		d.report("turn", map[string]any{
			"type": e.Type, "content": e.Content, "id": e.ID, "name": e.Name, "output": e.Output, "status": e.Status,
			"messages": e.Messages, "estimatedTokens": e.EstimatedTokens,
		})
	}}
	say := func() (string, error) { return d.client.Say(ctx, content, options) }
	if do == "regenerate" {
		say = func() (string, error) { return d.client.Regenerate(ctx, options) }
	}
	if d.abort.CompareAndSwap(nil, &cancel) {
		defer d.abort.Store(nil)
	}
	text, err := say()
	failed, isTurn := errors.AsType[*client.TurnError](err)
	switch {
	case isTurn:
		d.report("unsaid", failed.Code)
	case errors.Is(err, client.ErrTurnRuns):
		d.report("unsaid", "busy")
	case errors.Is(err, client.ErrTurnAborted):
		d.report("unsaid", "aborted")
	case errors.Is(err, client.ErrTurnLost):
		d.report("unsaid", "disconnected")
	default:
		d.report("said", text)
	}
}

// settle reports when the acknowledgements of calls are written down.
func (d *goDriver) settle(calls []string) {
	for _, call := range calls {
		line := regexp.MustCompile(`(?m)^\["call/` + call + `",.*"acknowledged":true`)
		for text, _ := os.ReadFile(d.store); !line.Match(text); text, _ = os.ReadFile(d.store) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	d.report("settled", true)
}

// report writes a report of names and values.
func (d *goDriver) report(members ...any) {
	report := map[string]any{}
	for i := 0; i < len(members); i += 2 {
		report[members[i].(string)] = members[i+1]
	}
	text, _ := json.Marshal(report)
	d.out.Lock()
	defer d.out.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func (d *goDriver) state(s client.State) {
	switch s.Phase {
	case client.PhaseConnected:
		rejected := []string{}
		for _, r := range s.Rejected {
			rejected = append(rejected, r.Name)
		}
		d.report("state", "connected", "registered", s.Registered, "resumed", s.Resumed, "session", s.SessionID,
			"rejected", rejected)
	case client.PhaseWaiting:
		d.report("state", "waiting", "why", why(s.Err))
	default:
		d.report("state", string(s.Phase))
	}
}

// why returns the word that the drivers share for an error.
func why(err error) string {
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		if refused.Code == "" {
			return fmt.Sprintf("http_%d", refused.Status)
		}
		return refused.Code
	}
	for word, is := range map[string]error{
		"session_replaced": client.ErrReplaced, "session_owner_mismatch": client.ErrHeld,
		"pairing_required": client.ErrUnpaired, "session_ended": client.ErrEnded,
	} {
		if errors.Is(err, is) {
			return word
		}
	}
	return "disconnected"
}

func (d *goDriver) approver(decision string) client.Approver {
	return func(ctx context.Context, q client.Question) client.Decision {
		d.report("asked", q.ID, "tool", q.Tool, "text", q.Text)
		if decision != "wait" {
			return client.Decision(decision)
		}
		<-ctx.Done()
		d.report("withdrawn", q.ID)
		return ""
	}
}

func (d *goDriver) gate(call string) chan struct{} {
	gate, _ := d.gates.LoadOrStore(call, make(chan struct{}))
	return gate.(chan struct{})
}

func (d *goDriver) handle(ctx context.Context, call client.Call) (any, error) {
	if call.Tool != "count" {
		d.runs.Add(1)
	}
	var args struct {
		Text  string
		Bytes int
		MS    int
	}
	if err := call.Bind(&args); err != nil {
		return nil, err
	}
	switch call.Tool {
	case "echo":
		return args.Text, nil
	case "trace":
		return call.Traceparent, nil
	case "json":
		return call.Args, nil
	case "list":
		return []any{1, "two", nil}, nil
	case "fail":
		return nil, errors.New(args.Text)
	case "crash":
		panic("the handler crashed")
	case "wait":
		return d.wait(call.ID, ctx.Done()), nil
	case "stubborn":
		return d.wait(call.ID, nil), nil
	case "ledger":
		d.report("began", args.Text, "call", call.ID)
		time.Sleep(time.Duration(args.MS) * time.Millisecond)
		d.report("gave", args.Text, "call", call.ID)
		return args.Text, nil
	case "count":
		return fmt.Sprint(d.runs.Load()), nil
	case "progress":
		call.Progress(1, 2, "half")
		call.Progress(2, 0, "")
		call.Chunk("all of it")
		return "all of it", nil
	case "big":
		return strings.Repeat("x", args.Bytes), nil
	case "picture":
		return client.Result{Output: "see", Parts: []client.Part{
			{Type: client.PartImage, MIMEType: "image/png", Name: "snap.png", Data: []byte{0x89, 'P', 'N', 'G'}},
		}}, nil
	case "upload":
		clip := client.Part{Type: client.PartFile, MIMEType: "video/mp4", Name: "clip.mp4"}
		part, err := call.Upload(ctx, clip, int64(args.Bytes), bytes.NewReader(make([]byte, args.Bytes)))
		return client.Result{Output: "sent", Parts: []client.Part{part}}, err
	}
	return nil, nil
}

// wait waits until a call is released or cancelled.
func (d *goDriver) wait(callID string, cancelled <-chan struct{}) string {
	select {
	case <-d.gate(callID):
		return "released"
	case <-cancelled:
		return "cancelled"
	}
}
