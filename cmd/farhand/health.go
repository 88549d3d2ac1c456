package main

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/caarlos0/env/v11"
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
	// In a container the check runs with the pod's own environment, which says where the pod listens.
	if vars := env.ToMap(a.environ); vars[envPrefix+"URL"] == "" && vars[envPrefix+"ADDR"] != "" {
		flag := cmd.Flags().Lookup("server")
		r.server = urlOf(vars[envPrefix+"ADDR"])
		flag.DefValue, flag.Usage = r.server, "URL of the gateway, or its host:port (FARHAND_URL, else FARHAND_ADDR)"
	}
	return cmd
}

// urlOf returns where a process of the same machine reaches what listens on addr.
func urlOf(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "http://" + addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}
