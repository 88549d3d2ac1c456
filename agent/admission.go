package agent

import (
	"context"

	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Defaults of AdmissionLimits.
const (
	DefaultMaxTools     = 128
	DefaultMaxToolBytes = 1 << 20
)

// maxCompiledBytes bounds what the compiled schemas of one session take. It is as much as one generation of the cache
// holds.
const maxCompiledBytes = schema.CacheBytes

// AdmissionLimits bounds what one session may offer. Zero fields mean the defaults.
type AdmissionLimits struct {
	MaxTools     int                 // tools; default 128
	MaxToolBytes int                 // bytes of all definitions together; default 1 MiB
	Tool         registry.ToolLimits // of each definition
}

// Offered is what a session offers beside the tool that is being judged.
type Offered struct {
	Tools int
	Bytes int        // the sum of registry.ToolSpec.Size
	Names *Namesakes // of them; nil: none

	Compiled int // the sum of Admission.CompiledSize
}

// Admission decides which tools a device may register. It is safe for concurrent use.
type Admission struct {
	policy  *Policy
	schemas *schema.Validator
	limits  AdmissionLimits
	taken   map[string]bool // names of the gateway's own tools
	alike   Namesakes       // of those
	shared  sharedSpecs
}

// NewAdmission returns an Admission. No device may register a reserved name, those of the built-in tools that are
// enabled (LocalTools.Names), nor one that looks like it.
func NewAdmission(policy *Policy, schemas *schema.Validator, limits AdmissionLimits, reserved ...string) *Admission {
	if limits.MaxTools <= 0 {
		limits.MaxTools = DefaultMaxTools
	}
	if limits.MaxToolBytes <= 0 {
		limits.MaxToolBytes = DefaultMaxToolBytes
	}
	taken := make(map[string]bool, len(reserved))
	a := &Admission{policy: policy, schemas: schemas, limits: limits, taken: taken, shared: newSharedSpecs()}
	for _, name := range reserved {
		taken[name] = true
		a.alike.add(name, legible.AnySkeletons(name))
	}
	return a
}

// MaxToolBytes returns how many bytes of definitions a session may offer.
func (a *Admission) MaxToolBytes() int { return a.limits.MaxToolBytes }

// Admit checks one definition for a session that offers other tools already. It returns the definition in canonical
// form, or an *registry.Error whose message is the reason for the device.
func (a *Admission) Admit(ctx context.Context, spec registry.ToolSpec, other Offered) (registry.ToolSpec, error) {
	spec, err := spec.NormalizeWithin(a.limits.Tool)
	if err != nil {
		return spec, err
	}
	if !a.schemas.Known(spec.Parameters) { // else it is as it should be
		spec.Parameters = schema.Modernize(spec.Parameters)
	}
	if a.taken[spec.Name] {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name %q belongs to a built-in tool of this gateway; register the tool under another one", spec.Name)
	}
	if own := a.alike.Of(spec.Name); own != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name looks like %q, which belongs to a built-in tool of this gateway; "+
				"register the tool under another one", own)
	}
	if own := other.Names.Of(spec.Name); own != "" {
		return spec, registry.Errorf(registry.CodeInvalidRequest,
			"the name looks like %q, which this session offers already; register the tool under another one", own)
	}
	if !a.policy.MayRegister(spec.Name) {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"this gateway does not allow devices to register this name")
	}
	if other.Tools >= a.limits.MaxTools {
		return spec, registry.Errorf(registry.CodeInvalidRequest, "a session may offer at most %d tools", a.limits.MaxTools)
	}
	if other.Bytes+spec.Size() > a.limits.MaxToolBytes {
		return spec, registry.Errorf(registry.CodeInvalidRequest,
			"a session may offer at most %d bytes of tool definitions", a.limits.MaxToolBytes)
	}
	compiled, err := a.schemas.Compile(ctx, spec)
	if err != nil {
		return spec, err
	}
	if other.Compiled+compiled > maxCompiledBytes {
		return spec, registry.Errorf(registry.CodeInvalidRequest,
			"the schemas of a session may take at most %d bytes when compiled", maxCompiledBytes)
	}
	return a.shared.get(spec), nil
}

// CompiledSize returns how many bytes the compiled schema of an admitted tool takes.
func (a *Admission) CompiledSize(ctx context.Context, spec registry.ToolSpec) int {
	size, err := a.schemas.Compile(ctx, spec)
	if err != nil { // it was admitted, so only ctx can have ended
		return 0
	}
	return size
}
