package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// firefoxStage is a pod, and a person who uses both of its pages in Firefox.
type firefoxStage struct {
	*pageBrowser
	console *consoleStage
	admin   *adminStage
	phone   *phoneStage
}

// TestFirefox uses the console and the device page as a person would, in a second engine. It takes steps of
// TestConsole, TestConsoleAdmin and TestDevicePage, with one pod and one tab.
func TestFirefox(t *testing.T) {
	t.Parallel()
	s := &firefoxStage{admin: &adminStage{}}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(adminPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, append(agentSettings(providerOpenAI, scripted.OpenAIFunc(t, s.admin.model)),
		"FARHAND_POLICY_FILE="+policy, "FARHAND_WORKSPACE_DIR="+t.TempDir(), "FARHAND_BLOB_URL=file://"+t.TempDir())...)
	s.pageBrowser = startFirefox(t)
	network := startFaultProxy(t, strings.TrimPrefix(p.url, "http://"))
	url := "http://" + network.Listen
	s.console = &consoleStage{pageBrowser: s.pageBrowser, gateway: p.url, url: url, network: network, pods: []*pod{p}}
	s.admin.pageBrowser, s.admin.url, s.admin.pods = s.pageBrowser, url, s.console.pods
	s.phone = &phoneStage{pageBrowser: s.pageBrowser, balancer: p.url, url: url, network: network, pods: s.console.pods}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"sign in", s.console.signIn}, {"devices, tools and calls", s.callTools}, {"approvals", s.approvals},
		{"chat", s.admin.chat}, {"pair", s.phone.pairing}, {"questions", s.phone.questions}, {"powers", s.powers},
		{"reload", s.phone.reload}, {"network", s.phone.networkFails}, {"without network", s.phone.offline},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.TB = t; step.do(); s.quiet() }) {
			s.TB = t
			s.picture("failed")
			t.Fatalf("the other steps need this one\n%s", s.text())
		}
	}
}

func (s *firefoxStage) callTools() {
	leave := connectDevice(s.parentTB, s.console.gateway, "anna", s.console.phone()...)
	s.see("Anna's phone", "room=kitchen", "1 of 1 connected")
	s.console.oneDevice()
	s.console.tryTool()
	s.console.results()
	s.open(s.console.url + "/console/calls")
	s.see("camera_snap", "broken", "Succeeded", "Failed")
	s.press("status")
	s.see("Timeline", "Accepted", "battery: ", "Decisions", "allows it by default")
	leave()
}

func (s *firefoxStage) approvals() {
	s.admin.connect()
	status, raw := request(s, http.MethodPost, s.console.url+"/api/keys",
		`{"name":"robot","user_id":"bob","roles":["caller"]}`)
	var made struct{ Key string }
	if err := json.Unmarshal(raw, &made); err != nil || status != http.StatusCreated {
		s.Fatal(status, string(raw))
	}
	s.admin.robot = made.Key
	s.admin.always()
	s.admin.deny()
}

// powers: what the browser has and lets the page use.
func (s *firefoxStage) powers() {
	s.phone.works("show", `{"title":"Meeting point","latitude":48.2083,"longitude":16.3731}`)
	s.see("Meeting point", "48.20830, 16.37310")
	if r := s.phone.works("location_get", `{}`); !strings.Contains(r.Output, `"latitude":48.2083`) {
		s.Errorf("located: %s", r.Output)
	}
	s.phone.tap("Sensors")
	s.phone.denied()
}
