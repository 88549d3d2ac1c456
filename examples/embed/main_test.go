package main

import (
	"context"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/ws/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEmbed runs the example: its tool works, its hook stops a call before the device hears of it, its model answers,
// and it stops on request.
func TestEmbed(t *testing.T) {
	l, err := farhand.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, farhand.WithListener(l), farhand.WithLogger(slog.New(slog.DiscardHandler)))
	}()
	url := "http://" + l.Addr().String()
	device := connect(t, url)

	for _, tt := range []struct{ path, body, want string }{
		{"/api/tools/roll/call", `{}`, `"success":true,"output":"`},
		{"/api/tools/roll/call", `{"args":{"sides":6}}`, `"code":"invalid_arguments"`},
		{"/api/tools/wipe/call", `{}`, `"code":"hook_cancelled"`},
		{"/api/sessions/phone/messages", `{"content":"hello"}`, `"full_response":"hello"`},
	} {
		if got := post(t, url+tt.path, tt.body); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
	device()
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// connect connects a device whose tool must never run, and returns what disconnects it.
func connect(t *testing.T, url string) (disconnect func()) {
	t.Helper()
	wipe := client.Tool{Name: "wipe", Description: "Erases everything."}
	c, err := client.New(url, client.WithSession("phone"),
		client.WithTool(wipe, func(context.Context, client.Call) (any, error) {
			t.Error("the device was asked to wipe")
			return nil, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return func() {
		stop()
		<-ended
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
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

// TestEmbedIsShort: the parts of the program's own are at most 30 lines of code.
func TestEmbedIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "main.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if i >= files.Position(f.Decls[0].End()).Line && line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines > 30 {
		t.Errorf("the example has %d lines of code behind its imports", lines)
	}
}
