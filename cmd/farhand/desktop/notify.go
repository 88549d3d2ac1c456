package desktop

import (
	"context"
	"strings"

	"github.com/farhand/farhand/registry/textsafe"
	"github.com/farhand/farhand/ws/client"
)

type notifyArgs struct{ Title, Body string }

func (d *Desktop) notifyWay(ctx context.Context) way {
	switch d.system {
	case "darwin":
		return d.scripted("osascript", func(ctx context.Context, path string, args notifyArgs) error {
			_, err := d.run(ctx, program{path: path, args: appleScript([]string{
				"display notification (item 2 of argv) with title (item 1 of argv)",
			}, args.Title, args.Body)})
			return err
		})
	case "windows":
		return d.scripted(powershell, func(ctx context.Context, _ string, args notifyArgs) error {
			_, err := d.powershell(ctx, "notify", args)
			return err
		})
	}
	if missing := d.notifications(ctx, ""); missing != "" {
		return lacks("%s", missing)
	}
	return by(noticeName, func(ctx context.Context, _ client.Call, args notifyArgs) (any, error) {
		bus, err := d.sessionBus(ctx)
		if err != nil {
			return nil, err
		}
		defer bus.Close()
		title, body := args.titled()
		if _, err := show(ctx, bus, notice{title: title, body: body}); err != nil {
			return nil, err
		}
		return "shown", nil
	})
}

// scripted returns a way to notify by a program.
func (d *Desktop) scripted(name string, run func(ctx context.Context, path string, args notifyArgs) error) way {
	path := d.look(name)
	if path == "" {
		return lacks("%s is missing", name)
	}
	return by(name, func(ctx context.Context, _ client.Call, args notifyArgs) (any, error) {
		title, body := args.titled()
		err := run(ctx, path, notifyArgs{Title: textsafe.Clean(title), Body: textsafe.Clean(body)})
		if err != nil {
			return nil, err
		}
		return "shown", nil
	})
}

// titled returns the texts, the product's name as the default title.
func (a notifyArgs) titled() (title, body string) {
	if strings.TrimSpace(a.Title) == "" {
		return appName, a.Body
	}
	return a.Title, a.Body
}

// appleScript returns the arguments of osascript for lines that see args as argv. So no argument becomes a part of the
// script.
func appleScript(lines []string, args ...string) []string {
	words := []string{"-e", "on run argv"}
	for _, line := range append(lines, "end run") {
		words = append(words, "-e", line)
	}
	return append(append(words, "--"), args...)
}

// askByScript asks with a dialog of macOS, whose notifications have no buttons for programs without a bundle.
func (d *Desktop) askByScript(ctx context.Context, path string, q Question) Answer {
	lines := []string{
		`set answers to items 2 thru -1 of argv`,
		`try`,
		`display dialog (item 1 of argv) buttons answers default button 1 cancel button 1 with title "` + appName + `"`,
		`return button returned of result`,
		`on error number -128`, // the cancel button, or Escape
		`return item 2 of argv`,
		`end try`,
	}
	out, err := d.run(ctx, program{
		path: path, time: personTimeout,
		args: appleScript(lines, append([]string{q.Text}, words(q)...)...),
	})
	return answerFrom(out, err)
}

// askByPowerShell asks with a window of Windows.
func (d *Desktop) askByPowerShell(ctx context.Context, q Question) Answer {
	out, err := d.powershellFor(ctx, personTimeout, "ask", struct {
		Title, Text string
		Answers     []string
	}{appName, q.Text, words(q)})
	return answerFrom(out, err)
}

// answerFrom returns the answer that a program printed. A program that fails has none.
func answerFrom(out []byte, err error) Answer {
	if err != nil {
		return Unanswered
	}
	return answerOf(strings.TrimSpace(string(out)))
}
