package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Uploads gives devices the files that callers have uploaded for arguments. *blobs.Service is one.
type Uploads interface {
	// Give returns an upload of the caller, with a link to read it by for life. It fails with registry.ErrNoUpload if
	// the caller cannot use it. The link is the same for the same call and upload.
	Give(ctx context.Context, by registry.Uploader, call, upload string, life time.Duration,
	) (registry.GivenUpload, error)
}

const (
	uploadMember = "$upload" // the only member of an object in arguments that stands for an upload
	maxGiven     = 16        // uploads in one call

	// uploadMargin is how much longer than its call a device can read an upload.
	uploadMargin = time.Minute
)

// giveUploads replaces the objects in the arguments of a device's call that name an upload. Arguments that name none
// stay as they were sent.
func (i *Invoker) giveUploads(ctx context.Context, inv *Invocation) error {
	if !bytes.Contains(inv.Args.Raw(), []byte(`"`+uploadMember+`"`)) {
		return nil
	}
	var args any
	read := json.NewDecoder(bytes.NewReader(inv.Args.Raw()))
	read.UseNumber()
	if err := read.Decode(&args); err != nil {
		return err
	}
	g := giving{invoker: i, inv: inv}
	args, err := g.replace(ctx, args)
	if err != nil || g.given == 0 {
		return err
	}
	text, err := strictjson.Encode(args)
	if err != nil {
		return err
	}
	inv.Args, err = registry.ParseJSON(text)
	return err
}

// giving is one replacement of uploads.
type giving struct {
	invoker *Invoker
	inv     *Invocation
	given   int
}

// replace returns a value with its uploads replaced. Arguments are at most 64 levels deep.
func (g *giving) replace(ctx context.Context, v any) (_ any, err error) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			if v[i], err = g.replace(ctx, v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if id, ok := v[uploadMember].(string); ok && len(v) == 1 {
			return g.give(ctx, id)
		}
		for name := range v {
			if v[name], err = g.replace(ctx, v[name]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (g *giving) give(ctx context.Context, id string) (any, error) {
	if g.given++; g.given > maxGiven {
		return nil, registry.Errorf(registry.CodeInvalidArguments, "A call can have at most %d uploads.", maxGiven)
	}
	if g.invoker.cfg.Uploads == nil {
		return nil, registry.Errorf(registry.CodeInvalidArguments, "This gateway stores no files (FARHAND_BLOB_URL).")
	}
	who := g.inv.Caller
	by := registry.Uploader{Tenant: who.Tenant, Key: who.Requester().Key()}
	return g.invoker.cfg.Uploads.Give(timed{ctx, g.inv.Deadline}, by, g.inv.CallID, id, g.inv.Timeout+uploadMargin)
}
