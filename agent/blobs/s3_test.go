package blobs

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// s3Server starts a real S3 server with one bucket, and returns the bucket's URL.
func s3Server(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../.cache/bin/versitygw")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("the S3 server is missing; install it with: .ci/deps: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, root := l.Addr().String(), t.TempDir()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	var said bytes.Buffer
	server := exec.Command(program, "--access", "key", "--secret", "secret-of-the-test", "--port", address,
		"posix", "--nometa", root)
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("%s", said.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // it says nowhere that it listens
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the S3 server does not start: %s", said.String())
		}
	}
	return "s3://files?region=us-east-1&endpoint=http://" + address + "&use_path_style=true"
}

// TestS3: all of it over a real S3 server.
func TestS3(t *testing.T) {
	url := s3Server(t)
	s := open(t, url)
	roundTrip(t, s)
	secret := reserve(t, s)
	if err := s.receiveAs(t.Context(), secret, clip.MIMEType, 5, "hel"); err == nil {
		t.Error("an upload that broke off was taken")
	}
	if err := s.sweep(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left, err := s.bucket.before(t.Context(), "~", 10); err != nil || len(left) > 0 {
		t.Errorf("%s is left, %v", left, err)
	}
}
