package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/testkit"
)

// newcomer is a person who has just got Farhand: a terminal, a browser on this machine, and a phone in the hand.
type newcomer struct {
	testing.TB
	terminal *process
	desk     *pageBrowser
	phone    *phoneStage // its first tab: the device page
	hand     *adminStage // its second tab: the console
	link     string      // of the console
	token    string
	export   string // the command that lets a shell use the gateway
}

// TestFiveMinutes is the way of a new user, with nothing but what the programs print and show: the demo, the console,
// the QR code, the phone, a key for an agent, its call, the approval on the phone, the picture in the console.
func TestFiveMinutes(t *testing.T) {
	t.Parallel()
	n := &newcomer{TB: t}
	n.startsTheDemo()
	n.opensTheConsole()
	n.scansTheCode()
	n.pairsThePhone()
	n.approvesTheAgentsCall(n.createsAKey())
	n.seesThePicture()
	n.desk.quiet()
	n.phone.quiet()
	n.hand.quiet()
}

var (
	consoleLine = regexp.MustCompile(`(?m)^The console: (https://\S+)$`)
	tokenLine   = regexp.MustCompile(`(?m)^  Sign in with the token (\S+)$`)
	deviceLine  = regexp.MustCompile(`(?m)open: (https://\S+)$`)
)

// startsTheDemo reads what it prints into a terminal. The terminal's QR code is the link to the device page.
func (n *newcomer) startsTheDemo() {
	_, port, _ := strings.Cut(testkit.FreeAddr(n), ":")
	n.terminal = start(n, []string{"XDG_STATE_HOME=" + n.TempDir(), "SHELL=/bin/sh"}, "script", "-qefc",
		farhandBinary+" demo --lan --addr :"+port, os.DevNull)
	blank := "\x1b[38;5;16;48;5;231m"
	out := ""
	eventually(n, waitLimit, "the demo prints a QR code", func() bool {
		out = strings.ReplaceAll(n.terminal.out.String(), "\r\n", "\n")
		_, code, found := strings.Cut(out, blank)
		return found && strings.Contains(code, "\x1b[0m\n\n")
	})
	printed := func(line *regexp.Regexp) string {
		found := line.FindStringSubmatch(out)
		if found == nil {
			n.Fatalf("the demo does not print %s\n%s", line, out)
		}
		return found[1]
	}
	n.link, n.token, n.export = printed(consoleLine), printed(tokenLine), printed(exportLine)
	n.desk = startPageBrowser(n, chromedp.Flag("use-fake-device-for-media-stream", true),
		chromedp.Flag("use-fake-ui-for-media-stream", true),
		// A person continues after the warning about the demo's own certificate.
		chromedp.Flag("ignore-certificate-errors", true))
	if link := n.desk.scan(photographed(out)); link != printed(deviceLine) {
		n.Errorf("the terminal's QR code is %q, not the printed link", link)
	}
}

// photographed draws the QR code in the output of a terminal.
func photographed(out string) image.Image {
	const cell = 4 // pixels
	var rows []string
	for line := range strings.Lines(out) {
		if _, cells, is := strings.Cut(line, "\x1b[38;5;16;48;5;231m"); is {
			rows = append(rows, strings.TrimSuffix(cells, "\x1b[0m\n"))
		}
	}
	picture := image.NewGray(image.Rect(0, 0, cell*len([]rune(rows[0])), 2*cell*len(rows)))
	draw.Draw(picture, picture.Bounds(), image.White, image.Point{}, draw.Src)
	for y, row := range rows {
		for x, char := range []rune(row) {
			for half, inked := range []string{"▀█", "▄█"} {
				if strings.ContainsRune(inked, char) {
					at := image.Rect(x, 2*y+half, x+1, 2*y+half+1)
					draw.Draw(picture, image.Rectangle{at.Min.Mul(cell), at.Max.Mul(cell)}, image.Black,
						image.Point{}, draw.Src)
				}
			}
		}
	}
	return picture
}

// scan returns the text of the QR code in a picture, as the scanner jsQR reads it.
func (b *pageBrowser) scan(picture image.Image) string {
	b.Helper()
	scanner, err := os.ReadFile("../../web/node_modules/jsqr/dist/jsQR.js")
	if err != nil {
		b.Fatalf("jsQR is not installed: run make deps (%v)", err)
	}
	size := picture.Bounds().Size()
	pixels := make([]byte, 0, 4*size.X*size.Y)
	for y := range size.Y {
		for x := range size.X {
			c := color.GrayModel.Convert(picture.At(x+picture.Bounds().Min.X, y+picture.Bounds().Min.Y)).(color.Gray)
			pixels = append(pixels, c.Y, c.Y, c.Y, 255)
		}
	}
	return eval[string](b, fmt.Sprintf(`(() => {
		const module = {exports: {}}, exports = module.exports;
		%s
		const pixels = Uint8ClampedArray.from(atob(%q), c => c.charCodeAt(0));
		return module.exports(pixels, %d, %d)?.data ?? "";
	})()`, scanner, base64.StdEncoding.EncodeToString(pixels), size.X, size.Y))
}

func (n *newcomer) opensTheConsole() {
	n.desk.size(1280, "light")
	n.desk.open(n.link)
	n.desk.fill("Key or token", n.token)
	n.desk.press("Sign in")
	n.desk.see("demo device")
}

// scansTheCode opens what the console's QR code says on a phone: another context of the browser, which shares nothing.
func (n *newcomer) scansTheCode() {
	n.desk.press("Connect a device")
	n.desk.see("Pair a device", "Scan the QR code with a phone")
	raw, err := chromedp.Run(n.desk.ctx, chromedp.Screenshot("svg.qr"))
	if err != nil {
		n.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		n.Fatal(err)
	}
	page := n.desk.scan(picture)
	if page != strings.Replace(n.link, "/console/", "/device", 1) {
		n.Fatalf("the console's QR code is %q", page)
	}
	n.desk.docPicture("console-pairing")
	n.phone = &phoneStage{pageBrowser: n.desk.another(chromedp.WithNewBrowserContext())}
	n.phone.handheld()
	n.phone.open(page)
	n.phone.see("Use this device with agents")
}

// another opens a tab, in a context of its own if an option says so.
func (b *pageBrowser) another(options ...chromedp.ContextOption) *pageBrowser {
	b.Helper()
	tab := &pageBrowser{TB: b.TB, parentTB: b.parentTB, tab: chromiumTab{}}
	ctx, end := chromedp.NewContext(b.ctx, append(options, chromedp.WithListener(tab.hear))...)
	b.parentTB.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		b.Fatal(err)
	}
	tab.ctx, tab.wire = ctx, chromedp.FromContext(ctx).Target
	return tab
}

// handheld gives the tab the screen of a phone, which is touched.
func (b *pageBrowser) handheld() {
	b.Helper()
	b.run(chromedp.EmulateViewport(390, 760, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
	tellBrowser(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: "light"}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func (n *newcomer) pairsThePhone() {
	n.phone.fill("Name of this device", "My phone")
	n.phone.tap("Connect")
	n.phone.see("Approve this device")
	n.desk.fill("Code shown on the device", shownCode.FindString(n.phone.text()))
	n.desk.press("Find the request")
	n.desk.see("Tools it may offer")
	n.desk.press("Approve")
	n.desk.see("The device is paired")
	n.phone.see("Connected", "No agent does anything here")
	n.phone.fits("the device page", 390)
	n.phone.docPicture("device-page")
	n.desk.press("Devices")
	n.desk.see("My phone", "2 of 2 connected")
}

func (n *newcomer) createsAKey() (key string) {
	n.desk.press("Access")
	n.desk.press("Keys")
	n.desk.press("Create a key")
	n.desk.fill("Name", "my agent")
	n.desk.press("Create a key")
	n.desk.see("This is the only time")
	key = eval[string](n.desk, `document.querySelector(".secret").innerText.trim()`)
	n.desk.press("I have stored it")
	return key
}

// approvesTheAgentsCall has the console open on the phone, as the call comes. Then one tap allows it.
func (n *newcomer) approvesTheAgentsCall(key string) {
	n.hand = &adminStage{pageBrowser: n.phone.another(), url: strings.TrimSuffix(n.link, "/console/"), finger: true}
	n.hand.handheld()
	n.hand.view("/approvals")
	n.hand.fill("Key or token", n.token)
	n.hand.press("Sign in")
	n.hand.see("Nothing waits for a decision")
	agent := start(n, nil, "sh", "-c", n.export+"\nexport FARHAND_TOKEN="+key+`
		curl -sS --max-time 60 --cacert "$FARHAND_CA" -H "Authorization: Bearer $FARHAND_TOKEN" -H content-type:application/json \
			-d '{"args":{}}' "$FARHAND_URL/api/tools/camera_snap/call"`)
	n.hand.see("camera_snap", "my agent", "My phone")
	n.hand.fits("a request on a phone", 390)
	n.hand.until("the buttons are armed", `![...document.querySelectorAll(".decide button")].some(e => e.ariaDisabled === "true")`)
	n.hand.docPicture("console-approval")
	n.hand.click("Allow once")
	n.hand.see("Allowed. The call runs.")
	code := agent.exit(n)
	var reply toolReply
	if err := json.Unmarshal([]byte(agent.out.String()), &reply); err != nil || code != 0 || !reply.Success ||
		len(reply.Parts) != 1 || !strings.HasPrefix(reply.Parts[0].MIME, "image/") {
		n.Fatalf("the agent ends with %d and gets %.2000s (%v)\n%s", code, agent.out, err, n.phone.text())
	}
}

// seesThePicture opens the call in the console, which was listed as it ran.
func (n *newcomer) seesThePicture() {
	n.desk.press("Calls")
	n.desk.press("camera_snap")
	n.desk.see("Succeeded", "Timeline", "my agent")
	n.desk.until("the picture", `document.querySelector("figure img")?.naturalWidth > 100`)
	n.desk.docPicture("console-call")
}
