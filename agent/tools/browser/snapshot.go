package browser

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
)

const (
	maxSnapshot = 40 << 10 // bytes
	maxFrames   = 20       // nested frames of a page
	maxIndent   = 20       // levels
)

// snapshot returns the page as a text tree, and gives its elements new refs.
func (t *tab) snapshot(ctx context.Context) (string, error) {
	top, err := cdp.Call(ctx, t.wire, page.GetFrameTree, cdp.Empty{})
	if err != nil {
		return "", err
	}
	t.refs.expire()
	s := &snapshot{tab: t, inner: make(map[cdp.BackendNodeID]cdp.FrameID)}
	s.findFrames(ctx, top.FrameTree)
	if err := s.frame(ctx, top.FrameTree.Frame.ID, 0); err != nil {
		return "", err
	}
	if s.hidden > 0 {
		fmt.Fprintf(&s.text, "(%d more lines not shown)\n", s.hidden)
	}
	if s.text.Len() == 0 {
		return "(the page is empty)\n", nil
	}
	return s.text.String(), nil
}

// snapshot is a snapshot in progress.
type snapshot struct {
	tab    *tab
	inner  map[cdp.BackendNodeID]cdp.FrameID // frames by the element that holds them
	text   strings.Builder
	hidden int // lines
}

// findFrames maps elements to the frames that they hold. Frames of other sites run in other processes, and are not in
// the tree.
func (s *snapshot) findFrames(ctx context.Context, tree *page.FrameTree) {
	for _, child := range tree.ChildFrames {
		if len(s.inner) >= maxFrames {
			return
		}
		owner, err := cdp.Call(ctx, s.tab.wire, dom.GetFrameOwner, dom.GetFrameOwnerParams{FrameID: child.Frame.ID})
		if err == nil {
			s.inner[owner.BackendNodeID] = child.Frame.ID
			s.findFrames(ctx, child)
		}
	}
}

// frame writes the accessibility tree of one frame.
func (s *snapshot) frame(ctx context.Context, id cdp.FrameID, depth int) error {
	if s.text.Len() >= maxSnapshot { // its tree would only take memory
		s.hidden++
		return nil
	}
	tree, err := cdp.Call(ctx, s.tab.wire, accessibility.GetFullAXTree,
		accessibility.GetFullAXTreeParams{FrameID: id})
	if err != nil || len(tree.Nodes) == 0 {
		return err
	}
	f := &frameTree{snapshot: s, id: id, nodes: make(map[accessibility.NodeID]*accessibility.Node, len(tree.Nodes))}
	for _, n := range tree.Nodes {
		f.nodes[n.NodeID] = n
	}
	return f.children(ctx, tree.Nodes[0], depth)
}

// frameTree is the tree of one frame while it is written.
type frameTree struct {
	*snapshot
	id    cdp.FrameID
	nodes map[accessibility.NodeID]*accessibility.Node
}

// children writes the descendants of a node.
func (f *frameTree) children(ctx context.Context, n *accessibility.Node, depth int) error {
	for _, id := range n.ChildIDs {
		child := f.nodes[id]
		if child == nil {
			continue
		}
		delete(f.nodes, id) // visit each node once, even if the tree repeats it
		if err := f.node(ctx, child, n, depth); err != nil {
			return err
		}
	}
	return nil
}

// silentRoles are roles that get no line of their own.
var silentRoles = [...]string{"none", "presentation", "generic", "paragraph", "Section", "LineBreak", "ListMarker",
	"LabelText", "strong", "emphasis", "Ruby"}

// actRoles are the roles of elements that a model can act on.
var actRoles = [...]string{"button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox",
	"option", "menuitem", "menuitemcheckbox", "menuitemradio", "tab", "switch", "slider", "spinbutton", "treeitem",
	"DisclosureTriangle", "ColorWell", "Date", "DateTime", "InputTime", "img", "image"}

// node writes a node with its descendants.
func (f *frameTree) node(ctx context.Context, n, parent *accessibility.Node, depth int) error {
	role, name := value(n.Role), value(n.Name)
	switch {
	case role == "InlineTextBox":
		return nil
	case role == "StaticText":
		if !n.Ignored && strings.TrimSpace(name) != "" && name != value(parent.Name) {
			f.line(depth, "text "+quote(name))
		}
		return nil
	}
	props := properties(n)
	acts := slices.Contains(actRoles[:], role) || props["focusable"] == "true"
	holdsText := (role == "generic" || role == "group") && f.holdsText(n)
	if n.Ignored || slices.Contains(silentRoles[:], role) && !acts && !holdsText {
		return f.children(ctx, n, depth)
	}
	f.line(depth, f.describe(n, role, name, props, acts || holdsText))
	if role == "Iframe" {
		inner, ok := f.inner[n.BackendDOMNodeID]
		if !ok {
			f.line(depth+1, "(frame of another site, not shown)")
			return nil
		}
		return f.frame(ctx, inner, depth+1)
	}
	if isField(role) && value(n.Value) != "" {
		return nil // its text is its value
	}
	return f.children(ctx, n, depth+1)
}

// holdsText reports whether a node has text of its own. Draggable elements and drop targets often do.
func (f *frameTree) holdsText(n *accessibility.Node) bool {
	return slices.ContainsFunc(n.ChildIDs, func(id accessibility.NodeID) bool {
		child := f.nodes[id]
		return child != nil && value(child.Role) == "StaticText" && strings.TrimSpace(value(child.Name)) != ""
	})
}

// describe returns the line of a node.
func (f *frameTree) describe(n *accessibility.Node, role, name string, props map[string]string, acts bool) string {
	parts := []string{role}
	if name != "" {
		parts = append(parts, quote(name))
	}
	if acts && n.BackendDOMNodeID != 0 && f.text.Len() < maxSnapshot {
		parts = append(parts, "["+f.tab.refs.add(element{node: n.BackendDOMNodeID, frame: f.id})+"]")
	}
	for _, key := range [...]string{"checked", "pressed", "expanded", "selected", "disabled", "required", "readonly",
		"focused", "invalid", "level"} {
		switch v := props[key]; v {
		case "", "false":
			if v == "" || key != "checked" && key != "expanded" {
				continue
			}
			parts = append(parts, "not "+key)
		case "true":
			parts = append(parts, key)
		default:
			parts = append(parts, key+"="+short(v, maxShown))
		}
	}
	if v := value(n.Value); v != "" {
		if strings.Trim(v, "•") == "" {
			v = "(password, hidden)"
		}
		parts = append(parts, "value="+quote(v))
	}
	if url := props["url"]; url != "" && role == "link" {
		parts = append(parts, "to="+quote(url))
	}
	return strings.Join(parts, " ")
}

func (s *snapshot) line(depth int, text string) {
	if s.text.Len() >= maxSnapshot {
		s.hidden++
		return
	}
	s.text.WriteString(strings.Repeat("  ", min(depth, maxIndent)))
	s.text.WriteString("- " + text + "\n")
}

func isField(role string) bool {
	return role == "textbox" || role == "searchbox" || role == "spinbutton"
}

// quote returns text of the page in one line, quoted.
func quote(text string) string { return strconv.Quote(short(text, maxShown)) }

// value returns a value as text.
func value(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if jsonv2.Unmarshal(v.Value, &text) == nil {
		return text
	}
	return string(v.Value)
}

// properties returns the properties of a node by name.
func properties(n *accessibility.Node) map[string]string {
	all := make(map[string]string, len(n.Properties))
	for _, p := range n.Properties {
		all[string(p.Name)] = value(p.Value)
	}
	return all
}
