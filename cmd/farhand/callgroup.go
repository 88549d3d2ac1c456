package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/api/wire"
)

// groupOptions are the flags of `farhand call --all`.
type groupOptions struct {
	all             bool
	request         wire.GroupRequest
	stagger, device time.Duration
}

func (o *groupOptions) flags(cmd *cobra.Command, f *pflag.FlagSet) {
	f.BoolVar(&o.all, "all", false, "call every device that matches --user and --label")
	f.StringVar(&o.request.Mode, "mode", "",
		"with --all: all (default), first, quorum or race: when the call has what it asks for")
	f.IntVar(&o.request.Quorum, "quorum", 0, "with --mode quorum: successes")
	durationVar(f, &o.stagger, "stagger", 0, "with --mode race: time until the next device is called (default 500ms)")
	durationVar(f, &o.device, "device-timeout", 0, "with --all: time limit of each device")
	f.IntVar(&o.request.Concurrency, "concurrency", 0, "with --all: devices at a time (default 64)")
	for _, single := range []string{"session", "device", "select", "async", "progress", "output"} {
		cmd.MarkFlagsMutuallyExclusive("all", single)
	}
}

// check reports flags that need another one.
func (o *groupOptions) check(f *pflag.FlagSet) error {
	for _, name := range []string{"mode", "quorum", "stagger", "device-timeout", "concurrency"} {
		if f.Changed(name) && !o.all {
			return fmt.Errorf("--%s needs --all", name)
		}
	}
	return nil
}

// callAll makes a group call and prints a line for each device as it answers.
func (a *application) callAll(ctx context.Context, tool string, o callOptions) error {
	req := o.group.request
	req.Tool, req.Args, req.Select = tool, o.request.Args, "all"
	req.Target = wire.GroupTarget{UserID: o.request.Target.UserID, Labels: o.request.Target.Labels}
	req.TimeoutMS, req.StaggerMS = o.timeout.Milliseconds(), o.group.stagger.Milliseconds()
	req.DeviceTimeoutMS = o.group.device.Milliseconds()
	req.Queue = o.queued()
	done := a.progress("waiting for the devices")
	resp, err := o.remote.open(ctx, http.MethodPost, "/api/calls", nil, req, "Accept", "application/x-ndjson")
	done()
	if err != nil {
		return a.withNearestTool(ctx, o.remote, tool, err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		text := lines.Bytes()
		var line struct {
			Type string `json:"type"`
			wire.GroupResult
			Counts wire.GroupCounts `json:"counts"`
		}
		if err := decodeAnswer(text, &line); err != nil {
			return err
		}
		if o.asJSON {
			a.printSaid(string(text) + "\n")
		}
		switch {
		case line.Type == "result" && !o.asJSON:
			a.printSaid(groupLine(line.GroupResult))
		case line.Type == "done":
			return a.printGroupEnd(line.GroupResult, line.Counts)
		}
	}
	return fmt.Errorf("the gateway's response was cut off: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

// groupLine is the line of a device: its id, the state of its call, and the output or error on one line.
func groupLine(r wire.GroupResult) string {
	said := r.Error
	switch {
	case r.Problem != nil:
		said = r.Problem.Detail
	case said == "" && r.Output != nil:
		said = *r.Output
	case r.Position > 0:
		said = "waits for the device until " + r.ExpiresAt
	}
	return fmt.Sprintf("%s\t%s\t%s\n", oneLine(cmp.Or(r.DeviceID, r.SessionID), shownID),
		oneLine(string(r.State), shownID), oneLine(said, maxGroupLine))
}

// maxGroupLine is how many characters of an output a line shows. --json prints all.
const maxGroupLine = 1000

// printGroupEnd prints how the call ended, and returns its error.
func (a *application) printGroupEnd(end wire.GroupResult, n wire.GroupCounts) error {
	fmt.Fprintf(a.err, "%s: %d devices, %d succeeded, %d failed, %d cancelled, %d queued, %d skipped\n",
		oneLine(string(end.State), shownID), n.Devices, n.Succeeded, n.Failed, n.Cancelled, n.Queued, n.Skipped)
	if end.Problem != nil {
		return problem{Code: end.Problem.Code, Detail: end.Problem.Detail, CallID: end.CallID}
	}
	if end.Error != "" {
		fmt.Fprintln(a.err, oneLine(end.Error, maxGroupLine))
	}
	if end.State != "succeeded" {
		return errToolFailed
	}
	return nil
}
