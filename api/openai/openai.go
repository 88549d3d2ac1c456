package openai

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/sse"
	"github.com/farhand/farhand/registry"
)

const (
	// Prefix begins every path whose clients expect OpenAI's answers.
	Prefix = "/v1/"

	// HeaderSession names the session whose tools join in a completion.
	HeaderSession = "X-Farhand-Session"

	// HeaderRetry tells clients of OpenAI's API whether to ask again by themselves, whatever they make of the status.
	HeaderRetry = "X-Should-Retry"
)

// Requests reads requests and answers them, within the bounds that hold for the whole pod.
type Requests interface {
	// Caller returns who sent the request.
	Caller(c *gin.Context) auth.Identity
	// ReadTurn reads the body of a request for a turn, and has parse understand it: long bodies one after another. It
	// fails with registry.CodeDraining when the pod is stopping.
	ReadTurn(c *gin.Context, parse func(body []byte) error) error
	// Fail logs an error if need be, and answers with what WriteError makes of it.
	Fail(c *gin.Context, err error)
	// WriteJSON answers 200 with v as JSON.
	WriteJSON(c *gin.Context, v any)
	// WriteCacheable does the same with an ETag. It answers 304 to a client that has this answer already.
	WriteCacheable(c *gin.Context, v any)
}

// Turns runs turns, within the time and the number of streams that the pod allows.
type Turns interface {
	// Agent returns the agent. It fails if no model is configured.
	Agent() (chat.Agent, error)
	// TurnContext returns the context of a turn, and gives its client time to receive the answer.
	TurnContext(c *gin.Context) (context.Context, context.CancelFunc)
	// StreamTurn answers with the events that run writes.
	StreamTurn(ctx context.Context, c *gin.Context, run func(context.Context, *sse.TurnStream) sse.Ending)
	// TurnError returns why a turn has no answer. ctx is the turn's. aborted says that somebody ended it on purpose.
	TurnError(ctx context.Context, err error, aborted bool) error
}

// Sessions finds the sessions that are connected.
type Sessions interface {
	// Connected returns a session that the caller may talk to. It fails with registry.CodeSessionNotFound or
	// registry.CodeNotConnected.
	Connected(ctx context.Context, caller auth.Identity, id string) (registry.Entry, error)
	// EachSession visits the sessions that match q. It fails if they are too many for one answer.
	EachSession(ctx context.Context, q registry.Query, visit func(registry.Entry)) error
}

// Host is what /v1 shares with the rest of the HTTP API. Package api implements it. It is safe for concurrent use.
type Host interface {
	Requests
	Turns
	Sessions
}

// API serves /v1. It is immutable and safe for concurrent use.
type API struct{ host Host }

// New returns the endpoints of /v1.
func New(host Host) *API { return &API{host} }
