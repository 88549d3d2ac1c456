package auth

import (
	"net/http"

	"github.com/farhand/farhand/registry"
)

// Auditor takes lines of the audit log. Its method returns at once and is safe for concurrent use. It fills in the pod
// and, unless they are set, the time. A line without a tenant is lost.
type Auditor interface{ Note(registry.AuditEntry) }

// NoAudit is an Auditor that notes nothing.
type NoAudit struct{}

// Note implements Auditor.
func (NoAudit) Note(registry.AuditEntry) {}

// Actor returns the identity as the audit log has it.
func (id Identity) Actor() registry.AuditActor {
	return registry.AuditActor{User: id.User, Credential: id.Credential, Roles: id.RoleNames()}
}

// ActorOf returns an identity as the audit log has it, with where its request came from: for actions of admins.
func (s Sources) ActorOf(id Identity, r *http.Request) registry.AuditActor {
	actor := id.Actor()
	if source := s.Of(r); source.IsValid() {
		actor.Source = source.String()
		if source.IsSingleIP() {
			actor.Source = source.Addr().String()
		}
	}
	return actor
}
