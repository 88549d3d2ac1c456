package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

type callOptions struct {
	remote  remote
	request wire.CallRequest
	timeout time.Duration
	asJSON  bool
	async   bool
	watch   bool // the progress
	queue   time.Duration
	output  string
	group   groupOptions
}

func (a *application) callCommand() *cobra.Command {
	var o callOptions
	cmd := &cobra.Command{
		Use:   "call TOOL [ARGS]",
		Short: "Call a tool and print its answer",
		Long: "Calls a tool of a connected device. ARGS is a JSON object, @FILE to read it from a file, or -\n" +
			"for standard input. A file or pipe gets the output byte for byte. Exits 0 if the tool succeeded,\n" +
			"1 if it failed, 2 if it could not be called. With --all it calls every device that matches, prints\n" +
			"a line for each, and exits 0 if the call got what --mode asks for.",
		ValidArgsFunction: completeTools(&o.remote),
		Example: "  farhand call device_info\n  farhand call echo '{\"text\":\"hello\"}' --session 5d1f…\n" +
			"  farhand call contacts '{\"query\":\"ada\"}' --select newest --json\n" +
			"  farhand call camera_clip '{\"seconds\":60}' --progress\n" +
			"  farhand call battery_level --all --label site=vienna --mode first\n" +
			"  farhand call notify '{\"text\":\"hello\"}' --device phone-7 --queue 1h",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := "{}"
			if len(args) == 2 {
				text = args[1]
			}
			var err error
			if o.request.Args, err = readArgs(text, cmd.InOrStdin()); err != nil {
				return err
			}
			if err = o.group.check(cmd.Flags()); err != nil {
				return err
			}
			if o.group.all {
				return a.callAll(cmd.Context(), args[0], o)
			}
			return a.call(cmd.Context(), args[0], o)
		},
	}
	f, target := cmd.Flags(), &o.request.Target
	o.remote.flags(f, a.environ)
	f.StringVar(&target.SessionID, "session", "", "session id of the device")
	f.StringVar(&target.DeviceID, "device", "", "device id")
	f.StringVar(&target.UserID, "user", "", "user id")
	f.StringToStringVar(&target.Labels, "label", nil, "labels of the device, key=value")
	f.StringVar(&o.request.Select, "select", "", "session to use if several match: any or newest")
	durationVar(f, &o.timeout, "timeout", 0, "time limit (default: the tool's or the gateway's, 30s)")
	f.BoolVar(&o.asJSON, "json", false, "print the gateway's answer unchanged")
	f.BoolVar(&o.async, "async", false, "print the call's id without waiting for the result")
	durationVar(f, &o.queue, "queue", 0, "if the device sleeps, let the call wait for it this long, and print its id")
	f.BoolVar(&o.watch, "progress", false, "show the device's progress; Ctrl-C cancels the call")
	f.StringVar(&o.output, "output", "", "file for the image, sound or file that the tool returns")
	o.group.flags(cmd, f)
	cmd.MarkFlagsMutuallyExclusive("async", "progress")
	cmd.MarkFlagsMutuallyExclusive("async", "output")
	// This fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("session", completeSessions(&o.remote))
	return cmd
}

func readArgs(text string, stdin io.Reader) (json.RawMessage, error) {
	b := []byte(text)
	var err error
	switch {
	case text == "-":
		b, err = io.ReadAll(stdin)
	case strings.HasPrefix(text, "@"):
		b, err = os.ReadFile(text[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("the arguments must be a JSON object, for example '{\"text\":\"hello\"}'")
	}
	return b, nil
}

// callAnswer is the part of the gateway's answer, or of a call's record, that is printed.
type callAnswer struct {
	wire.CallAnswer
	Duration   *int64              `json:"duration_ms"` // records have a timeline instead
	Dispatched registry.Dispatched `json:"dispatched"`
	Problem    *problem            `json:"problem"` // of records of calls without a result
}

// queued returns the field queue of a request; nil: the call does not wait for sleeping devices.
func (o *callOptions) queued() *wire.Queue {
	if o.queue <= 0 {
		return nil
	}
	return &wire.Queue{TTLMS: max(1, o.queue.Milliseconds())}
}

func (a *application) call(ctx context.Context, tool string, o callOptions) error {
	if o.timeout > 0 {
		o.request.TimeoutMS = max(1, o.timeout.Milliseconds())
	}
	if o.async || o.watch {
		o.request.Mode = registry.ModeAsync
	}
	o.request.Queue = o.queued()
	done := a.progress("waiting for the device")
	raw, err := o.remote.do(ctx, "POST", "/api/tools/"+url.PathEscape(tool)+"/call", nil, o.request)
	done()
	if err != nil {
		return a.withNearestTool(ctx, o.remote, tool, err)
	}
	var state struct{ State registry.State }
	if err := decodeAnswer(raw, &state); err != nil {
		return err
	}
	switch {
	case o.async, state.State == registry.StateQueued:
		return a.printAccepted(raw, o)
	case o.watch:
		var accepted wire.CallAccepted
		if err := decodeAnswer(raw, &accepted); err != nil {
			return err
		}
		if raw, err = a.follow(ctx, o.remote, accepted.CallID); err != nil {
			return err
		}
	}
	return a.printAnswer(ctx, raw, o)
}

// withNearestTool adds the most similar tool to the error for a tool that does not exist.
func (a *application) withNearestTool(ctx context.Context, r remote, tool string, err error) error {
	p, ok := errors.AsType[problem](err)
	if !ok || p.Code != "tool_not_found" {
		return err
	}
	p.Detail += didYouMean(tool, names(ctx, &r, "tools", url.Values{"view": {"grouped"}}, "name"))
	return p
}

// printAccepted prints how to find the call again.
func (a *application) printAccepted(raw []byte, o callOptions) error {
	var accepted wire.CallAccepted
	if err := decodeAnswer(raw, &accepted); err != nil {
		return err
	}
	if o.asJSON {
		a.printSaid(strings.TrimSpace(string(raw)) + "\n")
		return nil
	}
	a.printSaid(accepted.CallID + "\n")
	if accepted.Position > 0 {
		fmt.Fprintf(a.err, "the device sleeps; place %d, until %s\n", accepted.Position,
			oneLine(accepted.ExpiresAt, shownID))
	}
	fmt.Fprintf(a.err, "%s; its record: %s/api/calls/%s\n", oneLine(string(accepted.State), shownID), o.remote.base(),
		oneLine(accepted.CallID, shownID))
	return nil
}

// printAnswer prints the result of a call: the answer to it, or its record.
func (a *application) printAnswer(ctx context.Context, raw []byte, o callOptions) error {
	var answer callAnswer
	if err := decodeAnswer(raw, &answer); err != nil {
		return err
	}
	if answer.Problem != nil {
		answer.Problem.CallID, answer.Problem.Dispatched = answer.CallID, answer.Dispatched
		return *answer.Problem
	}
	if o.asJSON {
		a.printSaid(string(raw) + "\n")
	} else {
		a.printSaid(answer.Output)
		took := ""
		if answer.Duration != nil {
			took = fmt.Sprintf(" in %d ms", *answer.Duration)
		}
		where := ", in the gateway"
		if answer.SessionID != "" {
			where = ", session " + oneLine(answer.SessionID, shownID)
		}
		fmt.Fprintf(a.err, "%s%s%s\n", outcome(answer.Success), took, where)
		if err := a.printParts(ctx, &o.remote, answer.Parts, o.output); err != nil {
			return err
		}
	}
	if !answer.Success {
		return errToolFailed
	}
	return nil
}

// printSaid prints the output of a device or a tool. On a terminal it escapes control characters and ends the line. A
// file or a pipe gets it byte for byte.
func (a *application) printSaid(text string) {
	if isTerminal(a.out) {
		text = strings.TrimSuffix(text, "\n") + "\n"
	}
	fmt.Fprint(safeOn(a.out), text)
}

func outcome(success bool) string {
	if success {
		return "succeeded"
	}
	return "failed"
}

// printParts prints a line about each part. With a file name it saves the bytes: the first part under that name, each
// other part under a numbered one beside it.
func (a *application) printParts(ctx context.Context, r *remote, parts []registry.Part, file string) error {
	for i, p := range parts {
		where := cmp.Or(partLink(r, p), "use --output FILE to save it")
		switch {
		case p.URL == "" && len(p.Data) == 0:
			where = "its bytes were not stored"
		case file != "":
			path := numbered(file, i)
			if err := savePart(ctx, r, p, path); err != nil {
				return err
			}
			where = "saved to " + path
		}
		fmt.Fprintln(a.err, printable(fmt.Sprintf("[%s: %s]", describePart(p), where)))
	}
	return nil
}

// maxSaved is the largest file of a tool that is saved, in bytes. Gateways store 64 MiB by default.
const maxSaved = 4 << 30

// savePart saves the bytes of a part, or what its link returns, in a file. It saves no more than the size of the part.
func savePart(ctx context.Context, r *remote, p registry.Part, path string) error {
	content, most := io.NopCloser(bytes.NewReader(p.Data)), int64(len(p.Data))
	if link := partLink(r, p); link != "" {
		if most = p.Size; most > maxSaved {
			return fmt.Errorf("save the tool's file: it has %s, more than %s", shownSize(most), shownSize(maxSaved))
		}
		var err error
		if content, err = r.download(ctx, link); err != nil {
			return fmt.Errorf("fetch the tool's file: %w", err)
		}
	}
	defer content.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		var n int64
		n, err = io.Copy(f, io.LimitReader(content, most+1))
		if err == nil && n > most {
			err = fmt.Errorf("it is longer than the %d bytes that the gateway told; %s has its begin", most, path)
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("save the tool's file: %w", err)
	}
	return nil
}

func (r *remote) download(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client, err := r.trust.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s (has the link expired?)", resp.Status)
	}
	return resp.Body, nil
}

// partLink returns the URL of a part of a result, or empty if it has none.
func partLink(r *remote, p registry.Part) string {
	if strings.HasPrefix(p.URL, "/") {
		return r.base() + p.URL
	}
	return p.URL
}

func describePart(p registry.Part) string {
	what := fmt.Sprintf("%s %s, %s", p.Type, p.MIMEType, shownSize(p.Size))
	if p.Name != "" {
		what += ", " + p.Name
	}
	return what
}

// numbered returns the file name of the i-th part: a.png, a-2.png, a-3.png.
func numbered(file string, i int) string {
	if i == 0 {
		return file
	}
	end := filepath.Ext(file)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(file, end), i+1, end)
}

// shownSize returns a number of bytes in a readable form.
func shownSize(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.0f kB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1000/1000)
	}
}
