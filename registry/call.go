package registry

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
)

// Call is one invocation of one tool of one session.
type Call struct {
	ID      string
	Route   Route
	Args    JSON          // an object; none if Long has them
	Timeout time.Duration // how long the caller waits, counted from Router.Call

	// Long has the arguments if they are not to be kept once the device has the call. Nil: Args has them.
	Long *LongArgs

	// Durable says that the call has a record in the store: it is claimed there before the device sees it, and its
	// answer is stored before anybody gets it.
	Durable bool

	// Attempt is how often the call was made before under this id, and refused because its route was stale.
	Attempt int64

	// Record, if it is set, is updated while the call runs. It belongs to the goroutine that calls.
	Record *Record
}

// Arguments returns the arguments, wherever the call has them. They are gone once the device has a call with Long.
func (c *Call) Arguments() JSON {
	if c.Long != nil {
		return c.Long.Args
	}
	return c.Args
}

// LongArgs are the arguments of a call that is long enough for its memory to matter: a device may take minutes to
// answer. They belong to the goroutine that calls.
type LongArgs struct {
	Args JSON
	Sent func() // called once, when the device has the call; must not be nil
}

// Drop gives the arguments up, because the device has the call: it will not be sent again. Further calls do nothing,
// and so does Drop of nil.
func (a *LongArgs) Drop() {
	if a == nil || a.Args.IsZero() {
		return
	}
	a.Args = JSON{}
	a.Sent()
}

// NewCallID returns a random id, a UUID of version 4, never reused and not guessable.
func NewCallID() string { return uuid.NewString() }

// Route is where a call goes: the session that was chosen, as it was known then, and the tool as it was specified.
type Route struct {
	Session Session
	Spec    ToolSpec
	Target  Target // what the caller asked for; a session that does not match it never gets the call

	// Remembered says that the session was not read for this call, but for an earlier one. A refusal based on it may be
	// wrong by now; Router.ResolveAgain reads the session again.
	Remembered bool

	// Attributes is the digest of the session's attributes, on which hooks decide. Zero: they do not matter.
	Attributes uint64
}

// Result is what a device answered. A tool that ran and failed has Success false and a nil error: the gateway did
// its job.
type Result struct {
	Success    bool        `json:"success"`
	Output     string      `json:"output"`
	Structured JSON        `json:"structured,omitzero"` // set when the device sent JSON other than a string
	Error      string      `json:"error,omitempty"`
	Parts      []Part      `json:"parts,omitempty"`      // what is no text: images, audio, files
	Violations []Violation `json:"violations,omitempty"` // of the tool's output schema by the answer
	Withheld   *Error      `json:"withheld,omitempty"`   // why the device's answer is withheld from readers; nil if not
	Notice     string      `json:"-"`                    // a hook's text for a model that reads the result
}

// NewResult builds a result from the output a device sent: a string is taken as text, any other value
// is kept as it is and its text becomes the output.
func NewResult(success bool, output JSON, message string) Result {
	r := Result{Success: success, Error: message}
	switch {
	case output.IsZero() || output.String() == "null":
	case output.IsString():
		r.Output = strictjson.Text(output.Raw())
	default:
		r.Output, r.Structured = output.String(), output
	}
	if !success && r.Output == "" {
		r.Output = message // so that a model reads why
	}
	return r
}

// Remark returns what a model is told of the answer beside it: that it does not satisfy the output schema of its tool,
// and why; empty if there is nothing to tell. The device has a say in the text.
func (r *Result) Remark() string {
	if len(r.Violations) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("[The answer does not satisfy the output schema of its tool:")
	for _, v := range r.Violations {
		b.WriteString("\n" + v.Pointer + ": " + v.Message)
	}
	b.WriteString("]")
	return b.String()
}

// State returns the final state this result puts its call in.
func (r Result) State() State {
	if r.Success {
		return StateSucceeded
	}
	return StateFailed
}

// Amend returns the result as it may be read. rec is the record of the call without the result.
type Amend func(ctx context.Context, rec Record, res Result) Result
