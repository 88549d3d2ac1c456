package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/api/wire"
)

func (a *application) pairSetupCommand() *cobra.Command {
	var body wire.SetupRequest
	var tools []string
	var picture, asJSON bool
	var f *pflag.FlagSet
	cmd := a.remoteStep("setup", "Make a setup code that pairs one OpenClaw node", 0,
		func(ctx context.Context, r remote, _ []string) error {
			if f.Changed("tools") {
				body.Tools = strings.Fields(strings.Join(tools, " "))
			}
			made, err := fetch[wire.SetupCode](ctx, r, http.MethodPost, "/api/pairings/setup", nil, body)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, made)
			}
			return a.showSetup(made, picture)
		})
	cmd.Long = "Makes a setup code and prints it once. " +
		"The first node that uses it is paired, without another question.\n" +
		"In an app, scan the QR code of --qr or paste the code. On a computer, run the printed command.\n" +
		"The code works for ten minutes. Keep it secret: it pairs a node in your name."
	f = cmd.Flags()
	f.BoolVar(&picture, "qr", false, "also print a QR code")
	f.StringVar(&body.URL, "url", "", "where the node connects (default: the gateway's public URL and node path)")
	f.StringVar(&body.User, "user", "", "owner of the node (default: you)")
	f.StringVar(&body.Name, "name", "", "display name (default: the node's own)")
	f.StringSliceVar(&tools, "tools", nil, "tools it may offer, names or globs (default: those it declares)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showSetup prints a setup code for people.
func (a *application) showSetup(made wire.SetupCode, picture bool) error {
	if picture {
		code, err := qrCode(made.Code)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(a.out, code); err != nil {
			return err
		}
	}
	out := safeOn(a.out)
	const text = "Scan or paste this code in an OpenClaw app:\n\n  %s\n\nOr run on the computer:\n\n" +
		"  openclaw node run --pair %s\n\nIt connects to %s, pairs one node, and expires in %.0f minutes.\n"
	_, err := fmt.Fprintf(out, text,
		made.Code, made.PairURL, made.URL, time.Until(timeOf(made.ExpiresAt)).Minutes())
	return err
}
