package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// fewFiles is how many files the processes of these tests may open.
const fewFiles = 400

// limited writes a script that runs a program with fewFiles, and returns its path.
func limited(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limited")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", fewFiles, program)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A tenant whose devices connect until they are refused leaves descriptors for probes, and sockets and calls for
// another tenant.
func TestDescriptorsAreKeptBack(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	p := startProgram(t, limited(t, farhandBinary), testkit.FreeAddr(t), "FARHAND_JWT_ISSUER=issuer",
		"FARHAND_JWT_AUDIENCE=farhand", "FARHAND_JWT_SECRET="+secret, "FARHAND_PONG_TIMEOUT=10m")
	other := testkit.JWT(t, "HS256", []byte(secret), nil, map[string]any{
		"iss": "issuer", "aud": "farhand", "sub": "ann", "tenant": "other", "roles": []string{"caller", "device"},
		"exp": time.Now().Add(time.Hour).Unix(),
	})
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	refused := 0
	for refused < 20 && len(held) < 2*fewFiles {
		conn, _, status, err := bareSocket(t.Context(), p.url, "", fleetToken)
		switch {
		case err != nil:
			t.Fatalf("after %d sockets the pod does not answer: %v", len(held), err)
		case conn != nil:
			held = append(held, conn)
		case status == http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("after %d sockets: status %d", len(held), status)
		}
	}
	if len(held) != fewFiles*3/4*3/4 { // of what is not kept back a tenant has three quarters
		t.Errorf("with %d descriptors a tenant has %d sockets", fewFiles, len(held))
	}
	for range 10 {
		probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitLimit}
		resp, err := probe.Get(p.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("/readyz says %d", resp.StatusCode)
		}
	}
	device, r, status, err := bareSocket(t.Context(), p.url, "session_id=ann", other)
	if err != nil || device == nil {
		t.Fatalf("a device of another tenant is not let in: %d %v", status, err)
	}
	defer device.Close()
	_, _ = device.Write(maskedText(`{"type":"register_tools","tools":[{"name":"echo","description":"echoes"}]}`))
	answered := make(chan error, 1)
	go func() { answered <- answerOnce(device, r) }()
	eventually(t, waitLimit, "its tool is listed", func() bool {
		return strings.Contains(getWith(t, p.url+"/api/tools", other), `"echo"`)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/api/tools/echo/call",
		strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + other}, "Content-Type": {"application/json"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-answered; err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a call of another tenant ends with %d, its device with %v", resp.StatusCode, err)
	}
}

// TestIdleConnectionsLeaveDescriptors: connections that stay open after their answer, those over which nothing is
// asked, and those whose bodies never come are closed before they take the descriptors that others need.
func TestIdleConnectionsLeaveDescriptors(t *testing.T) {
	t.Parallel()
	p := startProgram(t, limited(t, farhandBinary), testkit.FreeAddr(t))
	host := strings.TrimPrefix(p.url, "http://")
	for i := range 3 * fewFiles {
		conn, err := net.DialTimeout("tcp", host, waitLimit/2)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		switch i % 3 {
		case 0:
			continue // says nothing
		case 1: // needs a credential, which it does not have
			_, _ = io.WriteString(conn, "POST /api/revocations HTTP/1.1\r\nHost: pod\r\nContent-Length: 1\r\n\r\n")
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(waitLimit / 2)) // an idle connection is closed after a minute anyway
		if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("connection %d is answered %q, %v", i, line, err)
		}
	}
	if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)); err != nil || len(open) > fewFiles/2 {
		t.Errorf("the pod has %d of %d files open: %v", len(open), fewFiles, err)
	}
}

// answerOnce reads the frames of a device until a call comes, and answers it.
func answerOnce(device net.Conn, r *bufio.Reader) error {
	_ = device.SetReadDeadline(time.Now().Add(waitLimit))
	for {
		_, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		var f struct{ Type, ID string }
		if err := json.Unmarshal(payload, &f); err == nil && f.Type == "tool_call_request" {
			_, err := device.Write(maskedText(fmt.Sprintf(`{"type":"tool_result","id":%q,"output":"hi"}`, f.ID)))
			return err
		}
	}
}

// getWith returns the body of what a credential reads.
func getWith(t *testing.T, url, credential string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Doctor says how many requests the limit of open files leaves room for. Where it leaves fewer sockets than are
// configured, doctor says how many, and what to set.
func TestDoctorWarnsOfFewDescriptors(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]struct {
		ok   bool
		says string
	}{
		"FARHAND_LOG_LEVEL=warn": {false, "300 device connections, not FARHAND_MAX_SOCKETS (100000), and 33 " +
			"requests with a credential at a time. Raise it to"},
		"FARHAND_MAX_SOCKETS=300": {true, "FARHAND_MAX_SOCKETS (300), and 33 requests with a credential at a time"},
		"FARHAND_MAX_SOCKETS=301": {false, "Raise it to 402"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		cmd := exec.CommandContext(ctx, limited(t, farhandBinary), "doctor", "--json")
		cmd.Env = append(quietEnvironment(t, settings), "PATH="+os.Getenv("PATH"))
		out, _ := cmd.Output() // its exit code is that of other findings
		cancel()
		var findings []farhand.Finding
		if err := json.Unmarshal(out, &findings); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := false
		for _, f := range findings {
			if f.Part != "descriptors" {
				continue
			}
			found = true
			if f.OK != want.ok || !strings.Contains(f.Text, want.says) {
				t.Errorf("%s: %+v", settings, f)
			}
		}
		if !found {
			t.Errorf("%s: doctor says nothing of descriptors", settings)
		}
	}
}
