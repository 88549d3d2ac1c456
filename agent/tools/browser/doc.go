// Package browser is the tool browser: a real Chromium, driven over a pipe, whose whole traffic goes through a proxy of
// the gateway (package internal/egress).
//
// Each agent session has a browser process and a profile of its own. Browsers owns them all; start reading at New. A
// browser (browser.go) has tabs (tab.go); what a model sees of a page is in snapshot.go, what it does to one in act.go.
package browser
