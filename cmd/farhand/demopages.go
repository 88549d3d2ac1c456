package main

import (
	"fmt"
	"strings"

	"github.com/caarlos0/env/v11"
	"rsc.io/qr"

	"github.com/farhand/farhand"
)

// showPages prints the links to the gateway's pages at a base URL, and what to sign in with. If other devices can reach
// it, a terminal also shows the link for a phone as a QR code. A link has no secret: a phone gets its credential by
// pairing.
func (a *application) showPages(cfg farhand.Config, base string, reachable bool) {
	pages := cfg.Pages()
	if pages.Console != "" {
		fmt.Fprintf(a.out, "The console: %s%s\n", base, pages.Console)
		if cfg.Token != "" {
			fmt.Fprintf(a.out, "  Sign in with the token %s\n", a.shownToken(cfg))
		}
		fmt.Fprintln(a.out)
	}
	if pages.Device != "" {
		fmt.Fprintf(a.out, "To make a phone or another browser a device, open: %s%s\n\n", base, pages.Device)
	}
	if pages.Device == "" || !reachable || !isTerminal(a.out) {
		return
	}
	if code, err := qrCode(base + pages.Device); err == nil { // else the link must be typed
		fmt.Fprintf(a.out, "%s\n", code)
	}
}

// shownToken returns the token if the demo made it up. The person's own is not printed.
func (a *application) shownToken(cfg farhand.Config) string {
	if hasToken(env.ToMap(a.environ)) {
		return "of " + envPrefix + "TOKEN"
	}
	return string(cfg.Token)
}

// quiet is the width of the light border that a QR code needs, in modules.
const quiet = 4

// qrCode returns a text as a QR code for a terminal. A character is two modules, one above the other. The colours are
// set, black on white, so that it looks the same on a dark and on a light terminal.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", err
	}
	dark := func(x, y int) bool { return code.Black(x-quiet, y-quiet) } // false outside
	size := code.Size + 2*quiet
	var b strings.Builder
	for y := 0; y < size; y += 2 {
		b.WriteString("\x1b[38;5;16;48;5;231m")
		for x := range size {
			switch upper, lower := dark(x, y), dark(x, y+1); {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String(), nil
}
