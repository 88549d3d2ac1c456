package agent

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// Files keeps what is too large for a result, or has no place where the result is told. *blobs.Service is one.
type Files interface {
	// Keep stores the data of a part of the result of a call, and returns the part with a link that expires in its
	// place. It fails if there is no room. It is called concurrently.
	Keep(ctx context.Context, key registry.Key, callID string, p registry.Part) (registry.Part, error)
}
