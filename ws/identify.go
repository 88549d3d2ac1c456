package ws

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/internal/fields"
)

// frameRoles returns the roles that may send a frame of a type; one of them is enough. A type without roles is
// rejected, even for admins, so a type that is missing here is never handled. The connection itself needs the role
// device. That role alone also permits talking to the agent.
func frameRoles(typ string) auth.Roles {
	switch typ {
	case typeConnect, typeRegisterTools, typeUnregisterTools, typeGetRegisteredTools,
		typeToolCallAccepted, typeToolProgress, typeToolResult, typeToolError, typeApprovalResponse,
		typeUploadRequest, typeRegisterWake, typePresence, typeSetDefault, typeHello, typeMCP, typeRequest:
		return auth.RoleDevice
	case typeMessage, typeAbort, typeRegenerate:
		return auth.RoleDevice | auth.RoleCaller
	default:
		return 0
	}
}

func (c *conn) mayFrame(typ string) error {
	roles := frameRoles(typ)
	if roles != 0 && c.who.Has(roles) {
		return nil
	}
	refused := auth.NeedRole(*c.who, auth.Identity{Roles: roles}.RoleNames()...)
	return fields.NewError(codeForbidden, typ+": "+refused.Message)
}

// shared returns a pointer to an identity. Successive connections with equal identities share one copy, for example all
// devices that use the same token.
func (s *Server) shared(id auth.Identity) *auth.Identity {
	if last := s.identity.Load(); last != nil && *last == id {
		return last
	}
	s.identity.Store(&id)
	return &id
}

// Bounds of a resume token that a device presents. The server's own tokens have 26 characters.
const (
	minResumeToken = 16
	maxResumeToken = 128
)

// introduce identifies the device by its first frame. This decides which calls the device may answer, and which session
// it gets if the URL named none. It returns false if the connection has no session and is closing.
func (c *conn) introduce(frame any) bool {
	if c.introduced {
		return true
	}
	c.introduced = true
	intro := registry.Introduction{Holder: c.who.Holder()}
	connect, _ := frame.(*connectFrame)
	if connect != nil {
		intro.DeviceID, intro.Token = or(connect.DeviceID, ""), or(connect.ResumeToken, "")
		if err := c.mayBe(intro.DeviceID); err != nil {
			c.refuseDevice(err)
			return false
		}
	}
	intro.DeviceID = cmp.Or(c.who.Device, intro.DeviceID)
	if c.contest != nil && !c.decideContest(intro) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), introductionWait)
	defer cancel()
	if connect != nil && c.fresh && or(connect.SessionID, "") != "" {
		if !c.moveSession(ctx, *connect.SessionID, intro) {
			return false
		}
	}
	if c.local.Introduce(intro) && connect == nil { // otherwise the handler of connect stores it
		if err := c.local.Update(ctx, func(*registry.Session) {}); err != nil {
			c.fail(err)
		}
	}
	return true
}

// moveSession replaces the session made for the connection with the session that connect names. It returns false if the
// connection does not get that session and is closing.
func (c *conn) moveSession(ctx context.Context, id string, intro registry.Introduction) bool {
	made := c.local.Session()
	s := sessionOf(c.who, id)
	s.Name, s.Proofs = made.Name, made.Proofs
	if err := checkID(s.Key); err != nil {
		c.refuseSession(fields.CodeInvalidMessage, registry.AsError(err).Message)
		return false
	}
	local, resumed, err := c.claim(ctx, s, intro)
	if err != nil {
		c.failOpen(s, err)
		return false
	}
	former := c.local
	c.setLocal(local)
	former.Close(ctx)
	summary := summarize(s, c.describe(s.Key), resumed)
	c.summary = &summary
	return true
}

// claim claims a session for a device that has introduced itself. If another connection holds the session, it waits for
// the decision.
func (c *conn) claim(ctx context.Context, s registry.Session, intro registry.Introduction,
) (local *routing.LocalSession, resumed bool, err error) {
	hub := c.server.cfg.Pod.Hub
	local, resumed, err = hub.Open(ctx, s, c)
	held, ok := errors.AsType[*registry.Held](err)
	if !ok {
		return local, resumed, err
	}
	c.endOpening() // others need not wait for the decision
	introductions := make(chan registry.Introduction, 1)
	introductions <- intro
	local, err = hub.Obtain(ctx, s, c, held, introductions)
	return local, true, err
}

// newResumeToken returns a resume token for the connection, and the token's proof, which is stored.
func (c *conn) newResumeToken() (token, proof string) {
	token = rand.Text()
	return token, registry.Proof(c.who.Holder(), token)
}

// Errors for a device that claims another device's id.
var (
	errImpostor = errors.New(
		"device_id: this connection's credential belongs to another device; leave device_id out, or pair again")
	errPairedID = errors.New(
		"device_id: a paired device has this id; connect with that device's credential, or use another device_id")
)

// mayBe checks the device id that a device says. A credential that is bound to a device permits only that device's id.
// Any other credential permits ids that are not paired. The error is errImpostor or errPairedID, or the lookup failed.
// The connection caches an id that is not paired until the next pairing of any device.
func (c *conn) mayBe(id string) error {
	if id == "" || id == c.who.Device {
		return nil
	}
	if c.who.Device != "" {
		return errImpostor
	}
	pairings := c.server.pairings.Load()
	if c.server.cfg.Pairing == nil || c.unpaired == id && c.unpairedAt == pairings {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	switch paired, err := c.server.cfg.Pairing.Paired(ctx, c.who.Tenant, id); {
	case err != nil:
		return err
	case paired:
		return errPairedID
	}
	c.unpaired, c.unpairedAt = id, pairings
	return nil
}

// refuseDevice ends the connection of a device that may not use its id, or whose id could not be looked up.
func (c *conn) refuseDevice(why error) {
	if errors.Is(why, errImpostor) || errors.Is(why, errPairedID) {
		c.note(slog.LevelWarn, "device refused", "reason", why.Error())
		c.refuseSession(codeSessionOwnerMismatch, why.Error())
		return
	}
	c.note(slog.LevelWarn, "device not looked up", "error", why)
	c.end(CloseUnavailable)
}

type deviceKey struct{ tenant, id string }

// devicesPaired ends the connections that claim the id of a newly paired device, unless their credentials are bound to
// it. It does not block.
func (s *Server) devicesPaired(changes []registry.CredentialChange) {
	paired := make(map[deviceKey]bool)
	for _, change := range changes {
		if change.Kind == registry.ChangeDevice && !change.Revoked {
			paired[deviceKey{change.Tenant, change.ID}] = true
		}
	}
	if len(paired) == 0 || s.cfg.Pairing == nil {
		return
	}
	s.pairings.Add(1) // first, so that connections missing from the snapshot look up their ids again
	s.goTask(func() {
		for _, c := range s.snapshot() {
			local := c.claimed()
			if local == nil || c.who.Device != "" {
				continue
			}
			if key := (deviceKey{c.who.Tenant, local.Session().DeviceID}); paired[key] {
				c.checkPaired(key)
			}
		}
	})
}

// checkPaired ends the connection if the device it claims to be is paired. It checks again because the change may be
// old.
func (c *conn) checkPaired(key deviceKey) {
	defer c.recoverPanic()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	paired, err := c.server.cfg.Pairing.Paired(ctx, key.tenant, key.id)
	if paired {
		err = errPairedID
	}
	if err != nil {
		c.refuseDevice(err)
	}
}
