// Package wire has the types of the HTTP API's requests and answers. The server encodes them, the commands of
// cmd/farhand decode them, and the schemas of the OpenAPI document are generated from them, so that all three agree.
// The package has no logic and imports only registry.
//
// The comment of a type or a field becomes its description in the document, without the name at its start: "Tool is the
// definition of a tool." becomes "The definition of a tool." A field without omitempty or omitzero is required. A
// pointer without them can be null. What a Go type cannot say is in the tag schema of a field, or in a line //schema:
// of a type:
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

	// ModelName is a tool or schema name that model vendors accept.
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

	// IdempotencyKey makes retries safe: the same request with the same key returns the first response, or joins the
	// running call. A different request with the key fails with `idempotency_conflict`. If a call never reached a
	// device, its key can be used again.
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
	// CallState is the state of a call. The first five are temporary, the others final. After `cancelled`, `timed_out`
	// and `lost`, a late answer of the device is still stored in the record.
	CallState = registry.State

	// CallStatus summarizes `state`: nothing runs yet (`accepted`, `routed`), the tool runs (`delivered`, `running`),
	// it succeeded (`succeeded`), or it did not.
	CallStatus = registry.Status

	// Dispatched is whether the call reached the device, so that the tool may have run.
	Dispatched = registry.Dispatched

	// ErrorCode is the machine-readable error. New codes may be added.
	ErrorCode = registry.Code

	// ApprovalState is the state of an approval. `expired`: no decision came in time, so the call was denied.
	// `withdrawn`: the call ended first.
	ApprovalState = registry.ApprovalState
)

// Definitions of tools.
type (
	// Parameters is the JSON Schema (2020-12) of the arguments.
	//
	//schema:type=object
	//schema:open
	Parameters = json.RawMessage

	// OutputSchema is the JSON Schema (2020-12) of the tool's output; absent if unknown. Results are checked against
	// it.
	//
	//schema:type=object
	OutputSchema = json.RawMessage

	// OutputSchemas has the output schemas of tools by their names in this list, because the format has no place for
	// them.
	OutputSchemas = map[string]OutputSchema

	// ChangedNames maps each changed name to the name to call the tool by.
	ChangedNames = map[string]ToolName

	// Annotations are MCP hints. They come from the device and are not verified.
	Annotations = registry.Annotations

	// ToolEffects is what a tool declares about its calls. If it declares no class, its annotations imply one. It comes
	// from the device and is not verified.
	ToolEffects = registry.Effects

	// ToolMeta has the effects and tags of an MCP tool, as `farhand/effects` and `farhand/tags`.
	//
	//schema:type=object
	//schema:open
	ToolMeta = json.RawMessage

	// ToolTags are short names for filters, in order.
	//
	//schema:maxItems=16
	//schema:pattern=^[A-Za-z0-9][A-Za-z0-9_.:-]{0,31}$
	ToolTags = []string
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

	// PartList is the tool's non-text output, without `data`. Parts have `url` if the gateway stored the file.
	//
	//schema:minItems=1
	//schema:maxItems=16
	PartList = []Part

	// OutputViolations are the result's violations of the tool's output schema, at most 20; absent if there are none.
	// The result is passed on unchanged.
	OutputViolations = []registry.Violation
)
