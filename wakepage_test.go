package farhand_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/internal/chromiumtest"
	"github.com/farhand/farhand/internal/pushtest"
	"github.com/farhand/farhand/internal/testkit"
)

// asPerson makes the page one that a person has named and started, with a subscription of a scripted push service:
// Chromium's own is in the Internet.
const asPerson = `
localStorage.setItem("farhand device name", '"Phone"');
localStorage.setItem("farhand device stopped", "false");
PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
  window.subscribedWith = applicationServerKey;
  return { toJSON: () => ({ endpoint: %q, keys: { p256dh: %q, auth: %q } }) };
};`

// TestPushOpensTheDevicePage: a device page is closed. A push, encrypted for its subscription, reaches its service
// worker, which shows what is asked. A tap opens the page, which connects and answers the call.
func TestPushOpensTheDevicePage(t *testing.T) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	subscription, pushed := pushtest.NewSubscription(), make(chan string, 8)
	var service *httptest.Server
	service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := subscription.Open(r, public, service.URL)
		if err != nil {
			t.Error(err)
		}
		pushed <- string(p.Text)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(service.Close)
	url := anonymous(t, wake.Settings{
		VAPIDKey:     farhand.Secret(base64.RawURLEncoding.EncodeToString(key.Bytes())),
		VAPIDSubject: "mailto:ops@example.com",
	})
	p256dh, auth := subscription.Keys()
	b := &wakeBrowser{T: t, url: url, script: fmt.Sprintf(asPerson, service.URL+"/push/1", p256dh, auth)}
	b.start()

	tab, closeTab := b.open(url + "/device")
	var id string
	testkit.Eventually(t, "the page registers", func() bool {
		id = evaluate[string](t, tab, `JSON.parse(localStorage.getItem("farhand device id") ?? '""')`)
		status, _ := send(t, url+"/api/devices/"+id+"/wake", "", "")
		return status == http.StatusOK
	})
	if with := evaluate[string](t, tab, "window.subscribedWith"); with != public {
		t.Errorf("subscribed with %s, want %s", with, public)
	}
	testkit.Eventually(t, "the service worker is active", func() bool {
		return evaluate[bool](t, tab, `navigator.serviceWorker.controller !== null`)
	})
	closeTab()
	testkit.Eventually(t, "the device sleeps", func() bool {
		_, text := send(t, url+"/api/sessions?device_id="+id, "", "")
		return !strings.Contains(text, id)
	})

	status, answer := send(t, url+"/api/tools/battery/call", `{"target":{"device_id":"`+id+
		`"},"queue":{"ttl_ms":60000}}`, "")
	var queued struct {
		CallID string `json:"call_id"`
	}
	if err := json.Unmarshal([]byte(answer), &queued); err != nil || status != http.StatusAccepted {
		t.Fatalf("queue the call: %d %s", status, answer)
	}
	text := testkit.Receive(t, "the push", pushed)
	var m struct{ Type string }
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Type != "device.wake" ||
		strings.Contains(text, "tools") {
		t.Errorf("push %s, %v", text, err)
	}
	b.deliver(text)
	path := b.tap()
	if path != "/device" {
		t.Fatalf("a tap opens %q", path)
	}
	_, closeTab = b.open(url + path)
	defer closeTab()
	testkit.Eventually(t, "an answer", func() bool {
		_, text := send(t, url+"/api/calls/"+queued.CallID+"?wait_ms=5000", "", "")
		return strings.Contains(text, "charging")
	})
	if len(pushed) > 0 {
		t.Errorf("another push: %s", <-pushed)
	}
}

// anonymous returns a gateway that needs no credential.
func anonymous(t *testing.T, settings wake.Settings) string {
	t.Helper()
	g, err := farhand.New(t.Context(), farhand.Config{
		Wake: settings, ToolsConfig: farhand.ToolsConfig{PrivateURLs: true},
	}, quiet, farhand.WithProgram(self))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		server.Close()
	})
	return server.URL
}

// call sends a command of Chromium's protocol to a tab.
func call[P, R any](t *testing.T, tab context.Context, method cdp.Command[P, R], params P) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, limit)
	defer cancel()
	if _, err := chromedp.Call(ctx, method, params); err != nil {
		t.Fatal(err)
	}
}

// evaluate returns the value of an expression, which may be a promise.
func evaluate[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

// wakeBrowser is a Chromium whose tabs come and go.
type wakeBrowser struct {
	*testing.T
	url, script  string
	ctx          context.Context
	registration atomic.Value // serviceworker.RegistrationID
}

func (b *wakeBrowser) start() {
	b.ctx = chromiumtest.Start(b)
	err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*serviceworker.EventWorkerRegistrationUpdated); ok {
			for _, r := range e.Registrations {
				if !r.IsDeleted {
					b.registration.Store(r.RegistrationID)
				}
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	call(b.T, b.ctx, serviceworker.Enable, cdp.Empty{})
	call(b.T, b.ctx, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingGranted,
		Origin: b.url,
	})
}

// open opens a tab. The returned function closes it.
func (b *wakeBrowser) open(url string) (tab context.Context, closeTab func()) {
	b.Helper()
	tab, end := chromedp.NewContext(b.ctx)
	if err := chromedp.Do(tab); err != nil { // the tab lives as long as this context
		b.Fatal(err)
	}
	call(b.T, tab, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: b.script})
	if err := chromedp.Do(tab, chromedp.Navigate(url)); err != nil {
		b.Fatal(err)
	}
	return tab, func() { _ = chromedp.Cancel(tab); end() }
}

// deliver gives the service worker a push, as the browser's own push service would, until its notification is there.
// Chromium loses a push, and does not answer, while the process of the worker ends with that of the page.
func (b *wakeBrowser) deliver(text string) {
	b.Helper()
	testkit.Eventually(b, "the registration", func() bool { return b.registration.Load() != nil })
	tab, closeTab := b.open(b.url + "/icon.svg") // of the same origin, and no device
	defer closeTab()
	testkit.Eventually(b, "the notification", func() bool {
		call(b.T, b.ctx, serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{
			Origin: b.url, RegistrationID: b.registration.Load().(serviceworker.RegistrationID), Data: text,
		})
		return evaluate[string](b.T, tab, `(async () => {
			const worker = await navigator.serviceWorker.getRegistration("/device");
			const late = new Promise((resolve) => setTimeout(resolve, 1000, []));
			const [shown] = await Promise.race([worker.getNotifications(), late]);
			return shown ? shown.title + ": " + shown.body : "";
		})()`) == "An agent needs this device: Tap to answer."
	})
}

// tap taps the notification, and returns the path that it opens. A test has no finger, so the window is not opened.
func (b *wakeBrowser) tap() (path string) {
	b.Helper()
	testkit.Eventually(b, "a tap", func() bool {
		call(b.T, b.ctx, serviceworker.StartWorker, serviceworker.StartWorkerParams{ScopeURL: b.url + "/device"})
		path = b.tapOnce()
		return path != ""
	})
	return path
}

// tapOnce taps in the worker that runs, which may stop meanwhile.
func (b *wakeBrowser) tapOnce() string {
	targets, err := chromedp.Targets(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	for _, info := range targets {
		if info.Type != "service_worker" {
			continue
		}
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
		defer cancel()
		worker, end := chromedp.NewContext(ctx, chromedp.WithTargetID(info.TargetID))
		defer end()
		path, err := chromedp.Run(worker, chromedp.Evaluate[string](`new Promise(async (resolve) => {
			clients.openWindow = async (path) => resolve(path);
			const [notification] = await registration.getNotifications();
			dispatchEvent(new NotificationEvent("notificationclick", { notification }));
		})`, chromedp.EvalAwaitPromise))
		if err == nil {
			return path
		}
		b.Logf("tap again: %v", err)
	}
	return ""
}
