package browser

import "fmt"

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
