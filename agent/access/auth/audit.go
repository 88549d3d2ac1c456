package auth

import (
	"net/http"
	"net/netip"

	"github.com/farhand/farhand/registry"
)

// Auditor takes lines of the audit log. Its method returns at once and is safe for concurrent use. It fills in the pod
// and, unless they are set, the time. A line without a tenant is lost.
type Auditor interface{ Note(registry.AuditEntry) }

// NoAudit is an Auditor that notes nothing.
type NoAudit struct{}

// Note implements Auditor.
func (NoAudit) Note(registry.AuditEntry) {}

// Requester returns the identity as approvals have it.
func (id Identity) Requester() registry.Requester {
	return registry.Requester{User: id.User, Credential: id.Credential, Name: id.Name}
}

// Actor returns the identity as the audit log has it.
func (id Identity) Actor() registry.AuditActor {
	return registry.AuditActor{
		User: id.User, Credential: id.Credential, Name: id.Name, Roles: id.RoleNames(), Source: SourceName(id.Source),
	}
}

// ActorOf returns an identity as the audit log has it, with the source of a request.
func (s Sources) ActorOf(id Identity, r *http.Request) registry.AuditActor {
	id.Source = s.Of(r)
	return id.Actor()
}

// SourceName returns a source as the audit log has it: an address alone without the length of its prefix.
func SourceName(source netip.Prefix) string {
	switch {
	case !source.IsValid():
		return ""
	case source.IsSingleIP():
		return source.Addr().String()
	default:
		return source.String()
	}
}
