package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
)

func (a *application) doctorCommand() *cobra.Command {
	var asJSON, online bool
	var client remote
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a gateway on this machine needs",
		Long: "Checks what a gateway with the current FARHAND_ variables needs: settings, credentials, store,\n" +
			"model, and its own tools, enabled or not, with their folders, sandbox engines and browser. A\n" +
			"finding says how to fix it: \"missing\" is enabled but cannot work, \"note\" is not enabled or\n" +
			"worth a look. Doctor creates the tools' folders, starts Chromium once, and removes files of\n" +
			"browsers of killed pods. It exits 1 if something is missing.\n\n" +
			"With --online it also uses what it finds, within two minutes: it asks each model for one token,\n" +
			"stores and removes a file, fetches the identity provider's keys, sends OPTIONS to hooks, tries\n" +
			"each command of a pod at Redis on a key of its own, compares clocks, asks live pods for their\n" +
			"versions, reads when certificates expire, and holds a WebSocket open at --url, where it is\n" +
			"a device without tools meanwhile.",
		Example: "farhand doctor --online --url https://gateway.example.com --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			var findings []farhand.Finding
			if online {
				trusted, wrong := client.trust.tls()
				if wrong != nil {
					return wrong
				}
				findings = farhand.DiagnoseOnline(cmd.Context(), cfg, err, a.self, farhand.Online{
					URL: client.server, Token: client.token, Trust: trusted, Version: version(),
				})
			} else if cmd.Flags().Changed("url") || cmd.Flags().Changed("token") || cmd.Flags().Changed("ca") {
				return errors.New("--url, --token and --ca need --online")
			} else {
				findings = farhand.Diagnose(cmd.Context(), cfg, err, a.self)
			}
			return a.report(cmd, findings, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&client.server, "url", "", "URL of the gateway for its clients (FARHAND_PUBLIC_URL)")
	flags.StringVar(&client.token, "token", "", "key of a device, for --url (FARHAND_TOKEN)")
	client.trust = new(trust)
	flags.StringVar(&client.trust.file, "ca", env.ToMap(a.environ)[envPrefix+"CA"],
		"PEM file of certificates to trust beside the system's authorities, for --url (FARHAND_CA)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&online, "online", false, "use the services that the gateway depends on")
	return cmd
}

// report prints findings. It returns an error if something is missing.
func (a *application) report(cmd *cobra.Command, findings []farhand.Finding, asJSON bool) error {
	if asJSON {
		if err := writeJSON(cmd.OutOrStdout(), findings); err != nil {
			return err
		}
	}
	missing := false
	for _, f := range findings {
		missing = missing || !f.OK && f.Needed
		if !asJSON {
			text := wrap(printable(f.Text), 96, strings.Repeat(" ", 28))
			fmt.Fprintf(cmd.OutOrStdout(), "%-7s  %-17s  %s\n", signOf(f), f.Part, text)
		}
	}
	if missing {
		return errAnsweredNo
	}
	return nil
}

func signOf(f farhand.Finding) string {
	switch {
	case f.OK:
		return "ok"
	case f.Needed:
		return "missing"
	default:
		return "note"
	}
}
