package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// eraseTimeout bounds one request. A person with very much needs several. A tenant erases one person at a time on a
// pod: each erasure visits all calls of the fleet.
const eraseTimeout = 60 * time.Second

// eraseUser erases a person of the caller's tenant. The audit log gets the receipt, not the person's id.
func (h *handler) eraseUser(c *gin.Context, _ *params) error {
	user := c.Param("id")
	noteAudit(c, auditDetail{target: "a user"})
	if err := (registry.CredentialChange{
		Tenant: caller(c).Tenant, Kind: registry.ChangeUser, ID: user,
	}).Validate(); err != nil {
		return err
	}
	if err := h.mayChangeKeys(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), eraseTimeout)
	defer cancel()
	turn, err := h.erasing.Acquire(ctx, share.Owner{Tenant: caller(c).Tenant}, 1)
	if err != nil {
		return registry.Errorf(registry.CodeBusy, "This pod erases other persons. Repeat the request.").
			RetryIn(time.Second)
	}
	defer turn.Release()
	r, err := h.Erasure.Erase(ctx, caller(c).Tenant, user, func(ctx context.Context, s erasure.Session) error {
		return h.end(ctx, knownSession{key: s.Key, session: s.Connected, info: s.Conversation}, true)
	})
	if ctx.Err() != nil && err != nil {
		return registry.Errorf(registry.CodeBusy, "There is more to erase. Repeat the request.").RetryIn(time.Second)
	}
	if err != nil {
		return err
	}
	receipt := wire.Receipt{ID: r.ID, Subject: r.Subject, At: shownTime(r.At), Erased: r.Erased, Kept: []wire.Kept{}}
	for _, k := range r.Kept {
		receipt.Kept = append(receipt.Kept, wire.Kept{What: k.What, Until: shownTime(k.Until)})
	}
	noteAudit(c, auditDetail{target: r.ID, reason: "subject " + r.Subject + "; " + counted(r.Erased)})
	return h.writeUncached(c, http.StatusOK, receipt)
}

// counted returns numbers by kind as a text.
func counted(by map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s: %d", kind, by[kind]))
	}
	return strings.Join(parts, ", ")
}
