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
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/ws/client"
)

// pairingRow is a request to pair, as the gateway shows it.
type pairingRow struct {
	ID            string    `json:"id"`
	Status        string    `json:"status"`
	DeviceID      string    `json:"device_id"`
	DeviceName    string    `json:"device_name"`
	Platform      string    `json:"platform"`
	Tools         []string  `json:"tools"`
	Fingerprint   string    `json:"key_fingerprint"`
	Source        string    `json:"source"`
	AlreadyPaired bool      `json:"already_paired"`
	LooksLike     string    `json:"looks_like"`
	Remarks       []string  `json:"remarks"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// device returns the device id as people read it: one that is to be looked at twice in quotes, so that it can look like
// no other text.
func (p pairingRow) device() string {
	if len(p.Remarks) == 0 {
		return p.DeviceID
	}
	return strconv.Quote(p.DeviceID)
}

// notes returns what an approver should know before they decide.
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

// looksLike warns of a device that a reader may take for another one.
func looksLike(other string) string {
	return fmt.Sprintf("looks like %q", other)
}

// claimed returns what a device calls itself as people read it: in quotes if it has signs with which it could pass for
// a word of the gateway, such as [approved].
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
		Short: "Approve or reject devices that ask to be paired",
		Long: "A device that asks to be paired shows a code. Whoever is an approver approves it with\n" +
			"`farhand pair approve CODE`; the device then has a credential of its own.",
	}
	cmd.AddCommand(a.pairListCommand(), a.pairShowCommand(), a.pairApproveCommand(), a.pairRejectCommand())
	return cmd
}

func (a *application) pairListCommand() *cobra.Command {
	cmd := a.remoteStep("list", "List the devices that may be approved without their code", 0,
		func(ctx context.Context, r remote, _ []string) error {
			raw, err := r.do(ctx, http.MethodGet, "/api/pairings", nil, nil)
			if err != nil {
				return err
			}
			var page struct {
				Pairings []pairingRow `json:"pairings"`
			}
			if err := decodeAnswer(raw, &page); err != nil {
				return err
			}
			var cells [][]string
			for _, p := range page.Pairings {
				cells = append(cells, []string{p.ID, claimed(p.DeviceName), p.device(), claimed(p.Platform), p.Source,
					strings.Join(p.Tools, ","), time.Until(p.ExpiresAt).Truncate(time.Second).String(),
					strings.Join(p.notes(), "; ")})
			}
			header := []string{"ID", "NAME", "DEVICE", "PLATFORM", "FROM", "TOOLS", "EXPIRES", "NOTE"}
			return table(a.out, header, cells)
		})
	cmd.Long = "Lists what waits at a gateway with FARHAND_PAIRING=open. All other requests are known\n" +
		"by their codes only."
	return cmd
}

func (a *application) pairShowCommand() *cobra.Command {
	return a.remoteStep("show CODE", "Show which device has a code", 1,
		func(ctx context.Context, r remote, args []string) error {
			return a.decidePairing(ctx, r, args[0], map[string]any{})
		})
}

func (a *application) pairApproveCommand() *cobra.Command {
	var user, name string
	var tools []string
	var replace bool
	var f *pflag.FlagSet
	cmd := a.remoteStep("approve CODE", "Approve the device that shows a code, or one that is listed by its id", 1,
		func(ctx context.Context, r remote, args []string) error {
			body := map[string]any{"decision": "approve", "replace": replace}
			if user != "" {
				body["user"] = user
			}
			if name != "" {
				body["name"] = name
			}
			if f.Changed("tools") {
				body["tools"] = strings.Fields(strings.Join(tools, " ")) // as keys create takes them, too
			}
			return a.decidePairing(ctx, r, args[0], body)
		})
	f = cmd.Flags()
	f.StringVar(&user, "user", "", "user whose device it becomes (default: you)")
	f.StringVar(&name, "name", "", "name for people (default: as the device calls itself)")
	f.StringSliceVar(&tools, "tools", nil, "names or globs of tools it may offer (default: those it asks for)")
	f.BoolVar(&replace, "replace", false, "take the place of a device with the same id that is paired already")
	return cmd
}

func (a *application) pairRejectCommand() *cobra.Command {
	return a.remoteStep("reject CODE", "Reject the device that shows a code, or one that is listed by its id", 1,
		func(ctx context.Context, r remote, args []string) error {
			return a.decidePairing(ctx, r, args[0], map[string]any{"decision": "reject"})
		})
}

// pairingIDLength is how many digits the id of a request has. Codes are shorter.
const pairingIDLength = 24

// decidePairing decides or shows the request with a code or an id, and prints it.
func (a *application) decidePairing(ctx context.Context, r remote, which string, body map[string]any) error {
	path := "/api/pairings"
	if len(which) == pairingIDLength {
		path += "/" + url.PathEscape(which)
	} else {
		body["code"] = which
	}
	raw, err := r.do(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	var p pairingRow
	if err := decodeAnswer(raw, &p); err != nil {
		return err
	}
	lines := [][]string{
		{"status", p.Status}, {"device", p.device()}, {"name", claimed(p.DeviceName)},
		{"platform", claimed(p.Platform)},
		{"tools", strings.Join(p.Tools, ", ")}, {"key", p.Fingerprint}, {"from", p.Source},
	}
	for _, note := range p.notes() {
		lines = append(lines, []string{"note", note})
	}
	return table(a.out, []string{"", ""}, lines)
}

// pairDevice returns the credential of this device, and has it paired if there is none.
func (a *application) pairDevice(ctx context.Context, o deviceOptions, endpoint string, tools []string) (
	client.Credential, error,
) {
	file, err := o.credentialFile()
	if err != nil {
		return client.Credential{}, err
	}
	return client.Pair(ctx, endpoint, client.PairOptions{
		DeviceID: o.deviceID, DeviceName: o.name, Platform: runtime.GOOS, Tools: tools, Store: client.FileStore(file),
		Show: func(code string, expires time.Time) {
			fmt.Fprintf(a.out, "To pair this device, an approver runs within %s:\n  farhand pair approve %s\n",
				time.Until(expires).Round(time.Second), oneLine(code, shownID))
		},
	})
}

// credentialFile returns where the credential of this device is kept: one for each gateway.
func (o deviceOptions) credentialFile() (string, error) {
	if o.credential != "" {
		return o.credential, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errors.New("there is no directory for settings of this user: say with --credential where to keep it")
	}
	u, err := url.Parse(o.remote.base())
	if err != nil {
		return "", err
	}
	host := strings.NewReplacer(":", "_", "[", "", "]", "").Replace(u.Host)
	return filepath.Join(dir, "farhand", host+".json"), nil
}
