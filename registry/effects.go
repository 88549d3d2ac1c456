package registry

import "slices"

// EffectClass is what a call of a tool does outside the gateway.
type EffectClass string

// The classes, from the mildest. The empty class is unknown.
const (
	ClassRead     EffectClass = "read"     // changes nothing
	ClassWrite    EffectClass = "write"    // changes the device or its owner's data
	ClassExternal EffectClass = "external" // reaches systems of others: sends, posts, fetches
	ClassPeople   EffectClass = "people"   // reaches a person: notifies, rings, sends a message
)

// Cost is a tool's hint about the price of a call.
type Cost string

// The costs. The empty cost is unknown.
const (
	CostFree    Cost = "free"
	CostMetered Cost = "metered" // data, tokens or money per call
	CostHigh    Cost = "high"
)

// Effects is what a tool declares about its calls. A device may lie in it: it informs people and models, and may make
// checks stricter, never laxer.
type Effects struct {
	Class EffectClass `json:"class,omitempty" schema:"enum=read|write|external|people"`

	// The app must be in the foreground. A call for a device in the background is refused or waits in the queue.
	NeedsForeground bool `json:"needs_foreground,omitempty"`

	// The platform's permission that the tool uses, such as camera.
	Permission string `json:"permission,omitempty" schema:"maxLength=64"`

	Cost Cost `json:"cost,omitempty" schema:"enum=free|metered|high"`

	// How long a call usually takes. It sets no timeout.
	TypicalMS int64 `json:"typical_ms,omitempty" schema:"minimum=1"`
}

// Members of _meta in which MCP tools have effects and tags.
const (
	MetaEffects = "farhand/effects"
	MetaTags    = "farhand/tags"
)

// Limits of what a tool declares.
const (
	MaxTags       = 16
	maxTag        = 32 // bytes
	maxPermission = 64 // bytes
	tagPattern    = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,31}"
	nameMarks     = "_.:-"

	effectsWeight = 128 // bytes of declared effects in a session's budget
	tagWeight     = 20  // bytes of a tag besides its text
)

// Is reports whether the tool declares this class.
func (e *Effects) Is(class EffectClass) bool { return e != nil && e.Class == class }

// Foreground reports whether the tool works only while its app is in the foreground.
func (e *Effects) Foreground() bool { return e != nil && e.NeedsForeground }

// Declared returns the effects that a tool declares. If it declares no class, its annotations say which one it is. Nil:
// nothing is known. The result is read-only.
func (t *ToolSpec) Declared() *Effects {
	if t.Effects != nil && t.Effects.Class != "" {
		return t.Effects
	}
	var e Effects
	if t.Effects != nil {
		e = *t.Effects
	}
	is := func(hint *bool, value bool) bool { return hint != nil && *hint == value }
	switch a := t.Annotations; {
	case a == nil:
	case is(a.ReadOnlyHint, true):
		e.Class = ClassRead
	case !is(a.ReadOnlyHint, false) && !is(a.DestructiveHint, true):
	case is(a.OpenWorldHint, true):
		e.Class = ClassExternal
	default:
		e.Class = ClassWrite
	}
	if e == (Effects{}) {
		return nil
	}
	return &e
}

// check returns the first invalid member as an error with the reason that the device gets.
func (e *Effects) check() error {
	switch {
	case e == nil:
		return nil
	case !slices.Contains([]EffectClass{"", ClassRead, ClassWrite, ClassExternal, ClassPeople}, e.Class):
		return Errorf(CodeInvalidRequest, "effects.class: must be read, write, external or people")
	case !slices.Contains([]Cost{"", CostFree, CostMetered, CostHigh}, e.Cost):
		return Errorf(CodeInvalidRequest, "effects.cost: must be free, metered or high")
	case e.Permission != "" && !IsName(e.Permission, maxPermission, nameMarks):
		return Errorf(CodeInvalidRequest, "effects.permission: must have 1 to %d letters, digits, _, ., : and -, "+
			"and begin with a letter or a digit", maxPermission)
	case e.TypicalMS < 0 || e.TypicalMS > MaxToolTimeout.Milliseconds():
		return Errorf(CodeInvalidRequest, "effects.typical_ms: must be between 0 and %d", MaxToolTimeout.Milliseconds())
	default:
		return nil
	}
}

// normalizeTags returns the tags in order, each once.
func normalizeTags(tags []string) ([]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	if len(tags) > MaxTags {
		return nil, Errorf(CodeInvalidRequest, "tags: at most %d are allowed", MaxTags)
	}
	for _, tag := range tags {
		if !ValidTag(tag) {
			return nil, Errorf(CodeInvalidRequest, "tags: a tag must match %s", tagPattern)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(tags))), nil
}

// ValidTag reports whether a tool may have this tag.
func ValidTag(tag string) bool { return IsName(tag, maxTag, nameMarks) }
