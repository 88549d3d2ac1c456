package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
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

func (a *application) eraseCommand() *cobra.Command {
	var r remote
	var user string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "erase --user USER",
		Short: "Erase everything stored about a user of your tenant, and print a receipt",
		Long: "Erases credentials, paired devices, sessions, conversations with their workspaces and files, grants,\n" +
			"approvals, records of calls, memories of tools and usage of a user, on all pods. The receipt says what is\n" +
			"kept and until when. It can be interrupted and repeated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return errors.New("--user is required: the id of the user to erase")
			}
			receipt, err := eraseUser(cmd.Context(), r, user)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, receipt)
			}
			return a.printReceipt(receipt)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&user, "user", "", "id of the user")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// eraseUser repeats the request while there is more to erase.
func eraseUser(ctx context.Context, r remote, user string) (wire.Receipt, error) {
	for {
		receipt, err := fetch[wire.Receipt](ctx, r, http.MethodDelete, "/api/users/"+url.PathEscape(user), nil, nil)
		if p, ok := errors.AsType[problem](err); !ok || p.Code != registry.CodeBusy {
			return receipt, err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return receipt, err
		}
	}
}

func (a *application) printReceipt(r wire.Receipt) error {
	fmt.Fprintf(a.out, "receipt %s of %s, subject %s\n", oneLine(r.ID, shownID), oneLine(r.At, shownID),
		oneLine(r.Subject, shownID))
	var cells [][]string
	for _, kind := range slices.Sorted(maps.Keys(r.Erased)) {
		if r.Erased[kind] > 0 {
			cells = append(cells, []string{kind, fmt.Sprint(r.Erased[kind]), ""})
		}
	}
	for _, k := range r.Kept {
		cells = append(cells, []string{k.What, "", cmp.Or(k.Until, "-")})
	}
	return table(a.out, []string{"WHAT", "ERASED", "KEPT UNTIL"}, cells)
}
