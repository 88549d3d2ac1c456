package ws

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/mcp"
)

// loggedRejections is how many rejected tools of one page the log names.
const loggedRejections = 8

// unitsPerListing is the work that a device spends with each tools/list_changed notification.
const unitsPerListing = 20

// listLevel returns the log level for messages about a list: of the first list, or of later ones. A device can cause
// any number of those.
func listLevel(first bool, level slog.Level) slog.Level {
	if first {
		return level
	}
	return slog.LevelDebug
}

// offerMCP carries out an Offer, and what follows it.
func (c *conn) offerMCP(ctx context.Context, page mcp.Offer) error {
	if err := c.registerMCP(ctx, page); err != nil {
		_ = c.perform(ctx, c.mcp.Failed()) // if the outbox is full, the answer to err ends the connection
		return err
	}
	return c.perform(ctx, c.mcp.Registered())
}

// registerMCP registers the tools of one page, as register_tools would.
func (c *conn) registerMCP(ctx context.Context, page mcp.Offer) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	r := c.newRegistration(len(page.Tools))
	var drop []string
	r.inTurn(ctx, page.Tools, func(ctx context.Context, raw json.RawMessage) {
		rejected := len(r.rejected)
		name := r.admitMCP(ctx, raw)
		if len(r.rejected) > rejected && c.offers(name) { // with the definition it had before
			r.withdraw(name)
			drop = append(drop, name)
		}
	})
	waiting, err := r.review(ctx)
	if err != nil {
		return err
	}
	c.mcp.UseNames()
	if err := r.store(ctx, append(drop, waiting...)); err != nil {
		return err
	}
	if n := len(r.rejected); n > 0 {
		c.log().Log(ctx, listLevel(page.First, slog.LevelWarn), "tools of a device rejected",
			"number", n, "rejected", r.rejected[:min(n, loggedRejections)])
	}
	return nil
}

// retainMCP carries out a Retain, and what follows it.
func (c *conn) retainMCP(ctx context.Context, list mcp.Retain) error {
	gone := &unregisterToolsFrame{Type: typeUnregisterTools}
	for _, t := range c.local.Tools() {
		if _, listed := list.Listed[t.Name]; !listed {
			gone.Names = append(gone.Names, t.Name)
		}
	}
	if err := c.unregisterTools(ctx, gone); err != nil {
		_ = c.perform(ctx, c.mcp.Failed()) // as above
		return err
	}
	tools := c.local.Tools()
	after := c.mcp.Listed(tools, c.isPaired()) // an approver may still approve the other tools of a paired device
	c.log().Log(ctx, listLevel(list.First, slog.LevelInfo), "tools of a device listed", "tools", len(tools))
	return c.perform(ctx, after)
}

// admitMCP checks one definition and offers the tool if it is admitted. It returns the tool's name here, empty if
// another tool of the list has it.
func (r *registration) admitMCP(ctx context.Context, raw json.RawMessage) (name string) {
	tool := r.conn.mcp.Tool(raw)
	if tool.Refused != "" {
		r.reject(tool.Name, tool.Refused)
		if tool.Taken {
			return ""
		}
		return tool.Name
	}
	before := len(r.rejected)
	r.offerMCP(ctx, tool.Definition)
	if len(r.rejected) > before && strings.HasPrefix(r.rejected[before].Reason, registry.FieldOutputSchema+": ") {
		r.conn.log().Info("a tool is offered without its output schema", "tool", tool.Name,
			"reason", r.rejected[before].Reason)
		r.rejected = r.rejected[:before]
		r.offerMCP(ctx, mcp.WithoutOutput(raw))
	}
	return tool.Name
}

// offerMCP offers a tool if its definition is admitted. A tool that is already offered unchanged costs nothing.
func (r *registration) offerMCP(ctx context.Context, definition json.RawMessage) {
	if known, ok := r.conn.server.cfg.Admission.Known(definition); ok && r.offersSame(known.Spec) {
		return
	}
	r.admitTool(ctx, definition)
}

// offersSame reports whether the session already offers exactly this tool.
func (r *registration) offersSame(spec registry.ToolSpec) bool {
	return slices.ContainsFunc(r.conn.local.Tools(), func(t registry.ToolSpec) bool {
		return t.Name == spec.Name && t.Hash() == spec.Hash()
	})
}
