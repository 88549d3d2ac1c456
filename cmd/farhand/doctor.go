package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
)

func (a *application) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what a gateway on this machine would find, and what it would miss",
		Long: "Looks at what a gateway with the current FARHAND_ variables stands on: the settings, whose " +
			"credentials it\naccepts, the store, the model, its own tools, and what they need, enabled or not: " +
			"folders, engines of the\nsandbox, a browser. What is missing is told\nwith what to do about it: missing " +
			"is what is enabled and cannot work, note what is not enabled, or what to\nthink about. Folders that the " +
			"tools need are made, and Chromium, if there is one, is started and ended. What\nbrowsers of pods " +
			"that were killed have left here is removed. Exits 1 if something is missing.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := farhand.LoadConfig(a.environ)
			findings := farhand.Diagnose(cmd.Context(), cfg, err, a.self)
			if asJSON {
				if err := writeJSON(cmd.OutOrStdout(), findings); err != nil {
					return err
				}
			}
			missing := false
			for _, f := range findings {
				missing = missing || !f.OK && f.Needed
				if !asJSON {
					text := wrap(printable(f.Text), 96, strings.Repeat(" ", 24))
					fmt.Fprintf(cmd.OutOrStdout(), "%-7s  %-13s  %s\n", signOf(f), f.Part, text)
				}
			}
			if missing {
				return errAnsweredNo
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// signOf says in a word what to make of a finding.
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
