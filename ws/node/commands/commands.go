// Package commands maps the commands of OpenClaw nodes to tools of devices. It does no I/O, has no state, and is safe
// for concurrent use.
//
//	what a node declares ──▶ New ──▶ Catalog.Tools, Catalog.LeftOut
//	a call of a tool ──▶ Catalog.Invoke ──▶ Invocation ──▶ the node
//	its answer ──▶ After ──▶ Step: another Invocation, the result, or a question for a person
package commands

import (
	"encoding/json"
	"time"

	"github.com/farhand/farhand/registry"
)

// Node is what a node says about itself when it connects.
type Node struct {
	Platform, DeviceFamily string
	Caps, Commands         []string
	Permissions            map[string]bool // grants of its operating system
}

// Tool is a command of a node as a tool of its device.
type Tool struct {
	Name       string          // of the tool
	Command    string          // of the node
	Definition json.RawMessage // as in register_tools
	Published  int             // its place among the plug-in tools that New got, from 1; 0: it is a command
}

// Call is a call of a tool.
type Call struct {
	Args     registry.JSON // valid by the tool's parameters
	Left     time.Duration // until the caller stops waiting
	Approved bool          // a person decided that this very call may run
}

// Invocation is what a node is asked to do for a call of a tool. A call may need several, one after the other.
type Invocation struct {
	Command string
	Params  json.RawMessage // an object
	Timeout time.Duration   // zero: that of the call

	next func(Answer) Step // nil: the answer ends the call
}

// Answer is a node's answer to an Invocation.
type Answer struct {
	Payload registry.JSON // zero: none
	Failure *Failure      // nil: the command ran
}

// Failure is an error of a node.
type Failure struct{ Code, Message string }

// Step is what follows an answer. Exactly one of its fields counts: the first that is set, else Result.
type Step struct {
	Invoke *Invocation // the node is asked for more

	// Ask is why the node ran nothing and wants a person's decision first. The call goes back to the gateway, which
	// asks a person and calls again with Call.Approved.
	Ask string

	Result registry.Result // the call has ended
}

// LeftOut is a command or a plug-in tool that is no tool here.
type LeftOut struct{ Name, Reason string }

// Rules are the operator's settings for all nodes.
type Rules struct {
	NoPluginTools bool // ignore the tools that nodes publish with node.pluginTools.update
}

// After returns what follows a node's answer to an Invocation of a call.
func After(c *Catalog, tool string, inv Invocation, a Answer) Step {
	if inv.next != nil {
		return inv.next(a)
	}
	if a.Failure != nil {
		return Step{Result: c.Fail(tool, *a.Failure)}
	}
	res, err := c.Result(tool, a.Payload)
	if err != nil {
		return Step{Result: registry.NewResult(false, registry.JSON{}, registry.AsError(err).Message)}
	}
	return Step{Result: res}
}
