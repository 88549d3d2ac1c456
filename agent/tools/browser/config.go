// Package browser implements the tool browser: a real Chromium, controlled over a pipe. All its traffic goes through a
// proxy of the gateway (package internal/egress).
//
// Each agent session has its own browser process and profile. Browsers owns all of them; start reading at New. A
// browser (chromium.go) has tabs (tab.go). snapshot.go builds what a model sees of a page, and act.go what it does to
// one.
package browser

import (
	"fmt"
	"time"

	"github.com/farhand/farhand/internal/egress"
)

// Config configures Browsers.
type Config struct {
	// Dir is the folder for profiles. Each profile has its own subfolder. Required.
	Dir string

	// Program is the absolute path of Chromium. If empty, the usual paths are searched.
	Program string

	// NoSandbox runs Chromium without its own sandbox. It is needed if the gateway runs as root, or if the kernel
	// grants it no user namespaces. A page that exploits Chromium then has the rights of the gateway's user.
	NoSandbox bool

	MaxBrowsers int           // concurrent; default 8
	MaxTabs     int           // per browser; default 8
	Idle        time.Duration // a browser that is unused for so long is ended; default 10 min
	Evict       time.Duration // idle time after which another session may evict it; default 1 min

	// Memory is the limit for all processes of one browser together, in bytes. A browser that exceeds it is ended.
	// Default: 2 GiB.
	Memory int64

	// Egress configures which addresses pages may come from, and their traffic limits.
	Egress egress.Config
}

const (
	defaultBrowsers = 8
	defaultTabs     = 8
	defaultIdle     = 10 * time.Minute
	defaultEvict    = time.Minute
	defaultMemory   = 2 << 30

	measureEvery  = 500 * time.Millisecond // interval of memory checks
	startTimeout  = 20 * time.Second       // for Chromium to answer
	attachTimeout = 15 * time.Second       // for a new tab to answer
	loadTimeout   = 20 * time.Second       // of a page; then the model gets what is loaded
	settleTimeout = 5 * time.Second        // of a page after an act
	askingTimeout = 2 * time.Second        // for further requests of a loaded page
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

// arguments returns Chromium's arguments for a profile and a proxy.
func arguments(cfg Config, profile, proxy string) []string {
	args := []string{
		profileFlag + profile, "--remote-debugging-pipe", "--headless=new",
		fmt.Sprintf("--window-size=%d,%d", windowWidth, windowHeight),

		// All traffic goes through the proxy, including that for this machine, and only the proxy resolves names.
		"--proxy-server=http://" + proxy, "--proxy-bypass-list=<-loopback>",
		"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-quic", "--dns-prefetch-disable",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",

		// Chromium must not send requests of its own.
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
		"--disable-crash-reporter",
		"--disable-domain-reliability", "--disable-client-side-phishing-detection",
		"--disable-default-apps", "--disable-extensions", "--disable-field-trial-config", "--no-pings",
		"--no-service-autorun", "--metrics-recording-only", "--disable-search-engine-choice-screen",
		"--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater," +
			"DialMediaRouteProvider,InterestFeedContentSuggestions,MediaRouter,OptimizationHints,Translate," +
			"AsyncDns,DnsOverHttpsUpgrade",

		// The browser has no user.
		"--no-first-run", "--no-default-browser-check", "--deny-permission-prompts", "--disable-notifications",
		"--disable-print-preview", "--disable-prompt-on-repost", "--disable-hang-monitor", "--mute-audio",
		"--hide-scrollbars", "--password-store=basic", "--use-mock-keychain", "--disable-gpu", "--disable-speech-api",

		// Limits of what pages take of this machine.
		"--renderer-process-limit=4", "--js-flags=--max-old-space-size=512", "--disk-cache-size=33554432",
		"--disable-dev-shm-usage",
	}
	if cfg.NoSandbox {
		args = append(args, "--no-sandbox")
	}
	return append(args, "about:blank")
}

// environment returns Chromium's whole environment. TMPDIR is relative to its working directory, so that the paths of
// its sockets do not get too long.
func environment(profile string) []string {
	return []string{
		"HOME=" + profile, "TMPDIR=/proc/self/cwd/" + tempDir, "XDG_CONFIG_HOME=" + profile,
		"XDG_CACHE_HOME=" + profile, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC",
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/dev/null",
	}
}
