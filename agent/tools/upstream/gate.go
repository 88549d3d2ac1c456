package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/farhand/farhand/internal/strictjson"
)

// Bounds of one message, beside its length.
const (
	maxValues  = 1 << 17  // of JSON: of each the SDK makes some hundred bytes, however short it is
	maxMembers = 16       // of the message itself; JSON-RPC has five
	maxReport  = 16 << 10 // bytes of one that may be a report of progress

	maxNotice       = 64 << 10 // bytes of a notification
	maxNoticeValues = 1000     // of JSON in one

	keptBuffer = 64 << 10 // bytes of the buffer of a gate that stay for the next message
)

var (
	errTooMany   = errors.New("the server has sent a message with more values than one may have")
	errNoMessage = errors.New("the server has sent what is no message of JSON-RPC")
)

// gate lets the SDK read the messages of a server, each when it is whole and was received by the connection. The SDK
// takes a message for whole before its line has ended, and a list of messages for all of them.
type gate struct {
	*paced
	in     *bufio.Reader
	conn   *connection
	events bool // a stream of server-sent events; else each message is a line

	held []byte // the current line or event
	left []byte // of held: what the SDK has not read yet
	err  error  // what comes after held
}

func newGate(body *paced, conn *connection, events bool) *gate {
	return &gate{paced: body, in: bufio.NewReader(body), conn: conn, events: events}
}

// Read implements io.Reader.
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

// next reads the next line or event.
func (g *gate) next() {
	if g.held = g.held[:0]; cap(g.held) > keptBuffer {
		g.held = nil
	}
	for ends := false; !ends && g.err == nil; {
		begin := len(g.held)
		g.err = g.readLine()
		ends = !g.events || len(bytes.TrimRight(g.held[begin:], "\r\n")) == 0
	}
	if g.err != nil && g.err != io.EOF {
		return
	}
	message := bytes.TrimSpace(g.held)
	if g.events {
		message = dataOf(g.held)
	}
	if len(message) > 0 {
		pass, err := g.conn.receive(message, g.paced)
		if err != nil {
			g.err = err
			return
		}
		if !pass {
			return
		}
	}
	g.left = g.held
}

// readLine appends the next line to held.
func (g *gate) readLine() error {
	for {
		part, err := g.in.ReadSlice('\n')
		if len(g.held)+len(part) > maxMessage {
			return errTooLong
		}
		g.held = append(g.held, part...)
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}

// dataOf returns the data of an event, as the SDK reads it.
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
		if n == 2 { // data is a part of the event
			data = append(make([]byte, 0, len(event)), data...)
		}
		data = append(append(data, '\n'), value...)
	}
	return data
}

// unread are the notifications that nobody here reads.
var unread = []string{
	`"notifications/message"`, `"notifications/resources/updated"`, `"notifications/resources/list_changed"`,
	`"notifications/prompts/list_changed"`,
}

// receive takes in a message before the SDK does, and reports whether the SDK is to have it. An error refuses it; a
// server that asks for too much loses the connection.
func (c *connection) receive(message []byte, from *paced) (pass bool, err error) {
	values := strictjson.Values(message)
	if values > maxValues {
		return false, errTooMany
	}
	members, err := strictjson.LenientMembers(message, maxMembers)
	if err != nil {
		return false, errNoMessage
	}
	has := func(name string) bool {
		return slices.ContainsFunc(members, func(m strictjson.Member) bool {
			return string(m.Name) == name && string(m.Value) != "null"
		})
	}
	if has("method") && has("id") && !c.paces.requests.try() {
		c.end(errFlood)
		return false, errFlood
	}
	if has("method") && !has("id") && (values > maxNoticeValues || len(message) > maxNotice || isUnread(members)) {
		return false, nil
	}
	if err := from.charge(values); err != nil {
		return false, err
	}
	c.see(message)
	return true, nil
}

func isUnread(members []strictjson.Member) bool {
	return slices.ContainsFunc(members, func(m strictjson.Member) bool {
		return string(m.Name) == "method" && slices.Contains(unread, string(m.Value))
	})
}

// see reads of a message what the SDK does not tell, or tells too late: it handles notifications beside the answers to
// calls, so a report that comes right before an answer after it.
func (c *connection) see(message []byte) {
	if bytes.Contains(message, []byte(`"progressToken"`)) && len(message) <= maxReport {
		c.progress.see(message)
	}
	if c.listing.Load() && bytes.Contains(message, []byte(`"taskSupport"`)) {
		c.seeTasks(message)
	}
}

// beginList forgets which tools run as tasks, before they are listed.
func (c *connection) beginList() {
	c.listing.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.taskOnly)
}

// seeTasks notes which tools of a list run as tasks only: the SDK does not know that field of a definition.
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
	_ = json.Unmarshal(message, &list) // what can be read of it
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range list.Result.Tools {
		if t.Execution.TaskSupport == "required" && len(t.Name) <= maxTheirName && len(c.taskOnly) < maxListed {
			c.taskOnly[t.Name] = true
		}
	}
}

// runsAsTask reports whether a tool of the list runs as a task only.
func (c *connection) runsAsTask(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taskOnly[name]
}
