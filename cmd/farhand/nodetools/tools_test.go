package nodetools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/gif"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do calls a command.
func do(ctx context.Context, t *testing.T, cfg Config, name, args string) (any, error) {
	t.Helper()
	if cfg.Canvas == nil {
		cfg.Canvas = NewCanvas(false)
	}
	for _, tool := range Tools(cfg) {
		if tool.Name == name {
			return tool.Handler(ctx, client.Call{ID: "1", Tool: name, Args: json.RawMessage(args)})
		}
	}
	t.Fatalf("there is no command %s", name)
	return nil, nil
}

func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name, args string
		parts      int
		mime       string
	}{
		{"camera_snap", `{}`, 1, "image/png"},
		{"camera_snap", `{"facing":"both"}`, 2, "image/png"},
		{"canvas_snapshot", `{"quality":50}`, 1, "image/jpeg"},
		{"camera_clip", `{"facing":"both","duration_ms":120000}`, 2, "image/gif"},
		{"screen_record", `{"duration_ms":3000}`, 1, "image/gif"},
	} {
		out, err := do(t.Context(), t, Config{}, c.name, c.args)
		if err != nil {
			t.Fatal(err)
		}
		result, size := out.(client.Result), 0
		if len(result.Parts) != c.parts {
			t.Fatalf("%s: %d parts", c.name, len(result.Parts))
		}
		for _, p := range result.Parts {
			img, kind, err := image.Decode(bytes.NewReader(p.Data))
			if err != nil || "image/"+kind != c.mime || p.MIMEType != c.mime || img.Bounds().Dx() != pictureWidth {
				t.Errorf("%s: %s, %s, %v", c.name, p.MIMEType, kind, err)
			}
			size += len(p.Data)
		}
		if size > 1<<20 {
			t.Errorf("%s: %d bytes are more than a result may have", c.name, size)
		}
	}
	out, err := do(t.Context(), t, Config{}, "screen_record", `{"duration_ms":3000}`)
	if err != nil {
		t.Fatal(err)
	}
	anim, err := gif.DecodeAll(bytes.NewReader(out.(client.Result).Parts[0].Data))
	if err != nil || len(anim.Image) != 6 || anim.Delay[0] != 50 {
		t.Errorf("%d frames of %v hundredths of a second, %v", len(anim.Image), anim.Delay, err)
	}
}

// Letters are those of the font. Others than ASCII are drawn as U+FFFD, and what does not fit is left out.
func TestLetters(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, pictureWidth, pictureHeight))
	write(img, color.Black, "i\u00e4"+strings.Repeat("x", 2*maxLetters))
	var drawn strings.Builder
	for y := lineHeight - 9; y < lineHeight; y++ {
		for x := 10; x < 10+2*(letterWidth+1); x++ {
			drawn.WriteByte(".#"[img.RGBAAt(x, y).A&1])
		}
		drawn.WriteByte('\n')
	}
	const want = `
.........###..
...#....##.##.
........#.#.#.
..##....###.#.
...#....##.##.
...#....##.##.
...#....#####.
...#....##.##.
.#####...###..
`
	if drawn.String() != want[1:] {
		t.Errorf("drew\n%swant%s", drawn.String(), want)
	}
	if end := 10 + maxLetters*(letterWidth+1); end > pictureWidth {
		t.Errorf("%d letters need %d pixels", maxLetters, end)
	}
}

// A command runs if the person at the machine agrees to that very command.
func TestRun(t *testing.T) {
	var asked string
	answer := func(agrees bool) Config {
		return Config{Confirm: func(_ context.Context, command string) bool { asked = command; return agrees }}
	}
	if out, err := do(t.Context(), t, answer(false), "run", `{"command":"echo no"}`); err == nil || asked != "echo no" {
		t.Errorf("asked about %q, and it ran all the same: %v", asked, out)
	}
	out, err := do(t.Context(), t, answer(true), "run", `{"command":"echo out; echo err >&2; exit 3"}`)
	if got, ok := out.(Ran); err != nil || !ok || got.ExitCode != 3 || got.Stdout != "out\n" || got.Stderr != "err\n" ||
		got.Cut {
		t.Errorf("%+v, %v", out, err)
	}
	out, err = do(t.Context(), t, answer(true), "run", `{"command":"head -c 300000 /dev/zero"}`)
	if got := out.(Ran); err != nil || len(got.Stdout) != maxOutput || !got.Cut {
		t.Errorf("%d bytes, %v", len(got.Stdout), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// Were the programs not ended, the test would run into its own timeout.
	if out, err := do(ctx, t, answer(true), "run", `{"command":"sleep 3600 & sleep 3600"}`); err == nil {
		t.Errorf("%v", out)
	}
}

// Background processes of a command do not delay its result, and end with it.
func TestCommandLeavesNothing(t *testing.T) {
	cfg := Config{Confirm: func(context.Context, string) bool { return true }}
	out, err := do(t.Context(), t, cfg, "run", `{"command":"sleep 3600 & echo $!"}`)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.(Ran).Stdout))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "what it left has ended", func() bool {
		p, err := os.FindProcess(pid)
		return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
	})
}

func TestNotifyAndLocation(t *testing.T) {
	shown := ""
	cfg := Config{Notify: func(title, body string) { shown = title + "|" + body }}
	if _, err := do(t.Context(), t, cfg, "notify", `{"title":"Tea","body":"is ready"}`); err != nil ||
		shown != "Tea|is ready" {
		t.Errorf("%q, %v", shown, err)
	}
	for _, tool := range Tools(cfg) {
		if tool.Name == "location_get" {
			t.Error("a location nobody gave is offered")
		}
	}
	cfg.Location = &Location{Latitude: 48.2, Longitude: 16.4, Source: "flag"}
	if out, err := do(t.Context(), t, cfg, "location_get", `{}`); err != nil || out != *cfg.Location {
		t.Errorf("%v, %v", out, err)
	}
}

// The levels are those that docs/devices.md recommends.
func TestLevels(t *testing.T) {
	tools := Tools(Config{Canvas: NewCanvas(false), Location: &Location{}})
	if len(tools) == 0 {
		t.Fatal("there are no tools")
	}
	for _, tool := range tools {
		want := ""
		if strings.HasPrefix(tool.Name, "camera_") || tool.Name == "screen_record" || tool.Name == "location_get" ||
			tool.Name == "run" || tool.Name == "canvas_eval" {
			want = "user_confirm"
		}
		if tool.SecurityLevel != want || tool.Hints.ReadOnly == nil {
			t.Errorf("%s: level %q", tool.Name, tool.SecurityLevel)
		}
	}
}
