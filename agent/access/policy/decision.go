package policy

import (
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Question is what policy is asked: may this identity call this tool?
type Question struct {
	Who     auth.Identity
	Tool    registry.ToolSpec // only name, level and annotations count
	Source  Source
	Context Context // of the conversation, as its channel says; Identity.Context is joined to it
	Model   bool    // a model asks for the call, not the identity itself
	OverMCP bool    // the call comes in over MCP
}

// Source says where a tool comes from.
type Source uint8

// The sources.
const (
	Remote  Source = iota // a device
	Builtin               // the gateway, or the program that embeds it
	MCP                   // an MCP server that the gateway is a client of
)

// Decision is what policy says of a call. Decisions are shared, so nobody may change one.
type Decision struct {
	Allowed bool
	Code    registry.Code // why not: CodePolicyDenied, or CodeForbidden for what another identity may do
	Rule    string        // the id of the rule that decided; empty if no rule had to
	Reason  string        // why not, in whole sentences for people and models; empty if allowed

	Level   registry.SecurityLevel // of the tool, as the operator has it; never empty
	Effects Effects                // of the tool, as the operator has them

	// Approvals are the reasons to ask a person before the call. One whose Marks the call bears is enough.
	Approvals []Demand

	// Forbids are the reasons to refuse the call that only show in a conversation.
	Forbids []Demand

	// Destinations are JSON Pointers to the arguments that say where something goes: a value there that no trusted
	// source has named is one from outside. A step "*" stands for any.
	Destinations []string

	Limits    []Limit // of how often the tool is called; all of them hold
	Resources Resources
	Programs  Programs // what all rules together let the tool run
}

// Err returns why a call is not allowed, nil if it is.
func (d *Decision) Err() error {
	if d.Allowed {
		return nil
	}
	e := registry.Errorf(d.Code, "%s", d.Reason)
	e.Rule = d.Rule
	return e
}

// Approval returns the first reason to ask a person before a call that bears these marks, nil if there is none.
func (d *Decision) Approval(m Marks) *Demand { return first(d.Approvals, m) }

// WithApproval returns the same decision with one more reason to ask a person.
func (d *Decision) WithApproval(demand Demand) *Decision {
	with := *d
	with.Approvals = append(slices.Clip(d.Approvals), demand)
	return &with
}

// Terms are what all rules together say about the approval of a call. The strictest counts.
type Terms struct {
	Rules   []string // the ids of the rules that ask, in order
	Reasons []string // what the operator gave as reasons, each once
	By      registry.ApproveBy
	Within  time.Duration // how long a person has to answer; zero: as the gateway is configured
	Grant   time.Duration // how long an approval for later calls may last; zero: as the approver says
}

// Terms returns the terms of the approval of a call that bears these marks.
func (d *Decision) Terms(m Marks) (t Terms) {
	for _, demand := range d.Approvals {
		if !demand.holds(m) {
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

// strictness orders who may decide.
func strictness(by registry.ApproveBy) int {
	strictness := []registry.ApproveBy{registry.ApproveAnyone, "", registry.ApproveOther, registry.ApproveTwo}
	return slices.Index(strictness, by)
}

// Forbidden returns the first reason to refuse a call that bears these marks, nil if there is none.
func (d *Decision) Forbidden(m Marks) *Demand { return first(d.Forbids, m) }

func first(demands []Demand, m Marks) *Demand {
	for i := range demands {
		if demands[i].holds(m) {
			return &demands[i]
		}
	}
	return nil
}

// Demand is a rule's reason to ask a person about a call, or to refuse it.
type Demand struct {
	Rule  string        // the id of the rule
	When  string        // the condition, as the rule has it
	Marks Marks         // the call bears one of these; zero: every call
	Grant time.Duration // how long an approval for later calls may last; zero: as the approver says

	Within time.Duration      // how long a person has to answer; zero: as the gateway is configured
	By     registry.ApproveBy // who may decide; empty: as registry.Approval has it
	Reason string             // what the operator wrote as the reason of the rule
}

// holds reports whether the demand is about a call that bears these marks.
func (d *Demand) holds(m Marks) bool { return d.Marks == 0 || d.Marks&m != 0 }

// Marks say where a call of a model comes from. The gateway finds them, never a model.
type Marks uint8

// The marks.
const (
	// Untrusted: the conversation has read what came from outside.
	Untrusted Marks = 1 << iota
	// ForeignArgument: a value of the arguments was first seen in what came from outside.
	ForeignArgument
)

// Effects says what a tool may do besides answering.
type Effects uint8

// The effects. No effect: the tool only reads, inside of what its owner controls. OpenWorld alone: it only reads, also
// what strangers wrote.
const (
	Changes     Effects = 1 << iota // it changes something
	Destructive                     // it may change or delete what was there
	OpenWorld                       // it reaches strangers: sends, posts, fetches
	Unknown                         // nothing is said of it
)

// OnlyReads reports whether a tool changes nothing. What is not known of a tool may be a change.
func (e Effects) OnlyReads() bool { return e&(Changes|Destructive|Unknown) == 0 }

// effects returns what is known of the effects of the tool before the operator says more. The word of a device
// or an MCP server that its tool only reads is not enough: their hints make policy stricter, never laxer.
func (q *Question) effects() Effects {
	e := EffectsOf(q.Tool.Annotations)
	if q.Source != Builtin && e&(Changes|Destructive) == 0 {
		e |= Unknown
	}
	return e
}

// EffectsOf returns what annotations say.
func EffectsOf(a *registry.Annotations) Effects {
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

// Per says whose calls a limit counts together.
type Per string

// Whose calls a limit counts.
const (
	PerIdentity Per = "identity"
	PerTenant   Per = "tenant"
	PerDevice   Per = "device" // the device that runs the tool
)

// Limit is how many calls are allowed in any window of time.
type Limit struct {
	Rule   string // the id of the rule
	Per    Per
	Tool   string // whose calls are counted; empty: those of all tools together
	Calls  int
	Window time.Duration
}

// Resources bounds what one call may use. Zero fields set no bound. Tools of the gateway read them with ResourcesOf.
type Resources struct {
	MaxFiles     int           // files that one call reads or writes
	MaxBytes     int64         // of one file
	MaxProcesses int           // commands of one agent session that run at once
	MaxRuntime   time.Duration // the timeout of the call is no longer
}

// IsZero reports whether nothing is bounded.
func (r Resources) IsZero() bool { return r == Resources{} }

// min returns the stricter bounds of two.
func (r Resources) min(o Resources) Resources {
	return Resources{
		MaxFiles: least(r.MaxFiles, o.MaxFiles), MaxBytes: least(r.MaxBytes, o.MaxBytes),
		MaxProcesses: least(r.MaxProcesses, o.MaxProcesses), MaxRuntime: least(r.MaxRuntime, o.MaxRuntime),
	}
}

// least returns the smaller of two bounds, where zero is none.
func least[T int | int64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Context says who takes part in a conversation.
type Context string

// The contexts. The empty context means Main.
const (
	Main      Context = "main"            // one trusted person
	Group     Context = "group"           // more people than the device's owner
	Sandboxed Context = "group sandboxed" // as before, with its local tools in a sandbox
)

// Contexts returns all contexts.
func Contexts() []Context { return []Context{Main, Group, Sandboxed} }

// Join returns the context of a conversation that two parties say something of: what its channel says, and what the
// credentials of whoever opened it say. Neither can take back what the other says. What is no context counts as Group.
func Join(a, b Context) Context {
	if rank(a) < rank(b) {
		a = b
	}
	switch rank(a) {
	case 0:
		return Main
	case 1:
		return Group
	default:
		return Sandboxed
	}
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
