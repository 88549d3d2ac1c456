package bus

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// dispatched tells from the error of a command whether Redis can have carried it out. It is DispatchedNo only when the
// error surely happened before anything was written, or when the server itself refused.
func dispatched(err error) registry.Dispatched {
	var refused redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return registry.DispatchedNo
	case errors.As(err, &op) && op.Op == "dial":
		return registry.DispatchedNo
	case errors.As(err, &refused):
		return registry.DispatchedNo
	default:
		return registry.DispatchedUnknown
	}
}
