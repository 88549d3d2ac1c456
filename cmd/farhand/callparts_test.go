package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCallPrintsParts: a part is a line, its bytes go to a file and never to the terminal.
func TestCallPrintsParts(t *testing.T) {
	t.Parallel()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/blobs/1" {
			_, _ = w.Write([]byte("a clip"))
			return
		}
		_, _ = w.Write([]byte(`{"call_id":"c","success":true,"output":"click","duration_ms":1,` +
			`"session_id":"s","parts":[` +
			`{"type":"image","mime_type":"image/png","name":"a\u001b[2J.png","data":"iVBORw==","size":4},` +
			`{"type":"image","mime_type":"image/png","data":"AAAA","size":3},` +
			`{"type":"file","mime_type":"video/mp4","url":"/blobs/1","size":12345678},` +
			`{"type":"audio","mime_type":"audio/ogg","size":12345}]}`))
	}))
	t.Cleanup(gateway.Close)
	file := filepath.Join(t.TempDir(), "shot.png")
	code, out, errOut := command(t, nil, "call", "camera", "--server", gateway.URL, "--output", file)
	if code != 0 || out != "click" {
		t.Errorf("exit %d, %q", code, out)
	}
	second, third := strings.TrimSuffix(file, ".png")+"-2.png", strings.TrimSuffix(file, ".png")+"-3.png"
	for _, line := range []string{"image image/png, 4 B, a", ": saved to " + file + "]",
		"[image image/png, 3 B: saved to " + second + "]", "[file video/mp4, 12.3 MB: saved to " + third + "]",
		"[audio audio/ogg, 12 kB: its bytes were not stored]"} {
		if !strings.Contains(errOut, line) {
			t.Errorf("no %q in %q", line, errOut)
		}
	}
	if strings.Contains(errOut, "\x1b") {
		t.Errorf("%q moves the cursor", errOut)
	}
	for path, want := range map[string]string{file: "\x89PNG", second: "\x00\x00\x00", third: "a clip"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, _, errOut := command(t, nil, "call", "camera", "--server", gateway.URL); !strings.Contains(errOut,
		"3 B: use --output FILE to save it]") || !strings.Contains(errOut, "12.3 MB: "+gateway.URL+"/blobs/1]") {
		t.Errorf("%q does not say how to save it", errOut)
	}
}

// TestCallSavesNoMoreThanTold: a gateway that goes on sending does not fill the disk of who saves a file.
func TestCallSavesNoMoreThanTold(t *testing.T) {
	t.Parallel()
	size := "6"
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/blobs/1" {
			_, _ = w.Write([]byte(strings.Repeat("a clip", 1<<16)))
			return
		}
		_, _ = w.Write([]byte(`{"call_id":"c","success":true,"output":"x","session_id":"s","parts":[` +
			`{"type":"file","mime_type":"video/mp4","url":"/blobs/1","size":` + size + `}]}`))
	}))
	t.Cleanup(gateway.Close)
	file := filepath.Join(t.TempDir(), "clip.mp4")
	for _, size = range []string{"6", "0", "9000000000000"} {
		code, _, errOut := command(t, nil, "call", "camera", "--server", gateway.URL, "--output", file)
		if info, err := os.Stat(file); code == 0 || err != nil || info.Size() > 7 {
			t.Errorf("size %s: exit %d, %v, %v: %q", size, code, info, err, errOut)
		}
	}
}
