package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
)

func (a *application) usageCommand() *cobra.Command {
	var r remote
	return listing[wire.UsageRow]{
		name: "usage",
		filters: map[string]string{
			"from": "first day, like 2026-11-22 (default: 30 days ago)", "to": "last day (default: today)",
			"user": "usage of this user", "tool": "calls of this tool",
			"by": "what rows are grouped by: day, user, tool (default: all three)",
		},
		header: []string{
			"DAY", "USER", "TOOL", "CALLS", "FAILURES", "MS", "BYTES IN", "BYTES OUT", "TOKENS IN", "TOKENS OUT",
		},
		row: func(u wire.UsageRow) []string {
			user := u.Key
			if u.User != nil {
				user = cmp.Or(*u.User, u.Key)
			}
			row := []string{u.Day, user, u.Tool}
			for _, n := range []int64{
				u.Calls, u.Failures, u.Milliseconds, u.BytesIn, u.BytesOut, u.InputTokens, u.OutputTokens,
			} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			return row
		},
	}.command(a, &r, &cobra.Command{Use: "usage", Short: "Show usage: calls, time, bytes and tokens"})
}

func (a *application) auditCommand() *cobra.Command {
	var r remote
	var export bool
	var limit int
	given := make(map[string]*string)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show or export the audit log",
		Long: "Shows who did what, and what was denied, newest first. --export prints each line as a JSON\n" +
			"object; after 100,000 lines, the last has only a next_cursor, for --cursor.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := values(nil, given)
			if cmd.Flags().Changed("limit") || !export {
				q.Set("limit", strconv.Itoa(limit))
			}
			if export {
				return a.exportAudit(cmd.Context(), r, q)
			}
			return a.audit(cmd.Context(), r, q)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	filters(f, given, map[string]string{
		"from": "lines since this time, like 2026-11-22T09:00:00Z", "to": "lines before this time",
		"user": "actions of this user", "credential": "actions with this credential",
		"action": "lines of this action, for example call or key.create", "outcome": "allowed, denied, failed or seen",
		"tool": "lines about this tool", "session_id": "lines about this session", "call_id": "lines about this call",
		"cursor": "continue after an earlier page",
	})
	f.IntVar(&limit, "limit", 100, "number of lines, at most 1000")
	f.BoolVar(&export, "export", false, "print all lines as JSON lines")
	return cmd
}

// maxCursor is longer than any cursor, in characters.
const maxCursor = 1000

func (a *application) audit(ctx context.Context, r remote, q url.Values) error {
	page, err := fetch[wire.AuditPage](ctx, r, http.MethodGet, "/api/audit", q, nil)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, e := range page.Lines {
		about := strings.Join(strings.Fields(strings.Join([]string{e.Target, e.Tool, e.SessionID, e.CallID}, " ")), " ")
		cells = append(cells, []string{
			e.At, e.Actor.User, cmp.Or(e.Actor.Name, e.Actor.Credential), e.Actor.Source, e.Action, e.Outcome,
			string(e.Code), e.Rule, about, e.Reason,
		})
	}
	header := []string{"AT", "USER", "CREDENTIAL", "FROM", "ACTION", "OUTCOME", "CODE", "RULE", "ABOUT", "REASON"}
	if err := table(a.out, header, cells); err != nil {
		return err
	}
	if page.NextCursor != "" {
		fmt.Fprintln(a.err, "there is more: --cursor", oneLine(page.NextCursor, maxCursor))
	}
	return nil
}

// exportAudit prints the log as it arrives.
func (a *application) exportAudit(ctx context.Context, r remote, q url.Values) error {
	q.Set("format", "jsonl")
	resp, err := r.open(ctx, http.MethodGet, "/api/audit", q, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(safeOn(a.out), resp.Body); err != nil {
		return fmt.Errorf("the gateway's response was cut off: %w", err)
	}
	return nil
}
