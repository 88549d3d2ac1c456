package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDevice runs the example with a gateway: its tool works, fails with a reason, and it stops on request.
func TestDevice(t *testing.T) {
	const token = "a-token-of-the-test"
	t.Setenv("FARHAND_TOKEN", token)
	t.Chdir(t.TempDir())
	folder := filepath.Join(t.TempDir(), "deep", "down")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := farhand.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, err := farhand.New(t.Context(), farhand.Config{Token: token}, farhand.WithListener(l),
		farhand.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	url := "http://" + l.Addr().String()
	leave, left := context.WithCancel(t.Context())
	go func() { ended <- run(leave, url, "pc") }()
	call := func(body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/tools/count_files/call",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	counted := ""
	testkit.Eventually(t, "the device is there", func() bool {
		counted = call(`{"args":{"folder":` + strconv.Quote(filepath.Dir(folder)) + `}}`)
		return !strings.Contains(counted, "tool_not_found")
	})
	if !strings.Contains(counted, `"structured":{"files":3}`) {
		t.Error(counted)
	}
	if got := call(`{"args":{}}`); !strings.Contains(got, "invalid_arguments") {
		t.Error(got)
	}
	left()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	stop()
	if err := errors.Join(<-ended, g.Close(t.Context())); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
