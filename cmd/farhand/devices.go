package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// deviceDetail is a paired device, as the gateway shows it.
type deviceDetail struct {
	ID        string   `json:"id"`
	DeviceID  string   `json:"device_id"`
	LooksLike string   `json:"looks_like"`
	Name      string   `json:"name"`
	UserID    string   `json:"user_id"`
	Tools     []string `json:"tools"`
	LastUsed  string   `json:"last_used"`
	presence
	Approved []struct {
		Name string `json:"name"`
	} `json:"approved"`
	Rejected []string `json:"rejected"`
	Waiting  []struct {
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Hash        string   `json:"hash"`
		Changed     []string `json:"changed"`
		Before      *struct {
			Description string `json:"description"`
		} `json:"before"`
	} `json:"waiting"`
}

func (a *application) devicesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "devices", Short: "List, rename and revoke paired devices, and approve their tools"}
	cmd.AddCommand(a.devicesListCommand(),
		a.remoteStep("show DEVICE", "Show a paired device, and its tools that wait for approval", 1,
			func(ctx context.Context, r remote, args []string) error { return a.showDevice(ctx, r, args[0]) }),
		a.remoteStep("rename DEVICE NAME", "Rename a paired device", 2,
			func(ctx context.Context, r remote, args []string) error {
				_, err := r.do(ctx, http.MethodPut, devicePath(args[0]), nil, map[string]any{"name": args[1]})
				return err
			}),
		a.remoteStep("revoke DEVICE", "End the credential of a paired device, and its connection", 1,
			func(ctx context.Context, r remote, args []string) error {
				_, err := r.do(ctx, http.MethodDelete, devicePath(args[0]), nil, nil)
				return err
			}),
		a.remoteStep("approve DEVICE [TOOL...]", "Let a paired device offer tools that wait; all, if none is named", -1,
			func(ctx context.Context, r remote, args []string) error {
				return a.approveTools(ctx, r, args[0], args[1:])
			}),
		a.remoteStep("reject DEVICE TOOL...", "Keep a paired device from offering tools", -2,
			func(ctx context.Context, r remote, args []string) error {
				body := map[string]any{"reject": args[1:]}
				_, err := r.do(ctx, http.MethodPost, devicePath(args[0])+"/tools", nil, body)
				return err
			}))
	return cmd
}

func devicePath(id string) string { return "/api/devices/" + url.PathEscape(id) }

func (a *application) devicesListCommand() *cobra.Command {
	var r remote
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the paired devices", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := fetchAll(cmd.Context(), r, "/api/devices", "devices", url.Values{})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, map[string]any{"devices": rows})
			}
			var cells [][]string
			for _, raw := range rows {
				var d deviceDetail
				if err := json.Unmarshal(raw, &d); err != nil {
					return err
				}
				online := "no"
				if d.Online {
					online = "yes"
				}
				note := ""
				if d.LooksLike != "" {
					note = looksLike(d.LooksLike)
				}
				cells = append(cells, []string{d.DeviceID, claimed(d.Name), d.UserID, strings.Join(d.Tools, ","),
					online, d.roundTrip(), d.lastPong(), d.LastUsed, d.ID, note})
			}
			return table(a.out, []string{"DEVICE", "NAME", "USER", "TOOLS", "ONLINE", "ROUND TRIP", "LAST PONG",
				"LAST USED", "ID", "NOTE"}, cells)
		},
	}
	r.flags(cmd.Flags(), a.environ)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *application) readDevice(ctx context.Context, r remote, id string) (deviceDetail, error) {
	var d deviceDetail
	raw, err := r.do(ctx, http.MethodGet, devicePath(id), nil, nil)
	if err != nil {
		return d, err
	}
	return d, decodeAnswer(raw, &d)
}

func (a *application) showDevice(ctx context.Context, r remote, id string) error {
	d, err := a.readDevice(ctx, r, id)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, t := range d.Approved {
		cells = append(cells, []string{t.Name, "approved", ""})
	}
	for _, name := range d.Rejected {
		cells = append(cells, []string{name, "rejected", ""})
	}
	for _, t := range d.Waiting {
		state := "waits"
		if len(t.Changed) > 0 {
			state = "waits: changed " + strings.Join(t.Changed, ", ")
		}
		cells = append(cells, []string{t.Name, state, t.Description})
		if t.Before != nil && t.Before.Description != t.Description {
			cells = append(cells, []string{"", "before", t.Before.Description})
		}
	}
	return table(a.out, []string{"TOOL", "STATE", "DESCRIPTION"}, cells)
}

// approveTools approves tools as they are defined now, or all that wait.
func (a *application) approveTools(ctx context.Context, r remote, id string, names []string) error {
	d, err := a.readDevice(ctx, r, id)
	if err != nil {
		return err
	}
	wanted := make(map[string]bool)
	for _, name := range names {
		wanted[name] = true
	}
	var approve []map[string]string
	for _, t := range d.Waiting {
		if len(names) == 0 || wanted[t.Name] {
			approve = append(approve, map[string]string{"name": t.Name, "hash": t.Hash})
			delete(wanted, t.Name)
		}
	}
	for name := range wanted {
		return fmt.Errorf("no tool %q of this device waits for approval; see farhand devices show %s", name, id)
	}
	if len(approve) == 0 {
		fmt.Fprintln(a.out, "nothing waits")
		return nil
	}
	_, err = r.do(ctx, http.MethodPost, devicePath(id)+"/tools", nil, map[string]any{"approve": approve})
	return err
}
