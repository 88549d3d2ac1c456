package ws

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry/routing"
)

// Defaults of Config.
const (
	DefaultMaxFrame           = 1 << 20
	DefaultMaxOutput          = 4 << 20
	DefaultMaxOutbound        = 4 << 20
	DefaultPingInterval       = 20 * time.Second
	DefaultPongTimeout        = 45 * time.Second
	DefaultWriteTimeout       = 5 * time.Second
	DefaultMaxFramesPerSecond = 500
	DefaultFrameBurst         = 1000
	DefaultMessageTimeout     = 30 * time.Second
	DefaultMaxUnfinished      = 64 << 20
	DefaultMaxUnsent          = 256 << 20
	DefaultMaxSockets         = 100_000
	DefaultMaxOpens           = 1000
	DefaultOpensBurst         = 4000
)

const (
	readBuffer       = 512             // bytes; lives as long as the socket, and is larger than most frames of a device
	writeBuffer      = 1024            // bytes; pooled
	handshakeTimeout = 5 * time.Second // to write the answer to an upgrade
	storeTimeout     = 5 * time.Second // for one step of a connection in the store
	answerSlack      = 64 << 10        // bytes that an answer may have besides its output
	minUnfinished    = 4               // the least MaxUnfinished, in messages of the largest size
	MinOutbound      = 64 << 10        // bytes; the least MaxOutbound, because ordinary answers must fit
	podHeader        = "X-Farhand-Pod"
	subprotocol      = "clawseed.v1"
)

// Live tells when identities end. *auth.Live is one.
type Live interface {
	// Watch has end called, which returns at once, when an identity ends, until release is called.
	Watch(id *auth.Identity, end func(error)) (release func())
}

// Config configures a Server. Pod, Admission, Auth and Origins are required.
type Config struct {
	Pod       *routing.Pod // started; its Hub gets the sessions
	Admission *agent.Admission
	Auth      auth.Authenticator
	Origins   *auth.Origins

	// Live closes the connections of identities that expire or are revoked. Nil: nobody does.
	Live Live

	// Pairing says which device ids are taken and which tools paired devices may offer. Nil: none is taken, and all
	// tools are offered that are admitted.
	Pairing Pairing

	// Agent answers the people at the devices. Nil: there is none; tools can be registered and called all the same.
	Agent chat.Agent

	// Decisions takes the decisions of people at devices about calls. Nil: none is taken.
	Decisions Decisions

	// Conversations describes a device's conversation when it connects. Nil: there is none.
	Conversations Conversations

	MaxFrame     int64         // bytes of one message of a device; default 1 MiB; more is read, to tell it the limit
	MaxOutput    int64         // bytes of the output of one tool; default 4 MiB, or MaxFrame if only that is given
	MaxOutbound  int           // bytes that may wait for one device before it is closed as slow; default 4 MiB
	PingInterval time.Duration // default 20 s
	PongTimeout  time.Duration // a peer silent for longer is gone; more than PingInterval; default 45 s
	WriteTimeout time.Duration // for one frame; default 5 s

	// MaxFramesPerSecond and FrameBurst bound what one device sends. Every frame of the WebSocket protocol counts, also
	// pieces of messages, pings and pongs. An answer to an open call is free, because the gateway asked for it.
	// Connecting again gives nothing back. Defaults: 500 and 1000.
	MaxFramesPerSecond float64
	FrameBurst         float64

	MessageTimeout time.Duration // for a message from its first byte to its last; default 30 s
	MaxUnfinished  int64         // bytes received on this pod and not handled yet; default 64 MiB, least four messages

	MaxUnsent int64 // bytes that wait for all devices, but for 16 KiB of each; default 256 MiB, least four MaxOutbound

	// MaxSockets is how many connections the server holds. A tenant that is alone gets three quarters of them, an
	// identity half; all holders of one token are one identity that gets what its tenant does. Default: 100,000.
	MaxSockets int

	// MaxOpensPerSecond and OpensBurst bound how many sessions one source opens. Defaults: 1000 and 4000.
	MaxOpensPerSecond float64
	OpensBurst        float64

	Sources  auth.Sources   // where requests come from; default: their peers
	Refusals *auth.Refusals // notes refused requests; default: in Log

	// DenyQueryToken turns off ?token=. ClawSeed's clients use it, so it is accepted by default, although proxies on
	// the way may log it.
	DenyQueryToken bool

	// IgnoreDebug ignores debug in messages of devices. So devices are not shown the requests to the model, which
	// contain the operator's system prompt.
	IgnoreDebug bool

	Uploads Uploads      // keeps files that are too large for a result; nil: none are kept
	Log     *slog.Logger // default: discard
}

func (c *Config) fill() error {
	if c.Pod == nil || c.Admission == nil || c.Auth == nil || c.Origins == nil {
		return errors.New("ws: a server needs a pod, an admission, an authenticator and origins")
	}
	if c.MaxFrame <= 0 {
		setDefault(&c.MaxOutput, DefaultMaxOutput)
	}
	setDefault(&c.MaxFrame, DefaultMaxFrame)
	setDefault(&c.MaxOutput, c.MaxFrame)
	setDefault(&c.MaxOutbound, DefaultMaxOutbound)
	setDefault(&c.PingInterval, DefaultPingInterval)
	setDefault(&c.PongTimeout, DefaultPongTimeout)
	setDefault(&c.WriteTimeout, DefaultWriteTimeout)
	setDefault(&c.MaxFramesPerSecond, DefaultMaxFramesPerSecond)
	setDefault(&c.FrameBurst, DefaultFrameBurst)
	setDefault(&c.MessageTimeout, DefaultMessageTimeout)
	setDefault(&c.MaxUnfinished, DefaultMaxUnfinished)
	c.MaxUnfinished = max(c.MaxUnfinished, minUnfinished*c.maxAnswer())
	setDefault(&c.MaxUnsent, DefaultMaxUnsent)
	c.MaxUnsent = max(c.MaxUnsent, 4*int64(c.MaxOutbound))
	setDefault(&c.MaxSockets, DefaultMaxSockets)
	setDefault(&c.MaxOpensPerSecond, DefaultMaxOpens)
	setDefault(&c.OpensBurst, DefaultOpensBurst)
	if c.PongTimeout <= c.PingInterval {
		return fmt.Errorf("ws: the pong timeout %v must be longer than the ping interval %v",
			c.PongTimeout, c.PingInterval)
	}
	if c.MaxOutbound < MinOutbound {
		return fmt.Errorf("ws: the outbound limit of %d bytes is below the least of %d", c.MaxOutbound, MinOutbound)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refusals == nil {
		c.Refusals = auth.NewRefusals(c.Sources, c.Log)
	}
	return nil
}

// maxAnswer is how many bytes a message that answers a call may have: its output is escaped as JSON, which can double
// it.
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
