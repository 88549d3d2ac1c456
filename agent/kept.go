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

// Places carries calls of local tools that keep something (Registration.Keeps) to the pod that has it. *routing.Places
// is one.
type Places interface {
	// Run runs a tool where its place is, here or on another pod, by what Serve was given there.
	Run(
		ctx context.Context, e registry.Errand, report func(registry.Report),
	) (registry.Result, error)

	// Serve says what runs tools on this pod.
	Serve(k registry.PlaceKeeper)
}

// keptCall is what the pod that runs a tool must know of a call beside the tool and its arguments: what the tool can
// learn from its SessionContext and the context of Execute. Of the caller that is what the record of a call keeps, so
// neither its name nor when its credential ends. The call was checked where it came in.
type keptCall struct {
	Session   string           `json:"session,omitempty"` // of SessionContext.Key
	Stateless bool             `json:"stateless,omitempty"`
	User      string           `json:"user,omitempty"`   // of the caller
	Caller    string           `json:"caller,omitempty"` // what else is known of it: auth.Identity.Note
	Channel   string           `json:"channel,omitempty"`
	Kind      ContextKind      `json:"kind,omitempty"`
	Model     bool             `json:"model,omitempty"`
	Endpoint  Endpoint         `json:"endpoint,omitempty"`
	Resources policy.Resources `json:"resources"`
	Programs  policy.Programs  `json:"programs"`
	Source    string           `json:"source,omitempty"`
}

// keeps says what the tool of a call keeps, as far as it matters which pod runs it.
func (i *Invoker) keeps(p *prepared) Keeps {
	if i.cfg.Places == nil || i.cfg.LocalTools == nil || p.inv.Source != registry.SourceLocal {
		return Keeps{}
	}
	return i.cfg.LocalTools.keeps(p.inv.Spec.Name)
}

// runKept runs a tool on the pod that has what it keeps.
func (i *Invoker) runKept(
	ctx context.Context, p *prepared, keeps Keeps, report func(registry.Report),
) (registry.Result, error) {
	sc := &p.session
	about := keptCall{
		Session: sc.Key.Session, Stateless: sc.Stateless, User: sc.Caller.User, Caller: sc.Caller.Note(),
		Channel: sc.Channel, Kind: policy.Join(sc.Kind, policy.Context(sc.Caller.Context)), Model: p.inv.Model,
		Endpoint: p.inv.Endpoint, Source: p.inv.Source,
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

// runErrand runs a tool of this pod for a call that was checked on this pod or another one.
func (i *Invoker) runErrand(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	var about keptCall
	if err := json.Unmarshal(e.Context, &about); err != nil {
		return registry.Result{}, registry.Internal(err).With(registry.DispatchedNo)
	}
	caller := auth.OfNote(e.Place.Key.Tenant, about.User, about.Caller)
	sc := SessionContext{
		Key: registry.Key{Tenant: caller.Tenant, Session: about.Session}, Stateless: about.Stateless, Caller: caller,
		Channel: about.Channel, Kind: about.Kind, Place: e.Place,
	}
	tool, err := i.cfg.LocalTools.find(sc, e.Tool)
	if err != nil {
		i.cfg.Log.Warn("built-in tool not made as announced", "tool", e.Tool, "error", err)
	}
	if tool == nil {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The pod that keeps what the tool %q works on does not have the tool.", e.Tool).With(registry.DispatchedNo)
	}
	if why := unavailable(tool); why != "" {
		return registry.Result{}, registry.Errorf(registry.CodeToolNotFound,
			"The tool %q is not available on the pod that keeps what it works on: %s", e.Tool, why,
		).With(registry.DispatchedNo)
	}
	p := &prepared{local: tool, session: sc, remaining: e.Timeout}
	p.inv = Invocation{
		CallID: e.CallID, Caller: caller, Spec: tool.Spec(), Args: e.Args, Asked: e.Args, Timeout: e.Timeout,
		Model: about.Model, Endpoint: about.Endpoint, Context: about.Kind, Source: about.Source,
		Policy: &policy.Decision{Allowed: true, Resources: about.Resources, Programs: about.Programs},
	}
	if !about.Stateless && about.Session != "" {
		p.inv.Conversation = sc.Key
	}
	if e.Anew {
		p.lost = i.cfg.LocalTools.keeps(e.Tool).Lost
	}
	return i.runTimed(ctx, p, report)
}

// TellLost says that something is lost that a local tool kept before. Its caller reads it before the result, or before
// the error if there is none. ctx is that of Execute.
func TellLost(ctx context.Context, what string) {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	if call == nil {
		return
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if !slices.Contains(call.losses, what) {
		call.losses = append(call.losses, what)
	}
}

// withLosses returns a result that says first what is lost.
func (c *toolCall) withLosses(res registry.Result) registry.Result {
	said := c.toldLosses()
	if said == "" {
		return res
	}
	res.Output = said + res.Output
	if res.Error != "" {
		res.Error = said + res.Error
	}
	return res
}

// errorWithLosses is withLosses for a call without a result: no later call knows of them.
func (c *toolCall) errorWithLosses(err error) error {
	said := c.toldLosses()
	if said == "" {
		return err
	}
	e := *registry.AsError(err)
	e.Message = said + e.Message
	return &e
}

// toldLosses returns what is lost as its caller reads it, empty if nothing is.
func (c *toolCall) toldLosses() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.losses) == 0 {
		return ""
	}
	return "[" + strings.Join(c.losses, " ") + "]\n"
}
