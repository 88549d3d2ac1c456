package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Bounds of one list of tools. Tools beyond them are ignored.
const (
	maxPages     = 32
	maxListed    = 1024    // tools
	maxListBytes = 4 << 20 // of their definitions
	maxNotes     = 16      // reasons that are kept, besides that the list is too long
	maxTheirName = 4 << 10 // bytes of a tool's own name, which is sent with each call

	maxRemembered = 16 << 20 // bytes of list pages that the SDK may cache for one connection
	pageOverhead  = 1 << 10  // bytes of a page, besides its tools
)

type listing struct {
	tools []admitted
	notes []string // which tools were not admitted, and why; written by the gateway
}

// admitted is one tool: its definition in the gateway, and its name at the server.
type admitted struct {
	spec registry.ToolSpec
	name string
}

func (l *listing) note(format string, args ...any) {
	if len(l.notes) < maxNotes {
		l.notes = append(l.notes, fmt.Sprintf(format, args...))
	}
}

// tooLong notes that the list was cut off. This note is exempt from maxNotes.
func (l *listing) tooLong(seen int) *listing {
	l.notes = append(l.notes, fmt.Sprintf(
		"its list of tools is too long; only the first %d were read", seen))
	return l
}

func (c *connection) list(cfg *Config) (*listing, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.server.Connect,
		fmt.Errorf("no list of tools within %v", c.server.Connect))
	defer cancel()
	ctx, attempt := newAttempt(ctx, "")
	defer c.finishAttempt(attempt)
	c.beginList()
	defer c.listing.Store(false)
	l, cursor, size, seen := new(listing), "", 0, 0
	var names agent.Namesakes
	admitted := agent.SessionTools{Names: &names}
	for page := 0; ; page++ {
		if page == maxPages || seen >= maxListed || size >= maxListBytes {
			return l.tooLong(seen), nil
		}
		res, err := c.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		switch wire := (*jsonrpc.Error)(nil); {
		case errors.As(err, &wire) && wire.Code == jsonrpc.CodeMethodNotFound:
			return l, nil // a server without tools
		case err != nil:
			return nil, c.why(ctx, err)
		}
		c.remember(cursor, res)
		for _, t := range res.Tools {
			if seen == maxListed || size >= maxListBytes {
				return l.tooLong(seen), nil
			}
			seen++
			size += c.admit(ctx, cfg, t, l, &admitted)
		}
		attempt.answers.release()
		if cursor = res.NextCursor; cursor == "" {
			return l, nil
		}
	}
}

// remember counts a cached page of the list. It ends the connection if the pages, by cursor, exceed maxRemembered. That
// happens if a server keeps returning new cursors.
func (c *connection) remember(cursor string, page *mcp.ListToolsResult) {
	size := pageOverhead + len(cursor) + len(page.NextCursor)
	for _, t := range page.Tools {
		input, _ := t.InputSchema.(json.RawMessage)
		output, _ := t.OutputSchema.(json.RawMessage)
		size += len(t.Name) + len(t.Description) + len(input) + len(output)
	}
	c.cached += size - c.pages[cursor]
	c.pages[cursor] = size
	if c.cached > maxRemembered {
		c.end(errors.New("the cursors of its list change all the time"))
	}
}

// trim reduces a page of tools to the fields that list reads, as raw JSON, because the SDK caches pages for the
// lifetime of the connection. It also drops the server's cache lifetime.
func trim(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := safely(next)(ctx, method, req)
		page, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		kept := &mcp.ListToolsResult{NextCursor: page.NextCursor}
		for _, t := range page.Tools {
			if t == nil || len(kept.Tools) == maxListed+1 { // one more, so that list sees that there are too many
				continue
			}
			input, err := json.Marshal(t.InputSchema)
			output, outputErr := json.Marshal(t.OutputSchema) // may be long, and is never shown
			if err := errors.Join(err, outputErr); err != nil {
				return nil, err
			}
			if t.Annotations != nil {
				t.Annotations.Title = "" // may be long, and nothing shows it
			}
			kept.Tools = append(kept.Tools, &mcp.Tool{
				Name: t.Name, Description: t.Description, Annotations: t.Annotations,
				InputSchema: json.RawMessage(input), OutputSchema: json.RawMessage(output),
			})
		}
		return kept, nil
	}
}

// admit admits one tool, or notes why not. It returns the size of the definition in bytes.
func (c *connection) admit(
	ctx context.Context, cfg *Config, t *mcp.Tool, l *listing, others *agent.SessionTools,
) (size int) {
	size = len(t.Name) + len(t.Description)
	switch {
	case len(t.Name) > maxTheirName:
		l.note("%.80q: its name is longer than %d bytes", t.Name, maxTheirName)
		return size
	case !c.server.permits(t.Name):
		return size
	case c.runsAsTask(t.Name):
		l.note("%.80q: it runs only as an MCP task, which the gateway does not start", t.Name)
		return size
	}
	parameters, _ := t.InputSchema.(json.RawMessage)
	output, _ := t.OutputSchema.(json.RawMessage)
	var err error
	spec := registry.ToolSpec{
		Name: toolName(c.server.Name, t.Name), Description: t.Description, Parameters: parameters,
		TimeoutMS: c.server.Timeout.Milliseconds(), Annotations: annotationsOf(t.Annotations),
		OutputSchema: output,
	}
	size = spec.Size()
	if spec.Description == "" {
		spec.Description = fmt.Sprintf("%s of the MCP server %s.", spec.Name, c.server.Name)
	}
	if slices.ContainsFunc(l.tools, func(other admitted) bool { return other.spec.Name == spec.Name }) {
		err = errors.New("another tool has this name")
	} else {
		spec, err = cfg.Admission.Admit(ctx, spec, *others)
	}
	if err != nil && strings.HasPrefix(registry.AsError(err).Message, registry.FieldOutputSchema+": ") {
		l.note("%.80q is offered without its output schema: %s", t.Name, registry.AsError(err).Message)
		spec.OutputSchema = nil
		spec, err = cfg.Admission.Admit(ctx, spec, *others)
	}
	if err != nil {
		l.note("%.80q: %s", t.Name, registry.AsError(err).Message)
		return size
	}
	others.Tools++
	others.Bytes += spec.Size()
	others.Compiled += cfg.Admission.CompiledSize(ctx, &others.Who, spec)
	others.Names.Add(spec.Name)
	l.tools = append(l.tools, admitted{spec, t.Name})
	return size
}

// annotationsOf returns the hints of a tool. The SDK does not distinguish an absent readOnlyHint from false.
func annotationsOf(a *mcp.ToolAnnotations) *registry.Annotations {
	if a == nil {
		return nil
	}
	hints := &registry.Annotations{DestructiveHint: a.DestructiveHint, OpenWorldHint: a.OpenWorldHint}
	if a.ReadOnlyHint {
		hints.ReadOnlyHint = &a.ReadOnlyHint
	}
	if a.IdempotentHint {
		hints.IdempotentHint = &a.IdempotentHint
	}
	return hints
}

const separator = "__"

// serverName matches valid server names. With the separator appended, no such name is a prefix of another.
var serverName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

const (
	maxName = 64 // characters of a tool's name; models have the same limit
	hashed  = 8  // hex digits of the hash at the end of changed names
)

// Prefix returns the prefix of a server's tool names. No device may register a tool with this prefix, nor one named as
// the server.
func Prefix(server string) string { return server + separator }

// plainName replaces each character that tool names may not have by an underscore.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
}

// toolName returns the gateway's name of a server's tool: the server's prefix and the tool's own name. If that is no
// valid name, invalid characters are replaced, the name is truncated, and a hash of the original keeps it unique.
func toolName(server, tool string) string {
	plain := plainName(tool)
	name := Prefix(server) + plain
	if plain == tool && tool != "" && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(tool))
	end := "_" + hex.EncodeToString(sum[:])[:hashed]
	return name[:min(len(name), maxName-len(end))] + end
}

// Bounds of how often the gateway lists a server's tools after change notifications.
const (
	minRelist        = time.Second      // between two lists
	maxRelist        = time.Minute      // between two lists if the server keeps sending notifications
	resetRelistAfter = 10 * time.Second // after which the pause is reset
)

// relistDelay computes when to list a server's tools again after a change notification. The pause doubles with each
// notification. The zero value is ready.
type relistDelay struct {
	waited time.Duration // the pause before the last list; zero: none
	last   time.Time     // time of the last list
}

// next returns how long to wait before the next list, after a change notification. The pause resets if the server was
// quiet for twice the last pause, and at least for resetRelistAfter.
func (c *relistDelay) next() time.Duration {
	quiet := time.Since(c.last)
	if quiet >= max(2*c.waited, resetRelistAfter) {
		c.waited = 0
		return 0
	}
	c.waited = min(max(2*c.waited, minRelist), maxRelist)
	return max(0, c.waited-quiet)
}
