package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout bounds a health check; an image's HEALTHCHECK has its own, longer one.
const healthTimeout = 3 * time.Second

func (a *application) healthCommand() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a gateway whether it is ready (for container health checks)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			_, err := r.do(ctx, "GET", "/readyz", nil, nil)
			return err
		},
	}
	r.flags(cmd.Flags(), a.environ)
	return cmd
}
