package main

import (
	"fmt"
	"syscall"

	"github.com/farhand/farhand/ws/client"
)

// views are the addresses that look and reach are tested at.
func (s *consoleStage) views() map[string]string {
	var calls struct {
		Calls []struct {
			CallID string `json:"call_id"`
			Tool   string
		}
	}
	getJSON(s, s.url+"/api/calls?tool=stubborn", &calls)
	return map[string]string{
		"fleet": "/console/devices?group=label%3Aroom", "sleeping": "/console/devices/short",
		"device": "/console/devices/anna", "tool": "/console/devices/anna/tools/camera_snap", "tools": "/console/tools",
		"calls": "/console/calls", "call": "/console/calls/" + calls.Calls[0].CallID,
	}
}

const nextFrame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"

// looks holds each view to its space, in both themes.
func (s *consoleStage) looks() {
	ready := map[string]string{
		"fleet": "Lamp 5", "sleeping": "No call waits", "device": "All calls", "tool": "Facing",
		"tools": "Gateway's tools", "calls": "echo", "call": "better late",
	}
	for view, path := range s.views() {
		s.open(s.url + path)
		s.see(ready[view])
		for _, width := range s.widths(360, 1280, 2560, 3840) {
			for _, theme := range []string{"light", "dark"} {
				if theme == "dark" && width != 1280 && !s.takesPictures() {
					continue // a theme has the same layout
				}
				s.size(width, theme)
				s.until("a layout", nextFrame)
				s.fits(view, width)
				s.picture(fmt.Sprintf("%s-%d-%s", view, width, theme))
				if width == 360 || width == 1280 {
					s.accessible(fmt.Sprintf("%s at %d px, %s", view, width, theme))
				}
			}
		}
	}
	s.size(1280, "light")
	s.open(s.url + "/console/devices?group=label:room")
	s.see("Lamp 5")
	s.docPicture("console-devices")
	s.size(1280, "light")
}

// keyboard reaches everything with the key Tab.
func (s *consoleStage) keyboard() {
	for view, path := range s.views() {
		s.open(s.url + path)
		s.until("the view", `document.querySelector("h1")`)
		var missed []string
		for range 12 {
			s.tabs(20)
			missed = eval[[]string](s.pageBrowser, `[...document
				.querySelectorAll("a[href], button:enabled, input, select, textarea, summary")]
				.filter(e => e.checkVisibility() && !window.reached?.has(e)).map(e => e.outerHTML.slice(0, 90))`)
			if len(missed) == 0 {
				break
			}
		}
		for _, element := range missed {
			s.Errorf("%s: the keyboard does not reach %s", view, element)
		}
	}
}

// networkIsCut while a call runs: the page follows it again when the network is back, and misses nothing.
func (s *consoleStage) networkIsCut() {
	s.open(s.url + "/console/devices/anna/tools/patient")
	s.press("Call")
	s.see("half way", "Running", "Live")
	s.network.Stop()
	s.see("Reconnecting…")
	close(s.free)
	connectDevice(s.parent(), s.gateway, "meanwhile", echoTool(), client.WithDevice("meanwhile", "Meanwhile", ""))
	if err := s.network.Start(); err != nil {
		s.Fatal(err)
	}
	s.see("Live", "patience pays", "Succeeded")
	s.press("Farhand")
	s.see("Meanwhile")
}

// podDies: the page's stream moves to the other pod, and so do the devices.
func (s *consoleStage) podDies() {
	s.open(s.url + "/console/devices")
	s.see("Lamp 5", "Live")
	s.pods[0].signal(syscall.SIGKILL)
	<-s.pods[0].done
	s.see("Live")
	s.until("all devices are at the other pod", fmt.Sprintf(`(() => {
		const pods = [...document.querySelectorAll("[role=cell].pod")].map(e => e.innerText);
		return pods.filter(p => p === %q).length >= 7 && !pods.includes(%q);
	})()`, s.pods[1].id, s.pods[0].id))
	connectDevice(s.parent(), s.gateway, "after", echoTool(), client.WithDevice("after", "After the failure", ""))
	s.see("After the failure", "Live")
}
