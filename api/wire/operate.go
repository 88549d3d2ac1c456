package wire

import "github.com/farhand/farhand/registry"

// PodList has the live pods.
type PodList struct {
	Pods []PodRow `json:"pods"`
}

// PodRow is a live pod.
type PodRow struct {
	Pod    string     `json:"pod"`
	Self   bool       `json:"self"`             // the pod that answers this request
	Status *PodStatus `json:"status,omitempty"` // Absent: the pod did not answer within a second
}

// PodStatus is how a pod is. Counters count from its start; a difference of two answers is what happened in between.
type PodStatus struct {
	Version   string `json:"version"`
	StartedAt Time   `json:"started_at"`
	At        Time   `json:"at"` // of the counters, by the pod's clock
	Draining  bool   `json:"draining"`

	// Warnings for the operator, as of `/readyz`.
	Warnings []string `json:"warnings,omitempty"`

	Sessions    int64            `json:"sessions"`    // whose sockets are on the pod
	InProgress  int64            `json:"in_progress"` // calls that wait for their answers
	Turns       int64            `json:"turns"`       // of conversations, running
	Streams     int64            `json:"streams"`     // open event streams
	Memory      int64            `json:"memory_bytes"`
	Calls       int64            `json:"calls"`
	CallsFailed int64            `json:"calls_failed"`
	Durations   []Bucket         `json:"durations"` // of calls that a tool answered
	Refused     map[string]int64 `json:"refused"`   // rejected requests, by error code
	Redis       *RedisStatus     `json:"redis,omitempty"`
}

// RedisStatus is a pod's connection to Redis. Absent: the pod's store is its memory.
type RedisStatus struct {
	Ready       bool     `json:"ready"` // it answers, and messages of other pods arrive
	Connections int64    `json:"connections"`
	Failed      int64    `json:"failed"`    // round trips
	Durations   []Bucket `json:"durations"` // of round trips
}

// Bucket counts durations up to a bound, and above the bound of the bucket before.
//
//schema:inline
type Bucket struct {
	MaxMS float64 `json:"max_ms,omitempty"` // Absent: no bound
	Count int64   `json:"count"`
}

// Diagnosis is what a pod found when it checked what it uses.
type Diagnosis struct {
	Pod      string    `json:"pod"`
	Findings []Finding `json:"findings"`
}

// Finding is the result of the check of one part.
type Finding struct {
	Part   string `json:"part"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"` // the configuration enables something that needs it
	Text   string `json:"text"`   // what is available, or what is missing and how to get it
}

// Policy is the policy in force.
type Policy struct {
	Digest string `json:"digest"`         // equal on pods with equal rules
	File   string `json:"file,omitempty"` // the text of the policy file. Absent: there is none

	// Why the current file is not in force. File is then the previous one.
	Refused string `json:"refused,omitempty"`

	Lists    PolicyLists  `json:"lists"`
	Defaults []PolicyRule `json:"defaults"`
}

// PolicyLists are patterns of tool names, from the settings. They apply in addition to the rules.
//
//schema:inline
type PolicyLists struct {
	RegisterAllow []string `json:"register_allow,omitempty"`
	RegisterDeny  []string `json:"register_deny,omitempty"`
	CallAllow     []string `json:"call_allow,omitempty"`
	CallDeny      []string `json:"call_deny,omitempty"`
}

// PolicyRule is a default rule.
type PolicyRule struct {
	ID    string `json:"id"`
	About string `json:"about,omitempty"`
	Text  string `json:"text"` // in YAML

	// `replaced`: by a rule of the file. `off`: by FARHAND_AGENT_UNCONFIRMED.
	State string `json:"state" schema:"enum=in_force|replaced|off"`
}

// PolicyQuestion asks whether a caller may call a tool.
//
//schema:closed
type PolicyQuestion struct {
	Tool   ToolName `json:"tool"`
	UserID string   `json:"user_id,omitempty" schema:"maxLength=256"` // Absent: a credential without a user

	Roles []string `json:"roles,omitempty" schema:"enum=device|caller|approver|admin"` // Default: caller

	// Globs of tools that the credential allows, separated by spaces. Absent: all.
	Tools string `json:"tools,omitempty"`

	Context string                 `json:"context,omitempty" schema:"enum=main|group|group sandboxed"` // Default: main
	Level   registry.SecurityLevel `json:"security_level,omitempty"`                                   // of the tool

	// Effects that the tool declares.
	Effects []string `json:"effects,omitempty" schema:"enum=read_only|destructive|open_world"`

	// Where the tool comes from. Default: `builtin` for names of the gateway's own tools, else `remote`, a device.
	Source string `json:"source,omitempty" schema:"enum=remote|builtin|mcp"`

	Model    bool `json:"model,omitempty"`    // a model calls
	OverMCP  bool `json:"over_mcp,omitempty"` // the call arrives over MCP
	Register bool `json:"register,omitempty"` // whether a device may register the name instead
}

// PolicyDecision is the policy's decision about a question.
type PolicyDecision struct {
	Tool          string                 `json:"tool"`
	Context       string                 `json:"context"`
	Allowed       bool                   `json:"allowed"`
	Rule          string                 `json:"rule,omitempty"`   // that decided
	Reason        string                 `json:"reason,omitempty"` // why not
	SecurityLevel registry.SecurityLevel `json:"security_level"`
	Effects       []string               `json:"effects"`
	Approvals     []PolicyDemand         `json:"approvals"` // the call needs approval for each of these reasons
	Forbidden     []PolicyDemand         `json:"forbidden"` // the call is refused under these conditions
	Destinations  []string               `json:"destinations,omitempty"`
	Limits        []RateLimit            `json:"limits"`
}

// PolicyDemand is a rule's reason to ask a person, or to refuse.
type PolicyDemand struct {
	Rule          string             `json:"rule"`
	When          string             `json:"when"`
	OnlyURLs      bool               `json:"only_urls,omitempty"` // only URLs in the arguments count
	GrantSeconds  int64              `json:"grant_seconds,omitempty"`
	By            registry.ApproveBy `json:"by,omitempty"`
	WithinSeconds int64              `json:"within_seconds,omitempty"`
}
