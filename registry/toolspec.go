package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry/textsafe"
)

// Limits of a tool definition (protocol.md, "Limits"). The first three are defaults of ToolLimits.
const (
	MaxDescription  = 1024      // characters stored of a description
	MaxSchemaBytes  = 64 << 10  // bytes of one parameters schema
	MaxSchemaDepth  = 32        // nesting of one parameters schema
	MaxToolTimeout  = time.Hour // the longest default timeout of a tool
	emptyParameters = `{"type":"object"}`
)

// ToolLimits limits one tool definition. Zero fields mean the defaults.
type ToolLimits struct {
	SchemaBytes int // bytes of one parameters schema
	SchemaDepth int // nesting of one parameters schema
	Description int // characters stored of a description
}

// WithDefaults returns the limits with the defaults filled in.
func (l ToolLimits) WithDefaults() ToolLimits {
	return ToolLimits{
		SchemaBytes: positive(l.SchemaBytes, MaxSchemaBytes),
		SchemaDepth: positive(l.SchemaDepth, MaxSchemaDepth),
		Description: positive(l.Description, MaxDescription),
	}
}

// SecurityLevel is how careful a caller must be with a tool.
type SecurityLevel string

// The levels a tool may declare. The empty level means SecuritySafe.
const (
	SecuritySafe        SecurityLevel = "safe"
	SecurityUserConfirm SecurityLevel = "user_confirm"
	SecurityAdminOnly   SecurityLevel = "admin_only"
)

// Annotations are MCP's hints about a tool. A device may lie in them. They inform people and models, and may make
// policy stricter, never laxer.
type Annotations struct {
	ReadOnlyHint    *bool `json:"readOnlyHint,omitempty"`
	DestructiveHint *bool `json:"destructiveHint,omitempty"`
	IdempotentHint  *bool `json:"idempotentHint,omitempty"`
	OpenWorldHint   *bool `json:"openWorldHint,omitempty"`
}

// Hints returns the names of the annotations.
func Hints() []string {
	return []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
}

// Has reports whether the hint with this name is true.
func (a *Annotations) Has(hint string) bool {
	if a == nil {
		return false
	}
	values := [...]*bool{a.ReadOnlyHint, a.DestructiveHint, a.IdempotentHint, a.OpenWorldHint}
	i := slices.Index(Hints(), hint)
	return i >= 0 && values[i] != nil && *values[i]
}

// ToolSpec is a tool's definition. Values are immutable once Normalize returned them.
type ToolSpec struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	Parameters    json.RawMessage `json:"parameters"` // JSON Schema 2020-12, an object, compact
	TimeoutMS     int64           `json:"timeout_ms,omitempty"`
	Annotations   *Annotations    `json:"annotations,omitempty"`
	SecurityLevel SecurityLevel   `json:"security_level,omitempty"`

	// OutputSchema is the JSON Schema of the tool's output; empty: none. Answers are checked against it.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`

	Effects *Effects `json:"effects,omitempty"` // nil: unknown
	Tags    []string `json:"tags,omitempty"`    // for filters; in order, each once

	hashed *specHash // nil: Hash is not computed yet
}

// specHash caches Hash. Copies of a specification share it, because lists of them dominate a session's memory.
type specHash struct {
	text string
	of   *byte // the first byte of the hashed Parameters
}

// Normalize calls NormalizeWithin with the default limits.
func (t ToolSpec) Normalize() (ToolSpec, error) { return t.NormalizeWithin(ToolLimits{}) }

// NormalizeWithin checks a definition and returns its canonical form: texts cleaned, the description truncated to the
// limit, parameters compact and never empty. The error's message is the reason that the device gets.
func (t ToolSpec) NormalizeWithin(l ToolLimits) (ToolSpec, error) {
	l = l.WithDefaults()
	if err := checkToolName(t.Name); err != nil {
		return t, err
	}
	// Clean again after the truncation, because a part of a longer sequence may be left at the end.
	t.Description = textsafe.Clean(truncate(norm.NFC.String(textsafe.Clean(t.Description)), l.Description))
	if len(t.Parameters) == 0 || bytes.Equal(t.Parameters, []byte("null")) {
		t.Parameters = json.RawMessage(emptyParameters)
	}
	var err error
	if t.Parameters, err = l.normalizeSchema("parameters", t.Parameters); err != nil {
		return t, err
	}
	if len(t.OutputSchema) == 0 || bytes.Equal(t.OutputSchema, []byte("null")) {
		t.OutputSchema = nil
	} else if t.OutputSchema, err = l.normalizeSchema(FieldOutputSchema, t.OutputSchema); err != nil {
		return t, err
	}
	if t.TimeoutMS < 0 || t.TimeoutMS > MaxToolTimeout.Milliseconds() {
		return t, Errorf(CodeInvalidRequest, "timeout_ms: must be between 0 and %d", MaxToolTimeout.Milliseconds())
	}
	switch t.SecurityLevel {
	case "", SecuritySafe, SecurityUserConfirm, SecurityAdminOnly:
	default:
		return t, Errorf(CodeInvalidRequest, "security_level: must be safe, user_confirm or admin_only")
	}
	if err = t.Effects.check(); err != nil {
		return t, err
	}
	if t.Effects != nil && *t.Effects == (Effects{}) {
		t.Effects = nil
	}
	if t.Tags, err = normalizeTags(t.Tags); err != nil {
		return t, err
	}
	return t.Hashed(), nil
}

// FieldOutputSchema is the field that an error names first if the output schema is invalid.
const FieldOutputSchema = "output_schema"

// normalizeSchema returns a field's schema in canonical form.
func (l ToolLimits) normalizeSchema(field string, text json.RawMessage) (json.RawMessage, error) {
	if len(text) > l.SchemaBytes {
		return nil, Errorf(CodeInvalidRequest, "%s: at most %d bytes of schema are allowed", field, l.SchemaBytes)
	}
	if text[0] != '{' {
		return nil, Errorf(CodeInvalidRequest, "%s: must be a JSON Schema object", field)
	}
	if depth := strictjson.Depth(text); depth > l.SchemaDepth {
		return nil, Errorf(CodeInvalidRequest, "%s: nested deeper than %d levels", field, l.SchemaDepth)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, Errorf(CodeInvalidRequest, "%s: not valid JSON", field)
	}
	clean, err := textsafe.CleanSchema(compact.Bytes())
	if err != nil {
		return nil, Errorf(CodeInvalidRequest, "%s: %v", field, err)
	}
	return clean, nil
}

// Size returns the bytes that the definition takes of a session's budget: its approximate size in the store.
func (t ToolSpec) Size() int {
	size := len(t.Name) + len(t.Description) + len(t.Parameters) + len(t.OutputSchema)
	if t.Effects != nil {
		size += effectsWeight
	}
	for _, tag := range t.Tags {
		size += len(tag) + tagWeight
	}
	return size
}

// Hash identifies the content of a specification. Equal specifications of many devices are stored once under it.
func (t ToolSpec) Hash() string {
	if t.hashed != nil && len(t.Parameters) > 0 && t.hashed.of == &t.Parameters[0] {
		return t.hashed.text
	}
	return t.Hashed().hashed.text
}

// Hashed returns the specification with its hash computed, so that Hash is free. Setting other Parameters in a copy is
// detected. After any other change the copy must be Hashed again.
func (t ToolSpec) Hashed() ToolSpec {
	b, err := json.Marshal(t)
	if err != nil { // cannot happen for a normalized spec: its schemas were compacted
		b = []byte(t.Name + "\x00" + t.Description + "\x00" + string(t.Parameters) + "\x00" + string(t.OutputSchema))
	}
	sum := sha256.Sum256(b)
	t.hashed = &specHash{text: hex.EncodeToString(sum[:])}
	if len(t.Parameters) > 0 {
		t.hashed.of = &t.Parameters[0]
	}
	return t
}

// Timeout returns the tool's own default, zero if it declares none.
func (t ToolSpec) Timeout() time.Duration { return time.Duration(t.TimeoutMS) * time.Millisecond }

// truncate returns at most limit characters of s.
func truncate(s string, limit int) string {
	n := 0
	for i := range s {
		if n == limit {
			return s[:i]
		}
		n++
	}
	return s
}

// MergeTools returns have without the tools named in drop and with those in put, ordered by name. Of several tools with
// one name the last counts. It changes neither list.
func MergeTools(have, put []ToolSpec, drop []string) []ToolSpec {
	all := make([]ToolSpec, 0, len(have)+len(put))
	for _, t := range have {
		if !slices.Contains(drop, t.Name) {
			all = append(all, t)
		}
	}
	all = append(all, put...)
	slices.SortStableFunc(all, func(a, b ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	merged := all[:0]
	for i, t := range all {
		if i+1 == len(all) || all[i+1].Name != t.Name {
			merged = append(merged, t)
		}
	}
	return merged
}

// OrderTools is MergeTools for one list. A list that is already ordered is returned unchanged.
func OrderTools(tools []ToolSpec) []ToolSpec {
	for i := 1; i < len(tools); i++ {
		if tools[i-1].Name >= tools[i].Name {
			return MergeTools(nil, tools, nil)
		}
	}
	return tools
}

// maxToolName is the most characters of a tool's name.
const maxToolName = 64

// separators are the characters between the words of a name.
const separators = "_.-"

// ValidToolName reports whether a tool may have this name. A policy may still reject it.
func ValidToolName(name string) bool { return checkToolName(name) == nil }

// checkToolName returns nil if a name is valid, else the reason, which the device gets as the message.
func checkToolName(name string) error {
	if plainToolName(name) { // fast path: almost all names are plain, and every call's name is checked
		return nil
	}
	fail := func(reason string) error { return Errorf(CodeInvalidRequest, "name: %s", reason) }
	if name == "" || utf8.RuneCountInString(name) > maxToolName {
		return fail("must have 1 to 64 characters")
	}
	if !utf8.ValidString(name) {
		return fail("must be valid UTF-8")
	}
	if textsafe.Hides(name) {
		return fail("control and invisible characters are not allowed")
	}
	for i, r := range name {
		first := unicode.IsLetter(r) || unicode.Is(unicode.Nd, r) || r == '_'
		if !first && (i == 0 || !unicode.IsMark(r) && !strings.ContainsRune(separators, r)) {
			return fail("must have only letters, digits, _, . and -, and begin with a letter, a digit or _")
		}
	}
	if !norm.NFC.IsNormalString(name) {
		return fail("must be in Unicode's normalization form NFC")
	}
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if !textsafe.OneScript(word) {
			return fail("the letters of a word must belong to one script")
		}
	}
	return nil
}

// plainToolName reports whether a name is valid and ASCII only.
func plainToolName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxToolName
}

// DeviceLimits are the gateway's limits for one device, as session_start and GET /api/limits announce them.
type DeviceLimits struct {
	FrameBytes      int64   `json:"frame_bytes"`       // of one message, unless it answers a call
	OutputBytes     int64   `json:"output_bytes"`      // of the output of one call
	FramesPerSecond float64 `json:"frames_per_second"` // on average. Answers to open calls do not count
	FrameBurst      float64 `json:"frame_burst"`       // frames at once
	Tools           int     `json:"tools"`             // that one session offers
	ToolBytes       int     `json:"tool_bytes"`        // of the definitions of all of them

	// Of definitions that are registered, after twice `tool_bytes` at once.
	ToolByteRate int `json:"tool_bytes_per_second"`

	SchemaBytes int `json:"schema_bytes"`           // of the parameters of one tool
	SchemaDepth int `json:"schema_depth"`           // nesting of the parameters of one tool
	Description int `json:"description_characters"` // kept of a description
	Calls       int `json:"calls"`                  // that one session has in flight
}
