package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/cache"
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

const (
	// knownBytes bounds the texts of admitted definitions that are remembered, per generation of the cache.
	knownBytes = 4 << 20

	// knownOverhead is about how many bytes a remembered text takes beside itself and the definition.
	knownOverhead = 300

	// fieldOverhead is how many bytes a remembered field takes beside its name.
	fieldOverhead = 16
)

// AdmissionLimits bounds what one session may offer. Zero fields mean the defaults.
type AdmissionLimits struct {
	MaxTools     int                 // tools; default 128
	MaxToolBytes int                 // bytes of all definitions together; default 1 MiB
	Tool         registry.ToolLimits // of each definition
}

// Offered is what a session offers beside the tool that is being judged.
type Offered struct {
	Who   auth.Identity // of the session's device
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
	taken   map[string]bool                // names of the gateway's own tools
	alike   Namesakes                      // of those
	begins  []reservedPrefix               // what no name may begin with, or look as if
	known   *cache.Cache[string, Admitted] // by the text that a device sent
}

// Admitted is a definition that was admitted for some session.
type Admitted struct {
	Spec     registry.ToolSpec // in canonical form
	Compiled int               // bytes of its compiled schema
	Ignored  []string          // paths of the fields that are not part of a definition, as the device sent them

	skeletons []string // of its name
}

// reservedPrefix is what names of others begin with.
type reservedPrefix struct {
	prefix    string
	skeletons []string
}

// NewAdmission returns an Admission. No device may register a reserved name, those of the built-in tools that are
// enabled (LocalTools.Names), nor one that looks like it. A reserved name that ends with * stands for all that begin
// with what is before it, the names of an MCP server's tools, and for names that begin so once a session is appended.
func NewAdmission(policy *Policy, schemas *schema.Validator, limits AdmissionLimits, reserved ...string) *Admission {
	if limits.MaxTools <= 0 {
		limits.MaxTools = DefaultMaxTools
	}
	if limits.MaxToolBytes <= 0 {
		limits.MaxToolBytes = DefaultMaxToolBytes
	}
	limits.Tool = limits.Tool.WithDefaults()
	taken := make(map[string]bool, len(reserved))
	known := cache.New[string, Admitted](knownBytes, 0)
	a := &Admission{policy: policy, schemas: schemas, limits: limits, taken: taken, known: known}
	for _, name := range reserved {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			a.begins = append(a.begins, reservedPrefix{prefix, legible.AnySkeletons(prefix)})
			continue
		}
		taken[name] = true
		a.alike.add(name, legible.AnySkeletons(name))
	}
	return a
}

// Limits returns what bounds each session, with the defaults filled in.
func (a *Admission) Limits() AdmissionLimits { return a.limits }

// Admit checks one definition for a session that offers other tools already. It returns the definition in canonical
// form, or an *registry.Error whose message is the reason for the device.
func (a *Admission) Admit(ctx context.Context, spec registry.ToolSpec, other Offered) (registry.ToolSpec, error) {
	spec, err := spec.NormalizeWithin(a.limits.Tool)
	if err != nil {
		return spec, err
	}
	for _, text := range []*json.RawMessage{&spec.Parameters, &spec.OutputSchema} {
		if len(*text) > 0 && !a.schemas.Known(*text) { // else it is as it should be
			*text = schema.Modernize(*text)
			spec = spec.Hashed()
		}
	}
	if a.taken[spec.Name] {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name %q belongs to a built-in tool of this gateway; register the tool under another one", spec.Name)
	}
	// Before names are compared, which takes longest: 0.1 ms for one of 64 letters of some scripts.
	if err := a.checkRoom(spec, other); err != nil {
		return spec, err
	}
	if own := a.alike.Of(spec.Name); own != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name looks like %q, which belongs to a built-in tool of this gateway; "+
				"register the tool under another one", own)
	}
	if prefix := a.beginsWith(spec.Name); prefix != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name of an MCP server of this gateway, and names that begin with it and %q, or look as if they did, "+
				"belong to that server; register the tool under another one", prefix)
	}
	if err := checkNamesake(other.Names.Of(spec.Name)); err != nil {
		return spec, err
	}
	if err := a.policy.MayRegister(other.Who, spec.Name).Err(); err != nil {
		return spec, err
	}
	compiled, err := a.schemas.Compile(ctx, other.Who.Owner(), spec)
	if err != nil {
		return spec, err
	}
	return spec, checkCompiled(compiled, other)
}

// beginsWith returns the reserved prefix that a name begins with, or looks as if; empty: none. A device's tool is also
// called by its name with a session behind it, and by models by a plain one; these must not begin so either. Otherwise
// an MCP server could add a tool whose name means the device's already.
func (a *Admission) beginsWith(name string) string {
	if len(a.begins) == 0 {
		return ""
	}
	skeletons := legible.AnySkeletons(name + sessionSeparator)
	if plain := plainName(name); plain != name {
		skeletons = append(skeletons, legible.AnySkeletons(plain+sessionSeparator)...)
	}
	for _, skeleton := range skeletons {
		for _, r := range a.begins {
			if slices.ContainsFunc(r.skeletons, func(s string) bool { return strings.HasPrefix(skeleton, s) }) {
				return r.prefix
			}
		}
	}
	return ""
}

// sessionSeparator stands between the name of a device's tool and its session where several sessions are listed.
const sessionSeparator = "__"

// CompiledSize returns how many bytes the compiled schema of an admitted tool takes.
func (a *Admission) CompiledSize(ctx context.Context, who *auth.Identity, spec registry.ToolSpec) int {
	size, err := a.schemas.Compile(ctx, who.Owner(), spec)
	if err != nil { // it was admitted, so only ctx can have ended
		return 0
	}
	return size
}

// Remember notes what a text that a device sent as a definition was admitted as. Known then knows it for a while.
func (a *Admission) Remember(text []byte, known Admitted) Admitted {
	known.skeletons = legible.Skeletons(known.Spec.Name)
	cost := len(text) + known.Spec.Size() + knownOverhead
	for _, field := range known.Ignored {
		cost += len(field) + fieldOverhead
	}
	a.known.Put(string(text), known, cost)
	return known
}

// Known returns what exactly this text was admitted as, for whichever session. Fleets run one app: each of its phones
// sends the same texts, and one of them is decoded, cleaned and compiled.
func (a *Admission) Known(text []byte) (Admitted, bool) { return a.known.Get(string(text)) }

// AdmitKnown is Admit for a definition that was admitted before: whether this session may have it depends on whose it
// is and what else it offers only.
func (a *Admission) AdmitKnown(known Admitted, other Offered) error {
	if err := a.policy.MayRegister(other.Who, known.Spec.Name).Err(); err != nil {
		return err
	}
	if err := checkNamesake(other.Names.of(known.Spec.Name, known.skeletons)); err != nil {
		return err
	}
	if err := a.checkRoom(known.Spec, other); err != nil {
		return err
	}
	return checkCompiled(known.Compiled, other)
}

// checkNamesake refuses a name that looks like this one of the session. No error if it is empty.
func checkNamesake(own string) error {
	if own == "" {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"the name looks like %q, which this session offers already; register the tool under another one", own)
}

// checkRoom refuses a tool that would be one too many, or too large beside the others.
func (a *Admission) checkRoom(spec registry.ToolSpec, other Offered) error {
	if other.Tools >= a.limits.MaxTools {
		return registry.Errorf(registry.CodeInvalidRequest, "a session may offer at most %d tools", a.limits.MaxTools)
	}
	if other.Bytes+spec.Size() > a.limits.MaxToolBytes {
		return registry.Errorf(registry.CodeInvalidRequest,
			"a session may offer at most %d bytes of tool definitions", a.limits.MaxToolBytes)
	}
	return nil
}

// checkCompiled refuses a tool whose compiled schema is too large beside the others.
func checkCompiled(compiled int, other Offered) error {
	if other.Compiled+compiled > maxCompiledBytes {
		return registry.Errorf(registry.CodeInvalidRequest,
			"the schemas of a session may take at most %d bytes when compiled", maxCompiledBytes)
	}
	return nil
}
