package nodes

import (
	"context"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
)

// Names of the tools.
const (
	nameNodes  = "nodes"
	nameInvoke = "node-invoke"
	nameCanvas = "canvas"
)

// Directory is the part of registry.Directory the tools need.
type Directory interface {
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
	Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error)
}

// Pairing is the part of pairing.Service the tools need.
type Pairing interface {
	Waiting(ctx context.Context, by pairing.Approver) ([]pairing.View, error)
	Decide(ctx context.Context, by pairing.Approver, id, code string, d pairing.Decision) (pairing.View, error)
	Device(ctx context.Context, by pairing.Approver, id string) (pairing.Device, error)
	Devices(ctx context.Context, by pairing.Approver, after string, limit int) ([]registry.Credential, string, error)
}

// Config is what the tools stand on.
type Config struct {
	Directory Directory     // required
	Policy    *agent.Policy // required: what may not be called is not shown
	Pairing   Pairing       // nil: no device is paired here, and none can be
	Audit     auth.Auditor  // notes what is decided about requests to pair; default: nobody

	// AllowPrivateURLs lets canvases load addresses of private networks and of the device itself.
	AllowPrivateURLs bool
}

// Registrations returns the tools, for agent.NewLocalTools.
func Registrations(cfg Config) []agent.Registration {
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	urls := publicnet.Guard{AllowPrivate: cfg.AllowPrivateURLs}
	of := func(name string, make func(agent.SessionContext) agent.Tool) agent.Registration {
		return agent.Registration{Names: []string{name}, Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{make(sc)}
		}}
	}
	return []agent.Registration{
		of(nameNodes, func(sc agent.SessionContext) agent.Tool { return nodes{reach{&cfg, sc}, urls} }),
		of(nameInvoke, func(sc agent.SessionContext) agent.Tool { return invoke{reach{&cfg, sc}, urls} }),
		of(nameCanvas, func(sc agent.SessionContext) agent.Tool { return canvas{reach{&cfg, sc}, urls} }),
	}
}

// hints are what models and people are told of the tools: what a device does for them may change anything, and what it
// answers may come from anybody.
func hints() *registry.Annotations {
	yes, no := true, false
	return &registry.Annotations{ReadOnlyHint: &no, DestructiveHint: &yes, OpenWorldHint: &yes}
}

// timeoutMS is how long a call may take by default. The device's call in it has the timeout of its own tool, and a
// person may have to be asked first.
const timeoutMS = 5 * 60 * 1000
