package api_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// pipes is a listener without a network, for servers in a bubble of synctest.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.dialed <- theirs
	return ours
}

// uploadHandler serves uploads into a folder. A tenant has room for so many bytes there.
func uploadHandler(t *testing.T, dir string, room int64) (*api.Handler, *blobs.Service) {
	store := memory.New(memory.Options{})
	files, err := blobs.Open(t.Context(), blobs.Config{URL: "file://" + dir, Store: store, TenantBytes: room})
	if err != nil {
		t.Fatal(err)
	}
	policy, _ := agent.NewPolicy(agent.PolicyRules{})
	origins, _ := auth.NewOrigins(nil, false)
	handler, err := api.NewHandler(api.Config{
		Approvals: struct{ api.Approvals }{},
		Invoker:   agent.NewInvoker(agent.Config{Policy: policy}), Calls: (*routing.Calls)(nil), Directory: store,
		Conversations: store, AuditLog: store, Credentials: store,
		Usage: store, Kicker: (*routing.Hub)(nil), Turns: new(routing.Turns),
		Policy: policy, Auth: auth.Anonymous{}, Origins: origins, Files: files,
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler, files
}

// drip sends the beginning of an upload and a byte now and then, until it is cut off. It returns what was answered.
func drip(t *testing.T, conn net.Conn, path string, size int64, every time.Duration) (answer string) {
	t.Helper()
	answered := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		answered <- string(all)
	}()
	_, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: pod\r\nContent-Type: video/mp4\r\nContent-Length: %d\r\n\r\n",
		path, size)
	for err == nil {
		time.Sleep(every)
		_, err = conn.Write([]byte("x"))
	}
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	return <-answered
}

// A client that sends a byte now and then is cut off when it has sent less than 640 KiB in ten seconds. Its place is
// free then, and so is the room of its file, of which nothing is left.
func TestSlowUploadsAreCutOff(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { uploadSlowly(t, dir, every) })
		if left := filesBelow(t, dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func uploadSlowly(t *testing.T, dir string, every time.Duration) {
	const size = 1 << 20
	handler, files := uploadHandler(t, dir, registry.BlobShare*size) // one of them is a session's
	defer files.Close()
	listener := &pipes{make(chan net.Conn), make(chan struct{})}
	server, served := &http.Server{Handler: handler}, make(chan error)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close(); <-served }()
	reserve := func() (registry.UploadSlot, error) {
		part := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Size: size}
		key := registry.Key{Tenant: "t", Session: "s"}
		return files.Reserve(t.Context(), key, registry.BlobOwner{}, "c", part, time.Minute)
	}
	slot, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reserve(); err == nil {
		t.Error("there is room for a second file")
	}
	answers := make(chan string)
	conn := listener.dial()
	go func() { answers <- drip(t, conn, slot.URL, size, every) }()
	for _, at := range []struct {
		wait time.Duration
		held int64
	}{{9 * time.Second, 1}, {2 * time.Second, 0}} {
		time.Sleep(at.wait)
		if held := handler.Pools()["uploads"].Held; held != at.held {
			t.Errorf("a byte each %v: %d uploads run, want %d", every, held, at.held)
		}
	}
	if _, err := reserve(); err != nil {
		t.Errorf("its room is not free: %v", err)
	}
	answer := <-answers
	if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "The upload is incomplete") {
		t.Errorf("a byte each %v: answered %q", every, answer)
	}
}

func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
