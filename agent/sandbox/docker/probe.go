package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

const probeTimeout = 10 * time.Second

// Probe says in words for an operator why containers cannot be used, or returns nil. It makes none. The error wraps
// sandbox.ErrUnavailable.
func Probe(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	api, err := client.New(client.WithHost(cfg.Host))
	if err != nil {
		return unavailable("the address "+cfg.Host, err)
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := usable(ctx, api, cfg.Host); err != nil {
		return err
	}
	if _, err = findImage(ctx, api, cfg.Image); isMissing(err) && cfg.Pull {
		return nil // The first command pulls it.
	}
	return err
}

// usable says why the engine at that address cannot confine programs, or returns nil. Engines leave out what they
// cannot do, with a warning that nobody reads; here nothing may be left out.
func usable(ctx context.Context, api *client.Client, host string) error {
	answer, err := api.Info(ctx, client.InfoOptions{})
	switch {
	case err != nil && strings.Contains(err.Error(), "permission denied"): // The client keeps nothing but the text.
		return fmt.Errorf("%w: no permission to use %s; run as a user who may, such as one in the group docker: %w",
			sandbox.ErrUnavailable, host, err)
	case err != nil:
		return fmt.Errorf("%w: no engine answers at %s; start one, or set its address: %w",
			sandbox.ErrUnavailable, host, err)
	}
	if lack := lacks(answer.Info); lack != "" {
		return fmt.Errorf("%w: the engine at %s %s", sandbox.ErrUnavailable, host, lack)
	}
	return nil
}

// lacks says what an engine cannot do that containers here need, or nothing.
func lacks(info system.Info) string {
	has := func(option string) bool { // as in name=seccomp,profile=default
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return slices.Contains(strings.Split(o, ","), option)
		})
	}
	switch {
	case info.OSType != "linux":
		return "runs containers of " + info.OSType + ", not of linux"
	case !info.MemoryLimit:
		return "cannot limit memory; give it the memory controller of cgroups"
	case !info.PidsLimit:
		return "cannot limit processes; give it the pids controller of cgroups"
	case !info.CPUCfsQuota:
		return "cannot limit CPUs; give it the cpu controller of cgroups"
	case !has("name=seccomp"):
		return "has no seccomp; use one with its default profile"
	case has("profile=unconfined"):
		return "leaves programs unconfined by seccomp; give it its default profile"
	case has("name=rootless"), has("name=userns"):
		return "maps user ids, so programs could not write to their workspaces; use one without user namespaces"
	}
	return ""
}
