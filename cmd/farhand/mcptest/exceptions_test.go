package mcptest

import (
	"slices"
	"strings"
	"testing"
)

// Reasons why a check of the suite does not apply.
const (
	noPrompts = "Farhand offers no prompts and declares none."
	noLogging = "Devices send callers no log messages: the capability is deprecated, and Farhand does not declare it."
	noGuesses = "Farhand completes no arguments and does not declare it."
	noFiles   = "Resources are `farhand://` ones; the scenario asks for `test://` ones of its own server."
	noWatch   = "Resources cannot be subscribed to; sessions that come and go change the list."
	noAsking  = "Tools of devices ask their caller nothing. The only question is the gateway's own, for an approval."
	noModel   = "Farhand asks callers neither for their model nor for their folders."
	noMirrors = "Headers that repeat arguments (`x-mcp-header`) are not read: only the body counts."
	noCrash   = "The scenario asks for a tool that breaks the protocol, which no device can do to a caller."
	noNeed    = "No tool needs a task: a client that knows none waits for the result."
	stateOnly = "An answer without the `requestState` of its question would approve anything."
)

// exception is a check that does not apply, or all of a scenario that fail.
type exception struct {
	what      string // scenario, or scenario:check
	revisions []string
	reason    string
}

// exceptions is the whole list. One that passes, or is not run, fails the test.
var exceptions = slices.Concat(
	except(noPrompts, revisions, "prompts-list", "prompts-get-simple", "prompts-get-with-args",
		"prompts-get-embedded-resource", "prompts-get-with-image"),
	except(noPrompts, revisions[:1], "input-required-result-non-tool-request",
		"caching:sep-2549-prompts-list-caching-hints"),
	except(noGuesses, revisions, "completion-complete"),
	except(noLogging, revisions[1:], "logging-set-level", "tools-call-with-logging"),
	except(noFiles, revisions, "resources-read-text", "resources-read-binary", "resources-templates-read"),
	except(noWatch, revisions[1:], "resources-subscribe", "resources-unsubscribe"),
	except(noAsking, revisions[:1], "input-required-result-basic-elicitation", "input-required-result-multi-round",
		"input-required-result-multiple-input-requests"),
	except(noAsking, revisions[1:], "tools-call-elicitation", "elicitation-sep1034-defaults",
		"elicitation-sep1330-enums"),
	except(noModel, revisions[:1], "input-required-result-basic-sampling", "input-required-result-basic-list-roots",
		"input-required-result-capability-check",
		"server-stateless:sep-2575-server-rejects-undeclared-capability",
		"server-stateless:sep-2575-missing-capability-http-400"),
	except(noModel, revisions[1:], "tools-call-sampling"),
	except(stateOnly, revisions[:1], "input-required-result-ignore-extra-params"),
	except(noMirrors, revisions[:1], "http-custom-header-server-validation"),
	except(noAsking, revisions[:1], "tasks-mrtr-input", "tasks-mrtr-composition"),
	except(noCrash, revisions[:1], "tasks-lifecycle:sep-2663-tasks-get-status-failed"),
	except(noNeed, revisions[:1], "tasks-required-task-error"),
)

func except(reason string, revisions []string, what ...string) (list []exception) {
	for _, w := range what {
		list = append(list, exception{what: w, revisions: revisions, reason: reason})
	}
	return list
}

// covers reports whether a failed check is an exception.
func (e exception) covers(r row, check string) bool {
	scenario, only, one := strings.Cut(e.what, ":")
	return scenario == r.scenario && (!one || only == check) && slices.Contains(e.revisions, r.revision)
}

// checkExceptions fails for each failed check that is not excepted, and for each exception that no check needs.
func checkExceptions(t *testing.T, table []row) {
	t.Helper()
	needed := make(map[string]bool) // by revision and what is excepted
	for _, r := range table {
		for _, check := range r.failed {
			i := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(r, check) })
			if i < 0 {
				t.Errorf("%s %s: %s failed", r.revision, r.scenario, check)
				continue
			}
			needed[r.revision+" "+exceptions[i].what] = true
		}
	}
	for _, e := range exceptions {
		for _, revision := range e.revisions {
			if !needed[revision+" "+e.what] {
				t.Errorf("%s: %s is excepted and does not fail: %s", revision, e.what, e.reason)
			}
		}
	}
}
