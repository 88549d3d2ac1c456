package browser

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the accessibility tree of one frame.
const (
	maxTree  = 6 << 20  // bytes of its nodes that are kept
	nodeCost = 256      // bytes of a node without its texts and children
	maxRaw   = 64 << 20 // bytes that are parsed; Chromium describes a node with about 1 KiB
)

// tree is the accessibility tree of a frame, with what a snapshot shows.
type tree struct {
	Nodes []*node `json:"nodes"`
	Cut   bool    `json:"cut"` // it is too large, and its deepest nodes are missing
}

// node is an element of a page, or a text.
type node struct {
	ID       string            `json:"i"`
	Ignored  bool              `json:"g,omitzero"`
	Role     string            `json:"r,omitzero"`
	Name     string            `json:"n,omitzero"` // in one line
	Value    string            `json:"v,omitzero"` // in one line
	Props    map[string]string `json:"p,omitzero"` // those of shownProps, focusable, and url
	Children []string          `json:"c,omitzero"`
	Element  cdp.BackendNodeID `json:"e,omitzero"`
}

func (n *node) cost() int {
	cost := nodeCost + len(n.Role) + len(n.Name) + len(n.Value)
	for name, value := range n.Props {
		cost += nodeCost/2 + len(name) + len(value)
	}
	return cost
}

// shownProps are the properties that a line of a snapshot shows, in this order.
var shownProps = []string{"checked", "pressed", "expanded", "selected", "disabled", "required", "readonly", "focused",
	"invalid", "level"}

// treeReader reads the tree of a frame from Chromium's answer.
type treeReader struct {
	in   *jsontext.Decoder
	room int // bytes
	cut  bool
}

// readTree reads the answer to a request for a tree, and makes the tree the result of msg. It keeps maxTree bytes:
// Chromium sends the nodes near the root first.
func readTree(m *message, msg *cdproto.Message) error {
	r := &treeReader{room: maxTree, in: jsontext.NewDecoder(io.LimitReader(m, maxRaw),
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
	var nodes bytes.Buffer
	err := r.object(func(name string) error {
		switch name {
		case "error":
			msg.Error = new(cdproto.Error)
			return jsonv2.UnmarshalDecode(r.in, msg.Error)
		case "result":
			return r.object(func(name string) error {
				if name != "nodes" {
					return r.in.SkipValue()
				}
				return r.nodes(&nodes)
			})
		}
		return r.in.SkipValue()
	})
	if rest := m.discard(); rest != nil {
		return rest
	}
	r.cut = r.cut || err != nil
	if nodes.Len() == 0 && err != nil {
		return errTooLong
	}
	if msg.Error != nil {
		return nil
	}
	cut := "false"
	if r.cut {
		cut = "true"
	}
	msg.Result = slices.Concat([]byte(`{"cut":`+cut+`,"nodes":[`), nodes.Bytes(), []byte("]}"))
	return nil
}

var errFull = errors.New("browser: no room for more nodes")

// nodes writes the nodes that there is room for, but not those of lines of text, which repeat their parents' text.
func (r *treeReader) nodes(to *bytes.Buffer) error {
	return r.array(func() error {
		n, err := r.node()
		if err != nil || n.Role == "InlineTextBox" {
			return err
		}
		if r.room -= n.cost(); r.room < 0 {
			r.cut = true
			return errFull
		}
		text, err := jsonv2.Marshal(n, chromedp.DefaultMarshalOptions)
		if err != nil {
			return err
		}
		if to.Len() > 0 {
			to.WriteByte(',')
		}
		to.Write(text)
		return nil
	})
}

func (r *treeReader) node() (*node, error) {
	n := new(node)
	err := r.object(func(name string) (err error) {
		switch name {
		case "nodeId":
			n.ID, err = r.text()
		case "ignored":
			var text string
			text, err = r.text()
			n.Ignored = text == "true"
		case "role":
			n.Role, err = r.value()
		case "name":
			n.Name, err = r.value()
			n.Name = short(n.Name, maxShown)
		case "value":
			n.Value, err = r.value()
			n.Value = short(n.Value, maxShown)
		case "properties":
			err = r.array(func() error { return r.property(n) })
		case "childIds":
			err = r.array(func() error { return r.child(n) })
		case "backendDOMNodeId":
			err = jsonv2.UnmarshalDecode(r.in, &n.Element)
		default:
			err = r.in.SkipValue()
		}
		return err
	})
	if n.Ignored {
		n.Name, n.Value, n.Props = "", "", nil // not shown
	}
	return n, err
}

// child reads the id of a child.
func (r *treeReader) child(n *node) error {
	id, err := r.text()
	if cost := len(id) + nodeCost/8; r.room >= cost {
		n.Children = append(n.Children, id)
		r.room -= cost
	} else {
		r.cut = true
	}
	return err
}

func (r *treeReader) property(n *node) error {
	var name, value string
	err := r.object(func(member string) (err error) {
		switch member {
		case "name":
			name, err = r.text()
		case "value":
			value, err = r.value()
		default:
			err = r.in.SkipValue()
		}
		return err
	})
	if err == nil && (name == "focusable" || name == "url" || slices.Contains(shownProps, name)) {
		if n.Props == nil {
			n.Props = make(map[string]string)
		}
		n.Props[name] = short(value, maxShown)
	}
	return err
}

// value reads a value of the accessibility tree.
func (r *treeReader) value() (text string, err error) {
	err = r.object(func(name string) (err error) {
		if name != "value" {
			return r.in.SkipValue()
		}
		text, err = r.text()
		return err
	})
	return text, err
}

// text reads a string, number or Boolean as text. Other values have none.
func (r *treeReader) text() (string, error) {
	switch r.in.PeekKind() {
	case '"', '0', 't', 'f':
		token, err := r.in.ReadToken()
		if err != nil {
			return "", err
		}
		return strings.Clone(token.String()), nil
	default:
		return "", r.in.SkipValue()
	}
}

// object calls member for each member of an object; member reads its value.
func (r *treeReader) object(member func(name string) error) error {
	if r.in.PeekKind() != '{' {
		return r.in.SkipValue()
	}
	if _, err := r.in.ReadToken(); err != nil {
		return err
	}
	for r.in.PeekKind() == '"' {
		token, err := r.in.ReadToken()
		if err != nil {
			return err
		}
		if err := member(token.String()); err != nil {
			return err
		}
	}
	_, err := r.in.ReadToken()
	return err
}

// array calls element for each element of an array; element reads it.
func (r *treeReader) array(element func() error) error {
	if r.in.PeekKind() != '[' {
		return r.in.SkipValue()
	}
	if _, err := r.in.ReadToken(); err != nil {
		return err
	}
	for kind := r.in.PeekKind(); kind != ']' && kind > 0; kind = r.in.PeekKind() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := r.in.ReadToken()
	return err
}
