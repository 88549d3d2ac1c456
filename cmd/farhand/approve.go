package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/registry"
)

const pathApprovals = "/api/approvals"

// approvalView is an approval, or an event about it. Lists and events have only some of its fields.
type approvalView struct {
	wire.Decision
}

type approvalList struct{ Approvals []approvalView }

func (a *application) approveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve",
		Short: "Allow or deny calls that wait for approval",
		Long: "Lists calls that wait for approval, shows what they will do, and allows or denies them. The\n" +
			"first decision counts; no answer in time is a denial. The credential needs the role approver.",
		Example: "  farhand approve list --wait\n  farhand approve show k3q7…\n  farhand approve allow k3q7…\n" +
			"  farhand approve allow k3q7… --always --for 24h\n  farhand approve deny k3q7…\n" +
			"  farhand approve grants",
	}
	cmd.AddCommand(a.approveList(),
		a.remoteStep("show ID", "Show what a call will do", 1,
			func(ctx context.Context, r remote, args []string) error { return a.showApproval(ctx, r, args[0]) }),
		a.approveDecide("allow"), a.approveDecide("deny"),
		a.remoteStep("grants", "List the grants of --always", 0,
			func(ctx context.Context, r remote, _ []string) error { return a.listGrants(ctx, r) }),
		a.remoteStep("revoke GRANT", "Revoke a grant", 1,
			func(ctx context.Context, r remote, args []string) error {
				return r.call(ctx, http.MethodDelete, "/api/grants/"+url.PathEscape(args[0]), nil)
			}))
	return cmd
}

func (a *application) approveList() *cobra.Command {
	var r remote
	var asJSON, wait bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the calls that wait; with --wait also later ones", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait {
				return a.followApprovals(cmd.Context(), r)
			}
			return a.listApprovals(cmd.Context(), r, asJSON)
		},
	}
	r.flags(cmd.Flags(), a.environ)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wait, "wait", false, "keep listing new calls until interrupted")
	return cmd
}

func (a *application) listApprovals(ctx context.Context, r remote, asJSON bool) error {
	raw, err := r.do(ctx, http.MethodGet, pathApprovals, nil, nil)
	if err != nil {
		return err
	}
	if asJSON {
		a.printSaid(strings.TrimSpace(string(raw)) + "\n")
		return nil
	}
	var list approvalList
	if err := decodeAnswer(raw, &list); err != nil {
		return err
	}
	var cells [][]string
	for _, p := range list.Approvals {
		cells = append(cells, []string{p.ID, p.Tool, p.where(), asks(p.Requester), left(p.ExpiresAt), p.Reason})
	}
	return table(a.out, []string{"ID", "TOOL", "WHERE", "ASKED BY", "LEFT", "WHY"}, cells)
}

func (p approvalView) where() string {
	if len(p.Devices) > 0 {
		return fmt.Sprintf("%d devices", len(p.Devices))
	}
	where := strings.TrimSpace(claimed(p.DeviceName) + " " + p.SessionID)
	if p.LooksLike != "" {
		where += fmt.Sprintf(" (its id %q %s)", p.DeviceID, looksLike(p.LooksLike))
	}
	return where
}

func left(until wire.Time) string {
	return max(time.Until(timeOf(until)), 0).Truncate(time.Second).String()
}

func asks(r wire.Requester) string {
	who := cmp.Or(r.UserID, r.Credential)
	switch {
	case r.Name != "" && r.UserID != "":
		who = r.UserID + " (" + strings.TrimSpace(r.Name+" "+r.Credential) + ")"
	case r.Name != "":
		who = r.Name + " (" + strings.TrimSpace(r.Credential) + ")"
	}
	if r.Model {
		return strings.TrimSpace("a model " + who)
	}
	return who
}

// streamPause is the pause before an ended stream is reopened. A proxy may end each immediately.
const streamPause = time.Second

// followApprovals shows pending approvals, then new ones, until ctx ends. It reopens a stream that ends, also while no
// gateway answers for a time. It fails if no gateway has ever answered.
func (a *application) followApprovals(ctx context.Context, r remote) error {
	shown := make(map[string]bool)
	for followed, told := false, false; ; {
		began, err := a.approvalStream(ctx, r, shown)
		switch followed = followed || began; {
		case ctx.Err() != nil:
			return nil
		case !isAway(err) || !followed:
			return err
		case !began && !told:
			fmt.Fprintln(a.err, "waiting for the gateway:", printable(err.Error()))
		}
		told = !began
		_ = pause.For(ctx, streamPause)
	}
}

// approvalStream shows pending approvals, then new ones until the stream ends, and returns why it ended. began reports
// whether the gateway opened the stream.
func (a *application) approvalStream(ctx context.Context, r remote, shown map[string]bool) (began bool, err error) {
	resp, err := r.events(ctx, http.MethodGet, "/api/events",
		url.Values{"type": {"approval.requested", "approval.decided"}}, nil, "")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	err = a.showWaiting(ctx, r, shown) // after the stream began, so that none is missed in between
	for events := ssereader.New(resp.Body, maxCallEvent); err == nil; {
		var event ssereader.Event
		if event, err = events.Next(); err == nil {
			err = a.showApprovalEvent(ctx, r, event.Data, shown)
		}
	}
	return true, err
}

func (a *application) showWaiting(ctx context.Context, r remote, shown map[string]bool) error {
	list, err := fetch[approvalList](ctx, r, http.MethodGet, pathApprovals, nil, nil)
	if err != nil {
		return err
	}
	for _, p := range list.Approvals {
		if err := a.showOnce(ctx, r, p.ID, shown); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) showApprovalEvent(ctx context.Context, r remote, data []byte, shown map[string]bool) error {
	var e struct{ Approval approvalView }
	if json.Unmarshal(data, &e) != nil || e.Approval.ID == "" {
		return nil
	}
	p := e.Approval
	if p.State != "pending" {
		delete(shown, p.ID)
		fmt.Fprintln(a.out, printable(fmt.Sprintf("%s %s: %s", p.ID, p.Tool, p.outcome())))
		return nil
	}
	return a.showOnce(ctx, r, p.ID, shown)
}

// showOnce shows an approval unless it was shown. It skips one that no longer exists.
func (a *application) showOnce(ctx context.Context, r remote, id string, shown map[string]bool) error {
	if shown[id] {
		return nil
	}
	err := a.showApproval(ctx, r, id)
	if p, ok := errors.AsType[problem](err); ok && p.Status == http.StatusNotFound {
		return nil
	}
	shown[id] = err == nil
	return err
}

func (p approvalView) outcome() string {
	switch {
	case p.State == "pending" && p.AllowedBy != "":
		return "allowed by " + p.AllowedBy + ", waits for a second person"
	case p.DecidedBy == "":
		return string(p.State)
	}
	return string(p.State) + " by " + p.DecidedBy
}

// showApproval prints an approval with its arguments. In args_text the gateway has escaped everything that could
// deceive a reader.
func (a *application) showApproval(ctx context.Context, r remote, id string) error {
	p, err := fetch[approvalView](ctx, r, http.MethodGet, pathApprovals+"/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  on %s, asked by %s, %s\n", p.ID, p.Tool, p.where(), asks(p.Requester), p.outcome())
	fmt.Fprintf(&b, "  why: %s\n", p.Reason)
	for _, d := range p.Devices {
		fmt.Fprintf(&b, "  device: %s\n", strings.TrimSpace(claimed(d.Name)+" "+d.DeviceID+" "+d.SessionID))
	}
	for _, s := range p.Arguments {
		fmt.Fprintf(&b, "  %s = %s: %s\n", s.Pointer, s.Value, firstSeen(s))
	}
	fmt.Fprintf(&b, "  args: %s\n", strings.ReplaceAll(p.ArgsText, "\n", "\n  "))
	if len(p.Remarks) > 0 {
		fmt.Fprintf(&b, "  WARNING: %s\n", strings.Join(p.Remarks, ", "))
	}
	if p.State == "pending" && len(p.Approvers) > 0 {
		fmt.Fprintf(&b, "  approvers: %s\n", strings.Join(p.Approvers, ", "))
	}
	if p.State == "pending" {
		fmt.Fprintf(&b, "  %s left: farhand approve allow %s  |  farhand approve deny %s\n", left(p.ExpiresAt), p.ID,
			p.ID)
	}
	fmt.Fprint(a.out, printable(b.String()))
	return nil
}

func firstSeen(s registry.ArgumentSource) string {
	switch {
	case s.Source == "model":
		return "NEW, nothing before names it"
	case s.Record != "":
		return "seen first in " + s.Source + ", of the record " + s.Record
	default:
		return "seen first in " + s.Source
	}
}

type approveOptions struct {
	remote  remote
	always  bool
	anyArgs bool
	lasting time.Duration
}

func (a *application) approveDecide(verb string) *cobra.Command {
	var o approveOptions
	cmd := &cobra.Command{
		Use: verb + " ID", Short: "Allow a call", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decideApproval(cmd.Context(), o, verb == "allow", args[0])
		},
	}
	f := cmd.Flags()
	o.remote.flags(f, a.environ)
	if verb == "deny" {
		cmd.Short = "Deny a call"
		return cmd
	}
	f.BoolVar(&o.always, "always", false, "also allow later calls by the same caller with the same arguments")
	f.BoolVar(&o.anyArgs, "any-args", false, "with --always: with any arguments")
	durationVar(f, &o.lasting, "for", 0, "with --always: how long (default 30d)")
	return cmd
}

func (a *application) decideApproval(ctx context.Context, o approveOptions, allow bool, id string) error {
	body := wire.DecisionRequest{Decision: wire.DecisionDeny}
	switch {
	case !o.always && (o.anyArgs || o.lasting != 0):
		return errors.New("--any-args and --for require --always")
	case allow && o.always:
		body.Decision = wire.DecisionAlways
		if o.anyArgs {
			body.Scope = wire.ScopeTool
		}
		if body.ExpiresInMS = o.lasting.Milliseconds(); o.lasting != 0 && body.ExpiresInMS == 0 {
			return errors.New("--for must be at least 1ms")
		}
	case allow:
		body.Decision = wire.DecisionOnce
	}
	p, err := fetch[approvalView](ctx, o.remote, http.MethodPost, pathApprovals+"/"+url.PathEscape(id), nil, body)
	if err != nil {
		return err
	}
	text := p.outcome()
	switch {
	case p.State == "withdrawn":
		text += " (the caller is gone, so nothing runs)"
	case p.Decided && p.State == "pending": // the outcome says that it waits for a second person
	case !p.Decided:
		text += " (already decided or expired)"
	}
	if p.Grant != nil {
		text += fmt.Sprintf("; granted until %s; to revoke it: farhand approve revoke %s",
			timeOf(p.Grant.ExpiresAt).Format(time.RFC3339), p.Grant.ID)
	}
	fmt.Fprintln(a.out, printable(text))
	return nil
}

func (a *application) listGrants(ctx context.Context, r remote) error {
	list, err := fetch[wire.GrantList](ctx, r, http.MethodGet, "/api/grants", nil, nil)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, g := range list.Grants {
		args := "any"
		if g.ArgsDigest != "" {
			args = g.ArgsDigest[:min(len(g.ArgsDigest), 12)]
		}
		cells = append(cells, []string{
			g.ID, g.Tool, args, cmp.Or(g.DeviceID, g.SessionID), asks(g.Requester), g.GrantedBy, left(g.ExpiresAt),
		})
	}
	return table(a.out, []string{"ID", "TOOL", "ARGS", "WHERE", "FOR", "GRANTED BY", "LEFT"}, cells)
}
