package web

import (
	"path"
	"strings"
)

// Headers that keep other origins from using the pages, and the pages from using other origins. docs/security.md says
// what each is for.
var (
	// contentPolicy has the rules of all files but the canvas. blob: and data: are for results of tools: pictures, sounds
	// and videos. The policies of trusted types are DOMPurify's and farhand, which admits workers: the device page's
	// service worker and, also in the console, every /assets/*.js.
	contentPolicy = strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob: data:",
		"media-src 'self' blob: data:", "connect-src 'self'", "manifest-src 'self'", "worker-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
		"trusted-types dompurify farhand",
	}, "; ")

	// canvasPolicy is for the document in which agents draw and run code. Its origin is opaque, so it has no storage and
	// no rights at the gateway. Only the device page may frame it. It connects to nothing; pictures and framed pages may
	// come from elsewhere.
	canvasPolicy = strings.Join([]string{
		"sandbox allow-scripts allow-forms", "default-src 'none'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
		"style-src 'self' 'unsafe-inline'", "img-src https: blob: data:", "media-src https: blob: data:",
		"font-src data:", "frame-src https: http:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'self'",
	}, "; ")

	// powers are what a browser lets a page use. The device page offers them as tools.
	powers = []string{
		"accelerometer", "camera", "clipboard-read", "clipboard-write", "display-capture", "geolocation", "gyroscope",
		"magnetometer", "microphone", "screen-wake-lock", "web-share",
	}
	denied = []string{"payment", "usb", "serial", "hid", "bluetooth", "midi", "publickey-credentials-get"}
)

// connecting returns contentPolicy for a page that may also connect to an origin.
func connecting(origin string) string {
	return strings.Replace(contentPolicy, "connect-src 'self'", "connect-src 'self' "+origin, 1)
}

// types are the kinds of files that dist has. What the system knows about extensions differs from machine to machine.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json",
}

// headersOf returns the headers of a file of dist that do not depend on its content.
func headersOf(name string) map[string]string {
	header := map[string]string{
		"Content-Type":                 types[path.Ext(name)],
		"Cache-Control":                "no-cache",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Content-Security-Policy":      contentPolicy,
	}
	if strings.HasPrefix(name, "assets/") { // their names have a hash of the content
		header["Cache-Control"] = "public, max-age=31536000, immutable"
		header["Access-Control-Allow-Origin"] = "*" // for the canvas, whose origin is opaque
	}
	if name == canvasFrame {
		header["Content-Security-Policy"] = canvasPolicy
		header["Permissions-Policy"] = permissions(name)
		return header
	}
	if name == devicePage {
		header["Content-Security-Policy"] += "; frame-src 'self'"
	}
	if path.Ext(name) == ".html" {
		header["Cross-Origin-Opener-Policy"] = "same-origin"
		header["X-Frame-Options"] = "DENY"
		header["X-DNS-Prefetch-Control"] = "off" // or a link that a model writes says something to a name server
		header["Permissions-Policy"] = permissions(name)
	}
	return header
}

// permissions returns the Permissions-Policy of a page. The console needs only to copy text, the canvas nothing.
func permissions(page string) string {
	var rules []string
	for _, name := range powers {
		allowed := "()"
		if page == devicePage || page == consolePage && name == "clipboard-write" {
			allowed = "(self)"
		}
		rules = append(rules, name+"="+allowed)
	}
	for _, name := range denied {
		rules = append(rules, name+"=()")
	}
	return strings.Join(rules, ", ")
}
