package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

var rounds = flag.Int("rounds", 3, "how often TestPodsRestart stops each pod")

// outcome is a line of testdata/restarts.py: what a call of the tool count returned or raised.
type outcome struct {
	N          string `json:"n"`
	OK         bool   `json:"ok"`
	Output     string `json:"output"`
	Code       string `json:"code"`
	Dispatched string `json:"dispatched"`
	Detail     string `json:"detail"`
}

// ledger compares what calls of the tool count returned with how often the tool ran.
type ledger struct {
	mu       sync.Mutex
	ran      map[string]int
	outcomes map[string]outcome
}

func newLedger() *ledger { return &ledger{ran: map[string]int{}, outcomes: map[string]outcome{}} }

// count is the tool count.
func (l *ledger) count(_ context.Context, call client.Call) (any, error) {
	var args struct{ N string }
	if err := call.Bind(&args); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[args.N]++
	return "counted " + args.N, nil
}

// read notes an outcome, and reports whether the call succeeded.
func (l *ledger) read(t *testing.T, line string) bool {
	t.Helper()
	var o outcome
	must(t, json.Unmarshal([]byte(line), &o))
	if _, again := l.outcomes[o.N]; again {
		t.Errorf("the call %s ended twice", o.N)
	}
	l.outcomes[o.N] = o
	return o.OK
}

// succeed reads outcomes until n calls have succeeded.
func (l *ledger) succeed(t *testing.T, p *program, n int) {
	t.Helper()
	for n > 0 {
		line := testkit.Receive(t, "an outcome", p.lines)
		if line == "" {
			t.Fatal("the program ended")
		}
		if l.read(t, line) {
			n--
		}
	}
}

// judge waits for the end of the program. No call ran twice; answers belong to their calls; failures are true.
func (l *ledger) judge(t *testing.T, p *program) {
	t.Helper()
	for _, line := range p.end(t) {
		l.read(t, line)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	failures := map[string]int{}
	for n, o := range l.outcomes {
		switch times := l.ran[n]; {
		case times > 1:
			t.Errorf("the call %s ran %d times", n, times)
		case o.OK && (times != 1 || o.Output != "counted "+n):
			t.Errorf("the call %s succeeded with %q and ran %d times", n, o.Output, times)
		case !o.OK && (o.Dispatched == "" || o.Dispatched == "no" && times != 0):
			t.Errorf("the call %s failed with %+v and ran %d times", n, o, times)
		}
		if !o.OK {
			failures[o.Code+" "+o.Dispatched]++
		}
	}
	t.Logf("%d calls; failures: %v", len(l.outcomes), failures)
}

var kinds = []string{"async", "sync"}

// TestPodsRestart calls through two pods that are killed and drained in turns.
func TestPodsRestart(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pods, l := startPods(t, 2, "FARHAND_SESSION_TTL=6s", "FARHAND_DRAIN_TIMEOUT=3s"), newLedger()
			through := startBalancer(t, pods...)
			startDevice(t, through.url, "phone", tool("count", "Count.", `{"type":"object"}`, l.count))
			p := python(t, clientEnv(through.url), "testdata/restarts.py", kind)
			for round := range *rounds {
				for i, stopped := range pods {
					signal := syscall.SIGKILL
					if (round+i)%2 == 1 {
						signal = syscall.SIGTERM
					}
					l.succeed(t, p, 50)
					stopped.stop(signal)
					l.succeed(t, p, 50)
					stopped.start(t)
				}
			}
			l.judge(t, p)
		})
	}
}

// TestLostAnswers breaks the connection in place of each second answer, after the pod has given it: the client asks
// again, and the call runs once.
func TestLostAnswers(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pods, l := startPods(t, 1), newLedger()
			url := "http://" + pods[0].addr
			startDevice(t, url, "phone", tool("count", "Count.", `{"type":"object"}`, l.count))
			target, err := neturl.Parse(url)
			must(t, err)
			var answers atomic.Int64
			proxy := &httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
				ModifyResponse: func(*http.Response) error {
					if answers.Add(1)%2 == 1 {
						return errors.New("the test loses this answer")
					}
					return nil
				},
				ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			}
			server := httptest.NewServer(proxy)
			t.Cleanup(server.Close)
			p := python(t, clientEnv(server.URL), "testdata/restarts.py", kind)
			l.succeed(t, p, 100)
			l.judge(t, p)
			for n, o := range l.outcomes {
				if !o.OK {
					t.Errorf("the call %s failed: %+v", n, o)
				}
			}
		})
	}
}

// TestCancel: a task that is cancelled, a deadline and Ctrl-C cancel the call at the device.
func TestCancel(t *testing.T) {
	t.Parallel()
	pods := startPods(t, 1)
	began, cancelled := make(chan struct{}, 16), make(chan struct{}, 16)
	startDevice(t, "http://"+pods[0].addr, "phone", tool("wait", "Wait for the end of the call.", `{"type":"object"}`,
		func(ctx context.Context, _ client.Call) (any, error) {
			began <- struct{}{}
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, ctx.Err()
		}))
	for _, how := range []string{"cancel", "timeout", "interrupt", "deadline"} {
		p := python(t, clientEnv("http://"+pods[0].addr), "testdata/cancel.py", how)
		testkit.Receive(t, how+": the call begins", began)
		switch how {
		case "interrupt":
			must(t, p.process.Signal(os.Interrupt)) // Ctrl-C
		case "cancel", "timeout":
			_, err := p.stdin.Write([]byte("stop\n"))
			must(t, err)
		}
		testkit.Receive(t, how+": the handler ends", cancelled)
		lines := p.end(t)
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "ended: ") {
			t.Errorf("%s: %q", how, lines)
		}
	}
}
