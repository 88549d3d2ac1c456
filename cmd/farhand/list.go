package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/api/wire"
)

// listPage is how many rows one request asks for.
const listPage = 500

// listing is a list of the gateway, at /api/ and its name.
type listing[T any] struct {
	name    string
	query   url.Values        // sent always
	filters map[string]string // parameters that are flags, with their usage
	header  []string
	row     func(T) []string
}

// command adds what a command needs to print the list.
func (l listing[T]) command(a *application, r *remote, cmd *cobra.Command) *cobra.Command {
	var asJSON bool
	given := make(map[string]*string)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return l.print(cmd.Context(), a, *r, values(l.query, given), asJSON)
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	filters(f, given, l.filters)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (l listing[T]) print(ctx context.Context, a *application, r remote, q url.Values, asJSON bool) error {
	rows, err := fetchAll(ctx, r, l.name, q)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.out, map[string]any{l.name: rows})
	}
	var cells [][]string
	for _, raw := range rows {
		var row T
		if err := decodeAnswer(raw, &row); err != nil {
			return err
		}
		cells = append(cells, l.row(row))
	}
	return table(a.out, l.header, cells)
}

// anyTool is a tool in either list: of the tools of all sessions, or grouped by definition.
type anyTool struct {
	wire.ToolRow
	Sessions int `json:"sessions"`
}

func (a *application) toolsCommand() *cobra.Command {
	var r remote
	var grouped bool
	query := make(url.Values)
	cmd := listing[anyTool]{
		name: "tools", query: query,
		filters: map[string]string{
			"name": "tools of this name", "q": "text in name or description", "session_id": "tools of this session",
			"device_id": "tools of this device", "user_id": "tools of this user",
			"label":    "tools of devices with this label, key=value",
			"presence": "connected (default), sleeping (tools of devices that are remembered), or any",
		},
		header: []string{"NAME", "SOURCE", "WHERE", "DEVICE", "DESCRIPTION", "USABLE"},
		row: func(t anyTool) []string {
			usable := "yes"
			switch {
			case !t.Enabled:
				usable = "no: " + t.Reason
			case t.Approval != "":
				usable = "a person is asked"
			}
			where := t.Source
			if grouped {
				where = plural(t.Sessions, "session")
			}
			return []string{t.Name, t.SourceType, where, t.DeviceName, t.Description, usable}
		},
	}.command(a, &r, &cobra.Command{
		Use:   "tools",
		Short: "List the tools of all connected devices, and whether you may call them",
		PreRun: func(*cobra.Command, []string) {
			if grouped {
				query.Set("view", "grouped")
			}
		},
	})
	cmd.Flags().BoolVar(&grouped, "grouped", false,
		"one row per distinct tool, with its number of sessions")
	return cmd
}

func (a *application) sessionsCommand() *cobra.Command {
	var r remote
	var kick string
	query := url.Values{"connected": {"true"}} // conversations of disconnected devices are also sessions
	cmd := listing[wire.SessionRow]{
		name:  "sessions",
		query: query,
		filters: map[string]string{
			"device_id": "sessions of this device", "user_id": "sessions of this user",
			"label":    "sessions with this label, key=value",
			"presence": "connected (default), sleeping (devices that are remembered), or any",
		},
		header: []string{"SESSION", "NAME", "DEVICE", "PLATFORM", "POD", "CONNECTED", "TOOLS", "ROUND TRIP",
			"LAST PONG"},
		row: func(s wire.SessionRow) []string {
			connected := time.Since(timeOf(s.ConnectedAt)).Truncate(time.Second).String()
			if s.LastSeen != "" {
				connected = "sleeps, seen " + s.LastSeen
			}
			return []string{
				s.SessionID, s.Name, strings.TrimSpace(s.DeviceName + " " + s.DeviceID), s.Platform, s.Pod,
				connected, strconv.Itoa(len(s.Tools)),
				roundTrip(s.SessionAttributes.Presence), lastPong(s.SessionAttributes.Presence),
			}
		},
	}.command(a, &r, &cobra.Command{Use: "sessions", Short: "List connected or sleeping devices, or end one session"})
	list := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if kick == "" {
			if cmd.Flags().Changed("presence") {
				query.Del("connected") // presence says it
			}
			return list(cmd, args)
		}
		return r.call(cmd.Context(), http.MethodDelete, "/api/sessions/"+url.PathEscape(kick), nil)
	}
	cmd.Flags().StringVar(&kick, "kick", "",
		"end this session and erase its conversation; the device does not reconnect")
	return cmd
}

func roundTrip(p wire.Presence) string {
	if p.RoundTripMS == 0 {
		return ""
	}
	return fmt.Sprintf("%d ms", p.RoundTripMS)
}

// lastPong returns in readable form how long ago the last pong came, empty if unknown.
func lastPong(p wire.Presence) string {
	if p.LastPong == "" {
		return ""
	}
	return max(0, time.Since(timeOf(p.LastPong))).Truncate(time.Second).String() + " ago"
}

// timeOf returns a time in an answer, or the zero time if it is absent.
func timeOf(text wire.Time) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}

func fetchAll(ctx context.Context, r remote, name string, q url.Values) ([]json.RawMessage, error) {
	q.Set("limit", strconv.Itoa(listPage))
	rows := []json.RawMessage{}
	for {
		page, err := fetch[map[string]json.RawMessage](ctx, r, http.MethodGet, "/api/"+name, q, nil)
		if err != nil {
			return nil, err
		}
		var next string
		var items []json.RawMessage
		if err := decodeAnswer(page[name], &items); err != nil {
			return nil, err
		}
		rows = append(rows, items...)
		if page["next_cursor"] != nil {
			if err := decodeAnswer(page["next_cursor"], &next); err != nil {
				return nil, err
			}
		}
		if next == "" {
			return rows, nil
		}
		q.Set("cursor", next)
	}
}

// filters adds a flag for each query parameter, without _id at its end.
func filters(f *pflag.FlagSet, given map[string]*string, usages map[string]string) {
	for name, usage := range usages {
		given[name] = f.String(strings.TrimSuffix(name, "_id"), "", usage)
	}
}

// values returns a query with the flags that are set.
func values(query url.Values, flags map[string]*string) url.Values {
	q := make(url.Values)
	maps.Copy(q, query)
	for name, value := range flags {
		if *value != "" {
			q.Set(name, *value)
		}
	}
	return q
}
