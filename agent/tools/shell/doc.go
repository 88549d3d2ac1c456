// Package shell is the tools exec and bash: programs that run for one agent session, in its workspace, on an engine of
// package sandbox.
//
//	arguments ─▶ rules (args.go, env.go) ─▶ mode allowlist: parse (allowlist.go) ─▶ a plan ─▶ engine ─▶ result
//
// In mode allowlist a command is parsed, and only what is plain all the way through gets through: programs by their
// names, with literal arguments, in pipelines and lists. What then runs is made of what was checked, never the text
// that came in, so there is nothing a shell could read differently. programs.go has what is known of programs whose
// arguments run other programs.
package shell
