package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// globPattern leaves out character classes: every shell reads [!a] in its own way, and a deny list must not be
// misread.
var globPattern = regexp.MustCompile(`^[\p{L}\p{M}\p{Nd}_.*?-]+$`)

// PolicyRules are globs over tool names: * matches any run of characters, ? exactly one, anything else itself. An empty
// allow list allows every name; a name that a deny list matches is denied whatever the allow list says.
type PolicyRules struct {
	RegisterAllow []string // names a device may register
	RegisterDeny  []string
	CallAllow     []string // names that may be called
	CallDeny      []string
}

// Policy is the policy of names and security levels: the first hook before a call, and the check of every registration.
// It is immutable.
type Policy struct{ rules PolicyRules }

// NewPolicy checks the rules. A malformed glob is an error here, never a rule that silently matches nothing.
func NewPolicy(rules PolicyRules) (*Policy, error) {
	for _, globs := range [][]string{rules.RegisterAllow, rules.RegisterDeny, rules.CallAllow, rules.CallDeny} {
		for _, g := range globs {
			if !globPattern.MatchString(g) {
				return nil, registry.Errorf(registry.CodeInvalidRequest,
					"the tool name pattern %q is malformed: it may hold letters, digits, '_', '.', '-', * and ?", g)
			}
		}
	}
	return &Policy{rules: rules}, nil
}

// Digest is the same for equal rules and different for others.
func (p *Policy) Digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", p.rules))
	return hex.EncodeToString(sum[:16])
}

// MayRegister reports whether a device may register a tool of this name. Case matters, but a name that
// only looks like a denied one, in letters of another script, is denied with it.
func (p *Policy) MayRegister(name string) bool {
	if !permitted(name, p.rules.RegisterAllow, p.rules.RegisterDeny) {
		return false
	}
	if legible.IsASCII(name) {
		return true
	}
	for _, g := range p.rules.RegisterDeny {
		if anyMatch(legible.Skeletons(name), legible.AnySkeletons(g)) {
			return false
		}
	}
	return true
}

// anyMatch reports whether one of the names matches one of the globs.
func anyMatch(names, globs []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return matchAny(name, globs) })
}

// MayCall reports whether a tool of this name may be called.
func (p *Policy) MayCall(name string) bool {
	return permitted(name, p.rules.CallAllow, p.rules.CallDeny)
}

// MayUse reports whether somebody may call a tool: its name is allowed, and so is its security level.
func (p *Policy) MayUse(who auth.Identity, spec registry.ToolSpec) bool {
	return p.MayCall(spec.Name) && mayUseLevel(who, spec)
}

func mayUseLevel(who auth.Identity, spec registry.ToolSpec) bool {
	return who.Admin || spec.SecurityLevel != registry.SecurityAdminOnly
}

// Name implements Hook.
func (p *Policy) Name() string { return "policy" }

// Before implements BeforeHook.
func (p *Policy) Before(_ context.Context, inv Invocation) (Decision, error) {
	if !p.MayCall(inv.Spec.Name) {
		return Decision{}, registry.Errorf(registry.CodePolicyDenied,
			"The policy of this gateway does not allow calls of %q.", inv.Spec.Name)
	}
	if !mayUseLevel(inv.Caller, inv.Spec) {
		return Decision{}, registry.Errorf(registry.CodeForbidden,
			"The tool %q is for admins only, and your credentials are not an admin's.", inv.Spec.Name)
	}
	return Pass(), nil
}

func permitted(name string, allow, deny []string) bool {
	if matchAny(name, deny) {
		return false
	}
	return len(allow) == 0 || matchAny(name, allow)
}

func matchAny(name string, globs []string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, name); ok && err == nil {
			return true
		}
	}
	return false
}
