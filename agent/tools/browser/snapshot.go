package browser

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
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
	if s.cut {
		s.text.WriteString("(the page is too large: elements deep in it are missing)\n")
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
	hidden int  // lines
	cut    bool // a tree was too large
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

// frame writes the accessibility tree of one frame, and those of its frames. It keeps one tree at a time.
func (s *snapshot) frame(ctx context.Context, id cdp.FrameID, depth int) error {
	if s.text.Len() >= maxSnapshot { // its tree would only take time
		s.hidden++
		return nil
	}
	lines, err := s.frameLines(ctx, id, depth)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.frame == "" {
			s.line(l.text)
		} else if err := s.frame(ctx, l.frame, l.depth); err != nil {
			return err
		}
	}
	return nil
}

// line adds a line, if there is room.
func (s *snapshot) line(text string) {
	if s.text.Len() >= maxSnapshot {
		s.hidden++
		return
	}
	s.text.WriteString(text)
}

// frameLines returns the lines of one frame, with places for the lines of its frames.
func (s *snapshot) frameLines(ctx context.Context, id cdp.FrameID, depth int) ([]line, error) {
	var read tree
	err := s.tab.wire.Call(ctx, accessibility.CommandGetFullAXTree,
		accessibility.GetFullAXTreeParams{FrameID: id}, &read)
	if err != nil || len(read.Nodes) == 0 {
		return nil, err
	}
	s.cut = s.cut || read.Cut
	f := &frameTree{snapshot: s, id: id, nodes: make(map[string]*node, len(read.Nodes))}
	for _, n := range read.Nodes {
		f.nodes[n.ID] = n
	}
	f.children(read.Nodes[0], depth)
	return f.lines, nil
}

// line is a line of a frame, or the place of an inner frame.
type line struct {
	text  string
	frame cdp.FrameID // empty: a line
	depth int         // of the inner frame
}

// frameTree is the tree of one frame while it is written.
type frameTree struct {
	*snapshot
	id    cdp.FrameID
	nodes map[string]*node
	lines []line
	size  int // bytes of the lines
}

// children writes the descendants of a node.
func (f *frameTree) children(n *node, depth int) {
	for _, id := range n.Children {
		child := f.nodes[id]
		if child == nil {
			continue
		}
		delete(f.nodes, id) // visit each node once, even if the tree repeats it
		f.node(child, n, depth)
	}
}

// silentRoles are roles that get no line of their own.
var silentRoles = [...]string{"none", "presentation", "generic", "paragraph", "Section", "LineBreak", "ListMarker",
	"LabelText", "strong", "emphasis", "Ruby"}

// actRoles are the roles of elements that a model can act on.
var actRoles = [...]string{"button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox",
	"option", "menuitem", "menuitemcheckbox", "menuitemradio", "tab", "switch", "slider", "spinbutton", "treeitem",
	"DisclosureTriangle", "ColorWell", "Date", "DateTime", "InputTime", "img", "image"}

// node writes a node with its descendants.
func (f *frameTree) node(n, parent *node, depth int) {
	if n.Role == "StaticText" {
		if n.Name != "" && n.Name != parent.Name {
			f.add(depth, "text "+strconv.Quote(n.Name))
		}
		return
	}
	acts := slices.Contains(actRoles[:], n.Role) || n.Props["focusable"] == "true"
	holdsText := (n.Role == "generic" || n.Role == "group") && f.holdsText(n)
	if n.Ignored || slices.Contains(silentRoles[:], n.Role) && !acts && !holdsText {
		f.children(n, depth)
		return
	}
	f.add(depth, f.describe(n, acts || holdsText))
	if n.Role == "Iframe" {
		if inner, ok := f.inner[n.Element]; ok {
			f.lines = append(f.lines, line{frame: inner, depth: depth + 1})
		} else {
			f.add(depth+1, "(frame of another site, not shown)")
		}
		return
	}
	if !isField(n.Role) || n.Value == "" { // otherwise its text is its value
		f.children(n, depth+1)
	}
}

// full reports whether the text has no room for further lines of the frame.
func (f *frameTree) full() bool { return f.text.Len()+f.size >= maxSnapshot }

// add adds a line, if there is room.
func (f *frameTree) add(depth int, text string) {
	if f.full() {
		f.hidden++
		return
	}
	text = strings.Repeat("  ", min(depth, maxIndent)) + "- " + text + "\n"
	f.lines, f.size = append(f.lines, line{text: text}), f.size+len(text)
}

// holdsText reports whether a node has text of its own. Draggable elements and drop targets often do.
func (f *frameTree) holdsText(n *node) bool {
	return slices.ContainsFunc(n.Children, func(id string) bool {
		child := f.nodes[id]
		return child != nil && child.Role == "StaticText" && child.Name != ""
	})
}

// describe returns the line of a node.
func (f *frameTree) describe(n *node, acts bool) string {
	parts := []string{short(n.Role, maxShown)}
	if n.Name != "" {
		parts = append(parts, strconv.Quote(n.Name))
	}
	if acts && n.Element != 0 && !f.full() {
		parts = append(parts, "["+f.tab.refs.add(element{node: n.Element, frame: f.id})+"]")
	}
	for _, key := range shownProps {
		switch v := n.Props[key]; v {
		case "", "false":
			if v == "" || key != "checked" && key != "expanded" {
				continue
			}
			parts = append(parts, "not "+key)
		case "true":
			parts = append(parts, key)
		default:
			parts = append(parts, key+"="+v)
		}
	}
	if v := n.Value; v != "" {
		if strings.Trim(v, "•…") == "" {
			v = "(password, hidden)"
		}
		parts = append(parts, "value="+strconv.Quote(v))
	}
	if url := n.Props["url"]; url != "" && n.Role == "link" {
		parts = append(parts, "to="+strconv.Quote(url))
	}
	return strings.Join(parts, " ")
}

func isField(role string) bool {
	return role == "textbox" || role == "searchbox" || role == "spinbutton"
}

// quote returns text of the page in one line, quoted.
func quote(text string) string { return strconv.Quote(short(text, maxShown)) }
