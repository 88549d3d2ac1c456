package api

import (
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// access says who may use a route: identities with one of its roles. Admins may use every route but those of operators.
type access uint16

// Values of access. All but everybody and admins can be joined with |.
const (
	devices   = access(auth.RoleDevice)
	callers   = access(auth.RoleCaller)
	approvers = access(auth.RoleApprover)
	operators = access(auth.RoleOperator) // of the fleet; no admin of a tenant is one

	admins    access = 1 << 14 // admins only
	everybody access = 1 << 15 // no credential needed or checked
)

// roles are the roles that access can name, besides admin.
const roles = devices | callers | approvers | operators

func (h *handler) authorize(c *gin.Context, a access) error {
	if a == everybody {
		return nil
	}
	if _, known := c.Get(keyCaller); !known {
		if err := h.identifyCaller(c); err != nil {
			return err
		}
	}
	if who := caller(c); !who.Has(auth.Roles(a & roles)) {
		h.challenge(c, insufficientScope)
		return auth.NeedRole(who, a.names()...)
	}
	return nil
}

func (a access) names() []string {
	if a == admins {
		return []string{auth.NameAdmin}
	}
	return auth.Identity{Roles: auth.Roles(a & roles)}.RoleNames()
}

// AccessLog says which requests are logged. Failures of the gateway itself are always logged.
type AccessLog string

// Values of AccessLog.
const (
	AccessLogOff     AccessLog = "off"     // only failures of the gateway itself
	AccessLogSampled AccessLog = "sampled" // failures, and a sample of the successful requests; the default
	AccessLogAll     AccessLog = "all"     // failures, and all successful requests
)

// AccessLogs returns all values of AccessLog.
func AccessLogs() []AccessLog { return []AccessLog{AccessLogOff, AccessLogSampled, AccessLogAll} }

// A sampled log has the first sampledFirst successful requests of each second, then one in sampledEvery.
const (
	sampledFirst = 10
	sampledEvery = 100
)

// keyFailure is the context key for why a request failed.
const keyFailure = "farhand.failure"

// failureKind groups failures in the log, so that a flood of one kind has few lines. The number of kinds is bounded by
// the routes, statuses and codes.
type failureKind struct {
	route  string
	status int
	code   registry.Code
}

// accessLog writes one line for each request that has ended. It never logs query strings, headers or bodies, which hold
// tokens and arguments.
type accessLog struct {
	mode   AccessLog
	log    *slog.Logger
	failed *auth.Lines[failureKind]
	second atomic.Int64 // the second that done counts
	done   atomic.Int64 // requests that succeeded in it
}

func newAccessLog(mode AccessLog, log *slog.Logger) *accessLog {
	return &accessLog{mode: mode, log: log, failed: auth.NewLines[failureKind]()}
}

// observe logs and counts a request after it was answered.
func (h *handler) observe(c *gin.Context) {
	start := time.Now()
	c.Next()
	took, status := time.Since(start), c.Writer.Status()
	e, _ := c.Get(keyFailure)
	failure, _ := e.(*registry.Error) // nil: the request succeeded, or wrote its failure itself
	if h.Meter != nil {
		code := registry.Code("")
		if failure != nil {
			code = failure.Code
		}
		h.Meter.Requested(c.Request.Method, c.FullPath(), status, code, took, trace.SampledID(c.Request.Context()))
	}
	if failure != nil || status >= http.StatusBadRequest {
		h.access.failure(c, status, took, failure)
		return
	}
	if !h.isDevice(c.Request) {
		h.access.success(c, status, start, took)
	}
}

// success logs a successful request, unless it is a probe or not in the sample.
func (a *accessLog) success(c *gin.Context, status int, start time.Time, took time.Duration) {
	switch c.FullPath() {
	case pathHealth, pathHealthClawSeed, pathReady, pathMetrics:
		return
	}
	if a.mode == AccessLogOff || a.mode == AccessLogSampled && !a.sampled(start) {
		return
	}
	if a.log.Enabled(c.Request.Context(), slog.LevelInfo) {
		a.log.LogAttrs(c.Request.Context(), slog.LevelInfo, "request", lineOf(c, status, took)...)
	}
}

// sampled reports whether a request that began at start is in the sample. It may be slightly wrong when many end at the
// turn of a second.
func (a *accessLog) sampled(start time.Time) bool {
	if now := start.Unix(); a.second.Load() != now {
		a.second.Store(now)
		a.done.Store(0)
	}
	n := a.done.Add(1)
	return n <= sampledFirst || n%sampledEvery == 0
}

// failure logs a failed request with its cause, which the client does not see.
func (a *accessLog) failure(c *gin.Context, status int, took time.Duration, e *registry.Error) {
	level, kind := slog.LevelInfo, failureKind{route: c.FullPath(), status: status}
	var cause error
	if e != nil {
		kind.code = e.Code
		// A turn has logged the error of its model itself, without the prompt, which a provider's error may repeat.
		_, models := errors.AsType[*provider.Error](e.Cause)
		if e.Cause != nil && !models || e.Code == registry.CodeInternal {
			cause = e
		}
	}
	switch {
	case e != nil && e.Code == registry.CodeInternal, status == http.StatusInternalServerError:
		level = slog.LevelError
	case status > http.StatusInternalServerError, cause != nil:
		level = slog.LevelWarn
	}
	if a.mode == AccessLogOff && cause == nil && level < slog.LevelError || !a.log.Enabled(c.Request.Context(), level) {
		return
	}
	omitted, ok := a.failed.May(kind)
	if !ok {
		return
	}
	line := lineOf(c, status, took)
	if kind.code != "" {
		line = append(line, slog.String("code", string(kind.code)))
	}
	if cause != nil {
		line = append(line, slog.Any("error", cause))
	}
	if omitted > 0 {
		line = append(line, slog.Int("not_logged_before", omitted))
	}
	a.log.LogAttrs(c.Request.Context(), level, "request failed", line...)
}

// lineOf returns the attributes of every line. The logger itself adds the pod.
func lineOf(c *gin.Context, status int, took time.Duration) []slog.Attr {
	line := append(make([]slog.Attr, 0, 12),
		slog.String("method", c.Request.Method), slog.String("route", c.FullPath()), slog.Int("status", status),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.String("request_id", requestID(c)))
	if id := notedCall(c); id != "" {
		line = append(line, slog.String("call_id", id))
	}
	if who, ok := c.Get(keyCaller); ok {
		who := who.(auth.Identity)
		line = append(line, slog.String("tenant", who.Tenant), slog.Bool("admin", who.Admin))
		if who.User != "" {
			line = append(line, slog.String("user", who.User))
		}
	}
	return line
}
