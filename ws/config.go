package ws

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry/routing"
)

const (
	readBuffer       = 512             // bytes; lives as long as the socket, and is larger than most frames of a device
	writeBuffer      = 1024            // bytes; pooled
	handshakeTimeout = 5 * time.Second // to write the upgrade response
	storeTimeout     = 5 * time.Second // for one store operation of a connection
	answerSlack      = 64 << 10        // bytes of an answer besides its output
	MinOutbound      = 64 << 10        // bytes; minimum of MaxOutbound, because ordinary answers must fit
	podHeader        = "X-Farhand-Pod"
	subprotocol      = "clawseed.v1"
)

// Live reports the end of identities. *auth.Live implements it.
type Live interface {
	// Watch calls end when the identity ends, unless release was called before. end must not block.
	Watch(id *auth.Identity, end func(error)) (release func())
}

// Config configures a Server. Pod, Admission, Auth and Origins are required.
type Config struct {
	Pod       *routing.Pod // started; its Hub gets the sessions
	Admission *agent.Admission
	Auth      auth.Authenticator
	Origins   *auth.Origins

	Live          Live          // closes connections whose identity expires or is revoked; nil: they stay open
	Pairing       Pairing       // nil: no device id is taken, and every admitted tool is offered
	Agent         chat.Agent    // answers the people at the devices; nil: there is no agent
	Defaults      Defaults      // keeps users' default devices; nil: devices cannot set one
	Decisions     Decisions     // takes people's decisions about calls; nil: devices cannot decide
	Conversations Conversations // describes a device's conversation when it connects; nil: no description
	Nodes         Nodes         // says which OpenClaw nodes may connect; nil: those with a token of Auth
	Wakes         Wakes         // keeps how devices are woken; nil: they cannot be
	Uploads       Uploads       // stores files that are too large for a result; nil: files are rejected

	MaxFrame     int64         // bytes of a device's message; default 1 MiB; more is read to report the limit
	MaxNodeFrame int64         // bytes of a frame of an OpenClaw node; default 25 MiB, at most MaxUnfinished
	MaxOutput    int64         // bytes of a tool's output; default 4 MiB, or MaxFrame if only MaxFrame is set
	MaxOutbound  int           // bytes queued for one device before it is closed as slow; default 4 MiB
	PingInterval time.Duration // default 20 s
	PongTimeout  time.Duration // a peer silent for longer counts as gone; must exceed PingInterval; default 45 s
	WriteTimeout time.Duration // for one frame; default 5 s

	// MaxFramesPerSecond and FrameBurst limit the frames of one device with a token bucket. Every frame of the
	// WebSocket protocol counts, also fragments of messages, pings and pongs. An answer to an open call is free,
	// because the gateway asked for it. Reconnecting does not refill the bucket. Defaults: 500 and 1000.
	MaxFramesPerSecond float64
	FrameBurst         float64

	MessageTimeout time.Duration // from a message's first byte to its last; default 30 s
	MaxUnfinished  int64         // bytes received on this pod and not handled; default 64 MiB, at least four messages

	MaxUnsent int64 // bytes queued for all devices, except 16 KiB each; default 256 MiB, at least four MaxOutbound

	// MaxSockets is how many connections the server holds. A tenant that is alone gets three quarters of them, an
	// identity half. All holders of one token are one identity, which gets its tenant's share. Default: 100,000.
	MaxSockets int

	// MaxOpensPerSecond and OpensBurst limit how many sessions one source opens. Defaults: 1000 and 4000.
	MaxOpensPerSecond float64
	OpensBurst        float64

	Sources  auth.Sources   // source of a request; default: its peer
	Refusals *auth.Refusals // records rejected requests; default: in Log

	DenyQueryToken bool // rejects ?token=, which ClawSeed's clients use, although proxies may log it
	IgnoreDebug    bool // keeps devices from reading the model requests, which contain the system prompt

	Version string // of the gateway, for OpenClaw nodes; default "dev"

	Log    *slog.Logger // default: discard
	Tracer trace.Tracer // begins the traces of messages; default: off
}

func (c *Config) fill() error {
	if c.Pod == nil || c.Admission == nil || c.Auth == nil || c.Origins == nil {
		return errors.New("ws: a server needs a pod, an admission, an authenticator and origins")
	}
	if c.MaxFrame <= 0 {
		setDefault(&c.MaxOutput, 4<<20)
	}
	setDefault(&c.MaxFrame, 1<<20)
	setDefault(&c.MaxOutput, c.MaxFrame)
	setDefault(&c.MaxOutbound, 4<<20)
	setDefault(&c.MaxNodeFrame, 25<<20)
	setDefault(&c.PingInterval, 20*time.Second)
	setDefault(&c.PongTimeout, 45*time.Second)
	setDefault(&c.WriteTimeout, 5*time.Second)
	setDefault(&c.MaxFramesPerSecond, 500)
	setDefault(&c.FrameBurst, 1000)
	setDefault(&c.MessageTimeout, 30*time.Second)
	setDefault(&c.MaxUnfinished, 64<<20)
	c.MaxUnfinished = max(c.MaxUnfinished, 4*c.maxAnswer())
	c.MaxNodeFrame = min(c.MaxNodeFrame, c.MaxUnfinished)
	setDefault(&c.MaxUnsent, 256<<20)
	c.MaxUnsent = max(c.MaxUnsent, 4*int64(c.MaxOutbound))
	setDefault(&c.MaxSockets, 100_000)
	setDefault(&c.MaxOpensPerSecond, 1000)
	setDefault(&c.OpensBurst, 4000)
	if c.PongTimeout <= c.PingInterval {
		return fmt.Errorf("ws: the pong timeout %v must be longer than the ping interval %v",
			c.PongTimeout, c.PingInterval)
	}
	if c.MaxOutbound < MinOutbound {
		return fmt.Errorf("ws: the outbound limit of %d bytes is below the least of %d", c.MaxOutbound, MinOutbound)
	}
	c.Version = cmp.Or(c.Version, "dev")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refusals == nil {
		c.Refusals = auth.NewRefusals(c.Sources, c.Log)
	}
	return nil
}

// maxAnswer is how many bytes a message that answers a call may have. JSON escaping can double the output.
func (c *Config) maxAnswer() int64 {
	if c.MaxOutput <= c.MaxFrame {
		return c.MaxFrame
	}
	return 2*c.MaxOutput + answerSlack
}

func setDefault[T int | int64 | float64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
