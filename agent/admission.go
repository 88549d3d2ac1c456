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

// maxCompiledBytes is the maximum size of the compiled schemas of one session. It equals one generation of the cache.
const maxCompiledBytes = schema.CacheBytes

const (
	// knownBytes is the maximum size of the cached texts of admitted definitions, per generation of the cache.
	knownBytes = 4 << 20

	// knownOverhead is the approximate memory of a cached text, in bytes, in addition to the text and the definition.
	knownOverhead = 300

	// fieldOverhead is the memory of a cached field, in bytes, in addition to its name.
	fieldOverhead = 16
)

// AdmissionLimits are the limits for the tools of one session. Zero fields mean the defaults.
type AdmissionLimits struct {
	MaxTools     int                 // tools; default 128
	MaxToolBytes int                 // bytes of all definitions together; default 1 MiB
	Tool         registry.ToolLimits // of each definition
}

// SessionTools is what a session offers in addition to the tool that is checked.
type SessionTools struct {
	Who   auth.Identity // of the session's device
	Tools int
	Bytes int        // the sum of registry.ToolSpec.Size
	Names *Namesakes // of the offered tools; nil: none

	Compiled int // the sum of Admission.CompiledSize
}

// Admission decides which tools a device may register. It is safe for concurrent use.
type Admission struct {
	policy     *Policy
	schemas    *schema.Validator
	limits     AdmissionLimits
	reserved   map[string]bool                // names of the gateway's own tools
	lookalikes Namesakes                      // names that look like those
	prefixes   []reservedPrefix               // prefixes that no name may begin with, or appear to
	known      *cache.Cache[string, Admitted] // by the text that a device sent
}

// Admitted is a definition that was admitted for some session.
type Admitted struct {
	Spec     registry.ToolSpec // in canonical form
	Compiled int               // bytes of its compiled schema
	Ignored  []string          // paths of the fields that are not part of a definition, as the device sent them

	skeletons []string // of its name
}

// reservedPrefix is a prefix of names that belong to an MCP server.
type reservedPrefix struct {
	prefix    string
	skeletons []string
}

// NewAdmission returns an Admission. Devices cannot register reserved names or names that look like one. Reserved are
// the names of the enabled built-in tools (LocalTools.Names). A reserved name that ends with * stands for all names
// with that prefix, which belong to the tools of an MCP server. It also covers names that get the prefix once a session
// is appended.
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
	a := &Admission{policy: policy, schemas: schemas, limits: limits, reserved: taken, known: known}
	for _, name := range reserved {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			a.prefixes = append(a.prefixes, reservedPrefix{prefix, legible.AnySkeletons(prefix)})
			continue
		}
		taken[name] = true
		a.lookalikes.add(name, legible.AnySkeletons(name))
	}
	return a
}

// Limits returns the limits of each session, with the defaults filled in.
func (a *Admission) Limits() AdmissionLimits { return a.limits }

// Admit checks one definition for a session that already offers other tools. It returns the definition in canonical
// form, or an *registry.Error whose message is for the device.
func (a *Admission) Admit(ctx context.Context, spec registry.ToolSpec, other SessionTools) (registry.ToolSpec, error) {
	spec, err := spec.NormalizeWithin(a.limits.Tool)
	if err != nil {
		return spec, err
	}
	for _, text := range []*json.RawMessage{&spec.Parameters, &spec.OutputSchema} {
		if len(*text) > 0 && !a.schemas.Known(*text) { // known schemas are already modernized
			*text = schema.Modernize(*text)
			spec = spec.Hashed()
		}
	}
	if a.reserved[spec.Name] {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name %q belongs to a built-in tool of this gateway; register the tool under another one", spec.Name)
	}
	// The limits are checked before names are compared, because that is slow: 0.1 ms for a name of 64 letters in some
	// scripts.
	if err := a.checkLimits(spec, other); err != nil {
		return spec, err
	}
	if own := a.lookalikes.Find(spec.Name); own != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name looks like %q, which belongs to a built-in tool of this gateway; "+
				"register the tool under another one", own)
	}
	if prefix := a.reservedPrefixOf(spec.Name); prefix != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name of an MCP server of this gateway, and names that begin with it and %q, or look as if they did, "+
				"belong to that server; register the tool under another one", prefix)
	}
	if err := checkNamesake(other.Names.Find(spec.Name)); err != nil {
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

// reservedPrefixOf returns the reserved prefix that a name begins with, or appears to. Empty: none. A device's tool is
// also called by its name with an appended session, and models call it by a plain name. These must not begin with a
// reserved prefix either. Otherwise an MCP server could add a tool with a name that already means the device's tool.
func (a *Admission) reservedPrefixOf(name string) string {
	if len(a.prefixes) == 0 {
		return ""
	}
	skeletons := legible.AnySkeletons(name + sessionSeparator)
	if plain := plainName(name); plain != name {
		skeletons = append(skeletons, legible.AnySkeletons(plain+sessionSeparator)...)
	}
	for _, skeleton := range skeletons {
		for _, r := range a.prefixes {
			if slices.ContainsFunc(r.skeletons, func(s string) bool { return strings.HasPrefix(skeleton, s) }) {
				return r.prefix
			}
		}
	}
	return ""
}

// sessionSeparator separates the name of a device's tool from its session in lists of several sessions.
const sessionSeparator = "__"

// CompiledSize returns how many bytes the compiled schema of an admitted tool takes.
func (a *Admission) CompiledSize(ctx context.Context, who *auth.Identity, spec registry.ToolSpec) int {
	size, err := a.schemas.Compile(ctx, who.Owner(), spec)
	if err != nil { // the tool was admitted, so only ctx can have ended
		return 0
	}
	return size
}

// Remember caches what the text of a definition from a device was admitted as. Known then returns it, until it is
// evicted.
func (a *Admission) Remember(text []byte, known Admitted) Admitted {
	known.skeletons = legible.Skeletons(known.Spec.Name)
	cost := len(text) + known.Spec.Size() + knownOverhead
	for _, field := range known.Ignored {
		cost += len(field) + fieldOverhead
	}
	a.known.Put(string(text), known, cost)
	return known
}

// Known returns what exactly this text was admitted as, for any session. All phones of a fleet run one app and send the
// same texts, so only the first text is decoded, cleaned and compiled.
func (a *Admission) Known(text []byte) (Admitted, bool) { return a.known.Get(string(text)) }

// AdmitKnown is Admit for a definition that was admitted before. It checks only what depends on the session: its owner
// and the other tools it offers.
func (a *Admission) AdmitKnown(known Admitted, other SessionTools) error {
	if err := a.policy.MayRegister(other.Who, known.Spec.Name).Err(); err != nil {
		return err
	}
	if err := checkNamesake(other.Names.find(known.Spec.Name, known.skeletons)); err != nil {
		return err
	}
	if err := a.checkLimits(known.Spec, other); err != nil {
		return err
	}
	return checkCompiled(known.Compiled, other)
}

// checkNamesake refuses a tool whose name looks like own, another name of the session. It returns nil if own is empty.
func checkNamesake(own string) error {
	if own == "" {
		return nil
	}
	return registry.Errorf(registry.CodeInvalidRequest,
		"the name looks like %q, which this session offers already; register the tool under another one", own)
}

// checkLimits refuses a tool that exceeds the session's limits on tools or bytes.
func (a *Admission) checkLimits(spec registry.ToolSpec, other SessionTools) error {
	if other.Tools >= a.limits.MaxTools {
		return registry.Errorf(registry.CodeInvalidRequest, "a session may offer at most %d tools", a.limits.MaxTools)
	}
	if other.Bytes+spec.Size() > a.limits.MaxToolBytes {
		return registry.Errorf(registry.CodeInvalidRequest,
			"a session may offer at most %d bytes of tool definitions", a.limits.MaxToolBytes)
	}
	return nil
}

// checkCompiled refuses a tool if the compiled schemas of the session become too large.
func checkCompiled(compiled int, other SessionTools) error {
	if other.Compiled+compiled > maxCompiledBytes {
		return registry.Errorf(registry.CodeInvalidRequest,
			"the schemas of a session may take at most %d bytes when compiled", maxCompiledBytes)
	}
	return nil
}
