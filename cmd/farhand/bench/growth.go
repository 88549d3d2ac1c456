package bench

import "context"

// Growth prints how cost grows.
func Growth(ctx context.Context, o Options) error { _ = ctx; _ = o; return nil }
