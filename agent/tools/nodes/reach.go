package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

const (
	maxDevices = 50 // devices that are read and shown
	maxPages   = 10 // pages that are read; pages may be shorter than their limit
	maxListed  = 20 // devices that an error names
	maxNames   = 40 // commands per device that an error names
)

// reach gives access to the devices that the caller of a turn or call may use.
type reach struct {
	cfg *Config
	sc  agent.SessionContext
}

// scope returns the query for the reachable devices, or false if there are none.
func (r reach) scope(ctx context.Context) (registry.Query, bool) {
	return r.sc.Devices(agent.AskedByModel(ctx))
}

// list reads at most limit devices that match a query.
func (r reach) list(ctx context.Context, q registry.Query, limit int) (found []registry.Entry, more bool, err error) {
	for range maxPages {
		q.Limit = limit - len(found)
		page, next, err := r.cfg.Directory.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page...)
		if next == nil {
			return found, false, nil
		}
		if len(found) >= limit {
			break
		}
		q.After = *next
	}
	return found, true, nil
}

// choose returns the target device. An id is a device_id or a session id. Without an id, the target is the only device
// that has the command. If the target is not unique, choose returns an error.
func (r reach) choose(ctx context.Context, id, command string) (registry.Entry, error) {
	q, reaches := r.scope(ctx)
	if !reaches {
		return registry.Entry{}, r.unreachable(ctx, id)
	}
	if id != "" {
		return r.byID(ctx, q, id, command)
	}
	q.Tool = command
	found, more, err := r.list(ctx, q, maxListed)
	switch {
	case err != nil:
		return registry.Entry{}, err
	case len(found) == 1 && !more:
		return found[0], nil
	case len(found) > 0:
		return registry.Entry{}, several("", command, found)
	}
	q.Tool = ""
	all, _, err := r.list(ctx, q, maxListed)
	switch {
	case err != nil:
		return registry.Entry{}, err
	case len(all) == 0:
		return registry.Entry{}, r.unreachable(ctx, "")
	}
	return registry.Entry{}, registry.Errorf(registry.CodeToolNotFound,
		"No connected device has the command %s. %s", command, r.commandsText(ctx, all),
	).With(registry.DispatchedNo)
}

// byID returns the device with an id, if it has the command.
func (r reach) byID(ctx context.Context, q registry.Query, id, command string) (registry.Entry, error) {
	byDevice, bySession := q, q
	byDevice.DeviceID = id
	found, _, err := r.list(ctx, byDevice, maxListed)
	if err != nil {
		return registry.Entry{}, err
	}
	if bySession.SessionID == "" || bySession.SessionID == id {
		bySession.SessionID = id
		named, _, err := r.list(ctx, bySession, 1)
		if err != nil {
			return registry.Entry{}, err
		}
		for _, e := range named {
			if !slices.ContainsFunc(found, func(f registry.Entry) bool { return f.Session.Key == e.Session.Key }) {
				found = append(found, e)
			}
		}
	}
	switch {
	case len(found) == 0:
		return registry.Entry{}, r.unreachable(ctx, id)
	case len(found) > 1:
		return registry.Entry{}, several(id, command, found)
	case command != "" && !hasCommand(found[0], command):
		return registry.Entry{}, registry.Errorf(registry.CodeToolNotFound,
			"The device does not have the command %s. %s", command, r.commandsText(ctx, found),
		).With(registry.DispatchedNo)
	}
	return found[0], nil
}

func hasCommand(e registry.Entry, command string) bool {
	return slices.ContainsFunc(e.Tools, func(t registry.ToolSpec) bool { return t.Name == command })
}

// unreachable returns the error for a device that is not reachable. It distinguishes paired devices that are not
// connected from unknown ones.
func (r reach) unreachable(ctx context.Context, id string) error {
	if id == "" {
		e := registry.Errorf(registry.CodeSessionNotFound, "No device that you can use is connected.")
		return e.With(registry.DispatchedNo)
	}
	if q, reaches := r.scope(ctx); reaches && q.SessionID == "" && r.cfg.Pairing != nil {
		d, err := r.cfg.Pairing.Device(ctx, r.viewer(q.Viewer), id)
		if err == nil {
			return registry.Errorf(registry.CodeNotConnected, "The device %q is paired but not connected.",
				d.DeviceID).With(registry.DispatchedNo)
		}
		if !errors.Is(err, registry.CodeNotFound) {
			return err
		}
	}
	return registry.Errorf(registry.CodeSessionNotFound,
		"No device %.80q that you can use is connected. List connected devices with the action status of nodes.", id,
	).With(registry.DispatchedNo)
}

// viewer returns the identity that reads paired devices: the caller, restricted to user if that is set.
func (r reach) viewer(user string) pairing.Approver {
	who := r.sc.Caller
	if user != "" {
		who.User, who.Admin = user, false
	}
	return pairing.Approver{Identity: who, Source: "tool/" + who.Tenant + "/" + who.Credential + "/" + who.User}
}

// several returns the error if several devices match the id, or have the command if id is empty.
func several(id, command string, found []registry.Entry) error {
	if id != "" {
		return ambiguous(
			fmt.Sprintf("Several devices have the id %.80q. Select one by its session", id), found)
	}
	return ambiguous("Several devices have "+command+". Select one", found)
}

// ambiguous returns an error that lists the candidates.
func ambiguous(what string, found []registry.Entry) error {
	e := registry.Errorf(registry.CodeAmbiguousTarget, "%s:", what)
	for i, f := range found {
		s := f.Session
		e.Candidates = append(e.Candidates, registry.Candidate{
			SessionID: s.Key.Session, DeviceID: s.DeviceID, UserID: s.UserID, Name: s.Name,
		})
		if i > 0 {
			e.Message += ";"
		}
		e.Message += " " + deviceLabel(s)
	}
	e.Message += "."
	return e.With(registry.DispatchedNo)
}

// deviceLabel describes a device. It quotes names that devices give themselves, because they are untrusted.
func deviceLabel(s registry.Session) string {
	text := "session " + s.Key.Session
	if s.DeviceID != "" {
		text = fmt.Sprintf("%q, %s", s.DeviceID, text)
	}
	if name := s.DeviceName; name != "" {
		text += fmt.Sprintf(", called %q", name)
	}
	return text
}

// commandsText describes the commands of devices that the caller may call.
func (r reach) commandsText(ctx context.Context, devices []registry.Entry) string {
	var b strings.Builder
	for _, e := range devices {
		var names []string
		for _, t := range r.commands(ctx, e) {
			names = append(names, t.Name)
		}
		more := ""
		if n := len(names) - maxNames; n > 0 {
			names, more = names[:maxNames], fmt.Sprintf(" and %d more", n)
		}
		if len(names) == 0 {
			names = []string{"none that you can call"}
		}
		fmt.Fprintf(&b, "Commands of %s: %s%s. ", deviceLabel(e.Session), strings.Join(names, ", "), more)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// commands returns the tools of a device that the caller may call.
func (r reach) commands(ctx context.Context, e registry.Entry) []registry.ToolSpec {
	by := r.sc.Asker(ctx)
	return slices.DeleteFunc(slices.Clone(e.Tools), func(t registry.ToolSpec) bool {
		return !agent.MayCall(r.cfg.Policy, by, t, nil).Allowed
	})
}

// expected returns the target device if it is the only one that is expected to connect with the command soon. The call
// then waits for it. missing is the error of choose; expected returns it if no device is expected.
func (r reach) expected(ctx context.Context, id, command string, missing error) (registry.Entry, error) {
	q, reaches := r.scope(ctx)
	if !reaches {
		return registry.Entry{}, missing
	}
	q.Tool, q.Limit = command, maxListed
	asked := []registry.Query{q}
	if id != "" {
		byDevice, bySession := q, q
		byDevice.DeviceID = id
		asked[0] = byDevice
		if bySession.SessionID == "" || bySession.SessionID == id {
			bySession.SessionID = id
			asked = append(asked, bySession)
		}
	}
	var found []registry.Entry
	for _, q := range asked {
		due, err := r.cfg.Directory.Awaited(ctx, q)
		if err != nil {
			return registry.Entry{}, err
		}
		for i := range due {
			e := registry.Entry{Session: due[i].Session}
			if !slices.ContainsFunc(found, func(f registry.Entry) bool { return f.Session.Key == e.Session.Key }) {
				found = append(found, e)
			}
		}
	}
	switch len(found) {
	case 0:
		return registry.Entry{}, missing
	case 1:
		return found[0], nil
	}
	return registry.Entry{}, several(id, command, found)
}

// call runs a command on a device.
func (r reach) call(
	ctx context.Context, id, command string, args registry.JSON, timeout time.Duration,
) (registry.Result, error) {
	e, err := r.choose(ctx, id, command)
	if errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeToolNotFound) ||
		errors.Is(err, registry.CodeNotConnected) {
		e, err = r.expected(ctx, id, command, err)
	}
	if err != nil {
		return registry.Result{}, err
	}
	agent.ReportProgress(ctx, command+" on "+deviceLabel(e.Session), "")
	out, err := agent.CallDevice(ctx, agent.DeviceCall{
		Tool: command, Args: args, Timeout: timeout,
		Target: registry.Target{SessionID: e.Session.Key.Session, DeviceID: e.Session.DeviceID},
	})
	if err != nil {
		return registry.Result{}, err
	}
	return out.Result, nil
}
