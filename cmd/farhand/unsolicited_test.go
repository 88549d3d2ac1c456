package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A server that sends more than its answer, such as the headers that it was sent, does not get that into the log.
func TestServersDoNotWriteTheLog(t *testing.T) {
	const secret = "secret-of-the-file"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	hungUp := make(chan struct{}, 16) // the gateway has read what it did not ask for
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			if req, err := http.ReadRequest(r); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nX: %s\r\n\r\n", req.Header.Get("Authorization"))
				_, _ = io.Copy(io.Discard, r)
				hungUp <- struct{}{}
			}
			_ = conn.Close()
		}
	}()
	file := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers":{"evil":{"url":"http://%s/","headers":{"Authorization":"Bearer %s"}}}}`,
		listener.Addr(), secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, "FARHAND_MCP_SERVERS="+file, "FARHAND_LOG_LEVEL=debug")
	for range 3 {
		select {
		case <-hungUp:
		case <-time.After(waitLimit):
			t.Fatal("the gateway does not come back")
		}
	}
	if text := p.out.String(); strings.Contains(text, secret) || strings.Contains(text, "Unsolicited") {
		t.Errorf("the gateway logs what the server sent:\n%s", text)
	}
}
