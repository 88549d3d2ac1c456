package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// mcpRevision is the protocol revision of the requests. With it each request is independent.
const mcpRevision = "2026-07-28"

// newMCPCaller returns a caller of the echo tool of one session over MCP. All tools of the token are in scope. A tool's
// name then ends in its session.
func newMCPCaller(pod, session string, payload int) bench.Caller {
	name := bench.EchoTool + "__" + session
	return bench.NewHTTPCaller(pod, func() string { return "" }, payload, bench.Request{
		Path: "/mcp", Token: benchToken,
		Headers: "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: " + mcpRevision +
			"\r\nMcp-Method: tools/call\r\nMcp-Name: " + name + "\r\n",
		Before: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"` + mcpRevision + `",` +
			`"io.modelcontextprotocol/clientCapabilities":{}},"name":"` + name + `","arguments":{"text":"`,
		Behind: `"}}}`,
	})
}

// newKeyCaller returns the i-th caller that uses API keys in rotation.
func newKeyCaller(o *bench.Options, pod string, keys, sessions []string, i int) bench.Caller {
	n := i % len(keys)
	var requests []bench.Request
	for _, key := range slices.Concat(keys[n:], keys[:n]) {
		requests = append(requests, bench.CallRequest(key))
	}
	return bench.NewHTTPCaller(pod, o.Spread.Chooser(sessions, i), o.Payload, requests...)
}

// eachCallers is the number of callers of callEach.
const eachCallers = 64

// callEach calls each of the sessions once through a pod.
func callEach(ctx context.Context, pod string, sessions []string, payload int) error {
	var work errgroup.Group
	for part := range slices.Chunk(sessions, max(1, len(sessions)/eachCallers)) {
		work.Go(func() error {
			next := 0
			session := func() string { next++; return part[next-1] }
			c := bench.NewHTTPCaller(pod, session, payload, bench.CallRequest(benchToken))
			defer c.Close()
			for range part {
				if code := c.Call(); code != "" {
					return fmt.Errorf("a first call failed: %s", code)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return nil
		})
	}
	return work.Wait()
}
