package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// approveOptions are the flags of `farhand approve allow` and deny.
type approveOptions struct {
	remote  remote
	always  bool
	anyArgs bool
	lasting time.Duration
}

// approveDecide is the command allow, or deny.
func (a *application) approveDecide(verb string) *cobra.Command {
	var o approveOptions
	cmd := &cobra.Command{
		Use: verb + " ID", Short: "Let a call run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decideApproval(cmd.Context(), o, verb == "allow", args[0])
		},
	}
	f := cmd.Flags()
	o.remote.flags(f, a.environ)
	if verb == "deny" {
		cmd.Short = "Keep a call from running"
		return cmd
	}
	f.BoolVar(&o.always, "always", false, "also let later calls run, by the same asker, with the same arguments")
	f.BoolVar(&o.anyArgs, "any-args", false, "with --always: with any arguments")
	durationVar(f, &o.lasting, "for", 0, "with --always: for how long (default 30d)")
	return cmd
}

func (a *application) decideApproval(ctx context.Context, o approveOptions, allow bool, id string) error {
	body := map[string]any{"decision": "deny"}
	switch {
	case !o.always && (o.anyArgs || o.lasting != 0):
		return errors.New("--any-args and --for mean something with --always only")
	case allow && o.always:
		body["decision"] = "allow-always"
		if o.anyArgs {
			body["scope"] = "tool"
		}
		if o.lasting != 0 {
			body["expires_in_ms"] = o.lasting.Milliseconds()
		}
	case allow:
		body["decision"] = "allow-once"
	}
	raw, err := o.remote.do(ctx, http.MethodPost, pathApprovals+"/"+url.PathEscape(id), nil, body)
	if err != nil {
		return err
	}
	var p approvalRow
	if err := decodeAnswer(raw, &p); err != nil {
		return err
	}
	text := p.outcome()
	switch {
	case p.State == "withdrawn":
		text += " (whoever asked is gone, so nothing runs)"
	case p.Decided && p.State == "pending": // the outcome says that it waits for a second person
	case !p.Decided:
		text += " (somebody was faster, or the time was up)"
	}
	if p.Grant != nil {
		text += fmt.Sprintf("; granted until %s: farhand approve revoke %s takes it back",
			p.Grant.ExpiresAt.Format(time.RFC3339), p.Grant.ID)
	}
	fmt.Fprintln(a.out, printable(text))
	return nil
}

func (a *application) approveGrants() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use: "grants", Short: "List what --always has granted", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listGrants(cmd.Context(), r) },
	}
	r.flags(cmd.Flags(), a.environ)
	return cmd
}

func (a *application) listGrants(ctx context.Context, r remote) error {
	raw, err := r.do(ctx, http.MethodGet, "/api/grants", nil, nil)
	if err != nil {
		return err
	}
	var list struct {
		Grants []struct {
			approvalRow
			ArgsDigest string `json:"args_digest"`
			DeviceID   string `json:"device_id"`
			GrantedBy  string `json:"granted_by"`
		}
	}
	if err := decodeAnswer(raw, &list); err != nil {
		return err
	}
	var cells [][]string
	for _, g := range list.Grants {
		args := "any"
		if g.ArgsDigest != "" {
			args = g.ArgsDigest[:min(len(g.ArgsDigest), 12)]
		}
		where := g.DeviceID
		if where == "" {
			where = g.SessionID
		}
		cells = append(cells, []string{g.ID, g.Tool, args, where, g.who(), g.GrantedBy, g.left()})
	}
	return table(a.out, []string{"ID", "TOOL", "ARGS", "WHERE", "FOR", "GRANTED BY", "LEFT"}, cells)
}

func (a *application) approveRevoke() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use: "revoke GRANT", Short: "Take back a grant", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := r.do(cmd.Context(), http.MethodDelete, "/api/grants/"+url.PathEscape(args[0]), nil, nil)
			return err
		},
	}
	r.flags(cmd.Flags(), a.environ)
	return cmd
}
