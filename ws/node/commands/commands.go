// Package commands maps the commands of OpenClaw nodes to tools of devices. It does no I/O and has no state.
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
}

// Invocation is what a node is asked to do for a call of a tool.
type Invocation struct {
	Command string
	Params  json.RawMessage // an object
	Timeout time.Duration   // zero: that of the call
}

// Failure is an error of a node.
type Failure struct{ Code, Message string }

// Catalog has the tools of one node. It never changes.
type Catalog interface {
	Tools() []Tool
	Invoke(tool string, args registry.JSON) (Invocation, error)
	Result(tool string, payload registry.JSON) (registry.Result, error)
	Fail(tool string, f Failure) registry.Result
}
