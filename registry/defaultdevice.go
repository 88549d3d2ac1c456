package registry

import (
	"context"
	"time"
)

// Bounds of default devices.
const (
	MaxDefaults = 100_000              // of a tenant
	DefaultLife = 365 * 24 * time.Hour // since the default was set, or used in the second half of its life
)

// DefaultStore keeps the default device of each user: the one that is called if several devices of the user match.
type DefaultStore interface {
	// DefaultDevice returns the device id of a user's default. It fails with ErrNoDefault if there is none.
	DefaultDevice(ctx context.Context, tenant, user string) (string, error)

	// SetDefaultDevice replaces the default. The device need not exist. It fails with ErrManyDefaults if the tenant has
	// MaxDefaults others.
	SetDefaultDevice(ctx context.Context, tenant, user, device string) error

	// DropDefaultDevice removes the default. It fails with ErrNoDefault if there is none.
	DropDefaultDevice(ctx context.Context, tenant, user string) error
}

// Errors of a DefaultStore.
var (
	ErrNoDefault    = Errorf(CodeNotFound, "The user has no default device.")
	ErrManyDefaults = Errorf(CodeRateLimited, "This tenant has %d default devices, the most that are kept. Remove some.",
		MaxDefaults)
)
