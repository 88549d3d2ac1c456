package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/registry"
)

// errAnsweredNo ends a command whose answer is no. The answer has been printed.
var errAnsweredNo = errors.New("no")

func (a *application) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file, and explain its decisions",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.policyCheckCommand(), a.policyExplainCommand())
	return cmd
}

func (a *application) policyCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Report the errors in a policy file",
		Long: "Reads a policy file as serve does, and prints every error with line and column, including rules\n" +
			"that can never apply. A warning is a condition that holds for less than it seems; serve accepts\n" +
			"such a file. Exits 0 if serve accepts the file, 1 if not, 2 if it cannot be read.",
		Example: "  farhand policy check policy.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := policy.ReadFile(args[0])
			if err != nil {
				return err
			}
			var problems policy.Problems
			if err := policy.Check(text); err != nil && !errors.As(err, &problems) {
				return err
			}
			checked := checkedFile{OK: len(problems) == 0, Problems: append(policy.Problems{}, problems...)}
			if checked.OK {
				checked.Warnings = policy.Warnings(text)
			}
			if err := checked.print(cmd.OutOrStdout(), args[0], asJSON); err != nil {
				return err
			}
			if len(problems) > 0 {
				return errAnsweredNo
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type checkedFile struct {
	OK       bool            `json:"ok"`
	Problems policy.Problems `json:"problems"`
	Warnings policy.Problems `json:"warnings,omitempty"`
}

func (c checkedFile) print(out io.Writer, file string, asJSON bool) error {
	if asJSON {
		return writeJSON(out, c)
	}
	for _, p := range c.Problems {
		fmt.Fprintf(out, "%s:%s\n", printable(file), printable(p.String()))
	}
	for _, p := range c.Warnings {
		fmt.Fprintf(out, "%s:%d:%d: warning: %s\n", printable(file), p.Line, p.Column, printable(p.Message))
	}
	switch {
	case !c.OK:
	case c.Warnings != nil:
		fmt.Fprintf(out, "%s is valid, with warnings.\n", printable(file))
	default:
		fmt.Fprintf(out, "%s is valid.\n", printable(file))
	}
	return nil
}

type explanation struct {
	policy.Question
	file, source     string
	roles, effects   []string
	register, asJSON bool
}

func (a *application) policyExplainCommand() *cobra.Command {
	var e explanation
	cmd := &cobra.Command{
		Use:   "explain TOOL",
		Short: "Explain whether a caller may call a tool, and which rule decides",
		Long: "Evaluates a policy file, the lists of the environment (such as FARHAND_CALL_DENY) and the\n" +
			"defaults, without a gateway. Exits 0 if the call is allowed, 1 if not.",
		Example: "  farhand policy explain --file policy.yaml --as ada --role caller --context group camera_snap\n" +
			"  farhand policy explain --level user_confirm --model pay",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("model") {
				e.Model = e.OverMCP
			}
			return a.explain(cmd.OutOrStdout(), e, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.file, "file", env.ToMap(a.environ)[envPrefix+"POLICY_FILE"], "policy file (FARHAND_POLICY_FILE)")
	f.StringVar(&e.Who.User, "as", "", "user who calls")
	f.StringVar(&e.Who.Tenant, "tenant", registry.DefaultTenant, "tenant of the user")
	f.StringSliceVar(&e.roles, "role", []string{auth.NameCaller}, "roles of the user: device, caller, approver, admin")
	f.StringVar(&e.Who.Tools, "scopes", "", "globs of tools that the credential allows, separated by spaces")
	f.StringVar((*string)(&e.Context), "context", string(policy.Main), "main, group or \"group sandboxed\"")
	f.StringVar((*string)(&e.Tool.SecurityLevel), "level", string(registry.SecuritySafe),
		"security level of the tool: safe, user_confirm or admin_only")
	f.StringSliceVar(&e.effects, "effect", nil, "declared effects of the tool: read_only, destructive, open_world")
	f.StringVar(&e.source, "source", "", "source of the tool: remote (a device), builtin or mcp (default: builtin for "+
		"the gateway's own names, else remote)")
	f.BoolVar(&e.Model, "model", false, "the caller is a model (default with --over-mcp)")
	f.BoolVar(&e.OverMCP, "over-mcp", false, "the call arrives over MCP")
	f.BoolVar(&e.register, "register", false, "explain whether a device may register the name instead")
	f.BoolVar(&e.asJSON, "json", false, "print JSON")
	return cmd
}

func (a *application) explain(out io.Writer, e explanation, tool string) error {
	rules, err := a.policyOf(e.file)
	if err != nil {
		return err
	}
	q, err := e.question(tool)
	if err != nil {
		return err
	}
	d := rules.Decide(q)
	if e.register {
		d = rules.MayRegister(q.Who, tool)
	}
	if e.asJSON {
		err = writeJSON(out, d.Report(q))
	} else {
		printDecision(out, d.Report(q), e.register)
	}
	if err == nil && !d.Allowed {
		return errAnsweredNo
	}
	return err
}

// policyOf returns the policy that serve would use with this file in this environment.
func (a *application) policyOf(file string) (*policy.Policy, error) {
	type settings struct {
		policy.Lists
		Unconfirmed bool `env:"AGENT_UNCONFIRMED"`
	}
	s, err := envconf.Parse[settings](env.ToMap(a.environ), envPrefix)
	if err != nil {
		return nil, err
	}
	o := policy.Options{Lists: s.Lists, Unconfirmed: s.Unconfirmed}
	if file != "" {
		if o.File, err = policy.ReadFile(file); err != nil {
			return nil, err
		}
	}
	p, err := policy.New(o)
	if problems, ok := errors.AsType[policy.Problems](err); ok {
		_ = checkedFile{Problems: problems}.print(a.err, file, false)
		return nil, fmt.Errorf("%s is invalid", file)
	}
	return p, err
}

func (e explanation) question(tool string) (policy.Question, error) {
	q := e.Question
	if err := q.Who.SetRoles(e.roles...); err != nil {
		return q, errors.New(registry.AsError(err).Message)
	}
	if !slices.Contains(policy.Contexts(), q.Context) {
		return q, fmt.Errorf("--context: must be main, group or group sandboxed, not %q", e.Context)
	}
	q.Tool.Name = tool
	if _, err := q.Tool.Normalize(); err != nil {
		return q, errors.New(registry.AsError(err).Message)
	}
	var err error
	if q.Tool.Annotations, err = policy.Declare(e.effects); err != nil {
		return q, fmt.Errorf("--effect: %w", err)
	}
	switch e.source {
	case "":
		if slices.Contains(tools.Names(), tool) {
			q.Source = policy.Builtin
		}
	case "remote":
	case "builtin":
		q.Source = policy.Builtin
	case "mcp":
		q.Source = policy.MCP
	default:
		return q, fmt.Errorf("--source: must be remote, builtin or mcp, not %q", e.source)
	}
	return q, nil
}

// onlyURLs notes that a condition checks URLs only.
func onlyURLs(d policy.DemandReport) string {
	if d.OnlyURLs {
		return ": URLs only, because the tool only reads"
	}
	return ""
}

// approvalTerms returns who may approve a call and how long they have, if a rule says so.
func approvalTerms(d policy.DemandReport) string {
	terms := ""
	if d.By != "" {
		terms += ", by " + string(d.By)
	}
	if d.WithinSeconds > 0 {
		terms += fmt.Sprintf(", within %v", time.Duration(d.WithinSeconds)*time.Second)
	}
	return terms
}

func printDecision(out io.Writer, r policy.Report, register bool) {
	verdict := "allowed"
	if !r.Allowed {
		verdict = "denied"
	}
	fmt.Fprintln(out, verdict)
	if r.Rule != "" {
		fmt.Fprintf(out, "  rule      %s\n", r.Rule)
	}
	if r.Reason != "" {
		fmt.Fprintf(out, "  reason    %s\n", printable(r.Reason))
	}
	if register {
		return
	}
	fmt.Fprintf(out, "  level     %s\n", r.SecurityLevel)
	fmt.Fprintf(out, "  effects   %s\n", cmp.Or(strings.Join(r.Effects, ", "), "none"))
	for _, d := range r.Approvals {
		fmt.Fprintf(out, "  approval  %s%s%s (rule %s)\n", d.When, onlyURLs(d), approvalTerms(d), d.Rule)
	}
	for _, d := range r.Forbidden {
		fmt.Fprintf(out, "  forbidden %s%s (rule %s)\n", d.When, onlyURLs(d), d.Rule)
	}
	if len(r.Destinations) > 0 {
		fmt.Fprintf(out, "  to        %s\n", printable(strings.Join(r.Destinations, " ")))
	}
	for _, l := range r.Limits {
		what := "of this tool"
		if l.Tool == "" {
			what = "of all tools"
		}
		fmt.Fprintf(out, "  limit     %d calls %s in %d s per %s (rule %s)\n", l.Calls, what, l.WindowSeconds, l.Per,
			l.Rule)
	}
	if r.Programs != nil {
		printPrograms(out, r.Programs)
	}
	if r.Resources != nil {
		printResources(out, r.Resources)
	}
}

func printPrograms(out io.Writer, p *policy.ProgramsReport) {
	fmt.Fprintf(out, "  programs  %s\n", strings.Join(append([]string{string(p.Security)}, p.Allow...), " "))
	switch {
	case p.Rule == "":
	case p.Security == policy.Full:
		fmt.Fprintf(out, "  programs  by rule %s\n", p.Rule)
	default:
		fmt.Fprintf(out, "  programs  by rule %[1]s; to allow more, write a rule with the id %[1]s in its place\n",
			p.Rule)
	}
	if p.Sandboxed {
		fmt.Fprintln(out, "  programs  in the sandbox")
	}
	if p.Elevated {
		fmt.Fprintln(out, "  programs  elevated, if a person approves the call")
	}
}

func printResources(out io.Writer, res *policy.ResourcesReport) {
	for _, b := range []struct {
		name string
		n    int64
	}{{"maxFiles", int64(res.MaxFiles)}, {"maxSizeMB", res.MaxSizeMB}, {"maxProcesses", int64(res.MaxProcesses)},
		{"maxRuntimeSec", res.MaxRuntimeSec}} {
		if b.n > 0 {
			fmt.Fprintf(out, "  resource  %s %d\n", b.name, b.n)
		}
	}
}
