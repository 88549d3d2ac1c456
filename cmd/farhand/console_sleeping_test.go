package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// sleepingDevice is listed with its tools while it is away, and with what wakes it. A call waits in its queue, can be
// cancelled there, and runs when the device connects.
func (s *consoleStage) sleepingDevice() {
	_, made := request(s, http.MethodPost, s.url+"/api/keys",
		`{"name":"ben's tablet","user_id":"ben","roles":["device"]}`)
	var key struct{ Key string }
	if err := json.Unmarshal(made, &key); err != nil {
		s.Fatal(err)
	}
	connect := func() func() {
		return connectDevice(s.parent(), s.gateway, "tablet", echoTool(), client.WithToken(key.Key),
			client.WithDevice("tablet", "Ben's tablet", "android"))
	}
	leave := connect()
	s.open(s.url + "/console/devices?show=sleeping")
	s.gone("Ben's tablet")
	leave()
	s.press("Ben's tablet sleeping")
	s.see("Sleeping", "Queue (0)", "No call waits for this device", "Woken by", "Nothing. Queued calls wait",
		"ben has none", "returns its arguments")
	pushed := make(chan struct{}, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pushed <- struct{}{} }))
	s.parent().Cleanup(hook.Close)
	from := time.Now().UTC().Add(12 * time.Hour) // not now
	const clock = "15:04"
	begin, end := from.Format(clock), from.Add(time.Minute).Format(clock)
	wake := `{"kind":"webhook","url":"` + hook.URL + `","min_interval_ms":3600000,` +
		`"quiet":{"from":"` + begin + `","to":"` + end + `","zone":""}}`
	status, text := request(s, http.MethodPut, s.url+"/api/devices/tablet/wake", wake)
	if status != http.StatusOK {
		s.Fatalf("%d %s", status, text)
	}
	s.openAgain()
	s.see("Webhook at "+strings.TrimPrefix(hook.URL, "http://"), begin+"–"+end+" UTC")
	s.gone("Last push")
	s.press("Make it the default")
	s.see("Calls to ben go to this device")
	s.press("echo returns its arguments")
	s.see("The device sleeps")
	s.press("Queue the call")
	s.see("Waits for its device at place 1", "It expires in", "Queued")
	s.openAgain()
	s.see("Waits for its device at place 1") // the address has the call
	s.picture("queued-1280-light")
	testkit.Receive(s, "the push", pushed)
	s.press("Ben's tablet")
	s.see("Queue (1)", "Woken by", "Last push")
	s.gone("Last error")
	s.accessible("a queue")
	s.picture("queue-1280-light")
	s.press("Cancel call")
	s.see("Queue (0)")
	s.press("Stop waking it")
	s.see("The gateway forgets how to wake this device")
	s.press("Stop waking it") // in the dialog
	s.see("Nothing. Queued calls wait")
	s.press("echo returns its arguments")
	for _, place := range []string{"1", "2"} {
		s.press("Queue the call")
		s.see("Waits for its device at place " + place)
	}
	connect()
	s.see("Succeeded", "Call again")
	s.gone("The device sleeps")
}

// groupCall calls a tool of several devices from the page of one of them.
func (s *consoleStage) groupCall() {
	s.open(s.url + "/console/devices/lamp-1/tools/echo")
	s.fill("Devices", "label:room")
	s.press("Call the devices")
	s.see("Devices that were called (3)", "Lamp 1", "Lamp 3", "Lamp 5", "Devices: 3 · Succeeded: 3")
	s.accessible("a group call")
	s.picture("group-1280-light")
	s.size(360, "light")
	s.fits("a group call", 360)
	s.size(1280, "light")
	s.press("Open the group call")
	s.see("call_devices", "Group call", "Devices: 3 · Succeeded: 3")
	s.press("Calls of the devices")
	s.see("3 finished calls", "Lamp 5")
}
