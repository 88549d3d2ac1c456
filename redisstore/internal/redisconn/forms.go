package redisconn

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// Form is a kind of stored value or message whose form has a version. It is in the field v of a hash or of an entry of
// a stream, and before any other text, as "v2 ". Version 1 is not written: a value without a version has it. Documents
// and messages between pods always have theirs. Sorted sets, counters and texts under a hash of their content have
// none: for another form of them, a release uses another key.
type Form string

// The forms.
const (
	FormSession      Form = "session" // also what is left of one that was released
	FormToolSet      Form = "tool_set"
	FormTool         Form = "tool"
	FormCall         Form = "call"
	FormCallEvent    Form = "call_event"
	FormConversation Form = "conversation"
	FormContinuation Form = "continuation"
	FormPlace        Form = "place"
	FormAudit        Form = "audit"
	FormUsage        Form = "usage"
	FormActivity     Form = "activity"
	FormChange       Form = "change"
	FormDocument     Form = "document"
	FormMessage      Form = "message" // between pods
)

// FormNames returns the names of all forms.
func FormNames() []string {
	return []string{
		string(FormSession), string(FormToolSet), string(FormTool), string(FormCall), string(FormCallEvent),
		string(FormConversation), string(FormContinuation), string(FormPlace), string(FormAudit), string(FormUsage),
		string(FormActivity), string(FormChange), string(FormDocument), string(FormMessage),
	}
}

// FormField is the field of a hash or an entry that has the version.
const FormField = "v"

// formKnown is the only version that this release reads, of everything except messages.
const formKnown = "1"

// formQuiet is how long values of a form are only counted after one of them was logged.
const formQuiet = time.Minute

// Forms refuses values of versions that this release does not read: it counts them, and logs each form at most once in
// a minute. It is safe for concurrent use.
type Forms struct {
	log *slog.Logger

	mu      sync.Mutex
	refused map[Form]*refusals // at most one for each form above
}

type refusals struct {
	n      int64
	logged time.Time
}

// NewForms returns Forms that have refused nothing.
func NewForms(log *slog.Logger) *Forms { return &Forms{log: log, refused: make(map[Form]*refusals)} }

// Check refuses a version other than 1. An empty one is 1.
func (f *Forms) Check(form Form, version string) error {
	if version == "" || version == formKnown {
		return nil
	}
	return f.Refuse(form, version)
}

// CheckText refuses a text that begins with a version other than 1.
func (f *Forms) CheckText(form Form, text string) error {
	if text == "" || text[0] != 'v' {
		return nil
	}
	version, _, found := strings.Cut(text[1:], " ")
	if !found || strings.Trim(version, "0123456789") != "" {
		return nil
	}
	return f.Check(form, version)
}

// Refuse counts and logs a value, and returns the error for its reader.
func (f *Forms) Refuse(form Form, version string) *registry.Error {
	e := registry.Newer(string(form), version)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.refused[form]
	if r == nil {
		r = new(refusals)
		f.refused[form] = r
	}
	r.n++
	if now := time.Now(); now.Sub(r.logged) >= formQuiet {
		r.logged = now
		f.log.Error("a newer release wrote this, and this pod cannot read it; it stays as it is: finish the update of "+
			"the pods, or run the newer release again", "kind", form, "version", version, "refused", r.n)
	}
	return e
}

// Counts returns how many values were refused, by form.
func (f *Forms) Counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make(map[string]int64, len(f.refused))
	for form, r := range f.refused {
		counts[string(form)] = r.n
	}
	return counts
}

// formPrefix is how lua/form_base.lua begins its error, before the form and the version.
const formPrefix = "FORM"

// refusedForm reads the error of a script that found a version other than 1.
func refusedForm(err error) (form Form, version string, ok bool) {
	if !redis.HasErrorPrefix(err, formPrefix) {
		return "", "", false
	}
	var refused redis.Error
	if !errors.As(err, &refused) {
		return "", "", false
	}
	words := strings.Fields(refused.Error())
	if len(words) < 3 {
		return "", "", false
	}
	return Form(words[1]), words[2], true
}
