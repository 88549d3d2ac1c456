// Package policy says who may call and register which tools, and on which conditions. Its rules come from one YAML file
// that an operator writes, from four lists of name patterns, and from the defaults in default.yaml.
//
//	Question ─▶ Policy.Decide ─▶ Decision: allowed, rule, reason, approvals, limits, resources
//
// The hooks before a call, the listings and the command `farhand policy explain` all ask Policy.Decide. Whatever its
// Decision leaves to others is a value in it: who counts calls reads Limits, who asks people reads Approvals, who knows
// where a conversation has read from reads Forbids. Start reading at decision.go and rules.go.
package policy

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"iter"
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

// Lists are patterns of tool names: * matches any run of characters, ? exactly one, anything else itself. An empty
// allow list allows every name; a name that a deny list matches, or that looks like one it matches, is denied whatever
// the allow list says. They hold beside the rules of a file, for everybody.
type Lists struct {
	RegisterAllow []string // names a device may register
	RegisterDeny  []string
	CallAllow     []string // names that may be called
	CallDeny      []string
}

// Options make a Policy.
type Options struct {
	Lists Lists

	// File is the text of a policy file; nil: there is none, and only the defaults hold.
	File []byte

	// Unconfirmed lets models call, although nobody is asked, tools whose level is registry.SecurityUserConfirm, and
	// what only something they have read has named. A policy file may still ask.
	Unconfirmed bool
}

// Policy answers who may call and register what. It is safe for concurrent use, also while its rules are replaced.
type Policy struct {
	options Options // without File
	state   atomic.Pointer[state]
}

// state is one version of the rules with what they were asked already.
type state struct {
	rules   *rules
	digest  string
	answers *cache.Cache[key, *Decision]

	byTenant, byUser bool // some rule asks for them

	longest time.Duration // that a rule gives a person to answer
}

// answerBytes bounds the answers that are remembered, per generation of the cache.
const answerBytes = 2 << 20

// answerOverhead is about how many bytes an answer takes beside the texts of its question.
const answerOverhead = 500

// New returns a Policy. What is wrong with the file is an error of type Problems; a malformed pattern of a list is an
// *registry.Error.
func New(o Options) (*Policy, error) {
	p := &Policy{options: o}
	p.options.File = nil
	return p, p.Replace(o.File)
}

// Replace puts the rules of another file, or of none, in the place of those there are. With an error the rules stay as
// they are.
func (p *Policy) Replace(file []byte) error {
	compiled, err := compile(p.options, file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %q %q", p.options.Lists, p.options.Unconfirmed, defaults, file))
	now := &state{
		rules: compiled, digest: hex.EncodeToString(sum[:16]), answers: cache.New[key, *Decision](answerBytes, 0),
	}
	for who := range compiled.askers() {
		now.byTenant = now.byTenant || len(who.tenants) > 0
		now.byUser = now.byUser || len(who.users) > 0
	}
	for _, rule := range compiled.tools {
		for _, a := range rule.approvals {
			now.longest = max(now.longest, a.Within)
		}
	}
	p.state.Store(now)
	return nil
}

// Check reports what is wrong with the text of a policy file: Problems, or nil. What a file says and can never apply is
// wrong: New and Replace refuse it.
func Check(file []byte) error {
	_, err := compile(Options{}, file)
	return err
}

// Warnings returns what a policy file that can be used says and may not mean, nil if there is nothing: conditions that
// hold for less than they seem to.
func Warnings(file []byte) Problems {
	all, err := parse(defaults, nil)
	if err != nil { // New says so
		return nil
	}
	return readFile(file, all).warnings
}

// compile puts lists, file and defaults together.
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
	if o.Unconfirmed {
		all.drop(func(id string) bool { return id == "default:confirm-model" || id == "default:outside" })
	}
	if own != nil {
		all.drop(own.has)
		own.tools = append(own.tools, all.tools...)
		all = own
	}
	return all, all.addLists(o.Lists)
}

// has reports whether there is a rule about tools with this id.
func (r *rules) has(id string) bool {
	return slices.ContainsFunc(r.tools, func(t toolRule) bool { return t.id == id })
}

// askers returns whom the rules are about.
func (r *rules) askers() iter.Seq[asker] {
	return func(yield func(asker) bool) {
		for _, list := range [][]nameRule{r.calls, r.register} {
			for _, rule := range list {
				if !yield(rule.who) {
					return
				}
			}
		}
		for _, rule := range r.tools {
			if !yield(rule.who) {
				return
			}
		}
	}
}

// drop leaves out rules about tools.
func (r *rules) drop(these func(id string) bool) {
	r.tools = slices.DeleteFunc(r.tools, func(t toolRule) bool { return these(t.id) })
}

// addLists adds the lists, each as a rule before those of the file.
func (r *rules) addLists(l Lists) error {
	for _, list := range [][]string{l.RegisterAllow, l.RegisterDeny, l.CallAllow, l.CallDeny} {
		for _, glob := range list {
			if err := CheckGlob(glob); err != nil {
				return err
			}
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

// LongestWithin returns the longest time that a rule gives a person to answer. Zero: no rule says one.
func (p *Policy) LongestWithin() time.Duration { return p.state.Load().longest }

// Digest is the same for equal rules and different for others.
func (p *Policy) Digest() string { return p.state.Load().digest }

// key is what an answer depends on.
type key struct {
	tenant, user, scopes, name string
	asks                       uint64 // everything else
}

func (k *key) size() int {
	return len(k.tenant) + len(k.user) + len(k.scopes) + len(k.name) + answerOverhead
}

// keyOf returns the key of an answer about a tool of this name. Who asks is part of it as far as rules look at that.
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

// Decide answers a question. What was asked before costs a look into a cache.
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

// remember keeps an answer, and nothing else of what the texts of its key are cut from.
func (s *state) remember(k key, d *Decision) {
	for _, text := range []*string{&k.tenant, &k.user, &k.scopes, &k.name} {
		*text = strings.Clone(*text)
	}
	s.answers.Put(k, d, k.size())
}

// levelRank tells levels apart. A level that there is not counts as the strictest one.
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

// MayRegister decides whether a device may register a tool of this name. Only Allowed, Code, Rule and Reason of the
// answer count.
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

// Value makes a context of a decision that has it as its only value, for DecisionOf.
func (d *Decision) Value(key any) any {
	if key == (decisionKey{}) {
		return d
	}
	return nil
}

// DecisionOf returns what policy says of the call of a local tool. ctx is that of its Execute, Validate or Authorize.
// With any other the decision is empty.
func DecisionOf(ctx context.Context) *Decision {
	if d, _ := ctx.Value(decisionKey{}).(*Decision); d != nil {
		return d
	}
	return new(Decision)
}

// ResourcesOf returns what a call of a local tool may use.
func ResourcesOf(ctx context.Context) Resources { return DecisionOf(ctx).Resources }

// maxProblems bounds how many problems of a file are told.
const maxProblems = 20

// Problem is one thing that is wrong with a policy file, and where. Lines and columns are counted from 1.
type Problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// String returns line:column: message.
func (p Problem) String() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message) }

// Problems is everything that is wrong with a policy file, in order of lines, at least one problem.
type Problems []Problem

// Error returns each problem on a line of its own.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}
