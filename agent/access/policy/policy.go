// Package policy decides who may call and register which tools, and under which conditions. Its rules come from an
// operator's YAML file, from four lists of name patterns, and from the defaults in default.yaml. Policy.Decide answers
// a Question with a Decision, which also has what other packages check: rate limits (Limits), approvals, and refusals
// that depend on what a conversation has read (Forbids). Start reading at decision.go and rules.go.
package policy

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

//go:embed default.yaml
var defaults []byte

// Lists are patterns of tool names: * matches any run of characters, ? exactly one, all others themselves. An empty
// allow list allows every name. A name that a deny list matches, or that looks like such a name, is denied even if an
// allow list has it. The lists apply to all callers, in addition to the rules of a file.
type Lists struct {
	RegisterAllow []string `env:"REGISTER_ALLOW" doc:"Globs of tool names devices may register. Empty: all."`
	RegisterDeny  []string `env:"REGISTER_DENY" doc:"Globs of tool names devices may not register. Deny wins."`
	CallAllow     []string `env:"CALL_ALLOW" doc:"Globs of tool names that may be called. Empty: all."`
	CallDeny      []string `env:"CALL_DENY" doc:"Globs of tool names that may not be called. Deny takes precedence."`
}

// Options configure a Policy.
type Options struct {
	Lists Lists
	File  []byte // the text of a policy file; nil: only the defaults apply

	// Unconfirmed removes the default approvals for a model's calls: of tools with level registry.SecurityUserConfirm,
	// and of calls with arguments that only untrusted content has named. A policy file can still require approval.
	Unconfirmed bool
}

// Policy decides who may call and register which tools. It is safe for concurrent use.
type Policy struct {
	options Options // without File
	state   atomic.Pointer[state]
}

// state is one version of the rules with its cache of decisions.
type state struct {
	rules   *rules
	file    []byte // the rules' text; nil: only the defaults apply
	digest  string
	answers *cache.Cache[key, *Decision]

	byTenant, byUser bool          // some rule depends on tenants or users
	longest          time.Duration // longest time to answer that a rule gives a person
}

// answerBytes bounds the cached decisions, per generation of the cache.
const answerBytes = 2 << 20

// answerOverhead is the approximate size of a cached decision, in bytes, without the texts of its key.
const answerOverhead = 500

// New returns a Policy. Mistakes in the file are Problems, a malformed pattern in a list is an *registry.Error.
func New(o Options) (*Policy, error) {
	p := &Policy{options: o}
	p.options.File = nil
	return p, p.Replace(o.File)
}

// Replace replaces the rules by another file's, or by the defaults alone if file is nil. On error they stay unchanged.
func (p *Policy) Replace(file []byte) error {
	compiled, err := compile(p.options, file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %q %q", p.options.Lists, p.options.Unconfirmed, defaults, file))
	now := &state{
		rules: compiled, file: file, digest: hex.EncodeToString(sum[:16]),
		answers: cache.New[key, *Decision](answerBytes, 0),
	}
	for _, rule := range slices.Concat(compiled.calls, compiled.register) {
		now.distinguish(rule.who)
	}
	for _, rule := range compiled.tools {
		now.distinguish(rule.who)
		for _, a := range rule.approvals {
			now.longest = max(now.longest, a.Within)
		}
	}
	p.state.Store(now)
	return nil
}

func (s *state) distinguish(who asker) {
	s.byTenant = s.byTenant || len(who.tenants) > 0
	s.byUser = s.byUser || len(who.users) > 0
}

// Check returns the Problems of a policy file, nil if New and Replace accept it.
func Check(file []byte) error {
	_, err := compile(Options{}, file)
	return err
}

// Warnings returns what a valid policy file may not mean: conditions that cover less than they seem to. Nil: none.
func Warnings(file []byte) Problems {
	all, err := parse(defaults, nil)
	if err != nil { // New reports it
		return nil
	}
	return readFile(file, all).warnings
}

func compile(o Options, file []byte) (*rules, error) {
	all, err := parse(defaults, nil)
	if err != nil {
		return nil, fmt.Errorf("policy: the defaults: %w", err)
	}
	var own *rules
	if file != nil {
		if own, err = parse(file, all); err != nil {
			return nil, err
		}
	}
	all.tools = slices.DeleteFunc(all.tools, func(t toolRule) bool {
		return o.Unconfirmed && (t.id == "default:confirm-model" || t.id == "default:outside") ||
			own != nil && own.hasRule(t.id)
	})
	if own != nil {
		own.written = len(own.tools)
		own.tools = append(own.tools, all.tools...)
		all = own
	}
	return all, all.addLists(o.Lists)
}

func (r *rules) hasRule(id string) bool {
	return slices.ContainsFunc(r.tools, func(t toolRule) bool { return t.id == id })
}

func (r *rules) addLists(l Lists) error {
	for _, glob := range slices.Concat(l.RegisterAllow, l.RegisterDeny, l.CallAllow, l.CallDeny) {
		if err := CheckGlob(glob); err != nil {
			return err
		}
	}
	add := func(to *[]nameRule, allowID string, allow []string, denyID string, deny []string) {
		if len(deny) > 0 {
			*to = append(*to, nameRule{id: denyID, deny: newDenials(deny)})
		}
		if len(allow) > 0 {
			*to = append(*to, nameRule{id: allowID, allow: allow, alone: true})
		}
	}
	add(&r.calls, RuleCallAllow, l.CallAllow, RuleCallDeny, l.CallDeny)
	add(&r.register, RuleRegisterAllow, l.RegisterAllow, RuleRegisterDeny, l.RegisterDeny)
	return nil
}

// LongestWithin returns the longest time to answer that a rule gives a person. Zero: no rule sets one.
func (p *Policy) LongestWithin() time.Duration { return p.state.Load().longest }

// Digest is equal for equal rules, and different otherwise.
func (p *Policy) Digest() string { return p.state.Load().digest }

type key struct {
	tenant, user, scopes, name string
	asks                       uint64 // everything else, as bits
}

func (k *key) size() int {
	return len(k.tenant) + len(k.user) + len(k.scopes) + len(k.name) + answerOverhead
}

// keyOf returns the key of a decision about a tool name. Tenant and user are part of it only if rules depend on them.
func (s *state) keyOf(who *auth.Identity, name string) key {
	k := key{scopes: who.Tools, name: name, asks: uint64(who.Roles)}
	if s.byTenant {
		k.tenant = who.Tenant
	}
	if s.byUser {
		k.user = who.User
	}
	if who.Admin {
		k.asks |= 1 << 8
	}
	return k
}

// The kinds of questions.
const (
	toRegister = 1 << 9
	ofModel    = 1 << 10
	ofBuiltin  = 1 << 11
	ofMCP      = 1 << 12
	overMCP    = 1 << 13
)

// Decide answers a question. Repeated questions cost one cache lookup.
func (p *Policy) Decide(q Question) *Decision {
	s := p.state.Load()
	k := s.keyOf(&q.Who, q.Tool.Name)
	k.asks |= uint64(rank(Join(q.Context, Context(q.Who.Context))))<<16 |
		uint64(q.effects())<<24 | levelRank(q.Tool.SecurityLevel)<<32
	if q.Model {
		k.asks |= ofModel
	}
	if q.OverMCP {
		k.asks |= overMCP
	}
	switch q.Source {
	case Builtin:
		k.asks |= ofBuiltin
	case MCP:
		k.asks |= ofMCP
	}
	if d, ok := s.answers.Get(k); ok {
		return d
	}
	d := s.rules.decide(&q)
	s.remember(k, d)
	return d
}

// remember caches a decision. It clones the key's texts, because they may be parts of longer texts.
func (s *state) remember(k key, d *Decision) {
	for _, text := range []*string{&k.tenant, &k.user, &k.scopes, &k.name} {
		*text = strings.Clone(*text)
	}
	s.answers.Put(k, d, k.size())
}

// levelRank orders levels. An unknown level counts as the strictest one.
func levelRank(l registry.SecurityLevel) uint64 {
	switch l {
	case "", registry.SecuritySafe:
		return 0
	case registry.SecurityUserConfirm:
		return 1
	default:
		return 2
	}
}

// MayRegister decides whether a device may register a tool name. It sets only Allowed, Code, Rule and Reason.
func (p *Policy) MayRegister(who auth.Identity, name string) *Decision {
	s := p.state.Load()
	k := s.keyOf(&who, name)
	k.asks |= toRegister
	if d, ok := s.answers.Get(k); ok {
		return d
	}
	d := s.rules.mayRegister(who, name)
	s.remember(k, d)
	return d
}

type decisionKey struct{}

// Value implements context.Context for a context whose only value is the decision, for DecisionOf.
func (d *Decision) Value(key any) any {
	if key == (decisionKey{}) {
		return d
	}
	return nil
}

// DecisionOf returns the decision about a call of a local tool, by the context of its Execute, Validate or Authorize.
func DecisionOf(ctx context.Context) *Decision {
	if d, _ := ctx.Value(decisionKey{}).(*Decision); d != nil {
		return d
	}
	return new(Decision)
}

// ResourcesOf returns the resources that a call of a local tool may use.
func ResourcesOf(ctx context.Context) Resources { return DecisionOf(ctx).Resources }

const maxProblems = 20

// Problem is a mistake in a policy file, with its position. Lines and columns count from 1.
type Problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// String returns line:column: message.
func (p Problem) String() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// Problems are the mistakes in a policy file, ordered by line, at least one.
type Problems []Problem

func (p *Problems) add(at place, format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, Problem{at.line, at.column, fmt.Sprintf(format, args...)})
	}
}

// Error returns one problem per line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}
