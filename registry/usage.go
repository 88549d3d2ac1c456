package registry

import (
	"context"
	"time"
)

// Usage is what was used: by calls of tools, and by turns of conversations.
type Usage struct {
	Calls        int64 `json:"calls"`
	Failures     int64 `json:"failures"` // of the calls: those that did not run, and those whose tool failed
	Milliseconds int64 `json:"ms"`       // the calls took together
	BytesIn      int64 `json:"bytes_in"` // arguments
	BytesOut     int64 `json:"bytes_out"`
	InputTokens  int64 `json:"input_tokens"` // read by models
	OutputTokens int64 `json:"output_tokens"`
}

// Plus returns the sum of two.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.Calls + o.Calls, u.Failures + o.Failures, u.Milliseconds + o.Milliseconds, u.BytesIn + o.BytesIn,
		u.BytesOut + o.BytesOut, u.InputTokens + o.InputTokens, u.OutputTokens + o.OutputTokens,
	}
}

// UsageRow is what one user used of one tool on one day.
type UsageRow struct {
	Tenant string
	Day    string // in UTC, as UsageDay returns it
	User   string // empty: identities that name no user; UsageOther: users that there was no room for
	Key    string // of an identity that names no user: the name of its credential; empty: none of its own
	Tool   string // or one of the names below, which no tool can have
	Usage
}

// Names in place of a user's or a tool's.
const (
	UsageOther   = "(other)"   // what there was no room for
	UsageUnknown = "(unknown)" // calls for which no tool was found
	UsageModels  = "(models)"  // tokens of turns
)

// Bounds of names in rows, in bytes. Longer ones are cut.
const maxUsageName = 128

// Trim cuts the names of a row.
func (r *UsageRow) Trim() {
	r.User, r.Tool = TruncateText(r.User, maxUsageName), TruncateText(r.Tool, maxUsageName)
	r.Key = TruncateText(r.Key, maxUsageName)
}

// UsageDay returns the day of a time.
func UsageDay(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// Defaults of how long the usage of a day is kept, and how many rows a tenant has for a day. What comes when there is
// no room for its row is counted in the one whose user and tool are UsageOther.
const (
	DefaultUsageTTL  = 90 * 24 * time.Hour
	DefaultUsageRows = 10_000
)

// UsageStore counts what is used. It is safe for concurrent use, and keeps no slice that it is given.
type UsageStore interface {
	// AddUsage adds to the rows of those tenants and days.
	AddUsage(ctx context.Context, rows []UsageRow) error

	// ReadUsage returns all rows of a tenant and day, in no order: as many as one may have, at most.
	ReadUsage(ctx context.Context, tenant, day string) ([]UsageRow, error)
}
