package upstream

import (
	"bytes"
	"encoding/json"
	"io"
)

// maxReport is how long a message may be that may be a report of progress, in bytes.
const maxReport = 16 << 10

// longestShown is how long a message may be that a tap shows: a tap keeps it until it ends.
func (c *connection) longestShown() int {
	if c.listing.Load() {
		return maxMessage
	}
	return maxReport
}

// see reads of a message what the SDK does not tell, or tells too late.
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

// tap reads messages of a server, and shows each to the connection before the SDK can read its end. The SDK handles
// notifications beside the answers to calls, so it would handle a report that comes right before an answer after it.
type tap struct {
	io.ReadCloser
	conn   *connection
	events bool // a stream of server-sent events; else each message is a line

	line  []byte // what was read of the current line
	size  int    // how long that is
	event []byte // data of the current event
	long  bool   // the current message is too long to be shown
}

// Read implements io.Reader.
func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		t.add(part)
		if whole {
			t.endLine()
		}
		rest = after
	}
	return n, err
}

// add adds to the current line.
func (t *tap) add(part []byte) {
	t.size += len(part)
	if t.long = t.long || t.size+len(t.event) > t.conn.longestShown(); t.long {
		t.line, t.event = nil, nil
		return
	}
	t.line = append(t.line, part...)
}

// endLine ends the current line, and shows the message that ends with it.
func (t *tap) endLine() {
	line := bytes.TrimSuffix(t.line, []byte("\r"))
	empty := len(line) == 0 && t.size <= 1 // of a longer line nothing may have been kept
	switch {
	case !t.events:
		t.show(line)
	case empty:
		t.show(t.event)
		t.event = t.event[:0]
	default:
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			t.event = append(append(t.event, '\n'), data...)
		}
	}
	t.line, t.size = t.line[:0], 0
}

// show shows a message, unless it is too long, and begins the next.
func (t *tap) show(message []byte) {
	if !t.long {
		t.conn.see(message)
	}
	t.long = false
}
