package desktop

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/procgroup"
	"github.com/farhand/farhand/ws/client"
)

const (
	maxClipboard = 256 << 10 // characters
	copyTime     = 3 * time.Second
	copyPoll     = 20 * time.Millisecond
)

// clipboard is how programs read and write the clipboard of a system.
type clipboard struct {
	by    string
	read  func(ctx context.Context) (string, error)
	write func(ctx context.Context, text string) error
}

func (d *Desktop) clipboardReadWay(context.Context) way {
	c, missing := d.clipboard()
	if missing != "" {
		return lacks("%s", missing)
	}
	type text struct {
		Text string `json:"text"`
		Cut  bool   `json:"cut"`
	}
	return by(c.by, func(ctx context.Context, _ client.Call, _ none) (any, error) {
		got, err := c.read(ctx)
		if err != nil && !errors.Is(err, errTooLong) {
			return nil, err
		}
		whole := err == nil
		short := firstCharacters(strings.ToValidUTF8(got, "\ufffd"), maxClipboard)
		return text{Text: short, Cut: !whole || len(short) < len(got)}, nil
	})
}

func (d *Desktop) clipboardWriteWay(context.Context) way {
	c, missing := d.clipboard()
	if missing != "" {
		return lacks("%s", missing)
	}
	return by(c.by, func(ctx context.Context, _ client.Call, args struct{ Text string }) (any, error) {
		if err := c.write(ctx, args.Text); err != nil {
			return nil, err
		}
		return "copied", nil
	})
}

// firstCharacters returns the first characters of a text.
func firstCharacters(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	for i := range text {
		if limit == 0 {
			return text[:i]
		}
		limit--
	}
	return text
}

// clipboard returns how this machine's clipboard is used.
func (d *Desktop) clipboard() (c clipboard, missing string) {
	switch d.system {
	case "darwin":
		paste, set := d.look("pbpaste"), d.look("pbcopy")
		if paste == "" || set == "" {
			return c, "pbpaste and pbcopy are missing"
		}
		utf := []string{"LC_CTYPE=UTF-8"} // otherwise they use the encoding of the session
		c.by, c.read = "pbcopy", d.printed(program{path: paste, env: utf})
		c.write = func(ctx context.Context, text string) error {
			_, err := d.run(ctx, program{path: set, env: utf, stdin: text})
			return err
		}
		return c, ""
	case "windows":
		if d.look(powershell) == "" {
			return c, "PowerShell is missing"
		}
		return clipboard{"PowerShell", func(ctx context.Context) (string, error) {
			out, err := d.powershell(ctx, "clipboard_read", none{})
			return string(out), err
		}, func(ctx context.Context, text string) error {
			_, err := d.powershell(ctx, "clipboard_write", struct{ Text string }{text})
			return err
		}}, ""
	}
	return d.clipboardOfLinux()
}

// clipboardOfLinux returns the clipboard of Wayland or X11. Its text belongs to the program that copied it, so that
// program runs until another copies something.
func (d *Desktop) clipboardOfLinux() (c clipboard, missing string) {
	var read, write program
	switch {
	case d.vars["WAYLAND_DISPLAY"] != "":
		c.by = "wl-clipboard"
		read = program{path: d.look("wl-paste"), args: []string{"--no-newline", "--type", "text"}}
		write = program{path: d.look("wl-copy"), args: []string{"--foreground", "--type", "text/plain"}}
		if read.path == "" || write.path == "" {
			return c, "wl-paste and wl-copy are missing: install wl-clipboard"
		}
	case d.vars["DISPLAY"] != "":
		name, path := d.first("xclip", "xsel")
		switch c.by = name; name {
		case "xclip":
			read = program{path: path, args: []string{"-selection", "clipboard", "-out", "-target", "UTF8_STRING"}}
			write = program{path: path, args: []string{"-selection", "clipboard", "-in", "-quiet"}}
		case "xsel":
			read = program{path: path, args: []string{"--clipboard", "--output"}}
			write = program{path: path, args: []string{"--clipboard", "--input", "--nodetach"}}
		default:
			return c, "xclip and xsel are missing: install xclip"
		}
	default:
		return c, noDisplay
	}
	printed := d.printed(read)
	c.read = func(ctx context.Context) (string, error) {
		text, err := printed(ctx)
		if err != nil && noText.MatchString(err.Error()) {
			return "", nil
		}
		return text, err
	}
	c.write = func(ctx context.Context, text string) error { return d.hold(ctx, write, c.read, text) }
	return c, ""
}

// noText is what the programs say if the clipboard is empty, or has something other than text.
var noText = regexp.MustCompile(`target \S+ not available|Nothing is copied|No selection|No suitable type of content`)

// printed returns a function that returns what a program prints: with errTooLong, the first MiB of it.
func (d *Desktop) printed(p program) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := d.run(ctx, p)
		return string(out), err
	}
}

// clipboardOwner is the program that holds the text of the last clipboard_write.
type clipboardOwner struct {
	mu    sync.Mutex
	group *procgroup.Group
	ended chan struct{} // closed when it has ended
}

// release ends the program.
func (o *clipboardOwner) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end()
}

// giveUp ends a program, unless another has taken its place.
func (o *clipboardOwner) giveUp(ended <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == ended {
		o.end()
	}
}

// end ends the program. o.mu must be held.
func (o *clipboardOwner) end() {
	if o.group != nil {
		_ = o.group.Kill() // it may have ended
		<-o.ended
		o.group = nil
	}
}

// start starts a program in place of the last one.
func (o *clipboardOwner) start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end()
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	o.group, o.ended = group, over
	go func() {
		defer close(over)
		_ = group.Wait()
	}()
	return over, nil
}

// hold starts a program that offers a text to others, and returns when they can read it.
func (d *Desktop) hold(
	ctx context.Context, p program, read func(context.Context) (string, error), text string,
) error {
	ctx, stop := context.WithTimeoutCause(ctx, copyTime, errors.New("the clipboard did not take the text"))
	defer stop()
	stderr := procgroup.NewTail(maxError)
	cmd := d.command(context.Background(), p) // it outlives the call; release ends it
	cmd.Stdin, cmd.Stderr = strings.NewReader(text), stderr
	ended, err := d.copied.start(cmd)
	if err != nil {
		return err
	}
	for {
		if got, err := read(ctx); (err == nil || errors.Is(err, errTooLong)) && strings.HasPrefix(text, got) &&
			len(got) == min(len(text), maxOutput) {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended%s", p.path, remark(stderr.String()))
		default:
		}
		if err := pause.For(ctx, copyPoll); err != nil {
			d.copied.giveUp(ended)
			return err
		}
	}
}
