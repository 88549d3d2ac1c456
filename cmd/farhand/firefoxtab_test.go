package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
)

// firefoxTab is the tab of a Firefox, which a program for Node.js drives. One command runs at a time.
type firefoxTab struct {
	in      io.WriteCloser
	answers *json.Decoder
	kill    func()
	noise   func(text string) // what the page must not do
}

// startFirefox starts a Firefox that ends with the test.
func startFirefox(t testing.TB) *pageBrowser {
	t.Helper()
	program, err := exec.LookPath("firefox-esr") // as Debian calls it
	if err != nil {
		program, err = exec.LookPath("firefox")
	}
	if err != nil {
		t.Fatalf("no Firefox: run make deps (%v)", err)
	}
	if _, err := os.Stat("testdata/firefox/node_modules/puppeteer-core"); err != nil {
		t.Fatalf("the driver of Firefox is not installed: run make deps (%v)", err)
	}
	var errOut lockedBuffer
	cmd := exec.Command("node", "testdata/firefox/drive.js", program, t.TempDir())
	cmd.Stderr = &errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &pageBrowser{TB: t, parentTB: t, ctx: context.Background()}
	tab := &firefoxTab{
		in: in, answers: json.NewDecoder(out), noise: b.note, kill: func() { _ = cmd.Process.Kill() },
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends the driver, and it Firefox
		deadline := time.AfterFunc(waitLimit, tab.kill)
		defer deadline.Stop()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the driver of Firefox: %v\n%s", err, &errOut)
		}
	})
	b.tab = tab
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	if _, err := tab.do(ctx, "prelude", noDialogs); err != nil {
		t.Fatal(err)
	}
	return b
}

// do has the driver carry out a command. One that takes longer than ctx ends the browser.
func (f *firefoxTab) do(ctx context.Context, command string, args ...any) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, f.kill)()
	if err := json.NewEncoder(f.in).Encode(map[string]any{"command": command, "args": args}); err != nil {
		return nil, err
	}
	var answer struct {
		Value  json.RawMessage
		Error  string
		Noises []string
	}
	if err := f.answers.Decode(&answer); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	for _, text := range answer.Noises {
		f.noise(text)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Value, nil
}

func (f *firefoxTab) navigate(ctx context.Context, url string) error {
	_, err := f.do(ctx, "navigate", url)
	return err
}

func (f *firefoxTab) reload(ctx context.Context) error {
	_, err := f.do(ctx, "reload")
	return err
}

func (f *firefoxTab) evaluate(ctx context.Context, expression string) (json.RawMessage, error) {
	return f.do(ctx, "evaluate", expression)
}

func (f *firefoxTab) click(ctx context.Context, x, y float64) error {
	_, err := f.do(ctx, "click", x, y)
	return err
}

// resize leaves the theme as it is: WebDriver BiDi cannot choose it.
func (f *firefoxTab) resize(ctx context.Context, width, height int64, _ string) error {
	_, err := f.do(ctx, "resize", width, height)
	return err
}

func (f *firefoxTab) screenshot(ctx context.Context) ([]byte, error) {
	value, err := f.do(ctx, "screenshot")
	if err != nil {
		return nil, err
	}
	var png []byte
	return png, json.Unmarshal(value, &png)
}

func (f *firefoxTab) locate(ctx context.Context, latitude, longitude float64) error {
	_, err := f.do(ctx, "locate", latitude, longitude)
	return err
}

func (f *firefoxTab) permit(ctx context.Context, origin, power string, decision browser.PermissionSetting) error {
	_, err := f.do(ctx, "permit", origin, power, decision)
	return err
}
