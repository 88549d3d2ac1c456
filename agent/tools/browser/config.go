// Package browser is the tool browser: a real Chromium, driven over a pipe, whose whole traffic goes through a proxy of
// the gateway (package internal/egress).
//
// Each agent session has a browser process and a profile of its own. Browsers owns them all; start reading at New. A
// browser (browser.go) has tabs (tab.go); what a model sees of a page is in snapshot.go, what it does to one in act.go.
package browser

import (
	"fmt"
	"time"

	"github.com/farhand/farhand/internal/egress"
)

// Config is the settings of Browsers.
type Config struct {
	// Dir is where profiles are, in a folder of their own. Required.
	Dir string

	// Program is the absolute path of Chromium. Empty: it is looked for where systems have it.
	Program string

	// NoSandbox runs Chromium without its own sandbox. That is needed if the gateway is root or the kernel gives it no
	// user namespaces; a page that breaks out of Chromium is then the gateway's own user.
	NoSandbox bool

	MaxBrowsers int           // at once; default 8
	MaxTabs     int           // of one browser; default 8
	Idle        time.Duration // after which a browser that nobody uses is ended; default 10 min
	Evict       time.Duration // after which it may be ended for another session's; default 1 min

	// Memory is how many bytes the processes of one browser may take together; default 2 GiB. A browser that takes more
	// is ended.
	Memory int64

	// Egress says where pages may come from, and how much.
	Egress egress.Config
}

const (
	defaultBrowsers = 8
	defaultTabs     = 8
	defaultIdle     = 10 * time.Minute
	defaultEvict    = time.Minute
	defaultMemory   = 2 << 30

	weighEvery    = 500 * time.Millisecond // how often the memory of a browser is looked at
	startTimeout  = 20 * time.Second       // until Chromium answers
	attachTimeout = 15 * time.Second       // until a new tab does
	loadTimeout   = 20 * time.Second       // of a page, in the eyes of a model; what is there by then is shown
	settleTimeout = 5 * time.Second        // of a page after something was done to it
	askingTimeout = 2 * time.Second        // of what a loaded page still asks for
	quiet         = 200 * time.Millisecond

	windowWidth, windowHeight = 1280, 800
	maxMessage                = 64 << 20 // bytes of one message from Chromium
)

func (c Config) orDefaults() Config {
	if c.MaxBrowsers == 0 {
		c.MaxBrowsers = defaultBrowsers
	}
	if c.MaxTabs == 0 {
		c.MaxTabs = defaultTabs
	}
	if c.Idle == 0 {
		c.Idle = defaultIdle
	}
	if c.Evict == 0 {
		c.Evict = defaultEvict
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	return c
}

const profileFlag = "--user-data-dir="

// arguments are Chromium's, for a profile and a proxy.
func arguments(cfg Config, profile, proxy string) []string {
	args := []string{
		profileFlag + profile, "--remote-debugging-pipe", "--headless=new",
		fmt.Sprintf("--window-size=%d,%d", windowWidth, windowHeight),

		// Everything goes through the proxy, also what is for this machine, and no name is looked up but by it.
		"--proxy-server=http://" + proxy, "--proxy-bypass-list=<-loopback>",
		"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-quic", "--dns-prefetch-disable",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",

		// Chromium itself has nobody to talk to.
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
		"--disable-crash-reporter",
		"--disable-domain-reliability", "--disable-client-side-phishing-detection",
		"--disable-default-apps", "--disable-extensions", "--disable-field-trial-config", "--no-pings",
		"--no-service-autorun", "--metrics-recording-only", "--disable-search-engine-choice-screen",
		"--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater," +
			"DialMediaRouteProvider,InterestFeedContentSuggestions,MediaRouter,OptimizationHints,Translate," +
			"AsyncDns,DnsOverHttpsUpgrade",

		// Nobody sits in front of it.
		"--no-first-run", "--no-default-browser-check", "--deny-permission-prompts", "--disable-notifications",
		"--disable-print-preview", "--disable-prompt-on-repost", "--disable-hang-monitor", "--mute-audio",
		"--hide-scrollbars", "--password-store=basic", "--use-mock-keychain", "--disable-gpu", "--disable-speech-api",

		// What pages may take of this machine.
		"--renderer-process-limit=4", "--js-flags=--max-old-space-size=512", "--disk-cache-size=33554432",
		"--disable-dev-shm-usage",
	}
	if cfg.NoSandbox {
		args = append(args, "--no-sandbox")
	}
	return append(args, "about:blank")
}

// environment is all that Chromium knows of the gateway's. Its folder for temporary files is where it runs, written so
// that the path of a socket in there does not get too long.
func environment(profile string) []string {
	return []string{
		"HOME=" + profile, "TMPDIR=/proc/self/cwd/" + tempDir, "XDG_CONFIG_HOME=" + profile,
		"XDG_CACHE_HOME=" + profile, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC",
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/dev/null",
	}
}
