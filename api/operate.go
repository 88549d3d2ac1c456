package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Operator is the gateway as its operator sees it. Its methods may be called concurrently.
type Operator interface {
	// Pods returns the live pods with their summaries, which are JSON of wire.PodStatus.
	Pods(ctx context.Context) ([]registry.PodSummary, error)

	// PolicyFile returns why the current policy file is not in force, nil if it is, or if there is none.
	PolicyFile() error

	// Diagnose checks what the pod uses. It may take a minute.
	Diagnose(ctx context.Context) []wire.Finding

	// Backup returns a consistent copy of the state file, which the caller closes, and its size in bytes. It fails with
	// registry.CodeNotFound if there is no file. It waits for the disk only.
	Backup() (file io.ReadCloser, size int64, err error)
}

// Limits of a diagnosis.
const (
	diagnosisTime = 90 * time.Second
	maxFinding    = 2000 // bytes of a finding's text
)

var errNoOperator = registry.Errorf(registry.CodeNotFound, "This gateway does not show how it is operated.")

// operatorOnly fails for admins of tenants of their own: the settings of the machine, and the policy's file, which
// names users of all tenants, are the operator's.
func operatorOnly(who auth.Identity) error {
	if who.Tenant == registry.DefaultTenant {
		return nil
	}
	return registry.Errorf(registry.CodeForbidden,
		"This shows the settings of the whole gateway. It requires the role admin in the tenant %q.",
		registry.DefaultTenant)
}

// listPods returns the live pods. Pods are asked when a client asks, so they do no work while no console is open.
func (h *handler) listPods(c *gin.Context, _ *params) error {
	if h.Operator == nil {
		return errNoOperator
	}
	pods, err := h.Operator.Pods(storeContext(c))
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.PodList{Pods: each(pods, func(p registry.PodSummary) wire.PodRow {
		row := wire.PodRow{Pod: p.Pod, Self: p.Pod == h.Pod}
		var status wire.PodStatus
		if len(p.Summary) > 0 && json.Unmarshal(p.Summary, &status) == nil {
			row.Status = &status
		}
		return row
	})})
}

// diagnose checks what this pod uses: one check at a time, because it starts a browser and programs.
func (h *handler) diagnose(c *gin.Context, _ *params) error {
	if h.Operator == nil {
		return errNoOperator
	}
	if err := operatorOnly(caller(c)); err != nil {
		return err
	}
	if !h.diagnosing.TryLock() {
		return &registry.Error{
			Code: registry.CodeBusy, Message: "This pod is being checked already.", RetryAfter: 5 * time.Second,
		}
	}
	defer h.diagnosing.Unlock()
	ctx, cancel := context.WithTimeout(c.Request.Context(), diagnosisTime)
	defer cancel()
	ctx, stop := h.untilDraining(ctx)
	defer stop()
	finishWritingBy(c, time.Now().Add(diagnosisTime+writeTimeout))
	found := h.Operator.Diagnose(ctx)
	for i := range found {
		found[i].Text = registry.TruncateText(textsafe.Clean(found[i].Text), maxFinding)
	}
	return h.writeUncached(c, http.StatusOK, wire.Diagnosis{Pod: h.Pod, Findings: found})
}

// backUp sends a copy of the state file, which has the data of all tenants: one at a time, because each needs as much
// room on the disk.
func (h *handler) backUp(c *gin.Context, _ *params) error {
	if h.Operator == nil {
		return errNoOperator
	}
	if err := operatorOnly(caller(c)); err != nil {
		return err
	}
	if !h.backingUp.TryLock() {
		return &registry.Error{
			Code: registry.CodeBusy, Message: "This pod is being backed up already.", RetryAfter: 5 * time.Second,
		}
	}
	defer h.backingUp.Unlock()
	file, size, err := h.Operator.Backup()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	h.record(c, registry.AuditBackup, nil) // before the first byte leaves, which may be long before the last
	ctx, cancel := limitTransfer(c, size)
	defer cancel()
	ctx, stop := h.untilDraining(ctx)
	defer stop()
	setFileHeaders(c.Writer.Header(), registry.Blob{Name: "farhand.db", Size: size})
	c.Status(http.StatusOK)
	sendPaced(c, readerUntil{ctx, file})
	return nil
}

// readerUntil ends with its context.
type readerUntil struct {
	ctx  context.Context
	from io.Reader
}

func (r readerUntil) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

func (h *handler) getPolicy(c *gin.Context, _ *params) error {
	if err := operatorOnly(caller(c)); err != nil {
		return err
	}
	now := h.Policy.Current()
	shown := wire.Policy{
		Digest: now.Digest, File: string(bytes.ToValidUTF8(now.File, []byte("\uFFFD"))),
		Lists: wire.PolicyLists{
			RegisterAllow: now.Lists.RegisterAllow, RegisterDeny: now.Lists.RegisterDeny,
			CallAllow: now.Lists.CallAllow, CallDeny: now.Lists.CallDeny,
		},
		Defaults: each(now.Defaults, func(d policy.DefaultRule) wire.PolicyRule {
			return wire.PolicyRule{ID: d.ID, About: d.About, Text: d.Text, State: string(d.State)}
		}),
	}
	if h.Operator != nil {
		if err := h.Operator.PolicyFile(); err != nil {
			shown.Refused = textsafe.Clean(err.Error())
		}
	}
	return h.respond(c, shown)
}

// explainPolicy decides about a question for callers of the asker's tenant.
func (h *handler) explainPolicy(c *gin.Context, _ *params) error {
	said, err := readAs(h, c, func(body []byte) (wire.PolicyQuestion, error) {
		r, err := readStrict[wire.PolicyQuestion](body, questionFields)
		return r.said, err
	})
	if err != nil {
		return err
	}
	q, err := h.policyQuestion(caller(c).Tenant, said)
	if err != nil {
		return err
	}
	d := h.Policy.Decide(q)
	if said.Register {
		d = h.Policy.MayRegister(q.Who, q.Tool.Name)
	}
	return h.writeUncached(c, http.StatusOK, policyDecisionOf(d.Report(q)))
}

var questionFields = map[string]string{
	"roles": "a list of roles", "effects": "a list of effects", "model": "true or false", "over_mcp": "true or false",
	"register": "true or false",
}

func (h *handler) policyQuestion(tenant string, said wire.PolicyQuestion) (policy.Question, error) {
	q := policy.Question{
		Who:     auth.Identity{Tenant: tenant, User: said.UserID, Tools: said.Tools},
		Context: policy.Context(said.Context), Model: said.Model, OverMCP: said.OverMCP,
		Tool: registry.ToolSpec{Name: said.Tool, SecurityLevel: said.Level},
	}
	if len(said.Roles) == 0 {
		said.Roles = []string{auth.NameCaller}
	}
	if err := q.Who.SetRoles(said.Roles...); err != nil {
		return q, err
	}
	if said.Context != "" && !slices.Contains(policy.Contexts(), q.Context) {
		return q, wrongType("context", `"main", "group" or "group sandboxed"`)
	}
	if _, err := q.Tool.Normalize(); err != nil {
		return q, err
	}
	var err error
	if q.Tool.Annotations, err = policy.Declare(said.Effects); err != nil {
		return q, registry.Errorf(registry.CodeInvalidRequest, "The field \"effects\" %v.", err)
	}
	switch said.Source {
	case "":
		q.Source, _ = h.own().sourceOf(said.Tool)
	case "remote":
	case sourceBuiltin:
		q.Source = policy.Builtin
	case sourceMCP:
		q.Source = policy.MCP
	default:
		return q, wrongType("source", `"remote", "builtin" or "mcp"`)
	}
	return q, nil
}

// sourceOf returns the source of a tool of the gateway, and whether there is one.
func (b *builtins) sourceOf(name string) (policy.Source, bool) {
	for _, t := range b.tools {
		if t.Name == name {
			return t.from, true
		}
	}
	return policy.Remote, false
}

func policyDecisionOf(r policy.Report) wire.PolicyDecision {
	demand := func(d policy.DemandReport) wire.PolicyDemand {
		return wire.PolicyDemand{
			Rule: d.Rule, When: d.When, OnlyURLs: d.OnlyURLs, GrantSeconds: d.GrantSeconds, By: d.By,
			WithinSeconds: d.WithinSeconds,
		}
	}
	return wire.PolicyDecision{
		Tool: r.Tool, Context: string(r.Context), Allowed: r.Allowed, Rule: r.Rule, Reason: r.Reason,
		SecurityLevel: r.SecurityLevel, Effects: r.Effects, Approvals: each(r.Approvals, demand),
		Forbidden: each(r.Forbidden, demand), Destinations: r.Destinations, Limits: each(r.Limits, rateLimitOf),
	}
}
