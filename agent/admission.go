package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
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
	limits.MaxTools = cmp.Or(max(limits.MaxTools, 0), DefaultMaxTools)
	limits.MaxToolBytes = cmp.Or(max(limits.MaxToolBytes, 0), DefaultMaxToolBytes)
	limits.Tool = limits.Tool.WithDefaults()
	a := &Admission{
		policy: policy, schemas: schemas, limits: limits, reserved: make(map[string]bool, len(reserved)),
		known: cache.New[string, Admitted](knownBytes, 0),
	}
	for _, name := range reserved {
		if prefix, all := strings.CutSuffix(name, "*"); all {
			a.prefixes = append(a.prefixes, reservedPrefix{prefix, textsafe.AnySkeletons(prefix)})
			continue
		}
		a.reserved[name] = true
		a.lookalikes.add(name, textsafe.AnySkeletons(name))
	}
	return a
}

// Limits returns the limits of each session, with the defaults filled in.
func (a *Admission) Limits() AdmissionLimits { return a.limits }

// Admit checks one definition for a session. It returns it in canonical form, or an *registry.Error for the device.
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
			"the name %q belongs to a built-in tool of this gateway; register the tool under another name", spec.Name)
	}
	// The limits are checked before names are compared, because that is slow: 0.1 ms for a name of 64 letters in some
	// scripts.
	if err := a.checkLimits(spec, other); err != nil {
		return spec, err
	}
	if own := a.lookalikes.Find(spec.Name); own != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"the name looks like %q, a built-in tool of this gateway; "+
				"register the tool under another name", own)
	}
	if prefix := a.reservedPrefixOf(spec.Name); prefix != "" {
		return spec, registry.Errorf(registry.CodePolicyDenied,
			"names that are, look like, or begin with the name of an MCP server of this gateway and %q "+
				"belong to that server; register the tool under another name", prefix)
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

// reservedPrefixOf returns the reserved prefix that a name begins with, or appears to; empty: none. That also holds for
// the names by which lists of several sessions and models call the tool, as they must mean one tool only.
func (a *Admission) reservedPrefixOf(name string) string {
	if len(a.prefixes) == 0 {
		return ""
	}
	skeletons := textsafe.AnySkeletons(name + sessionSeparator)
	if plain := plainName(name); plain != name {
		skeletons = append(skeletons, textsafe.AnySkeletons(plain+sessionSeparator)...)
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

// Remember caches what the text of a definition was admitted as, for Known.
func (a *Admission) Remember(text []byte, known Admitted) Admitted {
	known.skeletons = textsafe.Skeletons(known.Spec.Name)
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

// AdmitKnown is Admit for a definition that was admitted before: it checks only what depends on the session.
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
		"the name looks like %q, which this session already offers; register the tool under another name", own)
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
			"the compiled schemas of a session may take at most %d bytes", maxCompiledBytes)
	}
	return nil
}

// maxModelName is the maximum length of a tool's name for OpenAI and Anthropic, in characters.
const maxModelName = 64

// foreignName replaces the ASCII part of a tool name that has none.
const foreignName = "tool"

// ModelNames maps every name to a name that models accept: letters, digits, _ and -. Dots become underscores. Other
// characters are reduced to their ASCII parts, and a part of a hash of the original is appended, so the result is
// always the same. If a name is taken, a hash is also appended. All results are distinct. The names must be distinct
// and valid (registry.ValidToolName).
func ModelNames(names []string) map[string]string {
	shown, taken := make(map[string]string, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		if plainName(name) == name {
			shown[name], taken[name] = name, true
		}
	}
	for _, name := range names {
		if shown[name] != "" {
			continue
		}
		safe := freeName(plainName(name), "_", name, taken)
		shown[name], taken[safe] = safe, true
	}
	return shown
}

// plainName returns a name that models accept: the name itself if possible.
func plainName(name string) string {
	if textsafe.IsASCII(name) {
		return strings.ReplaceAll(name, ".", "_")
	}
	var b strings.Builder
	for _, r := range norm.NFKD.String(name) {
		switch {
		case r == '.':
			b.WriteByte('_')
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		}
	}
	plain := strings.Trim(b.String(), "_-")
	if plain == "" {
		plain = foreignName
	}
	return withHash(plain, "_", name)
}

// withHash appends a part of the hash of another text to a name, and shortens the name so that models still accept it.
func withHash(name, separator, of string) string {
	sum := sha256.Sum256([]byte(of))
	suffix := separator + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxModelName-len(suffix))] + suffix
}

// Namesakes finds names that look like others. The zero value is empty.
type Namesakes struct{ bySkeleton map[string]string }

// AddKnown adds the name of an admitted tool.
func (n *Namesakes) AddKnown(t Admitted) { n.add(t.Spec.Name, t.skeletons) }

// Add adds a name.
func (n *Namesakes) Add(name string) { n.add(name, textsafe.Skeletons(name)) }

func (n *Namesakes) add(name string, skeletons []string) {
	if n.bySkeleton == nil {
		n.bySkeleton = make(map[string]string)
	}
	for _, s := range skeletons {
		if _, known := n.bySkeleton[s]; !known {
			n.bySkeleton[s] = name
		}
	}
}

// Find returns a known name, other than name, that a reader could confuse with it; empty: none.
func (n *Namesakes) Find(name string) string {
	if n == nil || len(n.bySkeleton) == 0 {
		return ""
	}
	return n.find(name, textsafe.Skeletons(name))
}

// find is Find for a name with these skeletons.
func (n *Namesakes) find(name string, skeletons []string) string {
	if n == nil {
		return ""
	}
	for _, s := range skeletons {
		if known := n.bySkeleton[s]; known != "" && known != name {
			return known
		}
	}
	return ""
}

// nameAll sets the ModelName of every tool: its own name, made acceptable. If an earlier tool has that name, a part of
// a hash of name and source is appended. A tool keeps its name while the earlier tool exists. Tools of other
// sessions never take a name from nearer tools.
func nameAll(near, others []boundTool) []boundTool {
	distinct, names := make(map[string]bool), make([]string, len(near))
	for i, t := range near {
		names[i] = freeName(t.Spec.Name, hashSeparator, t.Source+" "+t.Spec.Name, distinct)
		distinct[names[i]] = true
	}
	safe, taken := ModelNames(names), make(map[string]bool)
	for i := range near {
		near[i].ModelName = safe[names[i]]
		taken[near[i].ModelName] = true
	}
	for i, t := range others {
		others[i].ModelName = freeName(plainName(t.Spec.Name), hashSeparator, t.Source+" "+t.Spec.Name, taken)
		taken[others[i].ModelName] = true
	}
	return append(near, others...)
}

// freeName returns name or, if it is taken, name with a part of the hash of another text.
func freeName(name, separator, of string, taken map[string]bool) string {
	free := name
	for try := 0; taken[free]; try++ { // terminates: every try is another name
		free = withHash(name, separator, of+" "+strconv.Itoa(try))
	}
	return free
}
