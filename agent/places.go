package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Places runs calls of local tools with state (Registration.State) on the pod that has it. *routing.Places is one.
type Places interface {
	// Run runs a tool at its place, on this pod or another one, with the PlaceKeeper that Serve registered there.
	Run(
		ctx context.Context, e registry.Errand, report func(registry.Report),
	) (registry.Result, error)

	// Serve registers what runs tools on this pod.
	Serve(k registry.PlaceKeeper)
}

// placedCall is what the pod that runs a tool must know of a call, in addition to the tool and its arguments. It has
// what the tool can read from its SessionContext and the context of Execute. Of the caller it has what a call's record
// keeps: neither the name nor the expiry of the credential. The receiving pod has already checked the call.
type placedCall struct {
	Session   string           `json:"session,omitempty"` // of SessionContext.Key
	Stateless bool             `json:"stateless,omitempty"`
	User      string           `json:"user,omitempty"`   // of the caller
	Caller    string           `json:"caller,omitempty"` // the rest of its identity: auth.Identity.Note
	Channel   string           `json:"channel,omitempty"`
	Kind      ContextKind      `json:"kind,omitempty"`
	Fence     int64            `json:"fence,omitempty"`
	Model     bool             `json:"model,omitempty"`
	Endpoint  Endpoint         `json:"endpoint,omitempty"`
	Resources policy.Resources `json:"resources"`
	Programs  policy.Programs  `json:"programs"`
	Source    string           `json:"source,omitempty"`
}

func (i *Invoker) podState(p *prepared) PodState {
	if i.cfg.Places == nil || i.cfg.LocalTools == nil || p.inv.Source != registry.SourceLocal {
		return PodState{}
	}
	return i.cfg.LocalTools.podState(p.inv.Spec.Name)
}

// runAtPlace runs a tool on the pod that has its state.
func (i *Invoker) runAtPlace(
	ctx context.Context, p *prepared, keeps PodState, report func(registry.Report),
) (registry.Result, error) {
	sc := &p.session
	about := placedCall{
		Session: sc.Key.Session, Stateless: sc.Stateless, User: sc.Caller.User, Caller: sc.Caller.Note(),
		Channel: sc.Channel, Kind: policy.Join(sc.Kind, policy.Context(sc.Caller.Context)), Fence: sc.Fence,
		Model: p.inv.Model, Endpoint: p.inv.Endpoint, Source: p.inv.Source,
	}
	if p.inv.Policy != nil {
		about.Resources, about.Programs = p.inv.Policy.Resources, p.inv.Policy.Programs
	}
	text, err := json.Marshal(about)
	if err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	res, err := i.cfg.Places.Run(ctx, registry.Errand{
		Place: registry.Place{Key: sc.placeKey()}, Kind: keeps.Kind, Fence: sc.Fence, CallID: p.inv.CallID,
		Tool: p.inv.Spec.Name, Args: p.inv.Args, Context: text, Timeout: p.remaining,
		By: sc.Caller.Owner().Identity,
	}, report)
	if err != nil {
		return registry.Result{}, localError(ctx, &p.inv, err)
	}
	return res, nil
}

// runErrand runs a tool on this pod for a call that this pod or another one has checked.
func (i *Invoker) runErrand(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	var about placedCall
	if err := json.Unmarshal(e.Context, &about); err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	caller := auth.OfNote(e.Place.Key.Tenant, about.User, about.Caller)
	sc := SessionContext{
		Key: registry.Key{Tenant: caller.Tenant, Session: about.Session}, Stateless: about.Stateless, Caller: caller,
		Channel: about.Channel, Kind: about.Kind, Fence: about.Fence, Place: e.Place,
	}
	tool, err := i.cfg.LocalTools.find(sc, e.Tool)
	if err != nil {
		i.cfg.Log.Warn("factory did not return the announced tool", "tool", e.Tool, "error", err)
	}
	if tool == nil {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The pod with the state of the tool %q does not have the tool.", e.Tool).With(registry.DispatchedNo)
	}
	if why := unavailable(tool); why != "" {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The tool %q is not available on the pod with its state: %s", e.Tool, why,
		).With(registry.DispatchedNo)
	}
	p := &prepared{req: new(Request), local: tool, session: sc, remaining: e.Timeout}
	p.inv = Invocation{
		CallID: e.CallID, Caller: caller, Spec: tool.Spec(), Args: e.Args, Asked: e.Args, Timeout: e.Timeout,
		Model: about.Model, Endpoint: about.Endpoint, Context: about.Kind, Source: about.Source,
		Policy: &policy.Decision{Allowed: true, Resources: about.Resources, Programs: about.Programs},
	}
	if !about.Stateless && about.Session != "" {
		p.inv.Conversation = sc.Key
	}
	if e.Anew {
		p.lost = i.cfg.LocalTools.podState(e.Tool).Lost
	}
	return i.runTimed(ctx, p, report)
}

// ReportLost reports, before the result or the error of a local tool, that state which it kept is lost. ctx is that of
// Execute.
func ReportLost(ctx context.Context, what string) {
	call := toolCallOf(ctx)
	call.mu.Lock()
	defer call.mu.Unlock()
	if !slices.Contains(call.losses, what) {
		call.losses = append(call.losses, what)
	}
}

// withLosses returns an outcome with the losses before the result, or before the error if there is none.
func (c *toolCall) withLosses(res registry.Result, err error) (registry.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.losses) == 0 {
		return res, err
	}
	said := "[" + strings.Join(c.losses, " ") + "]\n"
	if err != nil {
		e := *registry.AsError(err)
		e.Message = said + e.Message
		return res, &e
	}
	res.Output = said + res.Output
	if res.Error != "" {
		res.Error = said + res.Error
	}
	return res, nil
}
