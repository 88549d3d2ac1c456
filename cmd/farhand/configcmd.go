package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/otlp"
)

func (a *application) configCommand() *cobra.Command {
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "List every variable and check the current environment",
		Long: "Prints every FARHAND_ variable with its default and meaning, then checks the environment:\n" +
			"invalid values and files, contradictions, unknown variables, insecure settings. Exits 2 if serve\n" +
			"would refuse it. `farhand doctor` also checks services and folders.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asMarkdown {
				return writeConfigMarkdown(cmd.OutOrStdout())
			}
			return a.checkConfig(cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asMarkdown, "markdown", false,
		"print the table of docs/configuration.md, without checks")
	return cmd
}

// configReport is what `farhand config --json` prints.
type configReport struct {
	Variables []variable `json:"variables"`
	Errors    []string   `json:"errors"`
	Unknown   []string   `json:"unknown"`
	Insecure  []string   `json:"insecure"`
	State     string     `json:"state,omitempty"` // where data is kept over a restart, or why not
}

func stateOf(cfg farhand.Config) string {
	text, err := cfg.State()
	if err != nil {
		return err.Error()
	}
	return text
}

func (a *application) checkConfig(out io.Writer, asJSON bool) error {
	cfg, err := a.loadConfig()
	_, unusable := otlp.LoadConfig(a.environ)
	err = errors.Join(err, unusable)
	if err == nil {
		err = cfg.Check()
	}
	unknown, meant := unknownVariables(a.environ)
	report := configReport{
		Variables: withValues(variables(), env.ToMap(a.environ)),
		Errors:    splitErrors(err), Unknown: unknown, Insecure: []string{},
	}
	if err == nil {
		report.Insecure = append(report.Insecure, cfg.Insecurities()...)
		report.State = stateOf(cfg)
	}
	if asJSON {
		if err := writeJSON(out, report); err != nil {
			return err
		}
	} else {
		writeConfigText(out, report, meant)
	}
	if len(report.Errors) > 0 {
		return errors.New("serve would refuse this configuration")
	}
	return nil
}

// valueSyntax is for all variables, so that their texts need not repeat it.
const valueSyntax = "Durations are written 30s or 5m, sizes 1048576 or 1MiB, lists a,b."

func writeConfigText(out io.Writer, r configReport, meant map[string]string) {
	fmt.Fprintln(out, valueSyntax)
	for _, v := range r.Variables {
		fmt.Fprintf(out, "%s\n", v.Name)
		if v.Default != "" {
			fmt.Fprintf(out, "    default  %s\n", v.Default)
		}
		if v.Value != "" {
			fmt.Fprintf(out, "    now      %s\n", v.Value)
		}
		fmt.Fprintf(out, "    %s\n", wrap(v.Doc, 100, "    "))
	}
	fmt.Fprintln(out)
	section := func(title string, lines []string) {
		for _, line := range lines {
			fmt.Fprintf(out, "%s: %s\n", title, line)
		}
	}
	section("error", r.Errors)
	for _, name := range r.Unknown {
		hint := ""
		if meant[name] != "" {
			hint = "; did you mean " + meant[name] + "?"
		}
		fmt.Fprintf(out, "unknown variable: %s%s\n", name, hint)
	}
	section("insecure", r.Insecure)
	if r.State != "" {
		section("state", []string{r.State})
	}
	if len(r.Errors)+len(r.Unknown)+len(r.Insecure) == 0 {
		fmt.Fprintln(out, "The current environment is valid.")
	}
}

// writeConfigMarkdown writes the table that docs/configuration.md holds.
func writeConfigMarkdown(out io.Writer) error {
	fmt.Fprintln(out, "| variable | default | meaning |\n| --- | --- | --- |")
	for _, v := range variables() {
		def := ""
		if v.Default != "" {
			def = "`" + v.Default + "`"
		}
		doc := strings.ReplaceAll(v.Doc, "|", `\|`)
		if _, err := fmt.Fprintf(out, "| `%s` | %s | %s |\n", v.Name, def, doc); err != nil {
			return err
		}
	}
	return nil
}

// withValues adds the current values. Secrets are masked.
func withValues(all []variable, environ map[string]string) []variable {
	for i, v := range all {
		value, ok := environ[v.Name]
		switch {
		case !ok || value == v.Default:
		case v.secret:
			all[i].Value = farhand.Secret(value).String()
		default:
			all[i].Value = maskUserinfo(value)
		}
	}
	return all
}

// maskUserinfo masks user and password in a value that looks like a URL, valid or not.
func maskUserinfo(value string) string {
	scheme, rest, isURL := strings.Cut(value, "://")
	at := strings.LastIndex(rest, "@")
	if !isURL || at < 0 {
		return value
	}
	return scheme + "://" + farhand.Masked + rest[at:]
}

// splitErrors flattens joined errors into one line each.
func splitErrors(err error) []string {
	lines := []string{}
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
	case errors.As(err, &joined):
		for _, e := range joined.Unwrap() {
			lines = append(lines, splitErrors(e)...)
		}
	default:
		lines = append(lines, err.Error())
	}
	return lines
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(safeOn(out))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// wrap breaks text at spaces so that no line is longer than width, indenting all lines but the first.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	line := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == 0:
		case line+1+len(word) > width:
			b.WriteString("\n" + indent)
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

// envPrefix is the prefix of every variable that the program reads.
const envPrefix = farhand.EnvPrefix

// clientVariables are read by the other commands. `serve` must not report them as unknown.
var clientVariables = []variable{
	{Name: envPrefix + "URL", Default: "http://127.0.0.1:8080",
		Doc: "URL of the gateway for the commands that use one, such as device, call and chat."},
	{Name: envPrefix + "CA",
		Doc: "PEM file of certificates that these commands trust beside the system's authorities: of a private " +
			"authority, or of the gateway itself."},
}

// unknownVariables returns the FARHAND_ variables that the program does not know, most likely misspelt, each with the
// nearest known name, or nothing.
func unknownVariables(environ []string) (names []string, meant map[string]string) {
	var known []string
	for _, v := range variables() {
		known = append(known, v.Name)
	}
	names, meant = []string{}, make(map[string]string)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) {
			names = append(names, name)
			meant[name] = nearest(name, known)
		}
	}
	slices.Sort(names)
	return names, meant
}

// variable documents one environment variable.
type variable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Doc     string `json:"meaning"`
	Value   string `json:"value,omitempty"` // set when it differs from the default; secrets are masked

	secret bool
}

// variables lists everything the program reads from its environment, from the tags of farhand.Config.
func variables() []variable {
	var all []variable
	for _, v := range envconf.Variables(reflect.ValueOf(farhand.Config{}), envPrefix) {
		all = append(all, variable{Name: v.Name, Default: v.Default, Doc: v.Doc, secret: v.Secret()})
		if v.Secret() {
			all = append(all, variable{Name: v.Name + envconf.FileSuffix, Doc: "File that contains " + v.Name +
				", at most 64 KiB; line breaks at its end are removed. Set only one of the two."})
		}
	}
	return append(all, clientVariables...)
}
