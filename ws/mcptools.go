package ws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Bounds of one list of tools, over all its pages. The gateway requests nothing beyond them.
const (
	maxListPages  = 64
	maxListCursor = 4 << 10 // bytes
	listedTimes   = 4       // times MaxToolBytes: listed schemas contain white space, and some tools are rejected
)

// loggedRejections is how many rejected tools of one page the log names.
const loggedRejections = 8

// unitsPerListing is the work that a device spends with each tools/list_changed notification.
const unitsPerListing = 20

// mcpListing is a list of tools that is being read.
type mcpListing struct {
	pages  int
	bytes  int
	tools  int
	theirs map[string]string // names of tools here → at the device
}

// listTools requests the first page of tools.
func (c *conn) listTools() error {
	if c.mcp.stage != mcpReady {
		c.mcp.stage = mcpListingTools
	}
	c.mcp.listing, c.mcp.changed = &mcpListing{theirs: make(map[string]string)}, false
	return c.listPage("", true)
}

// listPage requests one page. The timeout covers the whole list and starts with the first page.
func (c *conn) listPage(cursor string, first bool) error {
	id := c.mcp.newRequest()
	if first {
		c.mcp.arm(c.lateMCP)
	}
	c.mcp.mu.Lock()
	meta := c.mcp.meta
	c.mcp.mu.Unlock()
	return c.sendMCP(mcpListFrame(id, cursor, meta))
}

// listAgain lists the tools again after a change. If a list is still being read, the new one starts after it.
func (c *conn) listAgain() error {
	c.budget.spend(unitsPerListing)
	c.mcp.talk.Lock()
	defer c.mcp.talk.Unlock()
	if c.mcp.stage < mcpListingTools || c.mcp.waits() {
		c.mcp.changed = true
		return nil
	}
	return c.listTools()
}

// toolsListed handles one page of tools. It registers the page's tools immediately. After the last page it removes the
// tools that were on no page.
func (c *conn) toolsListed(ctx context.Context, f *mcpFrame) error {
	list := c.mcp.listing
	if f.failed != nil {
		c.log().Info("a device does not list its tools", "error", f.failed)
		if f.failed.code != rpcNoMethod && c.mcp.stage == mcpReady {
			c.mcp.disarm()
			return c.listChanged()
		}
		return c.endList(ctx)
	}
	r, err := resultFields(f.result)
	if err != nil {
		return c.failMCP(err)
	}
	tools, cursor := r.array("tools"), r.optionalText("nextCursor")
	if *r.err != nil {
		return c.failMCP(*r.err)
	}
	list.pages++
	list.bytes += len(f.result)
	list.tools += len(tools)
	whole := list.bytes <= listedTimes*c.server.cfg.Admission.Limits().MaxToolBytes && list.tools <= maxDefinitions
	if whole {
		if err := c.registerMCP(ctx, tools); err != nil {
			return err
		}
		if cursor == nil || *cursor == "" {
			return c.endList(ctx)
		}
	}
	if !whole || list.pages == maxListPages || len(*cursor) > maxListCursor {
		c.log().Warn("the list of a device's tools is too long; its end is not read", "tools", list.tools,
			"pages", list.pages, "bytes", list.bytes)
		return c.endList(ctx)
	}
	return c.listPage(*cursor, false)
}

// registerMCP registers the tools of one page, as register_tools would.
func (c *conn) registerMCP(ctx context.Context, tools []json.RawMessage) error {
	c.registering.Lock()
	defer c.registering.Unlock()
	r := c.newRegistration(len(tools))
	var drop []string
	r.inTurn(ctx, tools, func(ctx context.Context, raw json.RawMessage) {
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
	c.mcp.mu.Lock()
	c.mcp.theirs = c.mcp.listing.renamed(c.mcp.theirs)
	c.mcp.mu.Unlock()
	if err := r.store(ctx, append(drop, waiting...)); err != nil {
		return err
	}
	if n := len(r.rejected); n > 0 {
		c.log().Log(ctx, c.mcp.level(slog.LevelWarn), "tools of a device rejected",
			"number", n, "rejected", r.rejected[:min(n, loggedRejections)])
	}
	return nil
}

// renamed returns the tools whose names differ at the device, by their names here. The result has the names in before,
// updated with the list that is being read.
func (l *mcpListing) renamed(before map[string]string) map[string]string {
	names := maps.Clone(before)
	for ours, theirs := range l.theirs {
		if ours == theirs {
			delete(names, ours)
			continue
		}
		if names == nil {
			names = make(map[string]string)
		}
		names[ours] = theirs
	}
	return names
}

// endList completes a list and removes the tools that are not on it.
func (c *conn) endList(ctx context.Context) error {
	list := c.mcp.listing
	c.mcp.disarm()
	level := c.mcp.level(slog.LevelInfo)
	c.mcp.listing, c.mcp.stage = nil, mcpReady
	gone := &unregisterToolsFrame{Type: typeUnregisterTools}
	for _, t := range c.local.Tools() {
		if _, listed := list.theirs[t.Name]; !listed {
			gone.Names = append(gone.Names, t.Name)
		}
	}
	if err := c.unregisterTools(ctx, gone); err != nil {
		return err
	}
	names := list.renamed(nil)
	if !c.isPaired() { // an approver may still approve the other tools of a paired device
		maps.DeleteFunc(names, func(ours, _ string) bool { return !c.offers(ours) })
	}
	c.mcp.mu.Lock()
	c.mcp.ready, c.mcp.theirs = true, names
	c.mcp.mu.Unlock()
	c.log().Log(ctx, level, "tools of a device listed", "tools", len(c.local.Tools()))
	return c.listChanged()
}

// listChanged lists the tools again if they have changed since they were requested.
func (c *conn) listChanged() error {
	if !c.mcp.changed {
		return nil
	}
	return c.listTools()
}

// level returns the log level for messages about a list: first for the first list, debug for later ones. A device can
// cause any number of later lists.
func (m *mcpLink) level(first slog.Level) slog.Level {
	if m.stage == mcpReady {
		return slog.LevelDebug
	}
	return first
}

// admitMCP checks one definition and offers the tool if it is admitted. It returns the tool's name here.
func (r *registration) admitMCP(ctx context.Context, raw json.RawMessage) (name string) {
	theirs, definition, bad := nativeDefinition(raw, true)
	name = toolNameOf(theirs)
	if bad != nil {
		r.reject(name, bad.message)
		return name
	}
	listed := r.conn.mcp.listing.theirs
	if other, taken := listed[name]; taken && other != theirs {
		r.reject(name, "another tool of this device, "+quoteShort(other)+", has this name here already")
		return "" // the other tool stays
	}
	listed[name] = theirs
	before := len(r.rejected)
	r.offerMCP(ctx, definition)
	if len(r.rejected) > before && strings.HasPrefix(r.rejected[before].Reason, registry.FieldOutputSchema+": ") {
		r.conn.log().Info("a tool is offered without its output schema", "tool", name,
			"reason", r.rejected[before].Reason)
		r.rejected = r.rejected[:before]
		_, definition, _ = nativeDefinition(raw, false)
		r.offerMCP(ctx, definition)
	}
	return name
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

// nativeDefinition converts an MCP tool into a definition of the device protocol, with or without its output schema.
func nativeDefinition(raw json.RawMessage, output bool) (theirs string, definition json.RawMessage, bad *frameError) {
	members, reason, ok := splitObject(nil, raw)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return "", nil, invalidMessage("tool: %s", reason)
	}
	f := &fields{members: members, err: &bad}
	theirs = f.text("name")
	if string(memberOf(f.value("execution"), "taskSupport")) == `"required"` {
		f.fail("execution", "this tool runs as a task of MCP only, which this gateway does not begin")
	}
	description := f.optionalText("description")
	if description == nil || *description == "" {
		description = f.optionalText("title")
	}
	if len(theirs) > maxTheirName {
		f.fail("name", "must have at most "+strconv.Itoa(maxTheirName)+" bytes")
		theirs = short(theirs)
	}
	if bad != nil {
		return theirs, nil, bad
	}
	b := strictjson.AppendString([]byte(`{"name":`), toolNameOf(theirs))
	if description != nil {
		b = strictjson.AppendString(append(b, `,"description":`...), *description)
	}
	if schema := f.value("inputSchema"); schema != nil {
		b = append(append(b, `,"parameters":`...), schema...)
	}
	if schema := f.value("outputSchema"); schema != nil && output {
		b = append(append(b, `,"`+registry.FieldOutputSchema+`":`...), schema...)
	}
	if hints := f.value("annotations"); hints != nil {
		b = append(append(b, `,"annotations":`...), hints...)
	}
	return theirs, append(b, '}'), nil
}

// MCP allows names of 128 bytes. Old servers have names of any length with any characters.
const (
	maxTheirName   = 256
	maxToolName    = 64
	nameHashDigits = 8
)

// toolNameOf returns the name here of an MCP tool. A valid name stays unchanged. Otherwise each invalid character
// becomes an underscore, a name that begins with . or - gets an underscore in front, and a name that is too long ends
// with a part of its hash.
func toolNameOf(theirs string) string {
	if theirs == "" || registry.ValidToolName(theirs) {
		return theirs
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.-", r):
			return r
		default:
			return '_'
		}
	}, theirs)
	if name[0] == '.' || name[0] == '-' {
		name = "_" + name
	}
	if len(name) > maxToolName {
		sum := sha256.Sum256([]byte(theirs))
		name = name[:maxToolName-nameHashDigits-1] + "_" + hex.EncodeToString(sum[:])[:nameHashDigits]
	}
	return name
}
