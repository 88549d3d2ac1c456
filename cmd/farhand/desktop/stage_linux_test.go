package desktop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/ws/client"
)

var real = flag.Bool("desktop", false, "use the programs of a desktop: Xvfb, D-Bus, ffmpeg and more")

// limit bounds each wait of these tests.
const limit = 30 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stage is a desktop of its own: an X server whose screen is white, and a bus with services that the test plays.
type stage struct {
	environ []string
	dir     string // of what programs write
	notices *notices
	bus     *dbus.Conn
	address string // of the bus
}

// another connects another program to the bus.
func (s *stage) another(t *testing.T) *dbus.Conn {
	t.Helper()
	bus, err := dbus.Connect(s.address)
	must(t, err)
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

func newStage(t *testing.T) *stage {
	t.Helper()
	if !*real {
		t.Skip("programs of a desktop are used with -desktop only: .ci/deps desktop installs them")
	}
	programs := []string{"Xvfb", "dbus-daemon", "xclip", "scrot", "ffmpeg", "ffprobe", "espeak-ng", "xdg-open"}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is missing: run make deps", name)
		}
	}
	s := &stage{dir: t.TempDir()}
	display := s.start(t, "Xvfb", "-displayfd", "3", "-screen", "0", "320x240x24", "-wr", "-noreset",
		"-nolisten", "tcp")
	address := s.start(t, "dbus-daemon", "--session", "--nofork", "--print-address=3")
	s.write(t, "browser", "#!/bin/sh\necho \"$1\" >\"$HOME/new\"\nmv \"$HOME/new\" \"$HOME/opened\"\n")
	s.write(t, ".local/share/applications/page.desktop",
		"[Desktop Entry]\nType=Application\nName=Page\nExec="+s.dir+"/browser %u\n")
	s.write(t, ".config/mimeapps.list", "[Default Applications]\nx-scheme-handler/https=page.desktop\n")
	s.write(t, "alsa.conf", "pcm.!default { type file slave.pcm { type null } file \""+s.dir+"/spoken\" format raw }\n"+
		"ctl.!default { type null }\n") // what is played goes into a file
	s.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "LANG=C.UTF-8", "DISPLAY=:" + display,
		"DBUS_SESSION_BUS_ADDRESS=" + address, "DBUS_SYSTEM_BUS_ADDRESS=" + address,
		"ALSA_CONFIG_PATH=" + s.dir + "/alsa.conf", "FARHAND_TOKEN=secret",
	}
	s.address = address
	s.bus = s.another(t)
	s.notices = serveNotices(t, s.bus)
	serveLocation(t, s.bus)
	return s
}

// write writes a file into the folder of the stage, which is its user's home.
func (s *stage) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(s.dir, name)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)))
}

// start starts a program that prints a line to its file 3 when it is ready, and returns that line.
func (s *stage) start(t *testing.T, name string, args ...string) string {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = write.Close()
	must(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	must(t, read.SetReadDeadline(time.Now().Add(limit)))
	line, err := bufio.NewReader(read).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line)
}

// device is a desktop as a device of a real gateway.
type device struct {
	url    string
	names  []string // of its tools
	folder string   // that it shares
	offers []desktop.Offer

	timeout int // of calls, in milliseconds
}

const secret = "a-token-of-the-test"

// connect makes a desktop a device.
func connect(t *testing.T, cfg desktop.Config) *device {
	t.Helper()
	d, err := desktop.New(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	config := farhand.DefaultConfig()
	config.Token, config.BlobURL = secret, farhand.Secret("file://"+t.TempDir())
	g, err := farhand.New(t.Context(), config, farhand.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = g.Close(ctx)
		server.Close()
	})
	here := &device{url: server.URL, folder: cfg.Folder, offers: d.Offers(t.Context()), timeout: 60_000}
	options := []client.Option{client.WithToken(secret), client.WithSession("desk")}
	for _, o := range here.offers {
		if o.Missing == "" {
			here.names = append(here.names, o.Name)
			options = append(options, client.WithTool(o.Tool.Tool, o.Tool.Handler))
		}
	}
	c, err := client.New("ws"+strings.TrimPrefix(server.URL, "http")+"/ws/chat", options...)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	select {
	case <-c.Ready():
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(limit):
		t.Fatal("the desktop does not get in")
	}
	return here
}

// answer is what a call returned.
type answer struct {
	Success bool
	Output  string
	Parts   []struct {
		Type     string
		MIMEType string `json:"mime_type"`
		Name     string
		Data     string
		URL      string
	}
	Error  string // of a tool that failed
	Detail string // of a call that did not run
}

// call calls a tool.
func (d *device) call(ctx context.Context, t *testing.T, tool, args string) answer {
	t.Helper()
	body := fmt.Sprintf(`{"args":%s,"timeout_ms":%d}`, args, d.timeout)
	path := d.url + "/api/tools/" + tool + "/call"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	var a answer
	must(t, json.Unmarshal(d.do(t, r), &a))
	return a
}

// do makes a request.
func (d *device) do(t *testing.T, r *http.Request) []byte {
	t.Helper()
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return data
}

// file returns the bytes of a part.
func (d *device) file(t *testing.T, a answer, i int) []byte {
	t.Helper()
	if len(a.Parts) <= i {
		t.Fatalf("%d parts: %+v", len(a.Parts), a)
	}
	if a.Parts[i].URL == "" {
		data, err := base64.StdEncoding.DecodeString(a.Parts[i].Data)
		must(t, err)
		return data
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+a.Parts[i].URL, nil)
	must(t, err)
	return d.do(t, r)
}

// media is what ffprobe says of a file.
type media struct {
	kinds   string // of its streams
	width   int
	seconds float64
}

func probe(t *testing.T, data []byte) media {
	t.Helper()
	file := filepath.Join(t.TempDir(), "media")
	must(t, os.WriteFile(file, data, 0o600))
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-of", "json", "-show_entries",
		"format=duration:stream=codec_type,width", file).Output()
	must(t, err)
	var said struct {
		Streams []struct {
			Kind  string `json:"codec_type"`
			Width int
		}
		Format struct{ Duration string }
	}
	must(t, json.NewDecoder(bytes.NewReader(out)).Decode(&said))
	var kinds []string
	var m media
	m.seconds, err = strconv.ParseFloat(said.Format.Duration, 64)
	must(t, err)
	for _, stream := range said.Streams {
		kinds, m.width = append(kinds, stream.Kind), max(m.width, stream.Width)
	}
	m.kinds = strings.Join(kinds, "+")
	return m
}
