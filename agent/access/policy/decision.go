package policy

import (
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Question asks policy whether an identity may call a tool.
type Question struct {
	Who     auth.Identity
	Tool    registry.ToolSpec // only name, level, annotations and effects are used
	Source  Source
	Context Context // of the conversation, from its channel; combined with Identity.Context
	Model   bool    // a model makes the call, not the identity itself
	OverMCP bool    // the call came over MCP
}

// Source is the origin of a tool.
type Source uint8

// The sources.
const (
	Remote  Source = iota // a device
	Builtin               // the gateway, or the program that embeds it
	MCP                   // an MCP server that the gateway is a client of
)

// Decision is policy's answer about a call. Decisions are shared, so they must not be changed.
type Decision struct {
	Allowed bool
	Code    registry.Code // why not: CodePolicyDenied, or CodeForbidden if another identity may call it
	Rule    string        // id of the deciding rule; empty if none had to decide
	Reason  string        // why not, in whole sentences for people and models; empty if allowed

	Level   registry.SecurityLevel // of the tool, as set by the operator; never empty
	Effects Effects                // of the tool, as set by the operator

	Approvals []Demand // reasons to ask a person before the call; one with matching Marks is enough
	Forbids   []Demand // reasons to refuse the call that depend on the conversation

	// Destinations are JSON Pointers to the arguments that say where something goes. A value there that no trusted
	// source has named counts as untrusted. A step "*" stands for any.
	Destinations []string

	Limits    []Limit // rate limits of the tool; all of them apply
	Resources Resources
	Programs  Programs // combined from all rules
}

// Err returns why a call is not allowed, nil if it is allowed.
func (d *Decision) Err() error {
	if d.Allowed {
		return nil
	}
	e := registry.Errorf(d.Code, "%s", d.Reason)
	e.Rule = d.Rule
	return e
}

// Approval returns the first reason to ask a person before a call with these marks, nil if there is none.
func (d *Decision) Approval(m Marks) *Demand { return first(d.Approvals, m) }

// WithApproval returns a copy with one more reason to ask a person.
func (d *Decision) WithApproval(demand Demand) *Decision {
	with := *d
	with.Approvals = append(slices.Clip(d.Approvals), demand)
	return &with
}

// Terms are the combined terms of approval from all rules. The strictest counts.
type Terms struct {
	Rules   []string // ids of the rules that ask, sorted
	Reasons []string // the operator's reasons, without duplicates
	By      registry.ApproveBy
	Within  time.Duration // time that a person has to answer; zero: the gateway's default
	Grant   time.Duration // maximum life of an approval for later calls; zero: up to the approver
}

// Terms returns the terms of approval for a call with these marks.
func (d *Decision) Terms(m Marks) (t Terms) {
	for _, demand := range d.Approvals {
		if !demand.applies(m) {
			continue
		}
		t.Rules = append(t.Rules, demand.Rule)
		t.Grant, t.Within = least(t.Grant, demand.Grant), least(t.Within, demand.Within)
		if len(t.Rules) == 1 || strictness(demand.By) > strictness(t.By) {
			t.By = demand.By
		}
		if demand.Reason != "" && !slices.Contains(t.Reasons, demand.Reason) {
			t.Reasons = append(t.Reasons, demand.Reason)
		}
	}
	slices.Sort(t.Rules)
	t.Rules = slices.Compact(t.Rules)
	return t
}

func strictness(by registry.ApproveBy) int {
	strictness := []registry.ApproveBy{registry.ApproveAnyone, "", registry.ApproveOther, registry.ApproveTwo}
	return slices.Index(strictness, by)
}

// Forbidden returns the first reason to refuse a call with these marks, nil if there is none.
func (d *Decision) Forbidden(m Marks) *Demand { return first(d.Forbids, m) }

func first(demands []Demand, m Marks) *Demand {
	for i := range demands {
		if demands[i].applies(m) {
			return &demands[i]
		}
	}
	return nil
}

// Demand is a rule's reason to ask a person about a call, or to refuse it.
type Demand struct {
	Rule  string        // id of the rule
	When  string        // the condition, as written in the rule
	Marks Marks         // the call has one of these; zero: every call
	Grant time.Duration // maximum life of an approval for later calls; zero: up to the approver

	Within time.Duration      // time that a person has to answer; zero: the gateway's default
	By     registry.ApproveBy // who may decide; empty: the default of registry.Approval
	Reason string             // the operator's reason in the rule
}

func (d *Demand) applies(m Marks) bool { return d.Marks == 0 || d.Marks&m != 0 }

// Marks describe the origin of a model's call. The gateway sets them, never a model.
type Marks uint8

// The marks.
const (
	Untrusted       Marks = 1 << iota // the conversation has read untrusted content
	ForeignArgument                   // an argument has a value that first appeared in untrusted content
)

// Effects says what a tool may do besides returning a result.
type Effects uint8

// The effects. No effect: the tool only reads data that its owner controls. OpenWorld alone: it only reads, but also
// what strangers wrote.
const (
	Changes     Effects = 1 << iota // changes something
	Destructive                     // may change or delete existing data
	OpenWorld                       // reaches strangers: sends, posts, fetches
	Unknown                         // effects are not declared
)

// OnlyReads reports whether a tool changes nothing. Unknown effects count as changes.
func (e Effects) OnlyReads() bool { return e&(Changes|Destructive|Unknown) == 0 }

// effects returns the tool's effects before the operator's settings. If a device or an MCP server declares that its
// tool only reads, that is not trusted: such hints make policy stricter, never laxer.
func (q *Question) effects() Effects {
	e := effectsOf(q.Tool.Annotations)
	if declared := q.Tool.Effects; declared != nil {
		switch declared.Class {
		case registry.ClassExternal, registry.ClassPeople:
			e |= Changes | OpenWorld
		case registry.ClassWrite:
			e |= Changes
		}
	}
	if q.Source != Builtin && e&(Changes|Destructive) == 0 {
		e |= Unknown
	}
	return e
}

// effectsOf returns the effects that annotations declare.
func effectsOf(a *registry.Annotations) Effects {
	if a == nil {
		return Unknown
	}
	var e Effects
	is := func(hint *bool) bool { return hint != nil && *hint }
	if is(a.OpenWorldHint) {
		e |= OpenWorld
	}
	switch {
	case is(a.ReadOnlyHint):
	case is(a.DestructiveHint):
		e |= Changes | Destructive
	case a.DestructiveHint != nil || a.ReadOnlyHint != nil:
		e |= Changes
	default:
		e |= Unknown
	}
	return e
}

// Per says which calls a limit counts together.
type Per string

// The values of Per.
const (
	PerIdentity Per = "identity"
	PerTenant   Per = "tenant"
	PerDevice   Per = "device" // the device that runs the tool
)

// Limit is how many calls are allowed in any window of time.
type Limit struct {
	Rule   string // the id of the rule
	Per    Per
	Tool   string // counts calls of this tool; empty: of all tools together
	Calls  int
	Window time.Duration
}

// Resources bounds what one call may use. Zero fields set no bound. Tools of the gateway read them with ResourcesOf.
type Resources struct {
	MaxFiles     int           // files that one call reads or writes
	MaxBytes     int64         // per file
	MaxProcesses int           // concurrent commands of one agent session
	MaxRuntime   time.Duration // upper bound of the call's timeout
}

// IsZero reports whether no bound is set.
func (r Resources) IsZero() bool { return r == Resources{} }

func (r Resources) min(o Resources) Resources {
	return Resources{
		MaxFiles: least(r.MaxFiles, o.MaxFiles), MaxBytes: least(r.MaxBytes, o.MaxBytes),
		MaxProcesses: least(r.MaxProcesses, o.MaxProcesses), MaxRuntime: least(r.MaxRuntime, o.MaxRuntime),
	}
}

// least returns the smaller of two bounds. Zero is no bound.
func least[T int | int64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Context is the kind of a conversation: its participants, and whether it is sandboxed.
type Context string

// The contexts. The empty context means Main.
const (
	Main      Context = "main"            // one trusted person
	Group     Context = "group"           // more people than the device's owner
	Sandboxed Context = "group sandboxed" // as Group, with local tools in a sandbox
)

// Contexts returns all contexts, by rank.
func Contexts() []Context { return []Context{Main, Group, Sandboxed} }

// Join combines two contexts of a conversation: that of its channel, and that of the credentials that opened it. The
// stricter one counts, so neither can relax the other. An unknown context counts as Group.
func Join(a, b Context) Context {
	return Contexts()[max(rank(a), rank(b))]
}

func rank(c Context) int {
	switch c {
	case "", Main:
		return 0
	case Sandboxed:
		return 2
	default:
		return 1
	}
}
