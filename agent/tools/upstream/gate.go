package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/farhand/farhand/internal/strictjson"
)

// Bounds of one message, besides its length.
const (
	maxValues  = 1 << 17  // JSON values: the SDK allocates some hundred bytes for each, however short
	maxMembers = 16       // of the message itself; JSON-RPC has five
	maxReport  = 16 << 10 // bytes of a message that may be a progress report

	maxNotice       = 64 << 10 // bytes of a notification, or of a request of the server
	maxNoticeValues = 1000     // JSON values of the same

	keptBuffer = 64 << 10 // maximum bytes of a gate's buffer that are reused for the next message
)

var (
	errTooMany   = errors.New("a message of the server has too many values")
	errNoMessage = errors.New("a message of the server is not JSON-RPC")
)

// gate passes the messages of a server to the SDK, each only when it is complete and the connection has accepted it.
// Without it, the SDK takes a message as complete before its line has ended, and a batch of messages as valid.
type gate struct {
	*paced
	in     *bufio.Reader
	conn   *connection
	events bool // server-sent events; otherwise one message per line

	buffered []byte // the current line or event
	left     []byte // the part of buffered that the SDK has not read yet
	err      error  // returned after buffered
}

func newGate(body *paced, conn *connection, events bool) *gate {
	return &gate{paced: body, in: bufio.NewReader(body), conn: conn, events: events}
}

func (g *gate) Read(p []byte) (int, error) {
	for len(g.left) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		g.next()
	}
	n := copy(p, g.left)
	g.left = g.left[n:]
	return n, nil
}

func (g *gate) next() {
	g.arrived()
	if g.buffered = g.buffered[:0]; cap(g.buffered) > keptBuffer {
		g.buffered = nil
	}
	for ends := false; !ends && g.err == nil; {
		begin := len(g.buffered)
		g.err = g.readLine()
		ends = !g.events || len(bytes.TrimRight(g.buffered[begin:], "\r\n")) == 0
	}
	if g.err != nil && g.err != io.EOF {
		g.arrived()
		return
	}
	message := bytes.TrimSpace(g.buffered)
	if g.events {
		if !isEvent(g.buffered) {
			g.err = errNoMessage
			return
		}
		if message = dataOf(g.buffered); isNamed(g.buffered) {
			message = nil // the SDK reads no data of it
		}
	}
	if len(message) > 0 {
		pass, err := g.conn.receive(message, g.paced)
		if isBatch := message[0] == '[' && strictjson.Valid(message); err == errNoMessage && !g.events && !isBatch {
			return // a program prints to its standard output; other calls go on
		}
		if err != nil {
			g.err = err
		}
		if err != nil || !pass {
			g.arrived()
			return
		}
	}
	g.left = g.buffered
}

func (g *gate) readLine() error {
	for {
		part, err := g.in.ReadSlice('\n')
		if len(g.buffered)+len(part) > maxMessage {
			return errTooLong
		}
		if late := g.conn.arrives(g.paced, len(g.buffered)+len(part)); late != nil {
			return g.giveUp(late, err)
		}
		g.buffered = append(g.buffered, part...)
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}

// giveUp drops the current line of a program, for which there is no memory: other calls of the program go on. err is
// what ended the last part of the line. For other streams giveUp returns why.
func (g *gate) giveUp(why, err error) error {
	if g.events || g.conn.program == nil {
		return why
	}
	g.buffered = g.buffered[:0]
	g.arrived()
	for read := 0; err == bufio.ErrBufferFull && read <= maxMessage; {
		var part []byte
		part, err = g.in.ReadSlice('\n')
		read += len(part)
	}
	if err == bufio.ErrBufferFull {
		return errTooLong
	}
	return err
}

// isEvent reports whether each line of an event is one that the SDK takes. It ends the connection for others.
func isEvent(event []byte) bool {
	for line := range bytes.Lines(event) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 && !bytes.Contains(line, []byte(":")) {
			return false
		}
	}
	return true
}

// isNamed reports whether an event has a name of its own, such as ping, and so is no message.
func isNamed(event []byte) bool {
	var name string
	for line := range bytes.Lines(event) {
		if field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":")); string(field) == "event" {
			name = string(bytes.TrimSpace(value))
		}
	}
	return name != "" && name != "message"
}

// dataOf returns the data of an event, parsed as the SDK does.
func dataOf(event []byte) (data []byte) {
	n := 0
	for line := range bytes.Lines(event) {
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if string(field) != "data" {
			continue
		}
		value = bytes.TrimSpace(value)
		if n++; n == 1 {
			data = value
			continue
		}
		if n == 2 { // data aliases the event, so copy it
			data = append(make([]byte, 0, len(event)), data...)
		}
		data = append(append(data, '\n'), value...)
	}
	return data
}

// unread are the notifications that the gateway ignores.
var unread = []string{
	`"notifications/message"`, `"notifications/resources/updated"`, `"notifications/resources/list_changed"`,
	`"notifications/prompts/list_changed"`,
}

// receive checks a message before the SDK reads it, and reports whether to pass it on. It returns an error if it
// rejects the message. A server that sends too many requests loses the connection, or the stream if it answers a call.
func (c *connection) receive(message []byte, from *paced) (pass bool, err error) {
	values := strictjson.Values(message)
	if values > maxValues {
		return false, errTooMany
	}
	members, err := strictjson.LenientMembers(message, maxMembers)
	if err != nil {
		return false, errNoMessage
	}
	decoded, err := jsonrpc.DecodeMessage(message)
	if err != nil { // the SDK would end the connection
		return false, errNoMessage
	}
	var method string
	var hasID, ignored bool
	for _, m := range members {
		switch name := string(m.Name); {
		case string(m.Value) == "null":
		case name == "method":
			method = string(m.Value)
			ignored = ignored || slices.Contains(unread, method)
		case name == "id":
			hasID = true
		}
	}
	switch {
	case method != "" && hasID && !from.pace.requests.try():
		if !from.call {
			c.end(errFlood)
		}
		return false, errFlood
	case method != "" && (values > maxNoticeValues || len(message) > maxNotice), method != "" && !hasID && ignored:
		return false, nil
	case method == "" && c.isUnmatched(decoded, from):
		return false, nil
	}
	if err := c.reserve(decoded, from, len(message), values); err != nil {
		return c.drop(decoded, from, err)
	}
	if err := from.charge(values); err != nil {
		return false, err
	}
	c.passes(decoded, from)
	c.readEarly(message)
	return true, nil
}

// drop ends the call that a message answers, because there is no memory for it. Other calls of a program go on.
func (c *connection) drop(message jsonrpc.Message, from *paced, why error) (pass bool, err error) {
	if a := c.answered(message, from); a != nil && a.end != nil {
		a.end(why)
	}
	if c.program == nil {
		return false, why
	}
	return false, nil
}

// readEarly reads what the SDK does not report, or reports too late. The SDK handles notifications concurrently with
// answers, so it may deliver a progress report after the answer that followed it.
func (c *connection) readEarly(message []byte) {
	if bytes.Contains(message, []byte(`"progressToken"`)) && len(message) <= maxReport {
		c.progress.forward(message)
	}
	if c.listing.Load() && bytes.Contains(message, []byte(`"taskSupport"`)) {
		c.seeTasks(message)
	}
}

func (c *connection) beginList() {
	c.listing.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.taskOnly)
}

// seeTasks records which tools of a list only run as tasks. The SDK does not parse that field of a definition.
func (c *connection) seeTasks(message []byte) {
	var list struct {
		Result struct {
			Tools []struct {
				Name      string `json:"name"`
				Execution struct {
					TaskSupport string `json:"taskSupport"`
				} `json:"execution"`
			} `json:"tools"`
		} `json:"result"`
	}
	_ = json.Unmarshal(message, &list) // keep what can be parsed
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range list.Result.Tools {
		if t.Execution.TaskSupport == "required" && len(t.Name) <= maxTheirName && len(c.taskOnly) < maxListed {
			c.taskOnly[t.Name] = true
		}
	}
}

func (c *connection) runsAsTask(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taskOnly[name]
}
