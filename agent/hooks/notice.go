package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	typeApproval  = "approval.requested"
	phaseApproval = "approval"

	maxNotices    = 1024 // messages of one hook in flight, including those that wait for a retry
	noticeTries   = 4
	noticePause   = time.Second // before the first retry; each further pause is five times longer
	noticeBackoff = 5
)

// notice is the body of a message about an approval.
type notice struct {
	Type      string     `json:"type"`
	Timestamp time.Time  `json:"timestamp"`
	Hook      string     `json:"hook"`
	Data      noticeData `json:"data"`
}

// noticeData describes the approval. It has no arguments: approvers read them at the gateway.
type noticeData struct {
	ID         string             `json:"id"`
	URL        string             `json:"url,omitempty"` // of the approval
	CallID     string             `json:"call_id"`
	Tool       string             `json:"tool"`
	Tenant     string             `json:"tenant"`
	UserID     string             `json:"user_id,omitempty"` // owner of the device, or the requester
	SessionID  string             `json:"session_id,omitempty"`
	DeviceID   string             `json:"device_id,omitempty"`
	DeviceName string             `json:"device_name,omitempty"`
	Requester  noticeRequester    `json:"requester"`
	Reason     string             `json:"reason"`
	Rule       string             `json:"rule"`
	By         registry.ApproveBy `json:"by,omitempty"`
	Approvers  []string           `json:"approvers,omitempty"`
	ExpiresAt  time.Time          `json:"expires_at"`
}

type noticeRequester struct {
	UserID     string `json:"user_id,omitempty"`
	Credential string `json:"credential,omitempty"`
	Name       string `json:"name,omitempty"`
	Model      bool   `json:"model"`
}

// Notifies reports whether the hook gets messages about approvals.
func (h *Hook) Notifies() bool { return h.cfg.Approvals }

// ApprovalRequested sends the service a message that a person must approve a call. It does not block. Without a status
// of 200 to 299, the message is retried up to three times, until the approval expires. If too many messages are in
// flight, it is dropped and counted as failed. url is the page where the approval is decided. Empty: unknown.
func (h *Hook) ApprovalRequested(a registry.Approval, url string) {
	if !h.cfg.Approvals || !h.covers(a.Tool) {
		return
	}
	place, err := h.notices.Try(share.Owner{Tenant: a.Tenant}, 1)
	if err != nil {
		h.counts.note(outcomeFailed, 0)
		h.broken.note(h.cfg.Name, phaseApproval, question{Tool: a.Tool, CallID: a.CallID}, errBusy)
		return
	}
	h.sending.Go(func() {
		defer place.Release()
		h.notify(a, url)
	})
}

// notify sends a message until the service accepts it, the attempts are used up, the approval expires, or the hook is
// closed.
func (h *Hook) notify(a registry.Approval, url string) {
	ctx, cancel := context.WithTimeout(h.ctx, a.ExpiresAt.Sub(a.CreatedAt)) // by this pod's clock
	defer cancel()
	wait := noticePause
	for try := range noticeTries {
		if try > 0 {
			if pause.For(ctx, wait) != nil {
				return
			}
			wait *= noticeBackoff
		}
		begin := time.Now()
		asking, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
		err := h.client.notify(asking, share.Owner{Tenant: a.Tenant}, a.ID+"."+phaseApproval,
			func() ([]byte, error) { return h.noticeOf(a, url) })
		cancel()
		switch {
		case err == nil:
			h.counts.note(decisionContinue, time.Since(begin))
			return
		case ctx.Err() != nil:
			return
		}
		h.counts.note(outcomeFailed, time.Since(begin))
		h.broken.note(h.cfg.Name, phaseApproval, question{Tool: a.Tool, CallID: a.CallID}, err)
	}
}

// noticeOf returns the body of a message.
func (h *Hook) noticeOf(a registry.Approval, url string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	r := a.Requester
	err := enc.Encode(notice{typeApproval, time.Now().UTC(), h.cfg.Name, noticeData{
		ID: a.ID, URL: url, CallID: a.CallID, Tool: a.Tool, Tenant: a.Tenant, UserID: a.Owner, SessionID: a.SessionID,
		DeviceID: a.DeviceID, DeviceName: a.DeviceName,
		Requester: noticeRequester{r.User, r.Credential, r.Name, a.Model}, Reason: a.Reason, Rule: a.Rule, By: a.By,
		Approvers: a.Approvers, ExpiresAt: a.ExpiresAt,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return b.Bytes(), nil
}
