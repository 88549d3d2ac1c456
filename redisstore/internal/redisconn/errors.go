package redisconn

import (
	"errors"

	"github.com/farhand/farhand/registry"
)

// Unavailable translates an error of the client library: no such error leaves the store or the bus. It keeps errors
// that are translated already, and nil.
func Unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *registry.Error
	if errors.As(err, &known) {
		return err
	}
	return registry.StoreUnavailable(op, err)
}
