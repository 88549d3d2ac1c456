// Package wire has the types of the HTTP API's requests and answers. The server encodes them, the commands of
// cmd/farhand decode them, and the schemas of the OpenAPI document are generated from them, so that all three agree.
// The package has no logic and imports only registry.
//
// The comment of a type or a field becomes its description in the document, without the name at its beginning: "Tool is
// the definition of a tool." becomes "The definition of a tool." A field without omitempty or omitzero is required. A pointer without them can be
// null. What a Go type cannot say is in the tag schema of a field, or in a line //schema: of a type:
//
//	key=value  the keyword of JSON Schema; separated by commas in a tag. The values of enum are separated by |
//	closed     no other members are allowed, as in all requests
//	open       other members are allowed
//	inline     the type has no name in the document: it is described where it is used
//
// An alias becomes a schema with its own name. A type of package registry without an alias here is written out where it
// is used. additions.json has the rest, as a patch: examples, and what other vendors define (OpenAI's request, MCP's
// messages), which the packages openai and mcp read by hand.
//
// `make docs` writes api/openapi/schemas.json (cmd/farhand/schemas_test.go).
package wire

import (
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// Texts.
type (
	// SessionID names a session.
	//
	//schema:pattern=^[A-Za-z0-9][A-Za-z0-9._:@~+=-]{0,127}$
	SessionID = string

	// ToolName has letters and decimal digits of any script, and `_`; after the first character marks, `.` and `-`
	// also.
	//
	//schema:minLength=1
	//schema:maxLength=64
	ToolName = string

	// ModelName is a name that models and their vendors take for tools and schemas.
	//
	//schema:pattern=^[a-zA-Z0-9_-]{1,64}$
	ModelName = string

	// ApprovalID names an approval or a grant.
	//
	//schema:pattern=^[a-z2-7]{16}$
	ApprovalID = string

	// EventID names an event of a stream, for the header Last-Event-ID.
	//
	//schema:pattern=^\d{1,18}-\d{1,18}$
	EventID = string

	// IdempotencyKey: makes repeating the request harmless: the same request with the same key gets the answer of the
	// first one, or joins it while it runs. Another request with it is the error `idempotency_conflict`. If a call
	// certainly reached no device, its key can be used again.
	//
	//schema:pattern=^[\x21-\x7e]{1,255}$
	IdempotencyKey = string

	// NextCursor is absent on the last page.
	NextCursor = string

	// Time is in UTC, with milliseconds: `2026-01-31T12:00:00.000Z`.
	//
	//schema:format=date-time
	Time = string
)

// The state of a device's connection.
type (
	// RoundTrip is from the last ping to its pong, in milliseconds, rounded up. Absent: not known yet.
	//
	//schema:minimum=1
	RoundTrip = int64

	// LastPong is when the device last answered a ping of its pod, by the clock of that pod. The pod notes it when it
	// refreshes the session, three times per `FARHAND_SESSION_TTL`. Absent: not known yet.
	//
	//schema:format=date-time
	LastPong = string
)

// Labels are attributes of a device, by which it can be found.
type Labels = map[string]string

// States of calls and approvals.
type (
	// CallState: the first four pass; the others are final. After `cancelled`, `timed_out` and `lost` the device's
	// answer may still come, and then the record has it.
	CallState = registry.State

	// CallStatus is what `state` comes down to: nothing runs yet (`accepted`, `routed`), it runs (`delivered`,
	// `running`), it did what it is for (`succeeded`), or it did not.
	CallStatus = registry.Status

	// Dispatched is whether the call reached the device, which can then have run the tool.
	Dispatched = registry.Dispatched

	// ErrorCode is what went wrong, for machines. New codes may be added.
	ErrorCode = registry.Code

	// ApprovalState: `expired`: no answer came in time, which is a denial. `withdrawn`: the call ended first.
	ApprovalState = registry.ApprovalState
)

// Definitions of tools.
type (
	// Parameters: JSON Schema (2020-12) of the arguments.
	//
	//schema:type=object
	//schema:open
	Parameters = json.RawMessage

	// OutputSchema: JSON Schema (2020-12) of what the tool returns; absent if none is known. Answers are checked
	// against it.
	//
	//schema:type=object
	OutputSchema = json.RawMessage

	// OutputSchemas: by the name of the tool in this list, the schema of what it returns, for those that have one.
	// The format has no place for it.
	OutputSchemas = map[string]OutputSchema

	// ChangedNames: for each name that had to be changed, the name to call the tool by.
	ChangedNames = map[string]ToolName

	// Annotations are hints in the sense of MCP. The device gave them: they inform, they guarantee nothing.
	Annotations = registry.Annotations
)

// Parts of results.
type (
	// Part is an image, a sound or a file that a tool returned.
	Part = registry.Part

	// Parts are images, sounds and files that the tool returned. They are never in `output`.
	//
	//schema:minItems=1
	//schema:maxItems=16
	Parts = []Part

	// PartList is what the tool returned beside its text, without `data`. With `url` where the gateway keeps files and
	// has room.
	//
	//schema:minItems=1
	//schema:maxItems=16
	PartList = []Part

	// OutputViolations are the rules of the tool's output schema that the answer breaks, at most 20; absent if it
	// breaks none. The answer is passed on as it is.
	OutputViolations = []registry.Violation
)
