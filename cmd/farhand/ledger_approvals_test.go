package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// ledgerPolicy is a policy by which each call of ledgerAsked needs an approval, for every caller.
func ledgerPolicy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\ntools:\n  - id: ask\n    names: [" + ledgerAsked + "]\n    approval: always\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "FARHAND_POLICY_FILE=" + path
}

// approved makes a call that needs an approval, of a device that may sleep, and decides on it: allows it, denies it,
// or both at once on any pods. Some are cancelled or left alone.
func (c *ledgerCaller) approved(ctx context.Context) {
	work := ledgerWork{DelayMS: c.random.IntN(150)}
	more, session := `,"mode":"async"`, ""
	if c.random.IntN(2) == 0 {
		more, session = fmt.Sprintf(`,"queue":{"ttl_ms":%d}`, 3000+c.random.IntN(5000)), c.sleeper()
	}
	entry, url, body := c.draw("approved", &work, more)
	url = strings.Replace(url, "/"+entry.tool+"/", "/"+ledgerAsked+"/", 1)
	entry.tool = ledgerAsked
	if session != "" {
		url = strings.Replace(url, "/"+entry.session+"/", "/"+session+"/", 1)
		entry.session = session
	}
	c.finish(&entry, c.post(context.WithoutCancel(ctx), &entry, url, body))
	if entry.broken || entry.status != http.StatusAccepted || entry.approval == "" {
		return
	}
	waitFor(ctx, time.Duration(c.random.IntN(300))*time.Millisecond)
	var decisions []string
	switch c.random.IntN(8) {
	case 0: // left alone
	case 1:
		c.read(http.MethodDelete, entry.CallID, "")
	case 2, 3:
		decisions = []string{"allow-once"}
	case 4, 5:
		decisions = []string{"deny", "allow-once"}
	default:
		decisions = []string{"deny"}
	}
	var deciding sync.WaitGroup
	for _, decision := range decisions {
		pod := c.fleet.urls()[c.random.IntN(ledgerPods)]
		deciding.Go(func() { c.decide(pod, &entry, decision) })
	}
	deciding.Wait()
	c.read(http.MethodGet, entry.CallID, "")
}

// decide decides on an approval, and writes down what it was then.
func (c *ledgerCaller) decide(pod string, entry *ledgerCall, decision string) {
	ruling := ledgerRuling{callID: entry.CallID, decision: decision, sent: time.Now()}
	defer func() { add(c.book, &c.book.ruled, ruling) }()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, pod+"/api/approvals/"+entry.approval,
		bytes.NewReader([]byte(`{"decision":"`+decision+`"}`)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var said struct{ State string }
	if json.NewDecoder(resp.Body).Decode(&said) == nil && resp.StatusCode == http.StatusOK {
		ruling.state = said.State
	}
}

// auditApprovals: a call that needs an approval reaches a device only after an approver has allowed it, and never when
// an approver read that it is denied.
func (b *ledger) auditApprovals(reached map[string][]ledgerArrival, report reporter) {
	denied, allowed := make(map[string]bool), make(map[string]time.Time) // by call id: when it was sent
	for _, r := range b.ruled {
		if r.decision == "allow-once" {
			allowed[r.callID] = r.sent
		}
		switch registry.ApprovalState(r.state) {
		case registry.ApprovalDenied, registry.ApprovalExpired, registry.ApprovalWithdrawn:
			denied[r.callID] = true
		}
	}
	for id, arrivals := range reached {
		for _, a := range arrivals {
			if a.tool != ledgerAsked {
				continue
			}
			sent, ok := allowed[id]
			if !ok || a.at.Before(sent) {
				report("denied", id, a.nonce, "reached the device before an approver allowed it")
			}
			if denied[id] {
				report("denied", id, a.nonce, "reached the device, and an approver heard that it was denied")
			}
		}
	}
}

// auditKept: the record of a call that was accepted stays, until its store may have lost it.
func (b *ledger) auditKept(report reporter) {
	missing := make(map[string]time.Time)
	for _, r := range b.seen {
		if r.last && r.missing {
			missing[r.callID] = r.at
		}
	}
	for _, c := range b.asked {
		at, gone := missing[c.CallID]
		if gone && !c.broken && c.status == http.StatusAccepted && !b.forgotten(c.asked, c.heard, at) {
			report("kept", c.CallID, c.nonce, "accepted, and its record is gone")
		}
	}
}
