package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
)

const (
	maxRefusals = 8
	maxTarget   = 100 // bytes
)

// refusals remembers what led nowhere, for whoever asks next.
type refusals struct {
	mu    sync.Mutex
	lines []string
	more  int
}

func (r *refusals) add(target string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser changed its mind
	}
	if len(target) > maxTarget {
		target = target[:maxTarget] + "…"
	}
	line := strings.ToValidUTF8(target, "?") + ": " + reason(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.Contains(r.lines, line):
	case len(r.lines) == maxRefusals:
		r.more++
	default:
		r.lines = append(r.lines, line)
	}
}

func (r *refusals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	if r.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", r.more))
	}
	r.lines, r.more = nil, 0
	return lines
}

// reason says in words why a connection was not made, and nothing of this machine's network.
func reason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, ErrRefused):
		return "refused: " + strings.ReplaceAll(err.Error(), ErrRefused.Error()+": ", "")
	case errors.As(err, &dns) && dns.IsNotFound:
		return "there is no such host"
	case errors.As(err, &dns):
		return "the name could not be resolved"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.Is(err, errBudget):
		return errBudget.Error()
	case errors.Is(err, errNoProxyRequest):
		return errNoProxyRequest.Error()
	default:
		return "it could not be reached"
	}
}
