// Package web serves the pages for people: the console and the device page. Their sources are in src/, their built form
// in dist/, which is part of the program. `make web` builds it, and TestDistIsCurrent says when it is out of date.
//
// The pages hold no data. They read everything from the HTTP API with the credential of the person who uses them, so
// they need none to load. Their headers are in policy.go.
package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// Names of the pages in dist.
const (
	consolePage = "console/index.html"
	devicePage  = "device/index.html"
	canvasFrame = "device/canvas.html" // in a frame of the device page
)

// Pages serves the pages. It is safe for concurrent use. A file is compressed when it is first requested, and then
// kept.
type Pages struct {
	files   map[string]*file // by name in dist
	paths   []string
	connect func(ctx context.Context) (origin string)
}

// file is a file of dist. Its content is read when it is first requested.
type file struct {
	header  map[string]string
	content func() content
}

type content struct {
	plain, compressed []byte // compressed is nil if that is not shorter by much
	tag               string
}

// New returns the pages of this build. connect returns an origin that the console may connect to besides its own, or
// "". It is called whenever the console is loaded. nil: there is none.
func New(connect func(ctx context.Context) (origin string)) *Pages {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name above is wrong
	}
	p := &Pages{files: make(map[string]*file), connect: connect, paths: []string{
		"/console", "/console/*view", "/device", "/device/canvas", "/assets/:file",
	}}
	_ = fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, _ error) error { // what is embedded can be read
		if entry.IsDir() {
			return nil
		}
		p.files[name] = &file{
			header: headersOf(name), content: sync.OnceValue(func() content { return read(built, name) }),
		}
		if !strings.Contains(name, "/") {
			p.paths = append(p.paths, "/"+name)
		}
		return nil
	})
	return p
}

func read(built fs.FS, name string) content {
	text, _ := fs.ReadFile(built, name) // what is embedded can be read
	sum := sha256.Sum256(text)
	c := content{plain: text, tag: base64.RawURLEncoding.EncodeToString(sum[:15])}
	if compressible(name) && len(text) >= minCompressed {
		c.compressed = compress(text)
	}
	return c
}

// minCompressed is the length of the shortest file that is compressed, in bytes. Others fit one TCP segment anyway.
const minCompressed = 1400

// compressible reports whether the content of a file is text. Pictures are compressed already.
func compressible(name string) bool { return path.Ext(name) != ".png" }

func compress(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only for a level that does not exist
	_, _ = w.Write(text)                                  // writing to a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// Paths returns the paths of the pages: exact ones, and ones that end with a parameter in gin's form. They do not
// change.
func (p *Pages) Paths() []string { return slices.Clone(p.paths) }

// Serve answers a GET or HEAD request for one of Paths, and reports whether there is such a file. If not, it has
// written nothing. Every path below /console/ is the console, so each of its views has an address.
func (p *Pages) Serve(w http.ResponseWriter, r *http.Request) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "console":
		http.Redirect(w, r, "/console/", http.StatusPermanentRedirect)
		return true
	case strings.HasPrefix(name, "console/"):
		name = consolePage
	case name == "device":
		name = devicePage
	case name == "device/canvas":
		name = canvasFrame
	}
	f, ok := p.files[name]
	if !ok {
		return false
	}
	origin := ""
	if name == consolePage && p.connect != nil {
		origin = p.connect(r.Context())
	}
	f.serve(w, r, origin)
	return true
}

// serve writes the file. Its script may connect to an origin besides its own, unless that is empty.
func (f *file) serve(w http.ResponseWriter, r *http.Request, origin string) {
	header, c := w.Header(), f.content()
	for name, value := range f.header {
		header.Set(name, value)
	}
	if origin != "" {
		header.Set("Content-Security-Policy", connecting(origin))
		// After a 304, browsers keep the policy of the copy that they have, so another policy is another page.
		c.tag += "-" + base64.RawURLEncoding.EncodeToString([]byte(origin))
	}
	body, tag := c.plain, `"`+c.tag+`"`
	if c.compressed != nil {
		header.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header) {
			body, tag = c.compressed, `"`+c.tag+`-gzip"`
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", tag)
	if slices.ContainsFunc(strings.Split(r.Header.Get("If-None-Match"), ","), func(known string) bool {
		return strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag
	}) {
		header.Del("Content-Encoding")
		header.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // on failure the client is gone
	}
}

// acceptsGzip reads the form of Accept-Encoding that browsers send. Other clients may get the longer form.
func acceptsGzip(header http.Header) bool {
	for coding := range strings.SplitSeq(header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(coding) == "gzip" {
			return true
		}
	}
	return false
}

// Headers that keep other origins from using the pages, and the pages from using other origins. docs/security.md says
// what each is for.
var (
	// contentPolicy has the rules of all files but the canvas. blob: and data: are for results of tools: pictures,
	// sounds and videos. The policies of trusted types are DOMPurify's and farhand, which admits workers: the device
	// page's service worker and, also in the console, every /assets/*.js.
	contentPolicy = strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob: data:",
		"media-src 'self' blob: data:", "connect-src 'self'", "manifest-src 'self'", "worker-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
		"trusted-types dompurify farhand",
	}, "; ")

	// canvasPolicy is for the document in which agents draw and run code. Its origin is opaque, so it has no storage
	// and no rights at the gateway. Only the device page may frame it. It connects to nothing; pictures and framed
	// pages may come from elsewhere.
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
