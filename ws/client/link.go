package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 5 * time.Second
	closeTimeout = time.Second     // for the gateway's close frame
	stopTimeout  = 2 * time.Second // for handlers to end, and their answers to be sent, when Run ends
	subprotocol  = "clawseed.v1"
)

// link is one connection. Many goroutines may send frames; one reads.
type link struct {
	number  int64 // counts the connections of a client, from 1
	conn    *websocket.Conn
	silence time.Duration
	started chan struct{} // closed when session_start has come and the tools are registered
	write   sync.Mutex    // serializes frames; each has its own deadline
	ending  atomic.Bool   // only the gateway's close frame is awaited

	// Used by the reader only.
	opened  bool // session_start has come
	resumed bool
	backAt  time.Time // reconnect time of server_draining; zero: none

	registering int // pending answers to the opening registration; guarded by Client.mu
}

// dial connects. If the gateway rejects the handshake, the error is a *RefusedError.
func (c *Client) dial(ctx context.Context) (*link, error) {
	dialer := websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialTimeout, TLSClientConfig: c.cfg.tls,
		Subprotocols: []string{subprotocol},
	}
	header := http.Header{}
	token, credential := c.cfg.token, c.credential.Load()
	if credential != nil {
		token = credential.Token
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if credential != nil && len(credential.Key) > 0 {
		web := newWeb(c.url, c.cfg.tls)
		defer web.client.CloseIdleConnections()
		signature, err := web.sign(ctx, *credential)
		if err != nil {
			return nil, err
		}
		header.Set("Farhand-Signature", signature)
	}
	conn, resp, err := dialer.DialContext(ctx, c.address(), header)
	if err != nil {
		if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
			return nil, refusal(resp)
		}
		return nil, err
	}
	l := &link{number: c.links.Add(1), conn: conn, silence: c.cfg.silence, started: make(chan struct{})}
	conn.SetReadLimit(c.cfg.readLimit)
	conn.SetPingHandler(func(data string) error {
		l.extendReadDeadline()
		// An error also shows in the next read or write; a failed pong need not end the reading.
		_ = conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout))
		return nil
	})
	l.extendReadDeadline()
	return l, nil
}

func (c *Client) address() string {
	u := *c.url
	q := u.Query()
	if id := c.SessionID(); id != "" {
		q.Set("session_id", id)
	}
	if c.cfg.name != "" {
		q.Set("name", c.cfg.name)
	}
	if strings.HasSuffix(u.Path, pathMCP) {
		c.introduceMCP(q)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	scheme, known := map[string]string{"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}[u.Scheme]
	switch {
	case !known:
		return nil, errors.New("the scheme must be ws, wss, http or https")
	case u.Host == "":
		return nil, errors.New("the host is missing")
	}
	u.Scheme = scheme
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws/chat"
	}
	return u, nil
}

func refusal(resp *http.Response) *RefusedError {
	e := &RefusedError{Status: resp.StatusCode}
	var problem struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && json.Unmarshal(body, &problem) == nil {
		e.Code, e.Detail = problem.Code, problem.Detail
	}
	_ = resp.Body.Close()
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.retryAfter = seconds(s)
	}
	return e
}

// seconds converts a gateway's number of seconds, limited to between zero and a day: a huge number must not overflow or
// delay a reconnect forever.
func seconds(n int) time.Duration { return time.Duration(min(max(n, 0), 24*60*60)) * time.Second }

func (l *link) extendReadDeadline() {
	if !l.ending.Load() {
		_ = l.conn.SetReadDeadline(time.Now().Add(l.silence)) // fails only on a closed connection, like the read
	}
}

// send writes one frame. After an error the reader still gets closeTimeout: the cause may be the gateway's close frame,
// which says whether to reconnect.
func (l *link) send(frame []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		err = l.conn.WriteMessage(websocket.TextMessage, frame)
	}
	if err != nil {
		l.ending.Store(true)
		_ = l.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	}
	return err
}

// closeWhenDone runs finish when ctx ends, then sends a close frame, and closes the connection if the gateway does not
// answer. The returned function stops this and waits for it.
func (l *link) closeWhenDone(ctx context.Context, finish func(time.Duration)) (stop func()) {
	over := make(chan struct{})  // closed when the reading ends
	ended := make(chan struct{}) // closed when the goroutine ends
	cancel := context.AfterFunc(ctx, func() {
		defer close(ended)
		finish(stopTimeout)
		l.ending.Store(true)
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		if err := l.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeTimeout)); err == nil {
			select {
			case <-over:
			case <-time.After(closeTimeout):
			}
		}
		_ = l.conn.Close()
	})
	return func() {
		close(over)
		if !cancel() {
			<-ended
		}
	}
}

// received holds the fields of every frame that the gateway sends. Type determines which ones are used.
type received struct {
	Type string `json:"type"`

	SessionID   string          `json:"session_id"` // session_start
	Resumed     bool            `json:"resumed"`
	ResumeToken string          `json:"resume_token"`
	Limits      json.RawMessage `json:"limits"`

	Wake *WakeOffer `json:"wake"` // connected

	Registered int         `json:"registered"` // tools_registered
	Rejected   []Rejection `json:"rejected"`

	ID         string          `json:"id"` // tool_call_request, tool_call_cancel, result_acknowledged
	Name       string          `json:"name"`
	Args       json.RawMessage `json:"args"`
	DeadlineMS *int64          `json:"deadline_ms"`
	Trace      string          `json:"traceparent"`
	Reason     string          `json:"reason"`
	Ignored    bool            `json:"ignored"`

	Tool      string   `json:"tool"` // approval_request, with ID, Args and Reason
	ArgsText  string   `json:"args_text"`
	Remarks   []string `json:"remarks"`
	ExpiresMS int64    `json:"expires_ms"`
	State     string   `json:"state"` // approval_decided, with ID

	RetryAfterMS int64 `json:"retry_after_ms"` // server_draining, and the error of a turn

	FullResponse string `json:"full_response"` // done

	URL    string `json:"url"` // upload_slot, with ID; Refuse replaces it in a rejection
	Refuse string `json:"error"`

	Message string `json:"message"` // error
	Code    string `json:"code"`

	DeviceID string `json:"device_id"` // default_set
}

// limits are those of a gateway's limits that a client respects. Zero: not announced.
type limits struct {
	Frame     int `json:"frame_bytes"`
	Output    int `json:"output_bytes"`
	PerSecond int `json:"frames_per_second"`
	Burst     int `json:"frame_burst"`
}

// limitsOf returns announced limits. It ignores malformed ones.
func limitsOf(announced json.RawMessage) limits {
	var l limits
	if json.Unmarshal(announced, &l) != nil {
		return limits{}
	}
	return limits{max(l.Frame, 0), max(l.Output, 0), max(l.PerSecond, 0), max(l.Burst, 0)}
}

// Rejection names a tool that the gateway did not register, and why.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// sent holds the fields of every frame that the client sends, except tool_result and upload_request. Type determines
// which ones are used.
type sent struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`

	V            int               `json:"v,omitempty"` // connect
	DeviceName   string            `json:"device_name,omitempty"`
	DeviceID     string            `json:"device_id,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	ResumeToken  string            `json:"resume_token,omitempty"`

	Tools []json.RawMessage `json:"tools,omitzero"`  // register_tools; not nil
	Names []string          `json:"names,omitempty"` // unregister_tools

	Progress *float64 `json:"progress,omitempty"` // tool_progress
	Total    *float64 `json:"total,omitempty"`
	Message  string   `json:"message,omitempty"`
	Chunk    string   `json:"chunk,omitempty"`

	Error   *string `json:"error,omitempty"` // tool_error
	Success *bool   `json:"success,omitempty"`

	Decision Decision `json:"decision,omitempty"` // approval_response

	Wake *Wake `json:"wake,omitempty"` // register_wake

	Foreground *bool `json:"foreground,omitempty"` // presence

	Content *string `json:"content,omitempty"` // message
	Debug   bool    `json:"debug,omitempty"`   // and regenerate
}

// encode returns the JSON of a frame. It panics if that fails; only a Progress that is not a finite number makes it
// fail.
func (f sent) encode() []byte {
	frame, err := encode(f)
	if err != nil {
		panic(fmt.Errorf("client: encode %s: %w", f.Type, err))
	}
	return frame
}

func (c *config) connectFrame(token string) []byte {
	can := []string{
		"ack", "progress", "cancel", "drain", "resume", "resume_token", "call_status", "traceparent", "presence",
	}
	if c.approver != nil {
		can = append(can, "approval")
	}
	if c.wake != nil {
		can = append(can, "wake")
	}
	return sent{
		Type: "connect", V: 1, DeviceName: c.deviceName, DeviceID: c.deviceID, Platform: c.platform, Labels: c.labels,
		Capabilities: can, ResumeToken: token,
	}.encode()
}

// resultFrame contains the result of a handler: a string as text, nil as an empty text, everything else as JSON, and
// the parts.
func resultFrame(id string, output any, parts []Part) ([]byte, error) {
	if output == nil {
		output = ""
	}
	return encode(struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Output  any    `json:"output"`
		Success bool   `json:"success"`
		Parts   []Part `json:"parts,omitempty"`
	}{"tool_result", id, output, true, parts})
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), err
}

// Result is a Handler's result with parts.
type Result struct {
	Output any // as a Handler returns it without parts
	Parts  []Part
}

// Part is an image, a sound or a file of a result. A result has at most 16 parts with 1 MiB of data in total. It has
// less if the gateway's limit for answers is lower.
type Part struct {
	Type     PartType `json:"type"`
	MIMEType string   `json:"mime_type"`      // such as image/png: lower case, no parameters
	Name     string   `json:"name,omitempty"` // name of the file
	Data     []byte   `json:"data,omitempty"` // must not be empty, unless Call.Upload made the part
	URL      string   `json:"url,omitempty"`  // set by Call.Upload
	Size     int64    `json:"size,omitempty"` // set by Call.Upload
}

// PartType determines how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image" // with a MIME type image/…
	PartAudio PartType = "audio" // with a MIME type audio/…
	PartFile  PartType = "file"  // everything else, including videos
)
