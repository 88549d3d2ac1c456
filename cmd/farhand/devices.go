package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/ws/client"
)

func (a *application) devicesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices", Short: "List, rename, rotate and revoke paired devices, and approve their tools",
	}
	cmd.AddCommand(a.devicesListCommand(),
		a.remoteStep("show DEVICE", "Show a paired device and its waiting tools", 1,
			func(ctx context.Context, r remote, args []string) error { return a.showDevice(ctx, r, args[0]) }),
		a.remoteStep("rename DEVICE NAME", "Rename a paired device", 2,
			func(ctx context.Context, r remote, args []string) error {
				return r.call(ctx, http.MethodPut, devicePath(args[0]), wire.SessionName{Name: args[1]})
			}),
		a.rotateCommand(&cobra.Command{
			Use: "rotate DEVICE", Short: "Give a paired device a new credential and print it once",
			Long: "Gives a paired device a new credential and prints it, to be brought to the device. The former one works\n" +
				"until the overlap ends; show and list tell whether it is still used. A device can also do it itself.\n" +
				"An OpenClaw node gets its new credential when it next connects; nothing is printed. With --overlap 0 its\n" +
				"connection is closed, so that it connects now, and the former credential ends in 10 minutes.",
		}, func(id string) string { return devicePath(id) + "/rotate" }),
		a.remoteStep("revoke DEVICE", "Revoke a paired device's credential and close its connection", 1,
			func(ctx context.Context, r remote, args []string) error {
				return r.call(ctx, http.MethodDelete, devicePath(args[0]), nil)
			}),
		a.remoteStep("approve DEVICE [TOOL...]", "Approve waiting tools of a paired device (default: all)", -1,
			func(ctx context.Context, r remote, args []string) error {
				return a.approveTools(ctx, r, args[0], args[1:])
			}),
		a.remoteStep("reject DEVICE TOOL...", "Reject tools of a paired device", -2,
			func(ctx context.Context, r remote, args []string) error {
				return r.call(ctx, http.MethodPost, devicePath(args[0])+"/tools", wire.ToolDecision{Reject: args[1:]})
			}))
	return cmd
}

func devicePath(id string) string { return "/api/devices/" + url.PathEscape(id) }

func (a *application) devicesListCommand() *cobra.Command {
	var r remote
	return listing[wire.DeviceRow]{
		name: "devices",
		filters: map[string]string{
			"presence": "connected, sleeping (not connected, but remembered), or any (default: all, without presence)",
		},
		header: []string{"DEVICE", "NAME", "USER", "TOOLS", "WAITING", "ONLINE", "ROUND TRIP", "LAST PONG",
			"LAST USED", "ID", "NOTE"},
		row: func(d wire.DeviceRow) []string {
			online, note := "no", ""
			switch {
			case d.Online:
				online = "yes"
			case d.LastSeen != "":
				online = "sleeps, seen " + d.LastSeen
			}
			if d.LooksLike != "" {
				note = looksLike(d.LooksLike)
			}
			if d.Node {
				note = strings.TrimPrefix(note+"; OpenClaw node, key "+d.Fingerprint, "; ")
			}
			if d.Renew {
				note += "; gets a new credential when it next connects"
			}
			if former := formerSecret(d.Former); former != "" {
				note = strings.TrimPrefix(note+"; former credential "+former, "; ")
			}
			waiting := ""
			if d.WaitingTools > 0 {
				waiting = plural(d.WaitingTools, "tool")
			}
			return []string{d.DeviceID, claimed(d.Name), d.UserID, strings.Join(d.Tools, ","), waiting, online,
				roundTrip(d.Presence), lastPong(d.Presence), d.LastUsed, d.ID, note}
		},
	}.command(a, &r, &cobra.Command{
		Use: "list", Short: "List the paired devices",
		Long: "Lists the paired devices. WAITING is how many tools of a device wait for farhand devices approve.",
	})
}

func (a *application) showDevice(ctx context.Context, r remote, id string) error {
	d, err := fetch[wire.Device](ctx, r, http.MethodGet, devicePath(id), nil, nil)
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

func (a *application) approveTools(ctx context.Context, r remote, id string, names []string) error {
	d, err := fetch[wire.Device](ctx, r, http.MethodGet, devicePath(id), nil, nil)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(d.Waiting, func(t wire.WaitingTool) bool { return t.Name == name }) {
			return fmt.Errorf("no tool %q of this device waits for approval; see farhand devices show %s", name, id)
		}
	}
	var approve []wire.ApprovedTool
	for _, t := range d.Waiting {
		if len(names) == 0 || slices.Contains(names, t.Name) {
			approve = append(approve, wire.ApprovedTool{Name: t.Name, Hash: t.Hash})
		}
	}
	if len(approve) == 0 {
		fmt.Fprintln(a.out, "no tool waits for approval")
		return nil
	}
	return r.call(ctx, http.MethodPost, devicePath(id)+"/tools", wire.ToolDecision{Approve: approve})
}

// pairingRow is a pairing request in the gateway's answer.
type pairingRow struct {
	wire.Pairing
}

// device returns the device id for display. A suspicious id is quoted, so that it cannot look like other text.
func (p pairingRow) device() string {
	if len(p.Remarks) == 0 {
		return p.DeviceID
	}
	return strconv.Quote(p.DeviceID)
}

func (p pairingRow) notes() []string {
	var notes []string
	if p.LooksLike != "" {
		notes = append(notes, looksLike(p.LooksLike))
	}
	if p.AlreadyPaired && p.Status == "pending" {
		notes = append(notes, "a device with this id is paired already; approve it with --replace")
	}
	for _, remark := range p.Remarks {
		switch remark {
		case "foreign":
			notes = append(notes, "not ASCII: "+strings.Trim(strconv.QuoteToASCII(p.DeviceID), `"`))
		default:
			notes = append(notes, remark+" id")
		}
	}
	return notes
}

// looksLike warns that a device's name resembles another one's.
func looksLike(other string) string {
	return fmt.Sprintf("looks like %q", other)
}

// claimed returns a device's own name for display. It is quoted if it has characters with which it could imitate the
// gateway's output, such as [approved].
func claimed(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(" '’._-", r)
	}) {
		return strconv.Quote(name)
	}
	return name
}

func (a *application) pairCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pair",
		Short: "Approve or reject devices that request pairing",
		Long: "A device that requests pairing shows a code. When an approver runs `farhand pair approve CODE`,\n" +
			"the device gets its own credential.",
	}
	cmd.AddCommand(a.pairListCommand(),
		a.remoteStep("show CODE", "Show the device with a code", 1,
			func(ctx context.Context, r remote, args []string) error {
				return a.decidePairing(ctx, r, args[0], wire.PairingDecision{})
			}),
		a.pairApproveCommand(), a.pairSetupCommand(),
		a.remoteStep("reject CODE", "Reject a device by its code, or a listed one by its id", 1,
			func(ctx context.Context, r remote, args []string) error {
				return a.decidePairing(ctx, r, args[0], wire.PairingDecision{Decision: "reject"})
			}))
	return cmd
}

func (a *application) pairListCommand() *cobra.Command {
	cmd := a.remoteStep("list", "List the devices that may be approved without their code", 0,
		func(ctx context.Context, r remote, _ []string) error {
			type pairings struct{ Pairings []pairingRow }
			page, err := fetch[pairings](ctx, r, http.MethodGet, "/api/pairings", nil, nil)
			if err != nil {
				return err
			}
			var cells [][]string
			for _, p := range page.Pairings {
				cells = append(cells, []string{p.ID, claimed(p.DeviceName), p.device(), claimed(p.Platform), p.Source,
					strings.Join(p.Tools, ","), time.Until(timeOf(p.ExpiresAt)).Truncate(time.Second).String(),
					strings.Join(p.notes(), "; ")})
			}
			header := []string{"ID", "NAME", "DEVICE", "PLATFORM", "FROM", "TOOLS", "EXPIRES", "NOTE"}
			return table(a.out, header, cells)
		})
	cmd.Long = "Lists the requests at a gateway with FARHAND_PAIRING=open. Others are known by their code only."
	return cmd
}

func (a *application) pairApproveCommand() *cobra.Command {
	var user, name string
	var tools []string
	var replace bool
	var f *pflag.FlagSet
	cmd := a.remoteStep("approve CODE", "Approve a device by its code, or a listed one by its id", 1,
		func(ctx context.Context, r remote, args []string) error {
			body := wire.PairingDecision{Decision: "approve", User: user, Name: name, Replace: replace}
			if f.Changed("tools") {
				body.Tools = strings.Fields(strings.Join(tools, " ")) // as keys create does
			}
			return a.decidePairing(ctx, r, args[0], body)
		})
	f = cmd.Flags()
	f.StringVar(&user, "user", "", "owner of the device (default: you)")
	f.StringVar(&name, "name", "", "display name (default: the device's own)")
	f.StringSliceVar(&tools, "tools", nil, "tools it may offer, names or globs (default: those it requests)")
	f.BoolVar(&replace, "replace", false, "replace a paired device with the same id")
	return cmd
}

// pairingIDLength is how many digits the id of a request has. Codes are shorter.
const pairingIDLength = 24

// decidePairing decides or shows the request with a code or an id, and prints it.
func (a *application) decidePairing(ctx context.Context, r remote, which string, body wire.PairingDecision) error {
	path := "/api/pairings"
	if len(which) == pairingIDLength { // the id of a node's request is longer, and counts as its code
		path += "/" + url.PathEscape(which)
	} else {
		body.Code = which
	}
	p, err := fetch[pairingRow](ctx, r, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	lines := [][]string{
		{"status", p.Status}, {"device", p.device()}, {"name", claimed(p.DeviceName)},
		{"platform", claimed(p.Platform)}, {"client", claimed(p.Client)},
		{"tools", strings.Join(p.Tools, ", ")}, {"key", p.Fingerprint}, {"from", p.Source},
	}
	for _, note := range p.notes() {
		lines = append(lines, []string{"note", note})
	}
	return table(a.out, []string{"", ""}, lines)
}

// pairDevice returns the credential of this device, and pairs it if there is none.
func (a *application) pairDevice(ctx context.Context, o deviceOptions, endpoint string, tools []string) (
	client.Credential, error,
) {
	file, err := o.credentialFile()
	if err != nil {
		return client.Credential{}, err
	}
	trusted, err := o.remote.trust.tls()
	if err != nil {
		return client.Credential{}, err
	}
	return client.Pair(ctx, endpoint, client.PairOptions{
		DeviceID: o.deviceID, DeviceName: o.name, Platform: runtime.GOOS, Tools: tools, Store: client.FileStore(file),
		TLS: trusted,
		Show: func(code string, expires time.Time) {
			fmt.Fprintf(a.out, "To pair this device, an approver runs within %s:\n  farhand pair approve %s\n",
				time.Until(expires).Round(time.Second), oneLine(code, shownID))
		},
	})
}

// credentialFile returns the file with this device's credential, one for each gateway.
func (o deviceOptions) credentialFile() (string, error) {
	if o.credential != "" {
		return o.credential, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errors.New("this user has no settings directory: set --credential to a file")
	}
	u, err := url.Parse(o.remote.base())
	if err != nil {
		return "", err
	}
	host := strings.NewReplacer(":", "_", "[", "", "]", "").Replace(u.Host)
	return filepath.Join(dir, "farhand", host+".json"), nil
}
