package registry

import "encoding/json"

// Modes of a group call: one parent call with a child call for each device.
const (
	GroupAll    = "all"    // every device
	GroupFirst  = "first"  // until one succeeded; the others are cancelled
	GroupQuorum = "quorum" // until a number of them succeeded; the others are cancelled
	GroupRace   = "race"   // one device after the other, until one succeeded
)

// GroupModes returns all modes.
func GroupModes() []string { return []string{GroupAll, GroupFirst, GroupQuorum, GroupRace} }

// GroupNote is what the record of a parent call says about its children.
type GroupNote struct {
	Mode   string       `json:"mode"`
	Counts *GroupCounts `json:"counts,omitempty"` // nil: the call runs, or was cancelled
}

// GroupCounts say what became of the devices of a group call. Each device that was called is in one of the four counts
// after Devices.
type GroupCounts struct {
	Devices   int `json:"devices"` // that were called
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`    // the tool failed, or the call has no result
	Cancelled int `json:"cancelled"` // the outcome no longer mattered
	Queued    int `json:"queued"`    // the call waits for its device

	// Skipped devices matched the target and were not called, as far as known when the call ended: it was decided or
	// out of time before, or they connected only after it had begun.
	Skipped int `json:"skipped"`
}

// With returns the note with the counts in the result of the parent call. It returns nil for a call without children.
func (g *GroupNote) With(res *Result) *GroupNote {
	if g == nil || g.Counts != nil || res == nil || res.Structured.IsZero() {
		return g
	}
	var said struct {
		Counts *GroupCounts `json:"counts"`
	}
	if json.Unmarshal(res.Structured.Raw(), &said) != nil {
		return g
	}
	return &GroupNote{g.Mode, said.Counts}
}
