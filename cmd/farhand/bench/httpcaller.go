package bench

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// NonceLen is how many hexadecimal digits a nonce has.
const NonceLen = 16

// callTimeout is longer than the gateway's timeout of a call.
const callTimeout = 40 * time.Second

// nonces are unique within a process, so no answer can be mistaken for another call's.
var nonces atomic.Uint64

// PutNonce writes a new nonce to the beginning of b.
func PutNonce(b []byte) {
	const digits = "0123456789abcdef"
	n := nonces.Add(1)
	for i := NonceLen - 1; i >= 0; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
}

// Request is what a caller sends to call a tool.
type Request struct {
	Path, After    string // around the session, in the path
	Token          string // bearer token; empty: none
	Headers        string // others, as complete lines
	Before, Behind string // around the nonce and the payload, in the body
}

// CallRequest returns the request that calls the echo tool of a session.
func CallRequest(token string) Request {
	return Request{
		Path: "/api/sessions/", After: "/tools/" + EchoTool + "/call", Token: token,
		Before: `{"args":{"text":"`, Behind: `"}}`,
	}
}

// httpCaller is an HTTP/1.1 client of one tool, with a connection of its own. Its requests are built once. Only the
// session and the nonce change from call to call, because the cost of a full client would be part of every figure.
type httpCaller struct {
	addr    string
	session func() string // the session to call next
	request []byte
	forms   []requestForm // used in rotation
	calls   int
	conn    net.Conn
	reader  *bufio.Reader
	body    []byte
}

// requestForm is a prepared request.
type requestForm struct {
	path  string // up to the session
	rest  []byte // what follows the session
	nonce []byte // within rest
}

// NewHTTPCaller returns a caller of the sessions, with a payload of the given size. It uses the requests in rotation,
// starting with the first.
func NewHTTPCaller(base string, session func() string, payload int, requests ...Request) Caller {
	c := &httpCaller{addr: strings.TrimPrefix(base, "http://"), session: session}
	for _, r := range requests {
		c.forms = append(c.forms, r.prepare(c.addr, payload))
	}
	return c
}

func (r Request) prepare(addr string, payload int) requestForm {
	body := r.Before + strings.Repeat("0", NonceLen) + strings.Repeat("x", payload) + r.Behind
	head := r.After + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\n" + r.Headers
	if r.Token != "" {
		head += "Authorization: Bearer " + r.Token + "\r\n"
	}
	head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	f := requestForm{path: "POST " + r.Path, rest: []byte(head + body)}
	f.nonce = f.rest[len(head)+len(r.Before):][:NonceLen]
	return f
}

// Close implements Caller.
func (c *httpCaller) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Call implements Caller. It reconnects if the last call broke the connection.
func (c *httpCaller) Call() string {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
		if err != nil {
			return "connect_failed"
		}
		c.conn, c.reader = conn, bufio.NewReaderSize(conn, 2048)
	}
	form := c.forms[c.calls%len(c.forms)]
	c.calls++
	PutNonce(form.nonce)
	c.request = append(append(append(c.request[:0], form.path...), c.session()...), form.rest...)
	status, err := c.exchange()
	switch {
	case err != nil:
		c.Close()
		return "connection_broke"
	case status != 200:
		return errorCode(c.body, status)
	case !bytes.Contains(c.body, form.nonce):
		return "wrong_answer"
	default:
		return ""
	}
}

func (c *httpCaller) exchange() (status int, err error) {
	if err = c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, err
	}
	if _, err = c.conn.Write(c.request); err != nil {
		return 0, err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, errors.New("short status line")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	for {
		line, err = c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("an answer without Content-Length")
	}
	c.body = grow(c.body, length)
	_, err = io.ReadFull(c.reader, c.body)
	return status, err
}

// grow returns b with the given length, in a larger array if necessary.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// errorCode returns the code of a problem document, or else the status.
func errorCode(body []byte, status int) string {
	_, rest, ok := bytes.Cut(body, []byte(`"code":"`))
	if code, _, closed := bytes.Cut(rest, []byte(`"`)); ok && closed {
		return string(code)
	}
	return "http_" + strconv.Itoa(status)
}
