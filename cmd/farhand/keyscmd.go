package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/days"
)

// keyRow is a new API key, as `farhand keys create` prints it.
type keyRow struct {
	ID        string   `json:"id"`
	Key       string   `json:"key,omitempty"`
	Tenant    string   `json:"tenant"`
	Name      string   `json:"name,omitempty"`
	Roles     []string `json:"roles"`
	UserID    string   `json:"user_id,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Tools     string   `json:"tools,omitempty"`
	Context   string   `json:"context,omitempty"`
	Person    bool     `json:"person,omitempty"`
	ExpiresAt string   `json:"expires_at,omitempty"`
}

func (a *application) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke API keys",
		Long: "API keys authenticate programs and devices. Each has its own roles and can be revoked. Creating\n" +
			"them requires FARHAND_TOKEN or an admin's key.",
	}
	cmd.AddCommand(a.keysCreateCommand(), a.keysListCommand(), a.keysRotateCommand(), a.keysRevokeCommand())
	return cmd
}

func (a *application) keysCreateCommand() *cobra.Command {
	var r remote
	var k wire.KeyRequest
	var life time.Duration
	var direct, asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key and print it once",
		Long: "Creates an API key and prints it. Only its hash is stored, so it cannot be shown again. --store\n" +
			"writes to Redis (FARHAND_REDIS_URL) or, while no gateway runs, to the state file of this machine\n" +
			"(FARHAND_DATA_DIR), for the first key of gateways without a token.",
		Example: "  farhand keys create --name ci --role caller --tools 'camera_* torch' --expires 30d\n" +
			"  FARHAND_REDIS_URL=redis://redis:6379 farhand keys create --store --role admin",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if life < 0 || life > 0 && life < time.Second {
				return fmt.Errorf("--expires must be at least 1s, for example 30d")
			}
			k.ExpiresIn = int64(life / time.Second)
			create := func(ctx context.Context, k wire.KeyRequest) (keyRow, error) {
				return fetch[keyRow](ctx, r, http.MethodPost, "/api/keys", nil, k)
			}
			if direct {
				create = a.createStoredKey
			}
			if file != "" {
				return a.createKeyFile(file, func() (keyRow, error) { return create(cmd.Context(), k) })
			}
			made, err := create(cmd.Context(), k)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, made)
			}
			fmt.Fprintf(a.err, "key %s of tenant %s. It is not shown again:\n", oneLine(made.ID, shownID),
				oneLine(made.Tenant, shownID))
			_, err = fmt.Fprintln(safeOn(a.out), made.Key)
			return err
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&k.Name, "name", "", "display name")
	f.StringSliceVar(&k.Roles, "role", []string{auth.NameCaller}, "roles: "+strings.Join(auth.RoleNames(), ", "))
	f.StringVar(&k.UserID, "user", "", "user of the key (default: none)")
	f.StringVar(&k.DeviceID, "device", "", "the only device id a device with the key may have")
	f.StringVar(&k.Tools, "tools", "", "globs of tool names, separated by spaces (default: all)")
	f.StringVar(&k.Context, "context", "", "participants of its conversations: main, group, group sandboxed")
	f.BoolVar(&k.Person, "person", false, "its calls over MCP count as a person's, not a model's")
	f.StringVar(&k.Tenant, "tenant", "", "another tenant; only with FARHAND_TOKEN or --store")
	durationVar(f, &life, "expires", 0, "lifetime, such as 12h or 30d; 0: as long as it is used")
	f.BoolVar(&direct, "store", false, "write to FARHAND_REDIS_URL or FARHAND_DATA_DIR, without a gateway")
	f.StringVar(&file, "file", "", "write the key to this new file, for its owner; if it exists, create nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// createKeyFile creates a key whose secret is in a file only. If the file exists it does nothing, so that a fleet can
// run it at every start. The file is complete or missing.
func (a *application) createKeyFile(file string, create func() (keyRow, error)) error {
	if _, err := os.Lstat(file); err == nil {
		fmt.Fprintf(a.err, "%s exists: no key is created\n", file)
		return nil
	}
	part, err := os.OpenFile(file+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // before there is a key to lose
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	made, err := create()
	if err == nil {
		_, err = fmt.Fprintln(part, made.Key)
	}
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	fmt.Fprintf(a.err, "key %s of tenant %s is in %s\n", oneLine(made.ID, shownID), oneLine(made.Tenant, shownID), file)
	return os.Rename(part.Name(), file)
}

func (a *application) createStoredKey(ctx context.Context, k wire.KeyRequest) (keyRow, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return keyRow{}, err
	}
	request := auth.KeyRequest{
		Tenant: k.Tenant, Name: k.Name, Roles: k.Roles, User: k.UserID, Device: k.DeviceID, Tools: k.Tools,
		Context: k.Context, Person: k.Person,
	}
	if k.ExpiresIn > 0 {
		request.Expires = time.Now().Add(time.Duration(k.ExpiresIn) * time.Second)
	}
	secret, c, err := farhand.CreateKey(ctx, cfg, request)
	if err != nil {
		return keyRow{}, err
	}
	made := keyRow{
		ID: c.ID, Key: secret, Tenant: c.Tenant, Name: c.Name, Roles: c.Roles, UserID: c.User, DeviceID: c.DeviceID,
		Tools: c.Tools, Context: c.Context, Person: c.Person,
	}
	if !c.ExpiresAt.IsZero() {
		made.ExpiresAt = c.ExpiresAt.Format(time.RFC3339)
	}
	return made, nil
}

func (a *application) keysListCommand() *cobra.Command {
	var r remote
	return listing[wire.Key]{
		name: "keys", filters: map[string]string{"user_id": "keys of this user"},
		header: []string{"ID", "NAME", "ROLES", "USER", "DEVICE", "TOOLS", "CONTEXT", "PERSON", "EXPIRES", "LAST USED",
			"FORMER SECRET"},
		row: func(k wire.Key) []string {
			person := ""
			if k.Person {
				person = "yes"
			}
			return []string{
				k.ID, k.Name, strings.Join(k.Roles, ","), k.UserID, k.DeviceID, k.Tools, k.Context, person, k.ExpiresAt,
				k.LastUsed, formerSecret(k.Former),
			}
		},
	}.command(a, &r, &cobra.Command{
		Use: "list", Short: "List the API keys of your tenant, without their secrets",
	})
}

// formerSecret describes the former secret of a credential, for tables.
func formerSecret(f *wire.FormerSecret) string {
	switch {
	case f == nil:
		return ""
	case f.LastUsed == "":
		return "until " + f.ExpiresAt + ", not used"
	default:
		return "until " + f.ExpiresAt + ", last used " + f.LastUsed
	}
}

func (a *application) keysRotateCommand() *cobra.Command {
	return a.rotateCommand(&cobra.Command{
		Use:   "rotate ID",
		Short: "Give an API key a new secret and print it once",
		Long: "Gives a key a new secret and prints it. The key keeps its id, rights and usage. The former secret works\n" +
			"until the overlap ends; list shows whether it is still used.",
	}, func(id string) string { return "/api/keys/" + url.PathEscape(id) + "/rotate" })
}

// rotateCommand completes a command that rotates what its argument names.
func (a *application) rotateCommand(cmd *cobra.Command, path func(id string) string) *cobra.Command {
	var r remote
	var overlap time.Duration
	var asJSON bool
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if overlap < 0 || overlap%time.Second != 0 {
			return fmt.Errorf("--overlap must be 0 or whole seconds, for example 24h")
		}
		body := map[string]int64{"overlap": int64(overlap / time.Second)}
		made, err := fetch[rotatedRow](cmd.Context(), r, http.MethodPost, path(args[0]), nil, body)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(a.out, made)
		}
		if made.OnNextConnection {
			fmt.Fprintf(a.out, "%s gets a new credential when it next connects\n", oneLine(made.ID, shownID))
			if overlap == 0 {
				fmt.Fprintln(a.out, "its connection was closed; the former credential ends in 10 minutes at most")
			}
			return nil
		}
		fmt.Fprintf(a.err, "new secret of %s. It is not shown again. The former one: %s\n", oneLine(made.ID, shownID),
			oneLine(cmp.Or(formerSecret(made.Former), "ended"), shownID))
		_, err = fmt.Fprintln(safeOn(a.out), made.Key+made.Credential)
		return err
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	durationVar(f, &overlap, "overlap", auth.DefaultOverlap,
		"how long the former secret works, at most 90d; 0: it ends at once")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// rotatedRow is the answer to a rotation of a key or a device.
type rotatedRow struct {
	ID         string             `json:"id"`
	Key        string             `json:"key,omitempty"`
	Credential string             `json:"credential,omitempty"`
	Former     *wire.FormerSecret `json:"former_secret,omitempty"`

	OnNextConnection bool `json:"on_next_connection,omitempty"`
}

func (a *application) keysRevokeCommand() *cobra.Command {
	var r remote
	var user string
	cmd := &cobra.Command{
		Use:   "revoke [ID]",
		Short: "Revoke an API key, or everything of a user",
		Long: "Revokes a key by its id or, with --user, every credential and token that the user has now.\n" +
			"Within two seconds their sockets, streams, turns and calls end on every pod.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (len(args) == 1) == (user != ""):
				return fmt.Errorf("give either the id of a key (farhand keys list) or --user")
			case user != "":
				return r.call(cmd.Context(), http.MethodPost, "/api/revocations", wire.Revocation{UserID: user})
			}
			return r.call(cmd.Context(), http.MethodDelete, "/api/keys/"+url.PathEscape(args[0]), nil)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&user, "user", "", "revoke everything of this user")
	return cmd
}

// durationFlag is a flag whose value is a duration that may have days. It implements pflag.Value.
type durationFlag struct{ value *time.Duration }

// durationVar adds a flag that takes 90s, 24h or 30d.
func durationVar(f *pflag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	f.Var(durationFlag{value}, name, usage)
}

// String implements pflag.Value. It returns 0 for zero so that the help does not show a default.
func (d durationFlag) String() string {
	if *d.value == 0 {
		return "0"
	}
	return d.value.String()
}

// Set implements pflag.Value.
func (d durationFlag) Set(text string) (err error) {
	*d.value, err = days.Parse(text)
	return err
}

// Type implements pflag.Value.
func (durationFlag) Type() string { return "duration" }
