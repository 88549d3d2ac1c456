package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/ws/client"
)

// Delays before an MCP server is started again. One that ran for stableServer has its first failure again.
const (
	minServerDelay = 500 * time.Millisecond
	maxServerDelay = 30 * time.Second
	stableServer   = 30 * time.Second
)

// checkMCP refuses flags that mean nothing beside --mcp.
func (o deviceOptions) checkMCP() error {
	if o.node || o.ask || o.contacts != "" || o.location != "" || len(o.tools) > 0 {
		return errors.New("--mcp has the tools of that server alone: leave out --tools, --contacts, --ask, --node " +
			"and --location")
	}
	return nil
}

// mcpDevice makes an MCP server the device until ctx ends, and starts it again when it ends.
func (a *application) mcpDevice(ctx context.Context, o deviceOptions) error {
	if err := o.checkMCP(); err != nil {
		return err
	}
	log := newLogger(a.err, o.level(), "auto")
	c, err := a.newMCPDevice(ctx, o, log)
	if err != nil {
		return err
	}
	engine, err := host.New(host.Config{Program: a.self}) // which also hides what is in this process
	if err != nil {
		log.Warn("what the command starts may outlive it, and read the environment of this program", "reason", err)
	} else {
		defer func() { _ = engine.Close(context.WithoutCancel(ctx)) }()
	}
	delay := minServerDelay
	for {
		begin := time.Now()
		server, err := startStdioServer(runner(engine), o.mcp, a.environ, log)
		if err != nil {
			return fmt.Errorf("--mcp %q cannot be started: %w", o.mcp, err)
		}
		switch err := c.RunMCP(ctx, server); {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, client.ErrServer):
			return o.unpaired(err)
		}
		if time.Since(begin) >= stableServer {
			delay = minServerDelay
		}
		log.Warn("the MCP server has ended", "exit", server.exit(), "retry_in", delay.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		delay = min(2*delay, maxServerDelay)
	}
}

// runner returns an engine, or none if there is none.
func runner(e *host.Engine) sandbox.Engine {
	if e == nil {
		return nil
	}
	return e
}

// newMCPDevice builds the device, paired if that is asked for.
func (a *application) newMCPDevice(ctx context.Context, o deviceOptions, log *slog.Logger) (*client.Client, error) {
	endpoint, err := deviceURL(o.remote.base(), "/ws/mcp")
	if err != nil {
		return nil, err
	}
	options := []client.Option{
		client.WithToken(o.remote.token), client.WithName(o.name), client.WithSession(o.session),
		client.WithDevice(o.deviceID, o.name, runtime.GOOS), client.WithLabels(o.labels), client.WithLogger(log),
		client.WithState(func(s client.State) {
			if s.Phase == client.PhaseConnected {
				log.Info("connected")
			}
		}),
	}
	if o.pair {
		credential, err := a.pairDevice(ctx, o, endpoint, nil)
		if err != nil {
			return nil, err
		}
		options = append(options, client.WithCredential(credential))
	}
	return client.New(endpoint, options...)
}
