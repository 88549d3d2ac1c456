package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
)

// listPage is how many rows one request asks for.
const listPage = 500

func (a *application) toolsCommand() *cobra.Command {
	var r remote
	var asJSON, grouped bool
	query := make(map[string]*string)
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools of all connected devices, and whether you may call them now",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := values(query)
			if grouped {
				q.Set("view", "grouped")
			}
			return a.tools(cmd.Context(), r, q, asJSON)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	for name, usage := range map[string]string{
		"name": "tools of this name", "q": "text in name or description", "session_id": "tools of this session",
		"device_id": "tools of this device", "user_id": "tools of this user",
		"label": "tools of devices with this label, key=value",
	} {
		query[name] = f.String(strings.TrimSuffix(name, "_id"), "", usage)
	}
	f.BoolVar(&grouped, "grouped", false, "one row per distinct tool, with the number of sessions that offer it")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *application) tools(ctx context.Context, r remote, q url.Values, asJSON bool) error {
	rows, err := fetchAll(ctx, r, "/api/tools", "tools", q)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.out, map[string]any{"tools": rows})
	}
	var cells [][]string
	for _, raw := range rows {
		var t struct { // a row of either list
			wire.ToolRow
			Sessions int `json:"sessions"`
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		usable := "yes"
		switch {
		case !t.Enabled:
			usable = "no: " + t.Reason
		case t.Approval != "":
			usable = "a person is asked"
		}
		where := t.Source
		if q.Get("view") == "grouped" {
			where = plural(t.Sessions, "session")
		}
		cells = append(cells, []string{t.Name, t.SourceType, where, t.DeviceName, t.Description, usable})
	}
	return table(a.out, []string{"NAME", "SOURCE", "WHERE", "DEVICE", "DESCRIPTION", "USABLE"}, cells)
}

func (a *application) sessionsCommand() *cobra.Command {
	var r remote
	var asJSON bool
	var kick string
	query := make(map[string]*string)
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the connected devices, or end one session",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kick != "" {
				_, err := r.do(cmd.Context(), http.MethodDelete, "/api/sessions/"+url.PathEscape(kick), nil, nil)
				return err
			}
			return a.sessions(cmd.Context(), r, values(query), asJSON)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	for name, usage := range map[string]string{
		"device_id": "sessions of this device", "user_id": "sessions of this user",
		"label": "sessions with this label, key=value",
	} {
		query[name] = f.String(strings.TrimSuffix(name, "_id"), "", usage)
	}
	f.StringVar(&kick, "kick", "",
		"end the session with this id and erase its conversation; the device does not reconnect")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *application) sessions(ctx context.Context, r remote, q url.Values, asJSON bool) error {
	q.Set("connected", "true") // conversations of disconnected devices are sessions also
	rows, err := fetchAll(ctx, r, "/api/sessions", "sessions", q)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.out, map[string]any{"sessions": rows})
	}
	var cells [][]string
	for _, raw := range rows {
		var s wire.SessionRow
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		cells = append(cells, []string{
			s.SessionID, s.Name, strings.TrimSpace(s.DeviceName + " " + s.DeviceID), s.Platform, s.Pod,
			time.Since(timeOf(s.ConnectedAt)).Truncate(time.Second).String(), strconv.Itoa(len(s.Tools)),
			roundTrip(s.Presence), lastPong(s.Presence),
		})
	}
	return table(a.out, []string{"SESSION", "NAME", "DEVICE", "PLATFORM", "POD", "CONNECTED", "TOOLS", "ROUND TRIP",
		"LAST PONG"}, cells)
}

// roundTrip returns the round trip in readable form, empty if unknown.
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

// fetchAll reads all pages of a list.
func fetchAll(ctx context.Context, r remote, path, field string, q url.Values) ([]json.RawMessage, error) {
	q.Set("limit", strconv.Itoa(listPage))
	rows := []json.RawMessage{}
	for {
		raw, err := r.do(ctx, http.MethodGet, path, q, nil)
		if err != nil {
			return nil, err
		}
		var page map[string]json.RawMessage
		var next string
		var items []json.RawMessage
		if err := decodeAnswer(raw, &page); err != nil {
			return nil, err
		}
		if err := decodeAnswer(page[field], &items); err != nil {
			return nil, err
		}
		rows = append(rows, items...)
		if page["next_cursor"] != nil {
			if err := json.Unmarshal(page["next_cursor"], &next); err != nil {
				return nil, err
			}
		}
		if next == "" {
			return rows, nil
		}
		q.Set("cursor", next)
	}
}

func values(flags map[string]*string) url.Values {
	q := make(url.Values)
	for name, value := range flags {
		if *value != "" {
			q.Set(name, *value)
		}
	}
	return q
}
