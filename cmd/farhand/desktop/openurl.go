package desktop

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/farhand/farhand/ws/client"
)

const (
	maxOpened = 8 // programs that show pages at a time, as far as this program knows
	openTime  = 2 * time.Second
	maxReason = 100 // characters of an agent's reason in a question
)

func (d *Desktop) openWay(context.Context) way {
	open, missing := d.opener()
	if missing != "" {
		return lacks("%s", missing)
	}
	return by(open.path, func(ctx context.Context, _ client.Call, args struct{ URL, Reason string }) (any, error) {
		address, err := page(args.URL)
		if err != nil {
			return nil, err
		}
		if err := d.permitPage(ctx, address, args.Reason); err != nil {
			return nil, err
		}
		if err := d.Open(ctx, address); err != nil {
			return nil, err
		}
		return "opened", nil
	})
}

// permitPage asks whether a page may be opened in the browser.
func (d *Desktop) permitPage(ctx context.Context, address, reason string) error {
	question := "May an agent open this page in your browser?\n" + oneLine(address)
	if reason != "" {
		short := firstCharacters(reason, maxReason)
		if short != reason {
			short += "…"
		}
		question += "\nIts reason: " + strconv.Quote(oneLine(short))
	}
	return d.permit(ctx, "open_url", question, false)
}

// permitShown is permitPage for a page on the canvas.
func (d *Desktop) permitShown(ctx context.Context, text string) error {
	address, err := page(text)
	if err != nil {
		return err
	}
	return d.permitPage(ctx, address, "")
}

// page returns the address of a page, as it is opened and shown.
func page(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("the url must be http or https")
	case u.User != nil:
		return "", errors.New("the url must not have a user name or password")
	}
	return u.String(), nil
}

// opener returns the program that opens pages.
func (d *Desktop) opener() (p program, missing string) {
	name := "xdg-open"
	switch d.system {
	case "darwin":
		name = "open"
	case "windows":
		name, p.args = "rundll32.exe", []string{"url.dll,FileProtocolHandler"}
	default:
		if d.vars["WAYLAND_DISPLAY"] == "" && d.vars["DISPLAY"] == "" {
			return p, noDisplay
		}
	}
	if p.path = d.look(name); p.path == "" {
		return p, name + " is missing"
	}
	return p, ""
}

// launches are the programs that opened pages and still run. Some browsers run as the program that opened them, so
// these are not ended.
type launches struct{ running chan struct{} }

// Open opens a page in the person's browser. It returns when that has succeeded, or runs for two seconds.
func (d *Desktop) Open(ctx context.Context, address string) error {
	p, missing := d.opener()
	if missing != "" {
		return errors.New(missing)
	}
	select {
	case d.opened.running <- struct{}{}:
	default:
		return fmt.Errorf("%d browsers that were opened still run", maxOpened)
	}
	p.args = append(p.args, address)
	cmd := d.command(context.Background(), p)
	if err := launch(cmd); err != nil {
		<-d.opened.running
		return err
	}
	failed := make(chan error, 1)
	go func() { // ends with the browser, or with this program
		failed <- cmd.Wait()
		<-d.opened.running
	}()
	timer := time.NewTimer(openTime)
	defer timer.Stop()
	select {
	case err := <-failed:
		if err != nil {
			return fmt.Errorf("%s failed: %w", p.path, err)
		}
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Opens reports whether a machine can open pages.
func Opens(cfg Config) bool {
	_, missing := newDesktop(cfg).opener()
	return missing == ""
}
